//! kube-proxy's service on Amazon's nodes (EKS): users cannot set its flags for Direct Server Return there, and without
//! it traffic to services has the node's address as its source, which policies do not match. Upstream's installer adds
//! the flags and never removes them.

use std::sync::LazyLock;

use regex::Regex;

use super::nssm;
use crate::item::{RegValue, Service};

/// Name of the service.
pub const NAME: &str = "kube-proxy";

/// The minor version of Kubernetes 1 from which kube-proxy has the gate `WinDSR` on by default; later versions will
/// refuse the gate's name (reference: Kubernetes' feature gates).
pub const GATE_NEEDED_BELOW: u64 = 33;

/// The service with Direct Server Return on and everything else unchanged; none if it is on already, or if kube-proxy
/// reads a file and no flags. `minor` is kube-proxy's, of Kubernetes 1.
pub fn with_dsr(service: &Service, minor: u64) -> Option<Service> {
    let (_, arguments) = nssm::program(service)?;
    let words: Vec<&str> = arguments.split_whitespace().map(|word| word.trim_matches('"')).collect();
    if words.iter().any(|word| *word == "--config" || word.starts_with("--config=")) {
        return None;
    }
    // If a flag is given twice the last one counts.
    let dsr = words.iter().rev().find_map(|word| match word.strip_prefix("--enable-dsr")? {
        "" => Some(true),
        value => value.strip_prefix('=').map(|value| value == "true"),
    });
    if dsr == Some(true) {
        return None;
    }
    let gate = if minor < GATE_NEEDED_BELOW { " --feature-gates=WinDSR=true" } else { "" };
    let more = format!(" --enable-dsr=true{gate}");
    let mut patched = service.clone();
    if !nssm::is_nssm(service) {
        patched.image_path.push_str(&more);
        return Some(patched);
    }
    let parameters = patched.parameters.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("AppParameters"));
    match parameters {
        Some((_, RegValue::String(text) | RegValue::ExpandString(text))) => text.push_str(&more),
        _ => {
            patched.parameters.insert("AppParameters".into(), RegValue::ExpandString(more.trim_start().to_owned()));
        }
    }
    Some(patched)
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
    found.map(str::to_owned)
}

/// The service with another HNS network in its flag `--network-name` and its variable `KUBE_NETWORK`, and everything else
/// unchanged; none if it names that network already, or none.
pub fn on_network(service: &Service, network: &str) -> Option<Service> {
    static FLAG: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(--network-name(?:=|\s+))("[^"]*"|\S+)"#).expect("it is one"));
    let renamed = |text: &str| FLAG.replace_all(text, format!("${{1}}{network}")).into_owned();
    let mut patched = service.clone();
    if !nssm::is_nssm(service) {
        patched.image_path = renamed(&service.image_path);
    }
    for (name, value) in &mut patched.parameters {
        match value {
            RegValue::String(text) | RegValue::ExpandString(text) if name.eq_ignore_ascii_case("AppParameters") => {
                *text = renamed(text);
            }
            RegValue::MultiString(lines) if name.to_lowercase().starts_with("appenvironment") => {
                for line in lines.iter_mut().filter(|line| line.starts_with("KUBE_NETWORK=")) {
                    *line = format!("KUBE_NETWORK={network}");
                }
            }
            _ => {}
        }
    }
    (patched != *service).then_some(patched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::samples;

    fn service(line: &str) -> Service {
        Service { image_path: line.into(), parameters: Default::default(), ..samples::nssm("node") }
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
        assert_eq!(on(r#"kube-proxy.exe --network-name "cbr0""#).unwrap(), "kube-proxy.exe --network-name Calico");
        assert_eq!(on("kube-proxy.exe --network-name=Calico"), None);
        assert_eq!(on("kube-proxy.exe --v=4"), None);
        assert_eq!(flag(&service(plain), "--source-vip").as_deref(), Some("10.244.3.2"));
        let mut nssm = samples::nssm("node");
        let lines = |name: &str| RegValue::MultiString(vec!["A=b".into(), format!("KUBE_NETWORK={name}")]);
        nssm.parameters.insert("AppEnvironmentExtra".into(), lines("cbr0"));
        assert_eq!(on_network(&nssm, "Calico").unwrap().parameters["AppEnvironmentExtra"], lines("Calico"));
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
        let mut wrapped = samples::nssm("node");
        wrapped.parameters.insert("Application".into(), RegValue::ExpandString(r"C:\k\kube-proxy.exe".into()));
        wrapped.parameters.insert("AppParameters".into(), RegValue::ExpandString("--v=2".into()));
        let patched = with_dsr(&wrapped, 33).unwrap();
        assert_eq!(patched.image_path, wrapped.image_path);
        assert_eq!(patched.parameters["AppParameters"], RegValue::ExpandString("--v=2 --enable-dsr=true".into()));
    }
}
