//! The metadata services of clouds, at their link-local address. Never through a proxy, and with short limits: on most
//! machines there is no such service.

use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::redirect;

use crate::facts::Provider;

/// Clouds answer in some milliseconds; elsewhere every install waits this long.
const LIMIT: Duration = Duration::from_secs(1);
/// The lifetime of an IMDSv2 token in seconds: it is used once.
const TOKEN_TTL: &str = "60";
/// Longer than any host name or token.
const MAX_ANSWER: usize = 1024;

/// Where to ask.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// None: do not ask.
    base: Option<String>,
}

/// A service that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub provider: Provider,
    /// The service, as evidence.
    pub service: &'static str,
    /// Its name of the instance, if it has one.
    pub instance_name: Option<String>,
}

/// How a cloud's service is asked for the instance's name: none if it is not that cloud's.
type Dialect = (Provider, &'static str, fn(&Metadata) -> Option<Option<String>>);

/// The first answer applies.
const DIALECTS: [Dialect; 2] = [
    (Provider::Ec2, "the EC2 instance metadata service", Metadata::ec2),
    (Provider::Gce, "the GCE metadata service", Metadata::gce),
];

impl Metadata {
    /// The address that AWS and Google share. Google's host name for it would need a DNS query that only Google's
    /// resolver answers quickly.
    pub fn link_local() -> Self {
        Self::at("http://169.254.169.254")
    }

    pub fn at(base: impl Into<String>) -> Self {
        Self { base: Some(base.into()) }
    }

    pub const fn nowhere() -> Self {
        Self { base: None }
    }

    /// Asks in all protocols at once.
    pub fn ask_all(&self) -> Vec<Answer> {
        self.ask(&DIALECTS)
    }

    /// Asks as on this cloud; nothing if it has no such service.
    pub fn ask_as_on(&self, provider: Provider) -> Vec<Answer> {
        let dialects: Vec<Dialect> = DIALECTS.into_iter().filter(|(cloud, ..)| *cloud == provider).collect();
        self.ask(&dialects)
    }

    fn ask(&self, dialects: &[Dialect]) -> Vec<Answer> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = dialects.iter().map(|(.., ask)| scope.spawn(|| ask(self))).collect();
            let answers = asked.into_iter().map(|answer| answer.join().unwrap_or_default());
            let told = dialects.iter().zip(answers);
            told.filter_map(|((provider, service, _), answer)| {
                Some(Answer { provider: *provider, service, instance_name: answer? })
            })
            .collect()
        })
    }

    /// IMDSv2: a token first. Without a token it is not EC2, even if it has EC2's paths.
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
        // Google's own header, by which its libraries recognize the service.
        answer.headers().get("Metadata-Flavor").filter(|flavour| *flavour == "Google")?;
        Some(text(answer).map(|name| name.to_lowercase()))
    }

    fn client(&self) -> Option<(Client, &str)> {
        let base = self.base.as_deref()?;
        // Fails if one is already installed, which is fine.
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

/// The text of a successful response; none if it is empty, or too long.
fn text(answer: Response) -> Option<String> {
    if !answer.status().is_success() || answer.content_length().is_some_and(|length| length > MAX_ANSWER as u64) {
        return None;
    }
    let text = answer.text().ok()?.trim().to_owned();
    (!text.is_empty() && text.len() <= MAX_ANSWER).then_some(text)
}
