output "user_data" {
  description = "The script for the machine's user data. It has no secrets."
  value       = local.user_data
}

output "user_data_base64" {
  description = "The same in base64, as launch templates and Azure take it."
  value       = base64encode(local.user_data)
}

# A validation of a variable cannot use locals made of that variable, so the checks of spec that need them are here.
output "config" {
  description = "The config document in the script, as YAML: for calicoctl-win config validate -c FILE."
  value       = local.config

  precondition {
    condition     = length(local.unknown) == 0
    error_message = "spec has fields that the config does not have (docs/config.md lists all): ${join(", ", local.unknown)}."
  }

  precondition {
    condition     = length(local.invalid) == 0
    error_message = "spec has invalid values: ${join("; ", local.invalid)}."
  }

  precondition {
    condition     = length(local.secrets) == 0
    error_message = "spec must not have secrets, which would be in the state and in the user data: ${join(", ", local.secrets)}. Give the path of a file on the machine."
  }
}
