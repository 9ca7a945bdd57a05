//! Tokens of service accounts, as the embedded cluster signs them; also for the tests of the executable.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

/// Returns the claims of a token.
pub fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

/// Returns a token as the cluster would have signed it some time ago, with its key in PEM: `over` maps its lifetime to
/// the part that is over, in seconds.
pub fn aged(key: &str, token: &str, over: impl Fn(i64) -> i64) -> String {
    let mut old = claims(token);
    let life = old["exp"].as_i64().unwrap() - old["iat"].as_i64().unwrap();
    for time in ["iat", "nbf", "exp"] {
        old[time] = json!(old[time].as_i64().unwrap() - over(life));
    }
    let key = KeyPair::from_pem(key).unwrap();
    let signed = format!("{}.{}", token.split('.').next().unwrap(), URL_SAFE_NO_PAD.encode(old.to_string()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).unwrap()))
}
