# An image of Windows Server 2022 for nodes of a cluster with Calico, on EC2. See docs/golden-image.md.
#
#   packer init .
#   packer build -var region=eu-central-1 -var program=calicoctl-win.exe -var bundle=bundle.zip -var bundle_sha256=HEX .

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.3"
    }
  }
}

variable "region" {
  type = string
}

variable "program" {
  type        = string
  description = "calicoctl-win.exe on this machine."
}

variable "bundle" {
  type        = string
  description = "File of: calicoctl-win release bundle -c image.yaml --out bundle.zip"
}

variable "bundle_sha256" {
  type        = string
  description = "What `release bundle` printed."
}

source "amazon-ebs" "node" {
  region        = var.region
  instance_type = "m5.large"
  ami_name      = "calico-node-{{timestamp}}"

  source_ami_filter {
    filters = {
      name                = "Windows_Server-2022-English-Core-Base-*"
      virtualization-type = "hvm"
    }
    owners      = ["amazon"]
    most_recent = true
  }

  # EC2Launch runs this script, which turns WinRM on. Packer decrypts the password of Administrator with its own key.
  # NTLM, because the WinRM of Windows refuses basic authentication unless that is turned on.
  communicator   = "winrm"
  winrm_username = "Administrator"
  winrm_use_ssl  = true
  winrm_use_ntlm = true
  winrm_insecure = true
  winrm_timeout  = "20m"
  user_data_file = "winrm.ps1"

  # Sysprep stops it: stopped earlier, the image would not be generalized.
  disable_stop_instance = true
}

build {
  sources = ["source.amazon-ebs.node"]

  # Containers and containerd are not part of this example: your own image has them, or add a provisioner here.

  provisioner "powershell" {
    inline = ["New-Item -ItemType Directory -Force -Path C:\\calico-setup | Out-Null"]
  }

  provisioner "file" {
    source      = var.program
    destination = "C:\\calico-setup\\calicoctl-win.exe"
  }

  provisioner "file" {
    source      = var.bundle
    destination = "C:\\calico-setup\\bundle.zip"
  }

  provisioner "file" {
    source      = "image.yaml"
    destination = "C:\\calico-setup\\image.yaml"
  }

  provisioner "powershell" {
    inline = [
      "C:\\calico-setup\\calicoctl-win.exe install --prepare -c C:\\calico-setup\\image.yaml --bundle C:\\calico-setup\\bundle.zip --sha256 ${var.bundle_sha256} --yes",
    ]
  }

  # 16: Calico is not installed, which is right for an image that is PREPARED.
  provisioner "powershell" {
    inline           = ["C:\\calico-setup\\calicoctl-win.exe status; exit $LASTEXITCODE"]
    valid_exit_codes = [16]
  }

  # --block: once the service has run the user data. The flags are in the AWS guide "EC2Launch v2 settings".
  provisioner "powershell" {
    inline = [
      "Remove-Item -Recurse -Force C:\\calico-setup",
      "& 'C:\\Program Files\\Amazon\\EC2Launch\\EC2Launch.exe' sysprep --block --clean --shutdown",
    ]
  }
}
