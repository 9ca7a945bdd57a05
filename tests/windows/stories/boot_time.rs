//! What a clock that is set and a region other than the American one do to the marks of a boot.

use jiff::civil::DateTime;
use serde_json::Value;

use crate::house::{House, SOON};
use crate::machine::eventually;

const JOURNAL: &str = r"ProgramData\calicoctl-win\journal.jsonl";

impl House {
    /// The time of the boot, as upstream's kubelet script reads it.
    fn last_boot_time(&self) -> String {
        let query = ["query", r"HKLM\Software\Tigera\Calico", "/v", "LastBootTime"];
        let said = self.machine.run_program("reg", &query).exits(0).stdout;
        said.split_once("REG_SZ").unwrap_or_else(|| panic!("{said}")).1.trim().to_owned()
    }

    /// Gives the account of the services the German forms of a date and a time, as the region's settings do. Wine has
    /// one account, and takes them from there before its language.
    fn become_german(&self) {
        for (name, form) in [("sShortDate", "dd.MM.yyyy"), ("sTimeFormat", "HH:mm:ss")] {
            let key = r"HKCU\Control Panel\International";
            self.machine.run_program("reg", &["add", key, "/v", name, "/d", form, "/f"]).exits(0);
        }
    }

    /// Stops a change of the VNI, which a boot is to finish, when the old network is gone.
    fn stop_a_change(&self) {
        let words = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000 --at-boot finish";
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut change = self.machine.start_to_kill(&words, "test/said");
        eventually("the old network to go", SOON, || {
            assert!(change.try_wait().unwrap().is_none(), "{}", self.read("test/said"));
            (vsid(self) != 4096).then_some(())
        });
        change.kill().unwrap();
        change.wait().unwrap();
        assert!(self.machine.c(JOURNAL).exists(), "it was over:\n{}", self.read("test/said"));
    }
}

/// The VSID of Calico's network in HNS; null while there is none.
fn vsid(house: &House) -> Value {
    let network = house.hns().remove("Calico").unwrap_or_default();
    network["Subnets"][0]["Policies"][0]["VSID"].clone()
}

#[track_caller]
fn time(text: &str, form: &str) -> DateTime {
    DateTime::strptime(form, text).unwrap_or_else(|error| panic!("{text} is not {form}: {error}"))
}

/// Upstream's kubelet script waits, without end, until the mark is the text that PowerShell makes of the boot's time in
/// the account's region.
#[test]
fn in_a_german_region_the_time_of_the_boot_is_written_in_its_form() {
    const GERMAN: &str = "%d.%m.%Y %H:%M:%S";
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let (networks, english) = (house.hns(), house.last_boot_time());
    let booted = time(&english, "%m/%d/%Y %I:%M:%S %p");

    house.become_german();
    house.run("service restart --yes").exits(0);
    house.until_healthy();
    let german = house.last_boot_time();
    assert_eq!(time(&german, GERMAN), booted, "{english}: {german}");
    assert_eq!(german.len(), "02.01.2026 15:04:05".len(), "{german}");
    assert_eq!(house.hns(), networks, "another text is not another boot");

    house.machine.cut_power();
    house.machine.power_on();
    eventually("the mark of the next boot", SOON, || (house.last_boot_time() != german).then_some(()));
    assert!(time(&house.last_boot_time(), GERMAN) > booted);
    house.until_healthy();
    assert_ne!(house.hns()["External"]["ID"], networks["External"]["ID"], "it is from before the boot");
}

/// Whether a run is from before the boot is not a question of times: a clock that is set, by hand or when the machine
/// first reaches a time server, changes them all.
#[test]
fn a_clock_that_is_set_while_calico_runs_is_no_boot() {
    let Some(house) = House::joined() else { return };
    let (networks, mark) = (house.hns(), house.last_boot_time());
    for hours in [5, -3] {
        house.machine.set_clock(hours * 3600, "UTC");
        house.until_healthy();
        assert_eq!(house.hns(), networks, "{hours} h");
    }
    // Wine leaves the time of its start alone when the clock is set; Windows moves it along.
    assert_eq!(house.last_boot_time(), mark);

    // By its times this run began after this boot, and hours before it.
    house.stop_a_change();
    house.machine.set_clock(9 * 3600, "UTC");
    house.machine.run_program("sc", &["start", "CalicoNode"]).exits(0);
    // Its agent looks for left runs first, and then makes the network.
    house.until("CalicoNode to have made the network", |_| !vsid(&house).is_null());
    let status = house.status();
    assert_eq!(status["run"]["interrupted"], true, "a boot finishes it, and there was none: {status:#}");

    // By its times the next boot is before the run.
    house.machine.cut_power();
    house.machine.set_clock(-20 * 3600, "UTC");
    house.machine.power_on();
    let over = |status: &Value| status["run"].is_null() && status["overall"] == "Healthy";
    eventually("the run to be finished", 2 * SOON, || over(&house.status()).then_some(()));
    assert_eq!(
        (vsid(&house), house.cordoned()),
        (5000.into(), false),
        "{}",
        house.read(r"ProgramData\calicoctl-win\logs\calico\calico-node.log")
    );
}
