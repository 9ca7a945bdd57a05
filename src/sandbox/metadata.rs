//! A cloud's metadata service beside a sandbox node, in the dialect that `node.yaml` names.

use std::convert::Infallible;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use crate::node::sandbox::model::{CloudMetadata, Flavour};

/// Runs until it is dropped.
pub struct MetadataServer {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What EC2's tokens look like.
const TOKEN: &str = "AQAEAFJ0b2tlbi1vZi10aGUtc2FuZGJveA==";

impl MetadataServer {
    pub fn start(cloud: &CloudMetadata) -> Result<Self> {
        let what = "start the sandbox's metadata service";
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context(what)?;
        listener.set_nonblocking(true).context(what)?;
        let url = format!("http://{}", listener.local_addr().context(what)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().context(what)?;
        let (stop, stopped) = oneshot::channel();
        let cloud = cloud.clone();
        let thread = std::thread::Builder::new()
            .name("metadata".into())
            .spawn(move || {
                runtime.spawn(serve(listener, cloud));
                // Either way, told or dropped, it is time to end.
                drop(runtime.block_on(stopped));
            })
            .context(what)?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn serve(listener: std::net::TcpListener, cloud: CloudMetadata) {
    // The listener is open and non-blocking, which is all that this conversion needs.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let cloud = cloud.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let response = answer(&cloud, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that goes away is no error.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
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
