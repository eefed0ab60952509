//! Files of other machines, which a graph names by URL. They were fetched before the run: here they
//! are found in a folder on the disk, and nothing connects to another machine.

use super::{FileError, Id, InputFile, MemoryFiles, id};
use crate::base::unit::show_bytes;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How the URL of a file on another machine begins.
const SCHEMES: [&str; 5] = ["http://", "https://", "hf://", "s3://", "gs://"];
/// What separates the file from the revision in `hf://OWNER/NAME/FILE@REVISION`.
const REVISION: char = '@';

/// Returns the scheme of a URL that names a file on another machine, such as `https://`; `None` for
/// a path on the disk.
pub fn remote_scheme(path: &str) -> Option<&'static str> {
    SCHEMES.into_iter().find(|scheme| path.starts_with(scheme))
}

/// Refuses the URL of a file on another machine where only files on disk are possible.
pub(crate) fn refuse_url(path: &str) -> Result<(), String> {
    match remote_scheme(path) {
        Some(_) => Err(format!("expected the path of a file on disk, found `{path}`")),
        None => Ok(()),
    }
}

/// Returns whether a text of a graph is the URL of a file: a known scheme, a host, and a path that
/// ends with a name. The address of a service, such as `https://viewer.example`, is not.
pub(crate) fn is_file_url(text: &str) -> bool {
    let rest = remote_scheme(text).map(|scheme| &text[scheme.len()..]);
    let path = rest.and_then(|rest| rest.split_once('/')).map(|(_, path)| path);
    path.is_some_and(|path| !path.is_empty() && !path.ends_with('/'))
}

/// Returns a URL for messages: without its query, and without a user and a password, which may be
/// secret.
///
/// ```
/// assert_eq!(limen::files::shown_url("https://me:secret@h.example/a?token=secret"), "https://h.example/a");
/// ```
pub fn shown_url(url: &str) -> String {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let scheme = remote_scheme(shown).filter(|scheme| scheme.starts_with("http")).unwrap_or_default();
    let (host, path) =
        shown[scheme.len()..].split_at(shown[scheme.len()..].find('/').unwrap_or(shown.len() - scheme.len()));
    match host.rsplit_once('@').filter(|_| !scheme.is_empty()) {
        Some((_, host)) => format!("{scheme}{host}{path}"),
        None => shown.to_string(),
    }
}

/// Splits `hf://OWNER/NAME/FILE@REVISION` before the `@`. URLs of other schemes have no revision.
fn split_revision(url: &str) -> (&str, &str) {
    let at = url.rfind(REVISION).filter(|_| url.starts_with("hf://")).unwrap_or(url.len());
    url.split_at(at)
}

/// Returns the URL of a file beside another one: `https://host/a/weights` for `weights` beside
/// `https://host/a/model.onnx`. `name` is a relative path without `..`.
///
/// ```
/// let model = "hf://acme/voice/onnx/model.onnx@main";
/// assert_eq!(limen::files::url_beside(model, "./model.data"), "hf://acme/voice/onnx/model.data@main");
/// ```
pub fn url_beside(url: &str, name: &str) -> String {
    let (file, revision) = split_revision(url);
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut beside = folder.to_string();
    for part in Path::new(name).components() {
        let Component::Normal(part) = part else { continue };
        beside.push('/');
        for c in part.to_string_lossy().chars() {
            // In the other schemes, the name of a file stands as it is.
            if url.starts_with("http") && matches!(c, '%' | '?' | '#' | '"' | '<' | '>' | '\0'..=' ' | '\u{7f}'..) {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| beside.push_str(&format!("%{byte:02X}")));
            } else {
                beside.push(c);
            }
        }
    }
    beside + revision
}

/// The local copy of a file of another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedFile {
    /// Where the copy lies.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// Computes the SHA-256 of all that a reader yields, in lower-case hexadecimal digits.
pub type Sha256Function = fn(&mut dyn Read) -> io::Result<String>;

/// Files of other machines that were fetched before the run, by URL. A graph names them wherever a
/// node opens one input file; the copy is read only if it has the known size and SHA-256. Clones
/// share what was checked: a copy is hashed once.
///
/// ```
/// use limen::files::{FetchedFile, RemoteFiles};
/// # let sha256: limen::files::Sha256Function = |_| Ok(String::new());
/// let url = "https://models.example/voice.onnx".to_string();
/// let copy = FetchedFile { path: "/var/cache/voice".into(), size: 3, sha256: "ab".repeat(32) };
/// let remote = RemoteFiles::new([(url, copy)].into(), sha256, "graph.yaml");
/// let options = limen::Options { remote: Some(remote), ..limen::Options::default() };
/// ```
#[derive(Clone, Default)]
pub struct RemoteFiles(Arc<KnownCopies>);

