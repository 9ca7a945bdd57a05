//! The facts of a node.

use calicoctl_win::facts::NodeFacts;
use calicoctl_win::item::Id;
use calicoctl_win::node::Listing;
use calicoctl_win::node::event_log::LoggedEvent;

use crate::nodes::on_each;

#[test]
fn a_node_has_the_expected_facts() {
    on_each(|node| {
        let facts = node.facts().unwrap();
        assert_eq!(facts.host_name, facts.host_name.to_lowercase());
        assert!(!facts.host_name.is_empty() && !facts.host_name.ends_with('\0'), "{:?}", facts.host_name);
        assert!(facts.os.build >= 17763 && facts.os.ubr > 0, "{:?}", facts.os);
        assert_eq!(facts.os.arch, "amd64");
        assert!(["Server", "Server Core", "Client"].contains(&facts.os.installation_type.as_str()), "{:?}", facts.os);
        assert!(facts.features.is_some() && facts.tls.is_some());
    });
}

#[test]
fn a_node_has_the_same_facts_when_read_again() {
    on_each(|node| {
        let (one, two) = (node.facts().unwrap(), node.facts().unwrap());
        assert!(!one.boot_id.is_empty());
        assert_eq!((one.boot_id, one.os, one.runtime), (two.boot_id, two.os, two.runtime));
    });
}

#[test]
fn entries_of_the_event_log_are_newest_first_and_about_calico() {
    on_each(|node| {
        let events = node.events().unwrap();
        assert!(events.is_sorted_by_key(|event| std::cmp::Reverse(event.at)), "{events:?}");
        assert!(events.iter().all(LoggedEvent::is_about_calico), "{events:?}");
    });
}

#[test]
fn facts_are_saved_and_read_again() {
    on_each(|node| {
        // The machine's identity means nothing elsewhere.
        let facts = NodeFacts { machine_id: None, ..node.facts().unwrap() };
        let text = serde_json::to_string_pretty(&facts).unwrap();
        assert_eq!(serde_json::from_str::<NodeFacts>(&text).unwrap(), facts, "{text}");
    });
}

#[test]
fn every_listed_item_can_be_read() {
    on_each(|node| {
        for kind in [Listing::Services, Listing::Routes, Listing::Adapters] {
            let listed = node.list(kind).unwrap();
            // A node may have no route of its own.
            assert!(matches!(kind, Listing::Routes) || !listed.is_empty(), "{kind:?}");
            for (id, state) in listed.into_iter().take(20) {
                // A prefix may have several routes; all other names are unique.
                let there = node.get(&id).unwrap();
                assert!(matches!(id, Id::Route(_)) || there == Some(state), "{id}");
            }
        }
    });
}

/// Tests for Windows only.
#[cfg(windows)]
mod on_windows {
    use calicoctl_win::calico::registry::{BOOT_KEY, KEY};
    use calicoctl_win::facts::Features;
    use calicoctl_win::item::RegValue;
    use calicoctl_win::node::windows::{boot, features, os, reboot, registry, runtime, tls};

    use crate::nodes::alone;

    fn put(key: &str, name: &str, value: Option<RegValue>) {
        registry::put(key, name, value.as_ref()).unwrap();
    }

    fn text(text: &str) -> Option<RegValue> {
        Some(RegValue::String(text.into()))
    }

    #[test]
    fn windows_has_the_expected_facts() {
        let facts = os::facts().unwrap();
        assert!(facts.build >= 17763 && facts.ubr > 0 && facts.arch == "amd64", "{facts:?}");
        assert!(facts.display_version.is_some() && !facts.installation_type.is_empty(), "{facts:?}");
        assert_eq!(os::is_elevated().unwrap(), calicoctl_win::node::machine().unwrap().facts().unwrap().elevated);
        let name = os::host_name().unwrap();
        assert!(!name.is_empty() && name == name.to_lowercase() && !name.contains('\0'), "{name:?}");
    }

    #[test]
    #[ignore = "changes this machine: run it elevated"]
    fn a_boot_is_marked_once_calico_is_installed_and_unmarked_with_it() {
        let _alone = alone();
        let mark = format!(r"{}\{}", KEY, BOOT_KEY);
        let before = boot::id().unwrap();
        assert!(!registry::exists(KEY).unwrap(), "looking leaves no trace");

        put(KEY, "InstalledBy", text("contract"));
        assert_eq!(boot::id().unwrap(), before);
        assert_eq!(registry::text(&mark, "Id").unwrap().as_deref(), Some(before.as_str()));
        // Whatever the clock or the hardware say from now on.
        put(&mark, "Id", text("pinned"));
        assert_eq!(boot::id().unwrap(), "pinned");

        put(KEY, "InstalledBy", None);
        assert!(!registry::exists(r"SOFTWARE\Tigera").unwrap(), "the mark does not hold the key");
        assert_eq!(boot::id().unwrap(), before);
    }

