# What the module makes of a config, for each runner.

variables {
  program_url    = "https://example.com/it's/calicoctl-win.exe"
  program_sha256 = "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08"
  spec = {
    calico        = { version = "v3.32.1" }
    kubernetes    = { serviceCIDRs = ["10.96.0.0/12"], nodeName = "$(calc)'; calc #" }
    calicoNetwork = { backend = "vxlan", vxlan = { vxlanVNI = 5000 }, cniConfigOverrides = { qps = 30 } }
    platform      = { staticRules = { file = "C:\\k\\rules.json" }, preserveMetadataRoute = "auto" }
    preflight     = { remoteAccess = ["rdp", "ssh"] }
    maintenance   = null
  }
}

run "cloudbase_init" {
  command = plan

  assert {
    condition     = startswith(output.user_data, "#ps1_sysnative\r\n") && !can(regex("[^\r]\n", output.user_data))
    error_message = "cloudbase-init knows a script by its first line; the lines end in CR LF."
  }

  assert {
    condition = alltrue([
      for line in [
        "$url = 'https://example.com/it''s/calicoctl-win.exe'",
        "$sha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'",
        "    exit 1002",
        "& $program apply --yes \"--config=$file\" --wait-for-lock=10m --exit-codes=cloudbase-init",
      ] : contains(split("\r\n", output.user_data), line)
    ])
    error_message = "The script runs apply with the pinned program: ${output.user_data}"
  }

  assert {
    condition     = !strcontains(output.user_data, "calc") && !strcontains(output.user_data, "$${")
    error_message = "No value of the config is in the text of the script: ${output.user_data}"
  }

  assert {
    condition     = base64decode(regex("\\$config = '([^']*)'", output.user_data)[0]) == output.config
    error_message = "The script has the config of the output."
  }

  assert {
    condition = yamldecode(output.config) == {
      apiVersion = "calicoctl-win/v1alpha1"
      kind       = "NodeInstallation"
      spec       = var.spec
    }
    error_message = "The config has spec as it was given: ${output.config}"
  }

  assert {
    condition     = base64decode(output.user_data_base64) == output.user_data
    error_message = "The base64 is that of the text."
  }
}

run "ec2launch_at_every_start" {
  command = plan

  variables {
    runner = "ec2launch"
  }

  assert {
    condition = (
      startswith(output.user_data, "<powershell>\r\n") &&
      endswith(output.user_data, "\r\n</powershell>\r\n<persist>true</persist>\r\n") &&
      strcontains(output.user_data, "--exit-codes=simple\r\n") && strcontains(output.user_data, "    exit 1\r\n")
    )
    error_message = "EC2Launch v2 keeps the script: ${output.user_data}"
  }
}

run "script_alone" {
  command = plan

  variables {
    runner = "script"
    name   = "workers"
  }

  assert {
    condition     = yamldecode(output.config).metadata == { name = "workers" }
    error_message = "The config has its name: ${output.config}"
  }

  assert {
    condition     = startswith(output.user_data, "# ") && endswith(output.user_data, "exit $LASTEXITCODE\r\n")
    error_message = "Nothing but the script: ${output.user_data}"
  }
}

run "etcd_with_tls" {
  command = plan

  variables {
    spec = {
      calico = { version = "3.32.1" }
      datastore = {
        type = "etcdv3"
        etcd = {
          endpoints  = ["https://10.240.0.4:2379"]
          keyFile    = "C:\\k\\etcd\\client.key"
          certFile   = "C:\\k\\etcd\\client.crt"
          caCertFile = "C:\\k\\etcd\\ca.crt"
        }
      }
    }
  }

  assert {
    condition     = yamldecode(output.config).spec.datastore.etcd.keyFile == "C:\\k\\etcd\\client.key"
    error_message = "The config names the files: ${output.config}"
  }
}
