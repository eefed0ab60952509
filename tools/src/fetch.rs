//! Files of other machines: fetched before a run, kept in the cache by their SHA-256, and pinned in
//! a lock beside the graph. A run reads the lock and the cache, and connects to nothing.

mod address;
mod cache;
mod lock;
mod signature;
mod transfer;

pub(crate) use lock::Lock;
pub use lock::fetched_files;

use address::{Address, Variable, secret};
use cache::{FetchCache, fetched_folder};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use limen::files::url_beside;
use limen::policy::Trials;
use lock::LockedFile;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use transfer::{HostHeader, TransferLimits, transfer};
use ureq::http::HeaderName;

/// The most downloads at a time.
const MAX_AT_ONCE: usize = 4;
/// The most files of one graph, with the files of weights beside its models.
const MAX_FILES: usize = 10_000;

/// How files are fetched.
pub(crate) struct FetchSettings<'a> {
    /// The cache, as for `--cache`.
    pub(crate) cache: Option<&'a Path>,
    /// Fetch nothing that is not in the lock, and leave the lock as it is.
    pub(crate) is_locked: bool,
    /// Fetch everything again, whatever the lock says.
    pub(crate) is_update: bool,
    /// The values of `--header-env`: a header for one host, whose value is an environment variable,
    /// such as `models.example:Authorization=MODELS_TOKEN`.
    pub(crate) headers: &'a [String],
    /// The most bytes of a file, and of all files in the cache.
    pub(crate) max_bytes: u64,
    pub(crate) max_cache: u64,
    /// The longest silence of a server, and the longest time for a file.
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
    /// The pause before a second attempt.
    pub(crate) pause: Duration,
    /// Limits for reading models, to find the files of their weights.
    pub(crate) trials: &'a Trials,
    /// Whether progress is drawn on stderr.
    pub(crate) is_shown: bool,
    /// The environment.
    pub(crate) variable: Variable<'a>,
}

/// What was fetched.
#[derive(Debug, Default)]
pub(crate) struct FetchSummary {
    /// The files of the graph by URL.
    pub(crate) files: BTreeMap<String, FetchedEntry>,
    /// What could not be fetched, by URL.
    pub(crate) errors: BTreeMap<String, String>,
    /// What else the user should know.
    pub(crate) notes: Vec<String>,
    /// Whether the lock was written.
    pub(crate) is_lock_changed: bool,
}

/// A file of the graph.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FetchedEntry {
    pub(crate) sha256: String,
    pub(crate) size: u64,
    /// Whether it was fetched now; otherwise the cache had it.
    pub(crate) is_new: bool,
    revision: Option<String>,
}

/// Fetches the files of a graph that are not in the cache, and the files of weights beside its
/// models; then writes the lock and shrinks the cache.
///
/// # Errors
/// Why nothing was begun. What a single file lacks is in the summary.
pub(crate) fn fetch(graph: &Path, urls: Vec<String>, settings: &FetchSettings<'_>) -> Result<FetchSummary, String> {
    let lock_path = Lock::path_for(graph);
    let fetching = Fetching {
        lock: Lock::read(&lock_path)?,
        cache: FetchCache::open(fetched_folder(settings.cache)?)
            .map_err(|error| format!("the cache cannot be opened: {error}"))?,
        headers: host_headers(settings)?,
        bars: MultiProgress::with_draw_target(match settings.is_shown {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        }),
        settings,
    };
    let mut summary = FetchSummary::default();
    let mut todo: BTreeSet<String> = urls.into_iter().collect();
    while !todo.is_empty() {
        let mut beside = BTreeSet::new();
        for (url, found) in fetching.all(&todo) {
            match found {
                Ok(entry) => {
                    match fetching.data_files(&url, &entry) {
                        Ok(more) => beside.extend(more),
                        Err(note) => summary.notes.push(note),
                    }
                    summary.files.insert(url, entry);
                }
                Err(why) => _ = summary.errors.insert(url, why),
            }
        }
        beside.retain(|url| !summary.files.contains_key(url) && !summary.errors.contains_key(url));
        let count = summary.files.len() + beside.len();
        if count > MAX_FILES {
            return Err(format!("the models must name at most {MAX_FILES} files, got {count}"));
        }
        todo = beside;
    }
    if !settings.is_locked {
        // Another process may have written it since.
        let mut lock = Lock::read(&lock_path)?;
        let before = lock.clone();
        lock.files.extend(summary.files.iter().map(|(url, entry)| (url.clone(), entry.locked())));
        if lock != before {
            lock.write(&lock_path).map_err(|error| format!("{}: {error}", lock_path.display()))?;
            summary.is_lock_changed = true;
        }
    }
    let kept: BTreeSet<String> = summary.files.values().map(|entry| entry.sha256.clone()).collect();
    match fetching.cache.evict(&kept, settings.max_cache) {
        Err(error) => summary.notes.push(format!("the cache cannot be searched: {error}")),
        Ok(eviction) => {
            if eviction.files > 0 {
                summary.notes.push(format!("{} unused files were removed from the cache", eviction.files));
            }
            if eviction.left > settings.max_cache {
                let [left, most] = [eviction.left, settings.max_cache].map(limen::unit::show_bytes);
                summary
                    .notes
                    .push(format!("the cache has {left}, more than `--max-cache` {most}: all of it is in use"));
            }
        }
    }
    Ok(summary)
}