    #[test]
    #[ignore = "changes this machine: run it elevated"]
    fn b21_containerd_is_found_by_its_service_and_its_folders_in_its_configuration() {
        let _alone = alone();
        const SERVICE: &str = r"SYSTEM\CurrentControlSet\Services\containerd";
        const NSSM: &str = r"SYSTEM\CurrentControlSet\Services\containerd\Parameters";
        // The machine may have containerd, or the service docker.
        let before = runtime::facts().unwrap();
        let changed = [(NSSM, "Application"), (NSSM, "AppParameters"), (SERVICE, "ImagePath")];
        let originals = changed.map(|(key, name)| registry::get(key, name).unwrap());
        let folder = std::path::Path::new(r"C:\Vertrag mit containerd");
        std::fs::create_dir_all(folder).unwrap();
        let config = |name: &str, bin: &str| {
            let text = format!(
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = '{bin}'\nconf_dir = 'C:/conf'\n"
            );
            std::fs::write(folder.join(name), text).unwrap();
        };
        config("config.toml", r"C:\beside");
        config("andere ü.toml", r"C:\told");
        let found = || {
            let runtime = runtime::facts().unwrap().unwrap();
            (runtime.cni_bin_dir.to_string(), runtime.cni_conf_dir.to_string())
        };

        // It is stopped: nothing runs here at all.
        put(
            SERVICE,
            "ImagePath",
            text(r#""C:\Vertrag mit containerd\containerd.exe" --run-service --log-file C:\logs\containerd.exe"#),
        );
        let usual = r"C:\Program Files\containerd\cni";
        assert_eq!(
            found(),
            (format!(r"{usual}\bin"), format!(r"{usual}\conf")),
            "containerd reads no file beside itself"
        );
        put(SERVICE, "ImagePath", text(r#"C:\k\containerd.exe --config "C:\Vertrag mit containerd\andere ü.toml""#));
        assert_eq!(found(), (r"C:\told".into(), r"C:\conf".into()));
        put(SERVICE, "ImagePath", text(r"C:\k\nssm.exe"));
        put(
            NSSM,
            "Application",
            Some(RegValue::ExpandString(r"%SystemDrive%\Vertrag mit containerd\containerd.exe".into())),
        );
        assert_eq!(found().0, format!(r"{usual}\bin"));
        put(NSSM, "AppParameters", text(r#"-c "C:\Vertrag mit containerd\andere ü.toml""#));
        assert_eq!(found().0, r"C:\told");
        std::fs::remove_dir_all(folder).unwrap();
        // The named file does not exist: containerd uses its defaults.
        assert_eq!(found().0, r"C:\Program Files\containerd\cni\bin");

        for ((key, name), original) in changed.into_iter().zip(originals) {
            put(key, name, original);
        }
        assert_eq!(runtime::facts().unwrap(), before);
    }

    #[test]
    #[ignore = "changes this machine: run it elevated"]
    fn features_tls_and_a_pending_reboot_are_read_from_the_registry() {
        let _alone = alone();
        const CLIENT: &str = r"SYSTEM\CurrentControlSet\Control\SecurityProviders\SCHANNEL\Protocols\TLS 1.2\Client";
        const UPDATE: &str = r"SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired";
        let before = tls::facts().unwrap();
        put(CLIENT, "DisabledByDefault", Some(RegValue::Dword(1)));
        assert_eq!(tls::facts().unwrap().client_disabled_by_default, Some(true));
        put(CLIENT, "DisabledByDefault", None);
        assert_eq!(tls::facts().unwrap(), before);

        let said = || reboot::facts().unwrap().iter().any(|reason| reason == "Windows Update installed something");
        assert!(!said());
        put(UPDATE, "x", Some(RegValue::Dword(1)));
        assert!(said());
        put(UPDATE, "x", None);
        assert!(!said());
        // Windows Server with a desktop has the service without the role, disabled.
        let service = registry::text(r"SYSTEM\CurrentControlSet\Services\RemoteAccess", "ImagePath").unwrap();
        assert_eq!(features::facts().unwrap().remote_access, service.is_some());
        let before = registry::get(Features::ROUTING, Features::INSTALL_STATE).unwrap();
        for (state, installed) in [(Some(0), Some(false)), (Some(1), Some(true)), (None, None)] {
            put(Features::ROUTING, Features::INSTALL_STATE, state.map(RegValue::Dword));
            assert_eq!(features::facts().unwrap().routing, installed);
        }
        put(Features::ROUTING, Features::INSTALL_STATE, before);
    }
}
