# No variable takes a secret: what is here is in Terraform's state and in the user data, which every process on the
# machine can read.

variable "program_url" {
  description = "URL from which the machine downloads calicoctl-win.exe."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%\\[\\]-]+$", var.program_url))
    error_message = "program_url must be a URL such as https://HOST/calicoctl-win.exe."
  }

  validation {
    condition     = !can(regex("^[a-z]+://[^/?#]*@", var.program_url))
    error_message = "program_url must not have a user or password: every process on the machine can read them."
  }

  validation {
    condition     = !can(regex("(?i)[?&;](sig|[^=&;]*(signature|token|secret|password)[^=&;]*)(=|&|;|$)", var.program_url))
    error_message = "program_url must not be signed: every process on the machine can read the signature."
  }
}

variable "program_sha256" {
  description = "SHA-256 of calicoctl-win.exe, 64 hexadecimal digits. The machine never runs a file with another one."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[0-9A-Fa-f]{64}$", var.program_sha256))
    error_message = "program_sha256 must have 64 hexadecimal digits; certutil -hashfile calicoctl-win.exe SHA256 shows it."
  }
}

variable "runner" {
  description = "Who runs the user data: cloudbase-init, ec2launch (EC2Launch v2), or script: anything that runs a PowerShell script."
  type        = string
  default     = "cloudbase-init"
  nullable    = false

  validation {
    condition     = contains(["cloudbase-init", "ec2launch", "script"], var.runner)
    error_message = "runner must be cloudbase-init, ec2launch or script."
  }
}

variable "name" {
  description = "Label of the config in logs and receipts (metadata.name)."
  type        = string
  default     = null
}

# The type is any: of an object type Terraform drops the fields that it does not have. The output config checks each
# field by its name, and its value.
variable "spec" {
  description = "The fields below spec in the config document, with the names of docs/config.md. calico.version is required."
  type        = any
  nullable    = false

  validation {
    condition     = can(regex("^v?3\\.[0-9]+\\.[0-9]+$", var.spec.calico.version))
    error_message = "spec.calico.version must be an exact release, for example v3.32.1."
  }

  validation {
    condition = alltrue([
      for cidr in try(flatten([var.spec.kubernetes.serviceCIDRs]), []) : can(cidrnetmask(cidr))
    ])
    error_message = "spec.kubernetes.serviceCIDRs must be IPv4 CIDRs, for example 10.96.0.0/12."
  }

  validation {
    condition = alltrue([
      for file in ["keyFile", "certFile", "caCertFile"] :
      try(var.spec.datastore.etcd.tlsSecretRef.name, null) != null || try(var.spec.datastore.etcd[file], null) != null
    ]) || !can(regex("https://", jsonencode(var.spec.datastore.etcd.endpoints)))
    error_message = "spec.datastore.etcd: endpoints with https need keyFile, certFile and caCertFile, or tlsSecretRef."
  }

  validation {
    condition     = !issensitive(jsonencode(var.spec))
    error_message = "spec has a sensitive value: user data is no place for it. Give the path of a file on the machine."
  }
}
