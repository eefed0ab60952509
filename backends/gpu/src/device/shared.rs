//! A device as the nodes of a process share it: it is opened on first use, and opened again after
//! it was lost.

use super::api::Api;
use super::memory::{INSTEAD, PoolMemory, slot_layout};
use limen::backend::BackendError;
use limen::message::{Device, DeviceMemory, DevicePool};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A device is opened again at most so often in this time.
const REBUILDS: usize = 3;
const WITHIN: Duration = Duration::from_secs(60);

/// A device that nodes share.
pub(crate) struct SharedDevice<A: Api> {
    number: u8,
    open: Box<dyn Fn() -> Result<A, String> + Send + Sync>,
    current: Mutex<Current<A>>,
}

struct Current<A> {
    generation: u32,
    api: Option<Arc<A>>,
    /// When it was opened again, the latest last.
    rebuilt: VecDeque<Instant>,
}

impl<A: Api> fmt::Debug for SharedDevice<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDevice").field("name", &A::NAME).field("number", &self.number).finish_non_exhaustive()
    }
}

impl<A: Api> SharedDevice<A> {
    /// Creates a device that `open` opens.
    pub(crate) fn new(number: u8, open: impl Fn() -> Result<A, String> + Send + Sync + 'static) -> Self {
        let current = Current { generation: 0, api: None, rebuilt: VecDeque::new() };
        SharedDevice { number, open: Box::new(open), current: Mutex::new(current) }
    }

    /// Returns the open device with its generation. One that was lost is opened again.
    ///
    /// # Errors
    /// If it cannot be opened, or was lost too often.
    pub(crate) fn api(&self) -> Result<(u32, Arc<A>), BackendError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(api) = current.api.as_ref().filter(|api| !api.is_lost()) {
            return Ok((current.generation, api.clone()));
        }
        let name = A::NAME;
        current.api = None;
        let is_rebuilt = current.generation > 0;
        let now = Instant::now();
        if is_rebuilt {
            current.rebuilt.retain(|then| now.duration_since(*then) < WITHIN);
            if current.rebuilt.len() >= REBUILDS {
                let seconds = WITHIN.as_secs();
                let why = format!("`{name}` was lost again after it was rebuilt {REBUILDS} times in {seconds} s");
                return Err(BackendError::Unavailable(why));
            }
        }
        let api = (self.open)().map_err(|why| BackendError::Unavailable(format!("`{name}`: {why}")))?;
        current.generation += 1;
        if is_rebuilt {
            current.rebuilt.push_back(now);
        }
        let api = current.api.insert(Arc::new(api)).clone();
        Ok((current.generation, api))
    }
}

impl<A: Api> Device for SharedDevice<A> {
    fn number(&self) -> u8 {
        self.number
    }

    fn name(&self) -> &str {
        A::NAME
    }

    fn pool_bytes(&self, pool: &DevicePool<'_>) -> Result<usize, String> {
        let (_, slot) = slot_layout::<A>(pool)?;
        // A device that cannot be opened is reported elsewhere.
        let most = self.api().map_or(usize::MAX, |(_, api)| api.most_bytes());
        if slot > most {
            return Err(format!("a slot must have at most {most} bytes on the device, got {slot}: {INSTEAD}"));
        }
        slot.checked_mul(pool.slots).ok_or_else(|| "the size of the pool must fit 64 bits, got more".into())
    }

    fn allocate(&self, pool: &DevicePool<'_>) -> Result<Arc<dyn DeviceMemory>, String> {
        let (generation, api) = self.api().map_err(|error| error.to_string())?;
        Ok(Arc::new(PoolMemory::new(generation, &*api, pool)?))
    }
}