#[derive(Default)]
struct KnownCopies {
    files: BTreeMap<String, FetchedFile>,
    sha256: Option<Sha256Function>,
    /// The graph's path as a word of a command line.
    graph: String,
    /// Why nothing is known.
    error: Option<String>,
    /// The copies whose checksum is right, by checksum: file, and time of the last change.
    checked: Mutex<HashMap<String, (Id, i64, i64)>>,
}

impl RemoteFiles {
    /// The files by URL, and the path of the graph, for the advice to fetch what is missing.
    pub fn new(files: BTreeMap<String, FetchedFile>, sha256: Sha256Function, graph: impl Into<String>) -> Self {
        let (sha256, graph) = (Some(sha256), graph.into());
        RemoteFiles(Arc::new(KnownCopies { files, sha256, graph, ..KnownCopies::default() }))
    }

    /// No files: every URL of the graph is refused with this message, such as why a list of them
    /// cannot be read.
    pub fn refused(error: impl Into<String>, graph: impl Into<String>) -> Self {
        RemoteFiles(Arc::new(KnownCopies { error: Some(error.into()), graph: graph.into(), ..KnownCopies::default() }))
    }

    /// Returns the files and their URLs, sorted by URL.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FetchedFile)> {
        self.0.files.iter().map(|(url, file)| (url.as_str(), file))
    }

    /// Returns the local copy of a file, without checking it.
    pub fn get(&self, url: &str) -> Option<&FetchedFile> {
        self.0.files.get(url)
    }

    /// Opens the local copy of a file, and checks its size and SHA-256.
    ///
    /// # Errors
    /// [`FileError::NotFetched`], with what is missing or wrong.
    pub fn open(&self, url: &str) -> Result<InputFile, FileError> {
        let mut file = self.checked(url).map_err(|why| FileError::NotFetched {
            message: format!("`{}` {why}", shown_url(url)),
            help: match self.0.graph.as_str() {
                "" => "run `limen-run fetch GRAPH` for the graph's file, with the same cache".into(),
                graph => format!("run `limen-run fetch {graph}`"),
            },
        })?;
        // A revision is no part of the name, whose ending tells formats apart.
        file.path = split_revision(url).0.into();
        file.remote = Some((self.clone(), url.to_string()));
        Ok(file)
    }

    fn checked(&self, url: &str) -> Result<InputFile, String> {
        let known = &*self.0;
        if let Some(error) = &known.error {
            return Err(format!("cannot be looked up: {error}"));
        }
        let (Some(copy), Some(sha256)) = (known.files.get(url), known.sha256) else {
            return Err("was not fetched: the lock has no entry for the URL".into());
        };
        let at = copy.path.display();
        let mut file = InputFile::open(&copy.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("is in the lock, but not in the cache: expected the file at `{at}`"),
            _ => format!("cannot be read from the cache: `{at}`: {error}"),
        })?;
        if file.size() != copy.size {
            let (found, expected) = (show_bytes(file.size()), show_bytes(copy.size));
            return Err(format!("was changed in the cache: expected {expected}, found {found} in `{at}`"));
        }
        let super::Content::Disk(_, stat) = &file.content else { return Ok(file) };
        let checked = (id(stat), stat.st_ctime, stat.st_ctime_nsec);
        if known.checked.lock().unwrap_or_else(PoisonError::into_inner).get(&copy.sha256) == Some(&checked) {
            return Ok(file);
        }
        // A file can grow while it is read.
        let sum = sha256(&mut Read::by_ref(&mut file).take(copy.size.saturating_add(1)));
        let sum = sum.and_then(|sum| file.rewind().map(|()| sum));
        let sum = sum.map_err(|error| format!("cannot be read from the cache: `{at}`: {error}"))?;
        if sum != copy.sha256 {
            return Err(format!("was changed in the cache: expected SHA-256 {}, found {sum} in `{at}`", copy.sha256));
        }
        known.checked.lock().unwrap_or_else(PoisonError::into_inner).insert(sum, checked);
        Ok(file)
    }
}

/// URLs only.
impl fmt::Debug for RemoteFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.files.keys()).finish()
    }
}

/// Where the files beside an open file are found, if not beside it on the disk:
/// [`InputFile::neighbours`].
#[derive(Clone, Debug)]
pub enum Neighbours {
    /// Among the files in memory.
    Memory(MemoryFiles),
    /// Among the fetched files; the URL of the open one.
    Remote(RemoteFiles, String),
}

impl Neighbours {
    /// Opens a file beside the one at `path` by its relative path, which has no `..`.
    ///
    /// # Errors
    /// If there is none, or it cannot be used.
    pub fn open(&self, path: &Path, name: &str) -> io::Result<InputFile> {
        match self {
            Neighbours::Memory(files) => files.open_beside(path, name),
            Neighbours::Remote(files, url) => files.open(&url_beside(url, name)).map_err(|error| match error {
                FileError::NotFetched { message, help } => {
                    io::Error::new(ErrorKind::NotFound, format!("{message}; {help}"))
                }
                error => error.into(),
            }),
        }
    }
}
