//! A cloud's metadata service for a sandbox node, in the protocol that `node.yaml` names.

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};

use super::loopback::Loopback;
use crate::node::sandbox::model::{CloudMetadata, Flavour};

/// Runs until it is dropped.
pub struct MetadataServer(Loopback);

/// An example of EC2's tokens.
const TOKEN: &str = "AQAEAFJ0b2tlbi1vZi10aGUtc2FuZGJveA==";

impl MetadataServer {
    pub fn start(cloud: &CloudMetadata) -> Result<Self> {
        let cloud = cloud.clone();
        Ok(Self(Loopback::start("the sandbox's metadata service", move |request| answer(&cloud, request))?))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }
}

fn answer(cloud: &CloudMetadata, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let name = || if cloud.host_name.is_empty() { None } else { Some(cloud.host_name.clone()) };
    let (status, body) = match (cloud.flavour, request.method(), request.uri().path()) {
        (Flavour::Ec2, &Method::PUT, "/latest/api/token") => {
            match header("X-aws-ec2-metadata-token-ttl-seconds").and_then(|ttl| ttl.parse::<u32>().ok()) {
                Some(1..=21600) => (StatusCode::OK, Some(TOKEN.to_owned())),
                _ => (StatusCode::BAD_REQUEST, None),
            }
        }
        (Flavour::Ec2, &Method::GET, _) if header("X-aws-ec2-metadata-token") != Some(TOKEN) => {
            (StatusCode::UNAUTHORIZED, None)
        }
        (Flavour::Ec2 | Flavour::OpenStack, &Method::GET, "/latest/meta-data/local-hostname") => {
            (StatusCode::OK, name())
        }
        (Flavour::Gce, &Method::GET, "/computeMetadata/v1/instance/hostname") => match header("Metadata-Flavor") {
            Some("Google") => (StatusCode::OK, name()),
            _ => (StatusCode::FORBIDDEN, None),
        },
        (Flavour::CaptivePortal, ..) => (StatusCode::OK, Some("<html>please log in</html>".into())),
        _ => (StatusCode::NOT_FOUND, None),
    };
    let status = if body.is_none() && status == StatusCode::OK { StatusCode::NOT_FOUND } else { status };
    let mut response = Response::new(Full::new(Bytes::from(body.unwrap_or_default())));
    *response.status_mut() = status;
    if cloud.flavour == Flavour::Gce {
        response.headers_mut().insert("Metadata-Flavor", hyper::header::HeaderValue::from_static("Google"));
    }
    response
}