/// Reads the headers of `--header-env`.
fn host_headers(settings: &FetchSettings<'_>) -> Result<Vec<HostHeader>, String> {
    settings.headers.iter().map(|text| host_header(text, settings.variable)).collect()
}

fn host_header(text: &str, variable: Variable<'_>) -> Result<HostHeader, String> {
    // What is wrong may be a secret itself, and is not repeated.
    let wrong =
        || "--header-env: expected HOST:NAME=VARIABLE, such as `models.example:Authorization=TOKEN`".to_string();
    let parts = text.split_once('=').and_then(|(header, named)| Some((header.rsplit_once(':')?, named)));
    let ((host, name), named) = parts.ok_or_else(wrong)?;
    let is_name = !named.is_empty() && named.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    if !is_name || host.is_empty() || host.contains(['/', '@']) {
        return Err(wrong());
    }
    let value = variable(named).ok_or_else(|| format!("--header-env: {named} is not set"))?;
    Ok(HostHeader { host: host.into(), name, value: secret(&value, named)? })
}

impl FetchedEntry {
    fn locked(&self) -> LockedFile {
        LockedFile { sha256: self.sha256.clone(), size: self.size, revision: self.revision.clone() }
    }
}

/// What all downloads of a graph share.
struct Fetching<'a> {
    lock: Lock,
    cache: FetchCache,
    headers: Vec<HostHeader>,
    bars: MultiProgress,
    settings: &'a FetchSettings<'a>,
}

impl Fetching<'_> {
    /// Fetches files, several at a time.
    fn all(&self, urls: &BTreeSet<String>) -> Vec<(String, Result<FetchedEntry, String>)> {
        let (queue, found) = (Mutex::new(urls.iter()), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(url) = next else { break };
                let one = (url.clone(), self.one(url));
                found.lock().unwrap_or_else(PoisonError::into_inner).push(one);
            }
        };
        thread::scope(|scope| {
            for _ in 1..MAX_AT_ONCE.min(urls.len()) {
                scope.spawn(work);
            }
            work();
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn one(&self, url: &str) -> Result<FetchedEntry, String> {
        let written = self.lock.files.get(url);
        if self.settings.is_locked && written.is_none() {
            return Err("is not in the lock: run without `--locked` to add the URL".into());
        }
        let locked = written.filter(|_| !self.settings.is_update);
        if let Some(locked) = locked.filter(|locked| self.cache.has(locked)) {
            self.cache.touch(&locked.sha256);
            let LockedFile { sha256, size, revision } = locked.clone();
            return Ok(FetchedEntry { sha256, size, is_new: false, revision });
        }
        let revision = locked.and_then(|locked| locked.revision.as_deref());
        let address = Address::of(url, revision, self.settings.variable)?;
        let begun = self.cache.begin(url);
        let mut part = begun.map_err(|error| format!("the cache cannot be written: {error}"))?;
        let limits = TransferLimits {
            max_bytes: self.settings.max_bytes,
            idle: self.settings.idle,
            total: self.settings.total,
            attempts: 5,
            pause: self.settings.pause,
        };
        let bar = self.bars.add(ProgressBar::no_length());
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {bytes}/{total_bytes} {bytes_per_sec}  {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(crate::text::escape::one_line(url));
        let progress = |done: u64, all: Option<u64>| {
            if let Some(all) = all {
                bar.set_length(all);
            }
            bar.set_position(done);
        };
        let found = transfer(&address, &self.headers, &limits, &mut part, locked, &progress);
        bar.finish_and_clear();
        let found = found?;
        let size = part.len();
        self.cache.finish(part, &found.sha256).map_err(|error| format!("the cache cannot be written: {error}"))?;
        let revision = revision.map(str::to_string).or(found.commit);
        Ok(FetchedEntry { sha256: found.sha256, size, is_new: true, revision })
    }

    /// Returns the URLs of the files beside a model that hold its weights.
    fn data_files(&self, url: &str, entry: &FetchedEntry) -> Result<Vec<String>, String> {
        let path = self.cache.path(&entry.sha256);
        if !is_model(url) {
            return Ok(Vec::new());
        }
        let files = limen_infer::trial::data_files(&path, self.settings.trials)
            .map_err(|error| format!("`{url}`: the files of the weights are unknown: {error}"))?;
        let is_plain = |name: &String| {
            let mut parts = Path::new(name).components();
            !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        Ok(files.iter().filter(|name| is_plain(name)).map(|name| url_beside(url, name)).collect())
    }
}

/// Whether a URL names an ONNX model.
fn is_model(url: &str) -> bool {
    let file = url.rsplit_once('@').filter(|_| url.starts_with("hf://")).map_or(url, |(file, _)| file);
    file.ends_with(".onnx")
}

#[cfg(test)]
mod tests;
