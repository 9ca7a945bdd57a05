//! The state that requests and controllers of a running cluster share.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Error;

use super::faults::Faults;
use super::pki::Pki;
use super::store::Store;
use super::tokens::TokenKey;
use crate::node::files;

/// A running cluster.
pub struct Api {
    store: Mutex<Store>,
    pub pki: Pki,
    pub keys: TokenKey,
    pub faults: Faults,
    /// Why a controller could not save, for the next request.
    trouble: Mutex<Option<Error>>,
}

impl Api {
    pub fn new(store: Store, pki: Pki, keys: TokenKey, faults: Faults) -> Self {
        Self { store: Mutex::new(store), pki, keys, faults, trouble: Mutex::new(None) }
    }

    /// The state, while the guard lives. A panic elsewhere does not poison it.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to the list of noted requests.
    pub fn note(&self, method: &str, path: &str, own: bool) -> io::Result<()> {
        let by = if own { "" } else { " (by a service's program)" };
        files::append(&self.store().next_to("calls"), format!("{method} {path}{by}\n").as_bytes())
    }

    pub fn fail(&self, error: Error) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Why a controller could not save, since the last call.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
