//! Compiled kernels on a device.

use crate::compiler::Image;
use crate::context::Context;
use crate::error::{Class, Error, NamedResult};
use crate::library::Library;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUjit_option as JitOption, CUresult};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// The most that the driver's compiler says of an error.
const LOG_BYTES: usize = 8 << 10;

/// A kernel has at most as many parameters as 32 KiB hold.
const MAX_PARAMETERS: usize = 32 << 10;

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
    module: Arc<Module>,
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
        // SAFETY: the image is a whole cubin, which says its own length: the compiler made it, in
        // this process or, as the checksum of its entry says, in an earlier one of this user
        // (`Image`).
        let loaded = unsafe { result::module::load_data(image.bytes().as_ptr().cast::<c_void>()) };
        let raw = context.noted(loaded.named("cuModuleLoadData"))?;
        Ok(Arc::new(Module { context: context.clone(), raw }))
    }

    /// Has the driver compile PTX for its device, and loads that.
    ///
    /// # Errors
    /// What the driver's compiler says of it.
    pub fn compile_ptx(context: &Arc<Context>, text: &str) -> Result<Arc<Module>, Error> {
        context.bind()?;
        let text = CString::new(text).map_err(|_| Error::Refused("PTX must not contain a zero byte".into()))?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes a number in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the text ends with a zero; the log has so many bytes; the driver reads as many
        // options as it is told.
        let loaded = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                text.as_ptr().cast::<c_void>(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
            .result()
        };
        let log: Vec<u8> = log.into_iter().take_while(|byte| *byte != 0).collect();
        let loaded = context.noted(loaded.named("cuModuleLoadDataEx")).map_err(|error| match log.is_empty() {
            false if error.class() == Class::Reject => {
                Error::Compile(format!("{error}\n{}", String::from_utf8_lossy(&log).trim()))
            }
            _ => error,
        });
        loaded.map(|()| Arc::new(Module { context: context.clone(), raw }))
    }

    /// Returns a kernel by its name.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Arc<Function>, Error> {
        self.context.bind()?;
        let name = CString::new(name)
            .map_err(|_| Error::Refused("the name of a kernel must not contain a zero byte".into()))?;
        // SAFETY: the module is loaded as long as this lives.
        let found = unsafe { result::module::get_function(self.raw, name) };
        let raw = self.context.noted(found.named("cuModuleGetFunction"))?;
        Ok(Arc::new(Function { module: self.clone(), raw }))
    }
}

/// What a kernel needs of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The most threads of a block.
    pub threads: usize,
    /// Registers of a thread.
    pub registers: usize,
    /// Bytes of shared memory of a block, without what a launch adds.
    pub shared: usize,
    /// Bytes of local memory of a thread.
    pub local: usize,
}

impl Function {
    /// Returns what it needs of the device.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn info(&self) -> Result<FunctionInfo, Error> {
        self.module.context.bind()?;
        let number = |which: Attribute| {
            // SAFETY: the function is loaded as long as this lives.
            let number = unsafe { result::function::get_function_attribute(self.raw, which) };
            let number = self.module.context.noted(number.named("cuFuncGetAttribute"))?;
            Ok::<_, Error>(usize::try_from(number).unwrap_or(0))
        };
        Ok(FunctionInfo {
            threads: number(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: number(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared: number(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local: number(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        })
    }

    /// Returns the bytes of each of its parameters; `None` if the driver is of a version that does
    /// not say.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn parameters(&self) -> Result<Option<Vec<usize>>, Error> {
        self.module.context.bind()?;
        if !Library::driver_has("cuFuncGetParamInfo") {
            return Ok(None);
        }
        let mut sizes = Vec::new();
        while sizes.len() <= MAX_PARAMETERS {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded as long as this lives; the driver writes two numbers.
            match unsafe { sys::cuFuncGetParamInfo(self.raw, sizes.len(), &mut offset, &mut size) } {
                // There is no such parameter.
                CUresult::CUDA_ERROR_INVALID_VALUE => break,
                result => self.module.context.noted(result.result().named("cuFuncGetParamInfo"))?,
            }
            sizes.push(size);
        }
        Ok(Some(sizes))
    }

    /// Lets launches add so many bytes of shared memory.
    ///
    /// # Errors
    /// If the device has less.
    pub fn allow_shared(&self, bytes: usize) -> Result<(), Error> {
        self.module.context.bind()?;
        let too_much = |_| Error::Refused(format!("shared memory must be at most {} bytes, got {bytes}", i32::MAX));
        let number = i32::try_from(bytes).map_err(too_much)?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded as long as this lives.
        let set = unsafe { result::function::set_function_attribute(self.raw, which, number) };
        self.module.context.noted(set.named("cuFuncSetAttribute"))
    }

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
