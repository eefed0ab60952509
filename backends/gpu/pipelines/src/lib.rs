//! Pipelines as a GPU's driver has compiled them, kept for the next start.
//!
//! A crate of its own, because it has the only unsafe call of the backends: a driver runs what it
//! is given as compiled code.

use limen::files::PrivateBytes;

/// Creates a cache of pipelines, with those that were kept of an earlier one
/// ([`wgpu::PipelineCache::get_data`]). What a driver of another version, or of another adapter,
/// has compiled is not used.
///
/// The device must have [`wgpu::Features::PIPELINE_CACHE`].
pub fn pipeline_cache(device: &wgpu::Device, kept: Option<&PrivateBytes>) -> wgpu::PipelineCache {
    let data = kept.map(|kept| &**kept);
    let descriptor = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: the data have to be those of an earlier cache. They come from a file that only the
    // user of this process could write (`PrivateBytes`), so they are what limen wrote there, and
    // the entry of limen's cache that holds them has their checksum, which its reader has compared.
    // What a user does to files of their own is beyond what a program can check: they may as well
    // change the program.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
