# Windows nodes in a scaling group. EC2Launch v2, which is in Amazon's Windows images, runs the user data at every start.

variable "program" {
  description = "calicoctl-win.exe: its URL and SHA-256."
  type        = object({ url = string, sha256 = string })
}

module "calico" {
  source = "../.."

  program_url    = var.program.url
  program_sha256 = var.program.sha256
  runner         = "ec2launch"
  spec = {
    calico             = { version = "v3.32.1" }
    kubernetesProvider = "EC2"
    kubernetes         = { kubeconfig = "C:\\k\\config", serviceCIDRs = ["10.96.0.0/12"] }
    calicoNetwork      = { backend = "vxlan" }
  }
}
