//! A machine for tests: the test DLLs (tests/windows/shims), which replace HNS, the IP helper and the firewall and are
//! controlled by files in `C:\test`. Without those, as on a real machine, there is none, and nothing is tested.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One prefix is one machine: run one story at a time.
static MACHINE: Mutex<()> = Mutex::new(());

pub struct Machine {
    _only: MutexGuard<'static, ()>,
}

const ETHERNET: &str = "7\tEthernet\t00-15-5D-01-02-03\t1\tauto\tvmxnet3\t10.20.0.21/24\t0\n";

/// An adapter's address moves to a vSwitch and back at once, in the file `settings`.
pub const AT_ONCE: &str = "adapter-back-ms=0\naddress-ms=0\ndad-ms=0\n";

/// Another product's network.
pub const NAT: &str = r#"{"ID":"1111","Name":"nat","Type":"nat","Subnets":[{"AddressPrefix":"172.20.0.0/20"}]}"#;

impl Machine {
    /// A machine with one adapter, its default route, another product's network, no faults and no delays.
    pub fn new() -> Option<Self> {
        let lock = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        if !Path::new(r"C:\test\adapters").exists() {
            return None;
        }
        let left = ["endpoints", "policylists", "faults", "log", "late", "away"].map(|name| format!("hns.{name}"));
        let others =
            ["adapters.times", "iphlpapi.faults", "wmi.faults", "firewall", "firewall.faults"].map(str::to_owned);
        for name in left.iter().chain(&others) {
            let path = format!(r"C:\test\{name}");
            // While a test DLL reads it for another test, it cannot be removed, but emptied.
            if fs::remove_file(&path).is_err_and(|error| error.kind() != ErrorKind::NotFound) {
                fs::write(path, "").unwrap();
            }
        }
        let machine = Self { _only: lock };
        machine.write("adapters", ETHERNET);
        machine.write("routes", "0.0.0.0/0\t7\t10.20.0.1\t0\n");
        machine.write("hns.networks", &format!("{NAT}\n"));
        machine.write("settings", AT_ONCE);
        Some(machine)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(format!(r"C:\test\{name}"), text).unwrap();
    }

    /// A file's content; empty if there is no file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(format!(r"C:\test\{name}")).unwrap_or_default()
    }
}
