//! CUDA C compiled for a device, kept in the cache on disk.

use limen_cuda::{Context, Error, Image, Module, compile, version};
use limen_infer::Compiled;
use limen_infer::internal::sha256;
use limen_infer::internal::{CacheKey, Kept, read_private, write_private};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The language that `.ci/lanes/cuda/cuda.py` checks.
const OPTIONS: [&str; 1] = ["--std=c++14"];

/// Compiles a program with options beside the usual ones, or finds what was compiled of it before,
/// and loads it.
///
/// # Errors
/// What the compiler says of it, or that the device does not load it.
pub(super) fn load(
    context: &Arc<Context>,
    name: &str,
    source: &str,
    more: &[&str],
    cache: Option<&Path>,
    compiled: &mut Compiled,
) -> Result<Arc<Module>, Error> {
    let arch = context.info().arch;
    let options: Vec<&str> = OPTIONS.iter().chain(more).copied().collect();
    let begun = Instant::now();
    let entry = match cache {
        Some(folder) => {
            let (major, minor) = version()?;
            let (flags, sum) = (options.join(" "), sha256(source.as_bytes()));
            let of = ["cubin", &format!("nvrtc {major}.{minor}"), &format!("sm_{arch}"), &flags, &sum];
            Some((folder, CacheKey::of_cubin(&of)))
        }
        None => None,
    };
    match entry.as_ref().map(|(folder, key)| read_private(folder, key)) {
        // The driver checks it too; one that it refuses is compiled again.
        Some(Kept::Entry(bytes)) => match Module::load(context, &Image::kept(&bytes)) {
            Ok(module) => {
                compiled.from_disk += 1;
                return Ok(module);
            }
            Err(error) => {
                compiled.warnings.push(format!("compiled again: the driver rejects the cached code: {error}"))
            }
        },
        Some(Kept::Unusable(why)) => compiled.warnings.push(format!("compiled again: {why}")),
        Some(Kept::Nothing) | None => {}
    }
    let image = compile(name, source, arch, &options)?;
    compiled.compiled += 1;
    compiled.compile_ns += begun.elapsed().as_nanos() as u64;
    if let Some((folder, key)) = &entry
        && let Err(error) = write_private(folder, key, image.bytes())
    {
        compiled.warnings.push(format!("the compiled code cannot be written to {}: {error}", folder.display()));
    }
    Module::load(context, &image)
}
