# A Windows machine that exists, over SSH or WinRM. Terraform runs the script again whenever it or the machine changes.

variable "host" {
  description = "Name or address of the Windows machine."
  type        = string
}

variable "user" {
  description = "An administrator of the machine."
  type        = string
  default     = "Administrator"
}

variable "protocol" {
  description = "ssh, with a key of the SSH agent; or winrm, over HTTPS with NTLM."
  type        = string
  default     = "ssh"

  validation {
    condition     = contains(["ssh", "winrm"], var.protocol)
    error_message = "protocol must be ssh or winrm."
  }
}

# Ephemeral: it is neither in the state nor in a plan.
variable "password" {
  description = "The user's password, for WinRM: set TF_VAR_password."
  type        = string
  default     = null
  ephemeral   = true
}

variable "program" {
  description = "calicoctl-win.exe: its URL and SHA-256."
  type        = object({ url = string, sha256 = string })
}

locals {
  # Only administrators may write below Program Files.
  folder = "C:\\Program Files\\calicoctl-win-setup"
}

module "calico" {
  source = "../.."

  program_url    = var.program.url
  program_sha256 = var.program.sha256
  runner         = "script"
  spec = {
    calico        = { version = "v3.32.1" }
    kubernetes    = { kubeconfig = "C:\\k\\config" }
    calicoNetwork = { backend = "vxlan" }
  }
}

resource "terraform_data" "calico" {
  triggers_replace = [var.host, module.calico.user_data]

  connection {
    type            = var.protocol
    host            = var.host
    user            = var.user
    password        = var.password
    target_platform = "windows"
    # The folder that is the default with SSH does not exist on Windows.
    script_path = "C:/Windows/Temp/terraform_%RAND%.cmd"
    https       = true
    use_ntlm    = true
  }

  provisioner "remote-exec" {
    inline = ["if not exist \"${local.folder}\" mkdir \"${local.folder}\""]
  }

  provisioner "file" {
    content     = module.calico.user_data
    destination = "${replace(local.folder, "\\", "/")}/apply.ps1"
  }

  provisioner "remote-exec" {
    inline = ["powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File \"${local.folder}\\apply.ps1\""]
  }
}
