//! Keeps the results of trials.

use super::request::RequestedNode;
use crate::base::BackendOptions;
use crate::cache;
use crate::onnx::UncheckedModel;
use crate::plan::{COMPILED, Candidate, InferConfig, RecordedModel};
use crate::steps::TrialRecord;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Where the result of a trial is kept: in memory for the lifetime of the process, and in the cache
/// folder.
pub(super) struct RecordPlace {
    /// The key in memory: the request, the options, and the stamps of the files.
    name: String,
    /// The cache folder, if there is one.
    cache: Option<PathBuf>,
    /// The key on disk, by content, if there is a cache folder.
    key: Option<cache::CacheKey>,
}

/// Results in memory, the newest last.
static KEPT: Mutex<Vec<(String, TrialRecord)>> = Mutex::new(Vec::new());
/// The most results kept in memory.
const MAX_KEPT: usize = 64;

impl RecordPlace {
    pub(super) fn of(
        config: &InferConfig,
        considered: &[Candidate<'_>],
        options: &BackendOptions,
        node: &RequestedNode,
        stamps: &[String],
        file: Option<&UncheckedModel>,
        recorded: &RecordedModel,
    ) -> Self {
        let asked = serde_json::to_string(node).unwrap_or_default();
        let name = format!("{asked}\n{options:?}\n{}", stamps.join("\n"));
        let key = file.map(|file| RecordPlace::key(config, considered, node, file, recorded));
        RecordPlace { name, cache: options.cache.clone(), key }
    }

    fn key(
        config: &InferConfig,
        considered: &[Candidate<'_>],
        node: &RequestedNode,
        file: &UncheckedModel,
        recorded: &RecordedModel,
    ) -> cache::CacheKey {
        let mut parts =
            vec!["trial".to_string(), node.config.to_string(), format!("{:?}", node.given), file.sum().into()];
        parts.extend(recorded.sums().into_iter().map(|(field, sum)| format!("{field} {sum}")));
        let asked = considered.iter().filter(|candidate| candidate.is_asked(config));
        parts.extend(asked.map(|candidate| format!("{} {}", candidate.name, candidate.version())));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        cache::CacheKey::of_trial(&parts)
    }

    /// Returns the stored result, and a note for the plan if it was read from disk.
    pub(super) fn find(&self) -> Option<(TrialRecord, Option<String>)> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, record)) = kept.iter().find(|(name, _)| *name == self.name) {
            return Some((record.clone(), None));
        }
        drop(kept);
        let (folder, key) = (self.cache.as_deref()?, self.key.as_ref()?);
        let cache::CacheLookup::Entry(bytes) = cache::read(folder, key) else { return None };
        let mut record: TrialRecord = serde_json::from_slice(&bytes).ok()?;
        // Compilation counts belong to this process, so that step is run again.
        record.forget(COMPILED);
        Some((record, Some(format!("tried earlier: the result was read from {}", folder.display()))))
    }

    pub(super) fn keep(&self, record: &TrialRecord) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(name, _)| *name != self.name);
        if kept.len() == MAX_KEPT {
            kept.remove(0);
        }
        kept.push((self.name.clone(), record.clone()));
        drop(kept);
        if let (Some(folder), Some(key), Ok(text)) = (&self.cache, &self.key, serde_json::to_vec(record)) {
            // A failed write is ignored: the next start tries the model again.
            let _ = cache::write(folder, key, &text);
        }
    }
}
