//! Keeps the results of trials.

use super::request::Node;
use crate::cache;
use crate::onnx::ModelFile;
use crate::plan::{COMPILED, Config, all_runtimes};
use crate::steps::Record;
use crate::verify::Case;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// Where the result of a trial is kept: in memory for the lifetime of the process, and in the cache folder.
pub(super) struct Place {
    /// The request, and the sizes and times of the files.
    name: String,
    /// The request and the content of the files, if there is a cache folder.
    key: Option<cache::Key>,
}

/// Results in memory, the newest last.
static KEPT: Mutex<Vec<(String, Record)>> = Mutex::new(Vec::new());
/// The most results kept in memory.
const MAX_KEPT: usize = 64;

impl Place {
    pub(super) fn of(
        config: &Config,
        node: &Node,
        files: &[&Path],
        file: Option<&ModelFile>,
        case: Option<&Case>,
    ) -> Self {
        let asked = serde_json::to_string(node).unwrap_or_default();
        let stamp = |path: &Path| {
            let about = path.metadata().ok()?;
            let time = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(format!("{} {} {time:?}", path.display(), about.len()))
        };
        let stamps: Vec<String> = files.iter().map(|path| stamp(path).unwrap_or_default()).collect();
        let name = format!("{asked}\n{}", stamps.join("\n"));
        Place { name, key: file.map(|file| Place::key(config, node, file, case)) }
    }

    fn key(config: &Config, node: &Node, file: &ModelFile, case: Option<&Case>) -> cache::Key {
        let mut parts = vec!["trial".to_string(), node.config.to_string(), format!("{:?}", node.given), file.sum()];
        parts.extend(case.map(Case::digest));
        let asked = all_runtimes().into_iter().filter(|candidate| config.asks(candidate.choice));
        parts.extend(asked.map(|candidate| format!("{} {}", candidate.name, candidate.version())));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        cache::Key::of_trial(&parts)
    }

    /// Returns a result that was kept, and a note for the plan.
    pub(super) fn find(&self) -> Option<(Record, Option<String>)> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, record)) = kept.iter().find(|(name, _)| *name == self.name) {
            return Some((record.clone(), None));
        }
        drop(kept);
        let (folder, key) = (cache::folder()?, self.key.as_ref()?);
        let cache::Found::Entry(bytes) = cache::read(folder, key) else { return None };
        let mut record: Record = serde_json::from_slice(&bytes).ok()?;
        // What was compiled depends on this process: it reports that itself.
        record.forget(COMPILED);
        Some((record, Some(format!("tried before; the result was read from {}", folder.display()))))
    }

    pub(super) fn keep(&self, record: &Record) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(name, _)| *name != self.name);
        if kept.len() == MAX_KEPT {
            kept.remove(0);
        }
        kept.push((self.name.clone(), record.clone()));
        drop(kept);
        if let (Some(folder), Some(key), Ok(text)) = (cache::folder(), &self.key, serde_json::to_vec(record)) {
            // A failure only means that the next start tries the model again.
            let _ = cache::write(folder, key, &text);
        }
    }
}
