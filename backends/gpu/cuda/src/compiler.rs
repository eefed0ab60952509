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
    /// Takes what was kept of an earlier start ([`Image::bytes`]): the driver runs it as it is, so
    /// it has to be from a file that only the user of this process can have written.
    pub fn kept(bytes: &PrivateBytes) -> Image {
        Image(bytes.to_vec())
    }

    /// Takes code that somebody else made.
    ///
    /// # Errors
    /// If it is not a cubin that lies in these bytes whole: the driver is not told how many there
    /// are, and reads what the code itself says.
    pub fn cubin(bytes: Vec<u8>) -> Result<Image, Error> {
        match elf_end(&bytes) {
            Some(end) if end <= bytes.len() => Ok(Image(bytes)),
            Some(end) => Err(Error::Refused(format!("expected {end} bytes, found {}", bytes.len()))),
            None => Err(Error::Refused("not a cubin: expected a 64-bit ELF file for CUDA".into())),
        }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The machine of ELF that stands for CUDA.
const CUDA_MACHINE: u16 = 190;
/// A section that has no bytes in the file.
const NO_BITS: u32 = 8;

/// Returns where a file of ELF ends, by what it says itself: its header, its tables, its segments
/// and its sections; `None` if it is none for CUDA.
fn elf_end(bytes: &[u8]) -> Option<usize> {
    fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }
    let half = |at| number(bytes, at).map(u16::from_le_bytes);
    let word = |at| number(bytes, at).map(u32::from_le_bytes);
    let long = |at| usize::try_from(u64::from_le_bytes(number(bytes, at)?)).ok();
    if !bytes.starts_with(b"\x7fELF\x02\x01") || half(18)? != CUDA_MACHINE {
        return None;
    }
    let mut end = 64usize;
    // Where a table begins, how long its entries are and how many; within an entry, its type, and
    // the place and length of what it names.
    for (table, length, count, [place, size]) in [(32, 54, 56, [8, 32]), (40, 58, 60, [24, 32])] {
        let (table, length, count) = (long(table)?, usize::from(half(length)?), usize::from(half(count)?));
        end = end.max(table.checked_add(length.checked_mul(count)?)?);
        for at in (0..count).map(|entry| table + entry * length) {
            // What lies outside ends the file there.
            let is_absent = place == 24 && word(at + 4).is_none_or(|kind| kind == NO_BITS);
            if let (false, Some(place), Some(size)) = (is_absent, long(at + place), long(at + size)) {
                end = end.max(place.checked_add(size)?);
            }
        }
    }
    Some(end)
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
    let text =
        |text: &str| CString::new(text).map_err(|_| Error::Refused(format!("`{name}` must not contain a zero byte")));
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
                    let help = "install an earlier NVRTC for an older GPU, or a later NVRTC for a newer GPU";
                    Error::Compile(format!("NVRTC{version} does not support this GPU (sm_{arch}; {log}): {help}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one section of `size` bytes behind it.
    fn elf(size: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = 190;
        bytes[40] = 64;
        bytes[58] = 64;
        bytes[60] = 1;
        bytes[64 + 4] = 1;
        bytes[64 + 24] = 128;
        bytes[64 + 32..64 + 40].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn code_that_lies_in_its_bytes_is_taken() {
        let whole = [elf(10), vec![0; 10]].concat();
        assert!(Image::cubin(whole.clone()).is_ok());
        for cut in 0..whole.len() {
            assert!(Image::cubin(whole[..cut].to_vec()).is_err(), "{cut}");
        }
        for (bytes, why) in [
            (b"text".to_vec(), "not a cubin"),
            (elf(u64::MAX), "not a cubin"),
            (elf(u64::MAX / 4), "found 128"),
            ([elf(10), vec![0; 9]].concat(), "expected 138 bytes, found 137"),
        ] {
            let error = Image::cubin(bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        // Of a section without bytes in the file, only the header counts.
        let mut without = elf(1 << 40);
        without[64 + 4] = 8;
        assert!(Image::cubin(without).is_ok());
    }
}
