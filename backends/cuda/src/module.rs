//! Compiled kernels on a device.

use crate::compiler::Image;
use crate::context::Context;
use crate::error::{Error, Named};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
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
    module: Arc<Module>,
    raw: sys::CUfunction,
    /// The most threads that a block of it can have.
    pub max_threads: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Registers of each of its threads.
    pub registers: u32,
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
        // SAFETY: the image ends with a zero, as the driver expects of PTX; a cubin says its own length, which the driver checks.
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
        // SAFETY: the function was found above.
        let number = |which: Attribute| unsafe { result::function::get_function_attribute(raw, which) };
        let number = |which: Attribute| number(which).map(|number| u32::try_from(number).unwrap_or(0));
        let of = |which: Attribute| self.context.noted(number(which).named("cuFuncGetAttribute"));
        Ok(Arc::new(Function {
            max_threads: of(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared: of(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            registers: of(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            module: self.clone(),
            raw,
        }))
    }
}

impl Function {
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    /// Lets blocks of it have so many bytes of shared memory beside those that it declares; 48 KiB in all need no permission.
    ///
    /// # Errors
    /// If the device has not so many.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), Error> {
        let context = &self.module.context;
        context.bind()?;
        let bytes = i32::try_from(bytes).map_err(|_| Error::Refused(format!("{bytes} bytes of shared memory")))?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded as long as this lives.
        let set = unsafe { result::function::set_function_attribute(self.raw, which, bytes) };
        context.noted(set.named("cuFuncSetAttribute"))
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
