//! The metadata services of clouds, at their link-local address. Never through a proxy, and with
//! short limits: on most machines nobody answers there.

use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::redirect;

/// Clouds answer in some milliseconds; elsewhere this is how long every install waits in vain.
const LIMIT: Duration = Duration::from_secs(1);
/// Seconds that an IMDSv2 token is to live: it is used once.
const TOKEN_TTL: &str = "60";
/// Longer than any host name or token.
const MAX_ANSWER: usize = 1024;

/// Where to ask.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// None asks nobody.
    base: Option<String>,
}

/// Which services answered, and what they call the instance.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answers {
    pub ec2: Option<Option<String>>,
    pub gce: Option<Option<String>>,
}

impl Metadata {
    /// The address that AWS and Google share. Google's name for it would cost a DNS query that
    /// only Google's resolver answers quickly.
    pub fn link_local() -> Self {
        Self::at("http://169.254.169.254")
    }

    pub fn at(base: impl Into<String>) -> Self {
        Self { base: Some(base.into()) }
    }

    pub const fn nowhere() -> Self {
        Self { base: None }
    }

    /// Asks in all dialects at once.
    pub fn ask_all(&self) -> Answers {
        std::thread::scope(|scope| {
            let gce = scope.spawn(|| self.gce());
            Answers { ec2: self.ec2(), gce: gce.join().unwrap_or_default() }
        })
    }

    pub fn ask_ec2(&self) -> Answers {
        Answers { ec2: self.ec2(), gce: None }
    }

    pub fn ask_gce(&self) -> Answers {
        Answers { ec2: None, gce: self.gce() }
    }

    /// IMDSv2: a token first. What gives none is not EC2, though it may have EC2's paths.
    fn ec2(&self) -> Option<Option<String>> {
        let (client, base) = self.client()?;
        let url = format!("{base}/latest/api/token");
        let answer = client.put(url).header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL).send().ok()?;
        let token = text(answer).filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let url = format!("{base}/latest/meta-data/local-hostname");
        let answer = client.get(url).header("X-aws-ec2-metadata-token", token).send();
        // With several domains in the VPC's DHCP options there are several names.
        Some(answer.ok().and_then(text).and_then(|names| names.split_whitespace().next().map(str::to_lowercase)))
    }

    fn gce(&self) -> Option<Option<String>> {
        let (client, base) = self.client()?;
        let url = format!("{base}/computeMetadata/v1/instance/hostname");
        let answer = client.get(url).header("Metadata-Flavor", "Google").send().ok()?;
        // Google's own sign, by which its libraries tell it from others at this address.
        answer.headers().get("Metadata-Flavor").filter(|flavour| *flavour == "Google")?;
        Some(text(answer).map(|name| name.to_lowercase()))
    }

    fn client(&self) -> Option<(Client, &str)> {
        let base = self.base.as_deref()?;
        // Fails when someone installed it before, which is just as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder()
            .no_proxy()
            .connect_timeout(LIMIT)
            .timeout(LIMIT)
            .redirect(redirect::Policy::none())
            .build()
            .ok()?;
        Some((client, base))
    }
}

/// What a successful answer says; none when it says nothing, or too much.
fn text(answer: Response) -> Option<String> {
    if !answer.status().is_success() || answer.content_length().is_some_and(|length| length > MAX_ANSWER as u64) {
        return None;
    }
    let text = answer.text().ok()?.trim().to_owned();
    (!text.is_empty() && text.len() <= MAX_ANSWER).then_some(text)
}
