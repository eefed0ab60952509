//! Memory of the device, and memory of the host that the device copies from or to.

use crate::context::Context;
use crate::error::{Error, NamedResult};
use crate::stream::StreamEvent;
use cudarc::driver::result;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of a device, freed when the last work that uses it has ended.
#[derive(Debug)]
pub struct Buffer {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Buffer {
    /// Allocates memory; its content is not defined. No empty buffer is allocated: it has 4 bytes
    /// then.
    ///
    /// # Errors
    /// If the device has not enough ([`Class::Retry`](crate::Class::Retry)).
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Buffer, Error> {
        context.bind()?;
        let bytes = bytes.max(4);
        let stream = context.memory_stream();
        // SAFETY: the stream belongs to the context. Memory may be used by other streams only after
        // its allocation, which the host waits for here: it happens while a graph is prepared.
        let allocated = unsafe {
            match context.info().has_pools {
                true => result::malloc_async(stream, bytes)
                    .and_then(|address| result::stream::synchronize(stream).map(|()| address)),
                false => result::malloc_sync(bytes),
            }
        };
        let address = context.noted(allocated.named("cuMemAlloc"))?;
        Ok(Buffer { context: context.clone(), address, bytes })
    }

    /// Returns its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // In a dead context nothing can be freed any more.
        if self.context.bind().is_err() {
            return;
        }
        // SAFETY: allocated by the same pair of calls. Work that uses it holds it (`StreamEvent`),
        // so none is under way.
        let freed = unsafe {
            match self.context.info().has_pools {
                true => result::free_async(self.address, self.context.memory_stream()),
                false => result::free_sync(self.address),
            }
        };
        let _ = self.context.noted(freed.named("cuMemFree"));
    }
}

/// Which way memory of the host is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// To the device. The host should only write it, front to back: it bypasses the caches, and
    /// reading it is very slow.
    Upload,
    /// To the host.
    Download,
}

/// Memory of the host at a fixed place, which the device reads and writes by itself.
#[derive(Debug)]
pub struct PinnedBuffer {
    pub(crate) memory: Arc<PinnedMemory>,
    /// The last work that uses it.
    pub(crate) used_by: Option<StreamEvent>,
}

#[derive(Debug)]
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: nothing is bound to the thread that allocated it; it is read and written under the rules
// of `PinnedBuffer`.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedBuffer {
    /// Allocates memory of zeros.
    ///
    /// # Errors
    /// If the system has not enough that can be kept in place.
    pub fn new(context: &Arc<Context>, bytes: usize, direction: CopyDirection) -> Result<PinnedBuffer, Error> {
        context.bind()?;
        let bytes = bytes.max(4);
        let flags = match direction {
            CopyDirection::Upload => sys::CU_MEMHOSTALLOC_WRITECOMBINED,
            CopyDirection::Download => 0,
        };
        // SAFETY: a plain allocation, freed by `PinnedMemory`.
        let allocated = unsafe { result::malloc_host(bytes, flags) };
        let address = context.noted(allocated.named("cuMemHostAlloc"))?.cast::<u8>();
        // SAFETY: it was allocated with so many bytes, and nothing uses it yet.
        unsafe { address.write_bytes(0, bytes) };
        Ok(PinnedBuffer { memory: Arc::new(PinnedMemory { context: context.clone(), address, bytes }), used_by: None })
    }

    /// Returns its size.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Whether no work uses it any more.
    pub fn is_free(&self) -> bool {
        self.used_by.as_ref().is_none_or(|event| !matches!(event.query(), Ok(false)))
    }

    /// Waits until no work uses it any more.
    ///
    /// # Errors
    /// If the device fails; then nothing uses it any more.
    pub fn wait(&mut self) -> Result<(), Error> {
        match self.used_by.take() {
            Some(event) => event.wait(),
            None => Ok(()),
        }
    }

    /// Writes bytes from the beginning on.
    ///
    /// # Errors
    /// If work uses it, or it has fewer bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check(bytes.len())?;
        // SAFETY: so many bytes are there, and the device does not use them: no work with them is
        // under way, and no other starts while this is borrowed.
        unsafe { self.memory.address.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Reads bytes from the beginning on.
    ///
    /// # Errors
    /// If work uses it, or it has fewer bytes.
    pub fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.check(into.len())?;
        // SAFETY: as above; all bytes are initialized since the allocation.
        unsafe { self.memory.address.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Passes all bytes on.
    ///
    /// # Errors
    /// If work uses it.
    pub fn with_bytes<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        self.check(self.memory.bytes)?;
        // SAFETY: as above, as long as this is borrowed.
        Ok(take(unsafe { std::slice::from_raw_parts(self.memory.address, self.memory.bytes) }))
    }

    fn check(&mut self, bytes: usize) -> Result<(), Error> {
        if !self.is_free() {
            return Err(Error::Refused("the host memory is in use by unfinished work".into()));
        }
        self.used_by = None;
        match bytes <= self.memory.bytes {
            true => Ok(()),
            false => Err(Error::Refused(format!("the host memory must have {bytes} bytes, got {}", self.memory.bytes))),
        }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // Work that uses it holds it, so none is under way, or none ever ends: then its memory
        // stays.
        if self.context.bind().is_ok() {
            // SAFETY: allocated by `malloc_host`.
            let freed = unsafe { result::free_host(self.address.cast::<c_void>()) };
            let _ = self.context.noted(freed.named("cuMemFreeHost"));
        }
    }
}
