//! kube-proxy's service on Amazon's nodes (EKS): users cannot set its flags for Direct Server Return there, and without
//! it traffic to services has the node's address as its source, which policies do not match. Upstream's installer adds
//! the flags and never removes them.

use std::net::Ipv4Addr;

use regex::{NoExpand, Regex};
use serde_json::Value;

use super::nssm;
use crate::item::{RegValue, Service};
use crate::values::WinPath;
use crate::yaml;

/// Name of the service.
pub const NAME: &str = "kube-proxy";

/// The minor version of Kubernetes 1 from which kube-proxy has the gate `WinDSR` on by default; later versions will
/// refuse the gate's name (reference: Kubernetes' feature gates).
pub const GATE_NEEDED_BELOW: u64 = 33;

/// The service with Direct Server Return on and everything else unchanged; none if it is on already, or if kube-proxy
/// reads a file and no flags. `minor` is kube-proxy's, of Kubernetes 1.
pub fn with_dsr(service: &Service, minor: u64) -> Option<Service> {
    let (_, arguments) = nssm::program(service)?;
    if flag(service, "--config").is_some() {
        return None;
    }
    let words: Vec<&str> = arguments.split_whitespace().map(|word| word.trim_matches('"')).collect();
    // If a flag is given twice the last one counts.
    let dsr = words.iter().rev().find_map(|word| match word.strip_prefix("--enable-dsr")? {
        "" => Some(true),
        value => value.strip_prefix('=').map(|value| value == "true"),
    });
    if dsr == Some(true) {
        return None;
    }
    let gate = if minor < GATE_NEEDED_BELOW { " --feature-gates=WinDSR=true" } else { "" };
    Some(appended(service, &format!(" --enable-dsr=true{gate}")))
}

/// The service with more arguments.
fn appended(service: &Service, more: &str) -> Service {
    let mut patched = service.clone();
    if !nssm::is_nssm(service) {
        patched.image_path.push_str(more);
        return patched;
    }
    let parameters = patched.parameters.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("AppParameters"));
    match parameters {
        Some((_, RegValue::String(text) | RegValue::ExpandString(text))) => text.push_str(more),
        _ => {
            patched.parameters.insert("AppParameters".into(), RegValue::ExpandString(more.trim_start().to_owned()));
        }
    }
    patched
}

