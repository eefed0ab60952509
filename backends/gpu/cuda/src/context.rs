//! The primary context of a device, which all users of a process share.

use crate::convolution::DnnHandle;
use crate::error::{Error, NamedResult};
use crate::library::Library;
use crate::product::Handle;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its number.
    pub index: usize,
    /// Its name, as the driver says it.
    pub name: String,
    /// Its compute capability: 87 for 8.7.
    pub arch: u32,
    /// Bytes of its memory.
    pub memory: usize,
    /// The newest version of CUDA that the driver knows: 12080 for 12.8.
    pub driver: i32,
    /// Whether memory can be allocated in the order of a stream.
    pub(crate) has_pools: bool,
}

/// Lists the devices.
///
/// # Errors
/// If the driver is missing, or answers with an error.
pub fn devices() -> Result<Vec<Info>, Error> {
    Library::Driver.load()?;
    match result::init() {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(Vec::new()),
        initialized => initialized.named("cuInit")?,
    }
    let count = result::device::get_count().named("cuDeviceGetCount")?;
    (0..usize::try_from(count).unwrap_or(0)).map(info).collect()
}

fn info(index: usize) -> Result<Info, Error> {
    let device = device(index)?;
    let mut driver = 0;
    // SAFETY: the driver writes one number.
    unsafe { sys::cuDriverGetVersion(&mut driver).result() }.named("cuDriverGetVersion")?;
    // SAFETY: the device was given by the driver.
    let attribute =
        |which: Attribute| unsafe { result::device::get_attribute(device, which) }.named("cuDeviceGetAttribute");
    let number = |which: Attribute| attribute(which).map(|number| u32::try_from(number).unwrap_or(0));
    Ok(Info {
        index,
        name: result::device::get_name(device).named("cuDeviceGetName")?,
        arch: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
            + number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }.named("cuDeviceTotalMem")?,
        driver,
        has_pools: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? > 0,
    })
}

fn device(index: usize) -> Result<sys::CUdevice, Error> {
    let ordinal = i32::try_from(index)
        .map_err(|_| Error::Refused(format!("the number of a device must be at most {}, got {index}", i32::MAX)))?;
    result::device::get(ordinal).named("cuDeviceGet")
}

/// The primary context of a device.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    info: Info,
    /// Where memory is allocated and freed, in that order.
    memory_stream: sys::CUstream,
    /// The first error after which nothing on the device works any more.
    fault: Mutex<Option<Error>>,
    /// What products are computed with, once one is.
    products: OnceLock<Handle>,
    /// What convolutions are computed with, once one is.
    convolutions: OnceLock<Mutex<DnnHandle>>,
    /// Events that nothing uses: with times, and without.
    events: [Mutex<Vec<RawEvent>>; 2],
}

#[derive(Debug)]
struct RawEvent(sys::CUevent);

// SAFETY: the driver's handles may be used by any thread that has bound the context, and by several
// at the same time.
unsafe impl Send for Context {}
// SAFETY: as above; what changes here is behind locks.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for RawEvent {}

impl Context {
    /// Opens the primary context of a device.
    ///
    /// # Errors
    /// If the driver is missing, there is no such device, or it cannot be used.
    pub fn open(index: usize) -> Result<Arc<Context>, Error> {
        let known = devices()?;
        let count = known.len();
        let Some(info) = known.into_iter().nth(index) else {
            return Err(Error::Refused(match count {
                0 => "the driver finds no GPU".into(),
                _ => format!("the number of a device must be below {count}, got {index}"),
            }));
        };
        let device = device(index)?;
        // SAFETY: the device was given by the driver. Released when this is dropped.
        let raw = unsafe { result::primary_ctx::retain(device) }.named("cuDevicePrimaryCtxRetain")?;
        let events = [Mutex::default(), Mutex::default()];
        let none = std::ptr::null_mut();
        let mut context = Context {
            device,
            raw,
            info,
            memory_stream: none,
            fault: Mutex::default(),
            products: OnceLock::new(),
            convolutions: OnceLock::new(),
            events,
        };
        context.bind()?;
        let kind = result::stream::StreamKind::NonBlocking;
        context.memory_stream = context.noted(result::stream::create(kind).named("cuStreamCreate"))?;
        Ok(Arc::new(context))
    }

