//! The devices that the nodes of a process share.

use super::api::Api;
use super::shared::SharedDevice;
use limen::backend::BackendError;
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the reason alone: what is unavailable is said by those who ask.
fn reason(error: BackendError) -> String {
    match error {
        BackendError::Unavailable(why) => why,
        error => error.to_string(),
    }
}

/// The devices of an API that the nodes of a process share, by their numbers.
pub(crate) struct SharedDevices<A: Api> {
    /// The number of the first one among all devices of a process.
    first: u8,
    known: Mutex<Vec<Option<Arc<SharedDevice<A>>>>>,
}

impl<A: Api> SharedDevices<A> {
    pub(crate) const fn new(first: u8) -> Self {
        SharedDevices { first, known: Mutex::new(Vec::new()) }
    }

    /// Returns the device of a number, which `open` opens. If it is not known which one is meant,
    /// what is returned says why when it is used.
    pub(crate) fn get(
        &self,
        number: Result<usize, BackendError>,
        open: fn(usize) -> Result<A, BackendError>,
    ) -> Arc<SharedDevice<A>> {
        let number = match number {
            Ok(number) => number,
            Err(error) => {
                let why = reason(error);
                return Arc::new(SharedDevice::new(self.first, move || Err(why.clone())));
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() <= number {
            known.resize_with(number + 1, || None);
        }
        let apart = u8::try_from(number).unwrap_or(u8::MAX);
        let make =
            || Arc::new(SharedDevice::new(self.first.saturating_add(apart), move || open(number).map_err(reason)));
        known[number].get_or_insert_with(make).clone()
    }
}
