# What the module refuses: each run breaks one rule. Nothing is planned then.

variables {
  program_url    = "https://example.com/calicoctl-win.exe"
  program_sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  spec           = { calico = { version = "v3.32.1" } }
}

run "url_is_no_url" {
  command = plan
  variables {
    program_url = "//example.com/calicoctl-win.exe"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_space" {
  command = plan
  variables {
    program_url = "https://example.com/a b.exe"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_quote_of_powershell" {
  command = plan
  variables {
    program_url = "https://example.com/\u2019;calc"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_placeholder" {
  command = plan
  variables {
    program_url = "https://example.com/{{config}}"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_password" {
  command = plan
  variables {
    program_url = "https://user:hidden@example.com/calicoctl-win.exe"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_signature" {
  command = plan
  variables {
    program_url = "https://example.com/calicoctl-win.exe?sv=2024-11-04&sig=hidden"
  }
  expect_failures = [var.program_url]
}

run "url_with_a_token" {
  command = plan
  variables {
    program_url = "https://example.com/calicoctl-win.exe?X-Amz-Security-Token=hidden"
  }
  expect_failures = [var.program_url]
}

run "sha256_too_short" {
  command = plan
  variables {
    program_sha256 = "9f86"
  }
  expect_failures = [var.program_sha256]
}

run "runner_unknown" {
  command = plan
  variables {
    runner = "ec2config"
  }
  expect_failures = [var.runner]
}

run "version_missing" {
  command = plan
  variables {
    spec = { calicoNetwork = { backend = "vxlan" } }
  }
  expect_failures = [var.spec]
}

run "version_not_exact" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32" } }
  }
  expect_failures = [var.spec]
}

run "service_cidr_of_ipv6" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { serviceCIDRs = ["fd00::/108"] } }
  }
  expect_failures = [var.spec]
}

run "service_cidr_is_no_cidr" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { serviceCIDRs = ["10.96.0.0"] } }
  }
  expect_failures = [var.spec]
}

run "etcd_with_https_but_no_key" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, datastore = { type = "etcdv3", etcd = { endpoints = ["https://etcd-0:2379"], certFile = "C:\\k\\c", caCertFile = "C:\\k\\ca" } } }
  }
  expect_failures = [var.spec]
}

run "value_is_sensitive" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, services = { extraEnv = { FELIX_HEALTHENABLED = sensitive("hidden") } } }
  }
  expect_failures = [var.spec]
}

run "section_unknown" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetworks = { backend = "vxlan" } }
  }
  expect_failures = [output.config]
}

run "field_unknown" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = { vxlan = { vxlanVni = 5000 } } }
  }
  expect_failures = [output.config]
}

run "field_of_the_fourth_level_unknown" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { node = { join = { token = "C:\\k\\token" } } } }
  }
  expect_failures = [output.config]
}

run "section_is_a_text" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = "vxlan" }
  }
  expect_failures = [output.config]
}

run "word_unknown" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = { backend = "bgp" } }
  }
  expect_failures = [output.config]
}

run "number_too_large" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = { vxlan = { vxlanVNI = 65536 } } }
  }
  expect_failures = [output.config]
}

run "number_as_text" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = { vxlan = { vxlanVNI = "5000" } } }
  }
  expect_failures = [output.config]
}

run "number_with_a_fraction" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, transport = { retries = 1.5 } }
  }
  expect_failures = [output.config]
}

run "text_is_a_number" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { nodeName = 7 } }
  }
  expect_failures = [output.config]
}

run "truth_is_a_text" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, services = { start = "yes" } }
  }
  expect_failures = [output.config]
}

run "list_is_a_text" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { dns = { servers = "10.96.0.10" } } }
  }
  expect_failures = [output.config]
}

run "word_of_a_list_unknown" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, preflight = { remoteAccess = ["rdp", "telnet"] } }
  }
  expect_failures = [output.config]
}

run "fields_are_a_list" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, calicoNetwork = { cniConfigOverrides = ["mtu"] } }
  }
  expect_failures = [output.config]
}

run "key_instead_of_its_file" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, datastore = { etcd = { keyFile = "-----BEGIN PRIVATE KEY-----\nhidden" } } }
  }
  expect_failures = [output.config]
}

run "kubeconfig_instead_of_its_file" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { kubeconfig = "users: [{user: {client-key-data: aGlkZGVu}}]" } }
  }
  expect_failures = [output.config]
}

run "token_instead_of_its_file" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, kubernetes = { node = { join = { tokenFile = "abcdef.0123456789abcdef" } } } }
  }
  expect_failures = [output.config]
}

run "proxy_with_a_password" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, transport = { proxy = "http://user:hidden@proxy:3128" } }
  }
  expect_failures = [output.config]
}

run "variable_named_as_a_secret" {
  command = plan
  variables {
    spec = { calico = { version = "v3.32.1" }, services = { extraEnv = { BGP_PASSWORD = "hidden" } } }
  }
  expect_failures = [output.config]
}
