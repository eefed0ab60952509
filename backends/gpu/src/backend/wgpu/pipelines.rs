//! The pipelines of a program as the driver compiled them, kept in the cache on disk for the next
//! start.

use super::device::Device;
use limen_infer::Compiled;
use limen_infer::internal::{CacheKey, Kept, read_private, write_private};
use std::path::Path;
use std::time::Instant;
use wgpu::PipelineCache;

/// Where pipelines are kept while they are made.
pub(super) struct Pipelines<'a> {
    /// The folder of the cache, and the key of their entry; `None` if they are not kept.
    entry: Option<(&'a Path, CacheKey)>,
    pub(super) cache: Option<PipelineCache>,
    is_found: bool,
    warnings: Vec<String>,
    begun: Instant,
}

impl<'a> Pipelines<'a> {
    /// Looks up the pipelines of some shaders.
    pub(super) fn of(device: &Device, folder: Option<&'a Path>, shaders: &[&str]) -> Self {
        let begun = Instant::now();
        let mut pipelines = Pipelines { entry: None, cache: None, is_found: false, warnings: Vec::new(), begun };
        let Some(folder) = folder.filter(|_| device.keeps_pipelines) else { return pipelines };
        let info = &device.info;
        let adapter = [info.vendor.to_string(), info.device.to_string(), info.device_pci_bus_id.clone()].join(" ");
        let of = ["pipelines", "wgpu 30", &info.name, &adapter, &info.driver, &info.driver_info];
        let key = CacheKey::of_pipelines(&of.into_iter().chain(shaders.iter().copied()).collect::<Vec<_>>());
        let kept = match read_private(folder, &key) {
            Kept::Entry(bytes) => Some(bytes),
            Kept::Nothing => None,
            Kept::Unusable(why) => {
                pipelines.warnings.push(format!("compiled again: {why}"));
                None
            }
        };
        pipelines.is_found = kept.is_some();
        pipelines.cache = Some(limen_pipelines::pipeline_cache(&device.device, kept.as_ref()));
        pipelines.entry = Some((folder, key));
        pipelines
    }

    /// Keeps what the driver has compiled meanwhile.
    pub(super) fn keep(mut self) -> Compiled {
        // A driver may compile again what it was given.
        let compile_ns = self.begun.elapsed().as_nanos() as u64;
        let warnings = std::mem::take(&mut self.warnings);
        let mut compiled = Compiled { compile_ns, warnings, ..Compiled::default() };
        if self.is_found {
            compiled.from_disk = 1;
            return compiled;
        }
        compiled.compiled = 1;
        let data = self.cache.as_ref().and_then(PipelineCache::get_data);
        if let (Some((folder, key)), Some(data)) = (self.entry, data)
            && let Err(error) = write_private(folder, &key, &data)
        {
            compiled.warnings.push(format!("the pipelines cannot be written to {}: {error}", folder.display()));
        }
        compiled
    }
}
