//! NVRTC: CUDA C to code for an architecture, without a device.

use crate::error::Error;
use crate::library::Library;
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;
use limen::files::PrivateBytes;
use std::ffi::CString;

/// Code for a device: a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(Vec<u8>);

impl Image {
    /// Takes what was kept of an earlier start ([`Image::bytes`]): the driver runs it as it is, so it has to be from a file that only the
    /// user of this process can have written.
    pub fn kept(bytes: &PrivateBytes) -> Image {
        Image(bytes.to_vec())
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the version of the compiler: 12.8.
///
/// # Errors
/// If it is missing.
pub fn version() -> Result<(i32, i32), Error> {
    Library::Nvrtc.load()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library writes two numbers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor).result() }.map_err(|error| failed("nvrtcVersion", error))?;
    Ok((major, minor))
}

/// Compiles a program for an architecture (87 for 8.7). `name` stands in its messages.
///
/// # Errors
/// What the compiler says of it, or that it is missing.
pub fn compile(name: &str, source: &str, arch: u32, options: &[&str]) -> Result<Image, Error> {
    Library::Nvrtc.load()?;
    let text = |text: &str| CString::new(text).map_err(|_| Error::Refused(format!("`{name}` has a zero in it")));
    let (source, called) = (text(source)?, text(name)?);
    let program =
        result::create_program(&source, Some(&called)).map_err(|error| failed("nvrtcCreateProgram", error))?;
    let mut all = vec![format!("--gpu-architecture=sm_{arch}")];
    all.extend(options.iter().map(|option| option.to_string()));
    // SAFETY: the program was created above and is destroyed below.
    let compiled = unsafe { result::compile_program(program, &all) };
    let image = match compiled {
        // SAFETY: as above.
        Ok(()) => unsafe { cubin(program) },
        Err(error) => {
            // SAFETY: as above.
            let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
            let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
            let log = String::from_utf8_lossy(&log).trim().to_string();
            Err(match log.as_str() {
                "" => failed("nvrtcCompileProgram", error),
                log if log.contains("--gpu-architecture") => {
                    let version =
                        version().map_or_else(|_| String::new(), |(major, minor)| format!(" {major}.{minor}"));
                    let newer = "an older GPU needs an earlier version of it, a newer GPU a later one";
                    Error::Compile(format!("NVRTC{version} makes no code for this GPU (sm_{arch}); {newer} ({log})"))
                }
                log => Error::Compile(log.into()),
            })
        }
    };
    // SAFETY: as above.
    let _ = unsafe { result::destroy_program(program) };
    image
}

/// Returns the code of a compiled program.
///
/// # Safety
/// The program was compiled for a real architecture.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Image, Error> {
    let mut size = 0;
    // SAFETY: the library writes one number.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut size).result() }
        .map_err(|error| failed("nvrtcGetCUBINSize", error))?;
    let mut bytes = vec![0u8; size];
    // SAFETY: so many bytes are there.
    unsafe { sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()).result() }
        .map_err(|error| failed("nvrtcGetCUBIN", error))?;
    Ok(Image(bytes))
}

fn failed(call: &str, error: NvrtcError) -> Error {
    Error::Compile(format!("{call}: {error:?}"))
}
