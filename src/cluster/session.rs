//! The client of one user. What a plugin returned is renewed shortly before it expires.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tokio::sync::Mutex;

use super::errors::without_values;
use super::plugin::{Granted, NoLogin, Plugin};

/// How long before its expiry a login is renewed, so that no request has one that expires meanwhile.
const EARLY: SignedDuration = SignedDuration::from_secs(60);

/// How long a login that expires sooner than that, or has expired by this machine's clock, is used in any case; and how
/// long a failed renewal counts.
const PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Session {
    /// Of a user with a plugin, without its login.
    config: Config,
    plugin: Option<Plugin>,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    /// When to run the plugin again.
    renew: Option<Timestamp>,
    failed: Option<(Instant, NoLogin)>,
}

impl Session {
    /// Runs the plugin, if there is one. Within a runtime.
    pub fn begin(config: Config, plugin: Option<Plugin>) -> Result<Self, NoLogin> {
        let current = match &plugin {
            Some(plugin) => logged_in(&config, &plugin.program, plugin.run()?)?,
            None => {
                let client = client(config.clone()).map_err(|why| NoLogin {
                    what: "the kubeconfig's credentials cannot be used".into(),
                    why: Some(why),
                })?;
                Current { client, renew: None, failed: None }
            }
        };
        Ok(Self { config, plugin, current: Mutex::new(current) })
    }

    /// As if what the plugin returned were due now.
    #[cfg(all(test, unix))]
    pub fn expire(&self) {
        let mut current = self.current.try_lock().expect("no request is made");
        (current.renew, current.failed) = (Some(Timestamp::now()), None);
    }

    /// The client for the next request. All requests wait while a plugin runs: it runs once.
    pub async fn client(&self) -> Result<Client, NoLogin> {
        let mut current = self.current.lock().await;
        let (Some(plugin), true) = (&self.plugin, current.renew.is_some_and(|at| at <= Timestamp::now())) else {
            return Ok(current.client.clone());
        };
        if let Some((_, why)) = current.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
            return Err(why.clone());
        }
        let running = plugin.clone();
        let granted =
            tokio::task::spawn_blocking(move || running.run()).await.expect("a plugin's thread does not panic");
        match granted.and_then(|granted| logged_in(&self.config, &plugin.program, granted)) {
            Ok(renewed) => *current = renewed,
            Err(why) => {
                current.failed = Some((Instant::now(), why.clone()));
                return Err(why);
            }
        }
        Ok(current.client.clone())
    }
}

fn logged_in(config: &Config, program: &str, granted: Granted) -> Result<Current, NoLogin> {
    let Granted { user, expires } = granted;
    let mut config = config.clone();
    config.auth_info = user;
    let client = client(config).map_err(|why| NoLogin {
        what: format!("what the kubeconfig's exec plugin `{program}` returned cannot be used"),
        why: Some(why),
    })?;
    Ok(Current { client, renew: expires.map(|expires| renewal(expires, Timestamp::now())), failed: None })
}

/// When a login of this expiry is renewed.
fn renewal(expires: Timestamp, now: Timestamp) -> Timestamp {
    let early = expires - EARLY;
    if early > now { early } else { expires.max(now + PAUSE) }
}

fn client(config: Config) -> Result<Client, String> {
    ClientBuilder::try_from(config).map(ClientBuilder::build).map_err(|error| match error {
        kube::Error::Auth(error) => super::kubeconfig::why_no_login(&error),
        other => without_values(&other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_renewed_before_it_expires_and_never_for_each_request() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (expires, renewed) in [
            ("2026-01-01T13:00:00Z", "2026-01-01T12:59:00Z"),
            ("2026-01-01T12:00:45Z", "2026-01-01T12:00:45Z"),
            ("2026-01-01T12:00:05Z", "2026-01-01T12:00:30Z"),
            ("2025-01-01T12:00:00Z", "2026-01-01T12:00:30Z"),
        ] {
            assert_eq!(renewal(expires.parse().unwrap(), now).to_string(), renewed, "{expires}");
        }
    }
}
