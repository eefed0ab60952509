//! Compiled kernels on a device.

use crate::compiler::Image;
use crate::context::Context;
use crate::error::{Error, Named};
use cudarc::driver::result;
use cudarc::driver::sys;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Kernels that are loaded.
#[derive(Debug)]
pub struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: the driver's handles may be used by any thread that has bound the context.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug)]
pub struct Function {
    /// Loaded as long as this lives.
    _module: Arc<Module>,
    raw: sys::CUfunction,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads an image.
    ///
    /// # Errors
    /// If it is none, or is for another architecture.
    pub fn load(context: &Arc<Context>, image: &Image) -> Result<Arc<Module>, Error> {
        context.bind()?;
        // SAFETY: the image is a whole cubin, which says its own length: the compiler made it, in this process or, as the checksum of its
        // entry says, in an earlier one of this user (`Image`).
        let loaded = unsafe { result::module::load_data(image.bytes().as_ptr().cast::<c_void>()) };
        let raw = context.noted(loaded.named("cuModuleLoadData"))?;
        Ok(Arc::new(Module { context: context.clone(), raw }))
    }

    /// Returns a kernel by its name.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Arc<Function>, Error> {
        self.context.bind()?;
        let name = CString::new(name).map_err(|_| Error::Refused("a name with a zero in it".into()))?;
        // SAFETY: the module is loaded as long as this lives.
        let found = unsafe { result::module::get_function(self.raw, name) };
        let raw = self.context.noted(found.named("cuModuleGetFunction"))?;
        Ok(Arc::new(Function { _module: self.clone(), raw }))
    }
}

impl Function {
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: work that runs its kernels holds it, so none is under way.
            let unloaded = unsafe { result::module::unload(self.raw) };
            let _ = self.context.noted(unloaded.named("cuModuleUnload"));
        }
    }
}
