# A control plane that kubeadm made on Linux, with Calico in kubeadm's own etcd over TLS, and VXLAN. A Windows machine
# with only containerd becomes a node of it.
#
# The kubeconfig, the client certificate of etcd and a bootstrap token go from one machine to the other through `ssh` on
# the machine that runs Terraform. They are never in a variable, the state, a plan or the user data.

variable "control_plane" {
  description = "The control-plane node for ssh, for example admin@10.240.0.4. The user may run sudo without a password."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9._@-]+$", var.control_plane)) && !startswith(var.control_plane, "-")
    error_message = "control_plane must be HOST or USER@HOST."
  }
}

variable "worker" {
  description = "The Windows machine for ssh, for example Administrator@10.240.0.10. The user is an administrator."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9._@-]+$", var.worker)) && !startswith(var.worker, "-")
    error_message = "worker must be HOST or USER@HOST."
  }
}

variable "etcd_endpoints" {
  description = "Members of etcd as the Windows machine reaches them, for example [\"https://10.240.0.4:2379\"]."
  type        = list(string)
}

variable "vni" {
  description = "The VNI of the cluster: with etcd it cannot be read from the Kubernetes API."
  type        = number
  default     = 4096
}

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
    calico = { version = "v3.32.1" }
    kubernetes = {
      kubeconfig  = "C:\\k\\config"
      credentials = "token-request"
      node        = { install = true, join = { tokenFile = "C:\\k\\token" } }
    }
    calicoNetwork = { backend = "vxlan", vxlan = { vxlanVNI = var.vni } }
    datastore = {
      type = "etcdv3"
      etcd = {
        endpoints  = var.etcd_endpoints
        keyFile    = "C:\\k\\etcd\\client.key"
        certFile   = "C:\\k\\etcd\\client.crt"
        caCertFile = "C:\\k\\etcd\\ca.crt"
      }
    }
  }
}

locals {
  # What each file on the Windows machine has: the output of this command on the control-plane node.
  files = {
    "C:\\k\\config"           = "sudo cat /etc/kubernetes/admin.conf"
    "C:\\k\\token"            = "sudo kubeadm token create"
    "C:\\k\\etcd\\ca.crt"     = "sudo cat /etc/kubernetes/pki/etcd/ca.crt"
    "C:\\k\\etcd\\client.crt" = "sudo cat /etc/kubernetes/pki/apiserver-etcd-client.crt"
    "C:\\k\\etcd\\client.key" = "sudo cat /etc/kubernetes/pki/apiserver-etcd-client.key"
  }
}

resource "terraform_data" "credentials" {
  for_each         = local.files
  triggers_replace = [var.control_plane, var.worker, each.value]

  provisioner "local-exec" {
    interpreter = ["bash", "-o", "pipefail", "-c"]
    command     = "ssh \"$FROM\" \"$READ\" | ssh \"$TO\" powershell.exe -NoProfile -NonInteractive -EncodedCommand \"$WRITE\""
    environment = {
      FROM  = var.control_plane
      READ  = each.value
      TO    = var.worker
      WRITE = textencodebase64(templatefile("${path.module}/receive.ps1", { path = each.key }), "UTF-16LE")
    }
  }
}

resource "terraform_data" "calico" {
  triggers_replace = [var.worker, module.calico.user_data]
  depends_on       = [terraform_data.credentials]

  provisioner "local-exec" {
    interpreter = ["bash", "-o", "pipefail", "-c"]
    command     = <<-EOT
      printf %s "$SCRIPT" | ssh "$TO" powershell.exe -NoProfile -NonInteractive -EncodedCommand "$WRITE" &&
      ssh "$TO" "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:\\k\\apply.ps1"
    EOT
    environment = {
      TO     = var.worker
      SCRIPT = module.calico.user_data
      WRITE  = textencodebase64(templatefile("${path.module}/receive.ps1", { path = "C:\\k\\apply.ps1" }), "UTF-16LE")
    }
  }
}
