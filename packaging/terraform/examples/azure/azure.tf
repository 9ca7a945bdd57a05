terraform {
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
  }
}

provider "azurerm" {
  features {}
}

variable "virtual_machine_id" {
  description = "A machine with Windows Server, the Containers feature, containerd, kubelet, and a kubeconfig in C:\\k\\config."
  type        = string
}

variable "location" {
  type = string
}

resource "azurerm_virtual_machine_run_command" "calico" {
  name               = "calico"
  location           = var.location
  virtual_machine_id = var.virtual_machine_id

  source {
    script = module.calico.user_data
  }
}
