//! kube-proxy's service on Amazon's nodes (EKS): users cannot set its flags for Direct Server Return there, and without
//! it traffic to services has the node's address as its source, which policies do not match. Upstream's installer adds
//! the flags and never removes them.

use super::nssm;
use crate::item::{RegValue, Service};

/// Name of the service.
pub const NAME: &str = "kube-proxy";

/// The minor version of Kubernetes 1 from which kube-proxy has the gate `WinDSR` on by default; later versions will
/// refuse the gate's name (reference: Kubernetes' feature gates).
const GATE_NEEDED_BELOW: u64 = 33;

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
