locals {
  # Each field of the config below spec: what it takes, and what its JSON matches. A test compares with the program.
  fields = jsondecode(file("${path.module}/fields.json"))
  sections = toset(flatten([
    for path in keys(local.fields) : [
      for depth in range(1, length(split(".", path))) : join(".", slice(split(".", path), 0, depth))
    ]
  ]))

  # What spec gives, by path. Terraform has no recursion, and no field is deeper than four.
  top = { for name, value in var.spec : name => value }
  second = merge([
    for path, fields in local.top : { for name, value in fields : "${path}.${name}" => value }
    if contains(local.sections, path) && can(keys(fields))
  ]...)
  third = merge([
    for path, fields in local.second : { for name, value in fields : "${path}.${name}" => value }
    if contains(local.sections, path) && can(keys(fields))
  ]...)
  fourth = merge([
    for path, fields in local.third : { for name, value in fields : "${path}.${name}" => value }
    if contains(local.sections, path) && can(keys(fields))
  ]...)
  given = merge(local.top, local.second, local.third, local.fourth)

  unknown = sort([
    for path in keys(local.given) : path if !contains(keys(local.fields), path) && !contains(local.sections, path)
  ])

  invalid = sort([
    for path, value in local.given : "${path} takes ${try(local.fields[path].takes, "fields")}"
    if !contains(local.unknown, path) && value != null && !(
      can(regex(try(local.fields[path].json, "^\\{"), jsonencode(value))) &&
      try(value >= local.fields[path].from && value <= local.fields[path].to, true)
    )
  ])

  # What looks like a secret, by what it looks like.
  text = jsonencode(var.spec)
  secrets = concat(
    [for what, pattern in {
      "a key or certificate"   = "-----BEGIN ",
      "a kubeconfig"           = "client-key-data|client-certificate-data",
      "a token"                = "\"[a-z0-9]{6}\\.[a-z0-9]{16}\"|eyJ[A-Za-z0-9_-]+\\.eyJ",
      "a URL with a user name" = "://[^/\"]*@",
    } : what if can(regex(pattern, local.text))],
    [for name in try(keys(var.spec.services.extraEnv), []) : "services.extraEnv.${name}"
    if can(regex("PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY", upper(name)))],
  )

  config = yamlencode({
    for name, value in {
      apiVersion = "calicoctl-win/v1alpha1"
      kind       = "NodeInstallation"
      metadata   = var.name == null ? null : { name = var.name }
      spec       = var.spec
    } : name => value if value != null
  })

  # `calicoctl-win render user-data` fills in the same file.
  lines = templatefile("${path.module}/user-data.ps1", {
    # In single quotes PowerShell reads only a quote as anything else.
    url    = replace(var.program_url, "'", "''")
    sha256 = lower(var.program_sha256)
    config = base64encode(local.config)
    retry  = var.runner == "cloudbase-init" ? "1002" : "1"
    codes  = var.runner == "cloudbase-init" ? "cloudbase-init" : "simple"
  })
  script = replace(local.lines, "\n", "\r\n")
  user_data = {
    cloudbase-init = "#ps1_sysnative\r\n${local.script}"
    ec2launch      = "<powershell>\r\n${local.script}</powershell>\r\n<persist>true</persist>\r\n"
    script         = local.script
  }[var.runner]
}