/// The service with another value of a flag, wherever its command line has it.
fn with_flag(service: &Service, name: &str, value: &str) -> Service {
    let flag = Regex::new(&format!(r#"{name}(?:=|\s+)("[^"]*"|\S+)"#)).expect("it is one");
    let changed = |text: &str| flag.replace_all(text, NoExpand(&format!("{name}={value}"))).into_owned();
    let mut patched = service.clone();
    if !nssm::is_nssm(service) {
        patched.image_path = changed(&service.image_path);
    }
    for (name, parameter) in &mut patched.parameters {
        if let RegValue::String(text) | RegValue::ExpandString(text) = parameter
            && name.eq_ignore_ascii_case("AppParameters")
        {
            *text = changed(text);
        }
    }
    patched
}

/// The value of a flag in the service's command line; the last one if it is given twice.
pub fn flag(service: &Service, name: &str) -> Option<String> {
    let (_, arguments) = nssm::program(service)?;
    let mut words = arguments.split_whitespace().map(|word| word.trim_matches('"'));
    let mut found = None;
    while let Some(word) = words.next() {
        match word.strip_prefix(name) {
            Some("") => found = words.next(),
            Some(rest) => found = rest.strip_prefix('=').or(found),
            None => {}
        }
    }
    found.map(|value| value.trim_matches('"').to_owned())
}

/// The service with another HNS network in its flag `--network-name` and its variable `KUBE_NETWORK`, and everything else
/// unchanged; none if it names that network already, or none.
pub fn on_network(service: &Service, network: &str) -> Option<Service> {
    let mut patched = with_flag(service, "--network-name", network);
    for (name, value) in &mut patched.parameters {
        if let RegValue::MultiString(lines) = value
            && name.to_lowercase().starts_with("appenvironment")
        {
            for line in lines.iter_mut().filter(|line| line.starts_with("KUBE_NETWORK=")) {
                *line = format!("KUBE_NETWORK={network}");
            }
        }
    }
    (patched != *service).then_some(patched)
}

/// The service with another source VIP. One that is on another kind of network has none, and gets the flag; if neither
/// flag is in its definition, for example because a script starts kube-proxy, it stays as it is.
pub fn with_source_vip(service: &Service, vip: Ipv4Addr) -> Service {
    const FLAG: &str = "--source-vip";
    match (flag(service, FLAG), flag(service, "--network-name")) {
        (None, Some(_)) => appended(service, &format!(" {FLAG}={vip}")),
        _ => with_flag(service, FLAG, &vip.to_string()),
    }
}

/// The file that it reads instead of its other flags (reference: kube-proxy's flag `--config`).
pub fn config_file(service: &Service) -> Option<WinPath> {
    flag(service, "--config")?.parse().ok()
}

/// kube-proxy's file with another HNS network, and another source VIP if one is given; unchanged if it has both. None if
/// it is not kube-proxy's.
pub fn config_on(text: &str, network: &str, vip: Option<Ipv4Addr>) -> Option<String> {
    let mut config: Value = yaml::read(text.trim_start_matches('\u{feff}')).ok()?;
    if config["kind"] != "KubeProxyConfiguration" {
        return None;
    }
    let former = config.clone();
    let winkernel = config.as_object_mut()?.entry("winkernel").or_insert_with(|| Value::Object(Default::default()));
    winkernel["networkName"] = network.into();
    if let Some(vip) = vip {
        winkernel["sourceVip"] = vip.to_string().into();
    }
    if config == former { Some(text.to_owned()) } else { serde_yaml::to_string(&config).ok() }
}

/// The source VIP in kube-proxy's file.
pub fn source_vip_in(text: &str) -> Option<String> {
    let config: Value = yaml::read(text.trim_start_matches('\u{feff}')).ok()?;
    config["winkernel"]["sourceVip"].as_str().filter(|vip| !vip.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::testing;

    fn service(line: &str) -> Service {
        Service { image_path: line.into(), parameters: Default::default(), ..testing::nssm("node") }
    }

    fn patched(line: &str, minor: u64) -> Option<String> {
        with_dsr(&service(line), minor).map(|service| service.image_path)
    }

    #[test]
    fn the_flags_are_appended_once() {
        let bare = r#""C:\Program Files\Amazon\EKS\bin\kube-proxy.exe"  --v=2 --bind-address=10.0.0.7"#;
        let once = patched(bare, 32).unwrap();
        assert_eq!(once, format!("{bare} --enable-dsr=true --feature-gates=WinDSR=true"));
        assert_eq!(patched(&once, 32), None);
        // The gate is on by default later, and then refused.
        assert_eq!(patched(bare, 33).unwrap(), format!("{bare} --enable-dsr=true"));
    }

    #[test]
    fn another_network_is_set_where_one_is_named() {
        let on = |line: &str| on_network(&service(line), "Calico").map(|service| service.image_path);
        let plain = r"C:\k\kube-proxy.exe --v=4 --network-name=vxlan0 --source-vip=10.244.3.2";
        assert_eq!(on(plain).unwrap(), plain.replace("vxlan0", "Calico"));
        assert_eq!(on(r#"kube-proxy.exe --network-name "cbr0""#).unwrap(), "kube-proxy.exe --network-name=Calico");
        assert_eq!(on("kube-proxy.exe --network-name=Calico"), None);
        assert_eq!(on("kube-proxy.exe --v=4"), None);
        assert_eq!(flag(&service(plain), "--source-vip").as_deref(), Some("10.244.3.2"));
        let mut nssm = testing::nssm("node");
        let lines = |name: &str| RegValue::MultiString(vec!["A=b".into(), format!("KUBE_NETWORK={name}")]);
        nssm.parameters.insert("AppEnvironmentExtra".into(), lines("cbr0"));
        assert_eq!(on_network(&nssm, "Calico").unwrap().parameters["AppEnvironmentExtra"], lines("Calico"));
    }

    #[test]
    fn another_source_vip_is_set_where_it_is_known() {
        let vip = Ipv4Addr::new(192, 168, 0, 2);
        let with = |line: &str| with_source_vip(&service(line), vip).image_path;
        for (line, wanted) in [
            ("kube-proxy.exe --source-vip=10.244.3.2 --v=2", "kube-proxy.exe --source-vip=192.168.0.2 --v=2"),
            (r#"kube-proxy.exe --source-vip "10.244.3.2""#, "kube-proxy.exe --source-vip=192.168.0.2"),
            ("kube-proxy.exe --network-name=Calico", "kube-proxy.exe --network-name=Calico --source-vip=192.168.0.2"),
            (r"powershell.exe C:\k\start.ps1", r"powershell.exe C:\k\start.ps1"),
        ] {
            assert_eq!(with(line), wanted);
            assert_eq!(with(wanted), wanted);
        }
        assert_eq!(
            config_file(&service(r#"kube-proxy.exe --config="C:\k\kube-proxy.yaml""#)),
            Some(WinPath::known(r"C:\k\kube-proxy.yaml"))
        );
        let text = "kind: KubeProxyConfiguration\nmode: kernelspace\nwinkernel: {networkName: vxlan0, sourceVip: 10.244.3.2}\n";
        let set = config_on(text, "Calico", Some(vip)).unwrap();
        assert_eq!(source_vip_in(&set).as_deref(), Some("192.168.0.2"));
        assert!(set.contains("networkName: Calico") && set.contains("mode: kernelspace"), "{set}");
        assert_eq!(config_on(&set, "Calico", Some(vip)).unwrap(), set);
        assert_eq!(source_vip_in(&config_on(text, "Calico", None).unwrap()).as_deref(), Some("10.244.3.2"));
        for other in ["kind: KubeletConfiguration", "", "{", "- a"] {
            assert_eq!(config_on(other, "Calico", Some(vip)), None, "{other}");
        }
    }

    #[test]
    fn flags_that_are_on_or_in_a_file_stay_and_off_is_overridden() {
        for (arguments, changes) in [
            ("--enable-dsr=true", false),
            ("--enable-dsr", false),
            ("--enable-dsr=false", true),
            ("--enable-dsr=false --enable-dsr=true", false),
            ("--config=C:\\k\\kube-proxy.yaml", false),
            ("--config C:\\k\\kube-proxy.yaml", false),
            ("", true),
        ] {
            assert_eq!(patched(&format!(r"C:\k\kube-proxy.exe {arguments}"), 33).is_some(), changes, "{arguments}");
        }
    }

    #[test]
    fn with_nssm_the_flags_go_into_its_parameters() {
        let mut wrapped = testing::nssm("node");
        wrapped.parameters.insert("Application".into(), RegValue::ExpandString(r"C:\k\kube-proxy.exe".into()));
        wrapped.parameters.insert("AppParameters".into(), RegValue::ExpandString("--v=2".into()));
        let patched = with_dsr(&wrapped, 33).unwrap();
        assert_eq!(patched.image_path, wrapped.image_path);
        assert_eq!(patched.parameters["AppParameters"], RegValue::ExpandString("--v=2 --enable-dsr=true".into()));
    }
}
