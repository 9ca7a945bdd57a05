//! A small HTTP server on 127.0.0.1, shared by the release mirror and the metadata service of a sandbox.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

/// Serves on a port that the system chooses, until dropped.
pub struct Loopback {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// `what` names the server in errors; `answer` creates the response to each request.
    pub fn start<B>(
        what: &str,
        answer: impl Fn(&Request<Incoming>) -> Response<B> + Send + Sync + 'static,
    ) -> Result<Self>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
    {
        let doing = || format!("start {what}");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).with_context(doing)?;
        listener.set_nonblocking(true).with_context(doing)?;
        let address = listener.local_addr().with_context(doing)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().with_context(doing)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(what.to_owned())
            .spawn(move || {
                runtime.spawn(serve(listener, Arc::new(answer)));
                // A message or a dropped sender both end it; the runtime ends its tasks.
                drop(runtime.block_on(stopped));
            })
            .with_context(doing)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn serve<B>(
    listener: std::net::TcpListener,
    answer: Arc<impl Fn(&Request<Incoming>) -> Response<B> + Send + Sync + 'static>,
) where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    // The listener is open and non-blocking, as this conversion requires.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let response = answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that closes, and a connection that a fault closes, are not errors.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}