    /// Returns what the device is.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the error after which nothing on the device works any more.
    pub fn fault(&self) -> Option<Error> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes this the context of the calling thread.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let current = result::ctx::get_current().named("cuCtxGetCurrent")?;
        if current == Some(self.raw) {
            return Ok(());
        }
        // SAFETY: the context is retained as long as this lives.
        unsafe { result::ctx::set_current(self.raw) }.named("cuCtxSetCurrent")
    }

    /// Remembers an error after which nothing works any more.
    pub(crate) fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && error.class() == crate::Class::Sticky
        {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Gives the device up, as after an error after which nothing works: it is busy with something
    /// that does not end.
    pub fn give_up(&self, why: String) {
        let error = Error::Lost(why);
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn memory_stream(&self) -> sys::CUstream {
        self.memory_stream
    }

    /// Finds out whether matrix products can be computed by cuBLASLt.
    ///
    /// # Errors
    /// What is missing, or why it does not start.
    pub fn check_products(&self) -> Result<(), Error> {
        self.cublas_lt().map(|_| ())
    }

    /// Returns the handle of cuBLASLt.
    pub(crate) fn cublas_lt(&self) -> Result<&Handle, Error> {
        self.bind()?;
        if let Some(handle) = self.products.get() {
            return Ok(handle);
        }
        // If another thread was faster, its handle is taken.
        let made = Handle::new()?;
        Ok(self.products.get_or_init(|| made))
    }

    /// Returns the handle of cuDNN.
    pub(crate) fn cudnn(&self) -> Result<&Mutex<DnnHandle>, Error> {
        self.bind()?;
        if let Some(handle) = self.convolutions.get() {
            return Ok(handle);
        }
        // If another thread was faster, its handle is taken.
        let made = Mutex::new(DnnHandle::new()?);
        Ok(self.convolutions.get_or_init(|| made))
    }

    /// Returns an event that nothing uses.
    pub(crate) fn event(&self, is_timed: bool) -> Result<sys::CUevent, Error> {
        let spare = self.events[usize::from(is_timed)].lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(RawEvent(event)) = spare {
            return Ok(event);
        }
        // A thread that waits for it sleeps. `CUevent_flags` has no value for both flags.
        let timing = if is_timed { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32 | timing;
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes the handle.
        let created = unsafe { sys::cuEventCreate(&mut event, flags).result() };
        self.noted(created.named("cuEventCreate"))?;
        Ok(event)
    }

    pub(crate) fn give_back(&self, event: sys::CUevent, is_timed: bool) {
        self.events[usize::from(is_timed)].lock().unwrap_or_else(PoisonError::into_inner).push(RawEvent(event));
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // What a dead context answers does not matter any more.
        let is_bound = self.bind().is_ok();
        let events = self.events.iter_mut().map(|events| events.get_mut().unwrap_or_else(PoisonError::into_inner));
        for RawEvent(event) in events.flat_map(std::mem::take).filter(|_| is_bound) {
            // SAFETY: nothing else uses it, or it would not be here.
            let _ = unsafe { result::event::destroy(event) };
        }
        // A dead context has no use for handles, and calls on it may not return.
        let handles = (self.products.take(), self.convolutions.take());
        match is_bound {
            true => drop(handles),
            false => std::mem::forget(handles),
        }
        if is_bound && !self.memory_stream.is_null() {
            // SAFETY: it was created here, and all memory that was allocated on it has been freed:
            // it holds this context.
            let _ = unsafe { result::stream::destroy(self.memory_stream) };
        }
        // SAFETY: retained when this was opened.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
