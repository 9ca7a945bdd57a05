terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

variable "image_id" {
  description = "A Windows Server image with the Containers feature, containerd, kubelet, and a kubeconfig in C:\\k\\config."
  type        = string
}

variable "subnet_ids" {
  type = list(string)
}

variable "security_group_ids" {
  description = "They allow UDP 4789 (VXLAN) and TCP 10250 (kubelet) between the nodes."
  type        = list(string)
}

variable "instances" {
  type    = number
  default = 2
}

# Machines that exist keep their user data; new ones get this.
resource "aws_launch_template" "windows" {
  name_prefix            = "calico-windows-"
  image_id               = var.image_id
  instance_type          = "m6i.xlarge"
  vpc_security_group_ids = var.security_group_ids
  user_data              = module.calico.user_data_base64

  metadata_options {
    http_tokens = "required"
  }
}

resource "aws_autoscaling_group" "windows" {
  name                = "calico-windows"
  min_size            = var.instances
  max_size            = var.instances
  vpc_zone_identifier = var.subnet_ids

  launch_template {
    id      = aws_launch_template.windows.id
    version = aws_launch_template.windows.latest_version
  }
}
