# A Windows machine in Azure: Run Command runs the script as SYSTEM, now and again whenever the script changes.

variable "program" {
  description = "calicoctl-win.exe: its URL and SHA-256."
  type        = object({ url = string, sha256 = string })
}

module "calico" {
  source = "../.."

  program_url    = var.program.url
  program_sha256 = var.program.sha256
  runner         = "script"
  spec = {
    calico        = { version = "v3.32.1" }
    kubernetes    = { kubeconfig = "C:\\k\\config", serviceCIDRs = ["10.0.0.0/16"] }
    calicoNetwork = { backend = "vxlan" }
  }
}
