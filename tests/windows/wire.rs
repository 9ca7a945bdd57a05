//! The connection between a node and its API server: the node always dials the same port, whichever server is behind
//! it, and a test can interrupt it.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A loopback port of this host that forwards to a server, or to nothing.
pub struct Wire {
    pub port: u16,
    ends: Arc<Mutex<Ends>>,
}

#[derive(Default)]
struct Ends {
    /// The target; none while it is interrupted.
    to: Option<SocketAddr>,
    /// Both ends of every connection so far.
    open: Vec<TcpStream>,
    gone: bool,
}

impl Wire {
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ends = Arc::new(Mutex::new(Ends { to: Some(server), ..Ends::default() }));
        let shared = Arc::clone(&ends);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if locked(&shared).gone {
                    return;
                }
                // If nothing takes a connection, it is closed at once.
                if let Err(error) = forward(&shared, stream) {
                    assert_ne!(error.kind(), ErrorKind::Other, "{error}");
                }
            }
        });
        Self { port, ends }
    }

    /// Closes every connection, and refuses new ones.
    pub fn cut(&self) {
        let mut ends = locked(&self.ends);
        ends.to = None;
        for stream in ends.open.drain(..) {
            // It may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Forwards to this server from now on.
    #[cfg(not(windows))]
    pub fn reconnect(&self, server: SocketAddr) {
        locked(&self.ends).to = Some(server);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
        locked(&self.ends).gone = true;
        // Wakes the listening thread.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn locked(ends: &Mutex<Ends>) -> MutexGuard<'_, Ends> {
    ends.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries bytes both ways until one side ends.
fn forward(ends: &Mutex<Ends>, near: TcpStream) -> io::Result<()> {
    let mut ends = locked(ends);
    let Some(server) = ends.to else { return Ok(()) };
    let far = TcpStream::connect(server)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || {
            drop(io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
    ends.open.extend([near, far]);
    Ok(())
}
