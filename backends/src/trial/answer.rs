//! The process that tries a model, as it sees itself: it limits itself, then reads what it is asked and answers.

use super::limits::{Asked, Calls};
use super::steps::{Record, Steps};
use super::{HELLO, OUT_OF_MEMORY};
use crate::infer::{Config, choose};
use crate::inspect::Inspection;
use crate::{cache, caught};
use limen::backend::BackendError;
use limen::{Folders, Given, PlanErrors, Planning, Trials};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What is asked of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Who asks: nobody waits for the answer once that process is gone.
    pub(super) parent: u32,
    pub(super) limits: Asked,
    /// Bytes of the model's file.
    pub(super) size: u64,
    pub(super) cache: Option<AnyPath>,
    pub(super) onnxruntime: Option<AnyPath>,
    pub(super) task: Task,
}

/// What is done with the model.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Its node is planned: the answer is a `Result<Record, PlanErrors>`.
    Plan(Node),
    /// It is read: the answer is a `Result<Inspection, Unread>`.
    Inspect(AnyPath),
}

/// A node that runs a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) config: Value,
    /// What is connected, as text.
    pub(super) given: Vec<(String, Option<String>)>,
    pub(super) graph: AnyPath,
    pub(super) allowed: Vec<AnyPath>,
    /// Whether every backend is measured.
    pub(super) calibrate: bool,
    /// Runtimes that are not to be tried again, and why.
    pub(super) dead: Vec<(String, String)>,
    pub(super) runtimes: u64,
    pub(super) threads: u64,
    pub(super) items: u64,
    /// Bytes of an item, as far as they are known.
    pub(super) item: u64,
}

/// A path, which need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnyPath(Vec<u8>);

impl AnyPath {
    pub(super) fn new(path: &Path) -> Self {
        AnyPath(path.as_os_str().as_bytes().to_vec())
    }

    fn path(&self) -> PathBuf {
        OsString::from_vec(self.0.clone()).into()
    }
}

/// What a trial says, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Heard {
    /// That it is one, of which version.
    Hello(String),
    /// What it does next.
    Doing { runtime: Option<String>, what: String },
    /// How large the model turned out to be, in bytes.
    Size(u64),
    /// What came of it.
    Answer(Value),
}

/// Why a file could not be read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unread {
    Model(String),
    Unsupported(String),
    Other(String),
}

impl From<BackendError> for Unread {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Model(why) => Unread::Model(why),
            BackendError::Unsupported(why) => Unread::Unsupported(why),
            other => Unread::Other(other.to_string()),
        }
    }
}

impl From<Unread> for BackendError {
    fn from(error: Unread) -> Self {
        match error {
            Unread::Model(why) => BackendError::Model(why),
            Unread::Unsupported(why) => BackendError::Unsupported(why),
            Unread::Other(why) => BackendError::Call(why),
        }
    }
}

impl Request {
    pub(super) fn calls(&self) -> Calls {
        match &self.task {
            Task::Plan(Node { runtimes, threads, items, item, .. }) => {
                Calls { runtimes: *runtimes, threads: *threads, items: *items, item: *item }
            }
            Task::Inspect(_) => Calls { runtimes: 1, threads: 1, items: 1, item: 0 },
        }
    }
}

/// Where it answers: the stdout that it was started with, which nothing else prints on any more.
static OUT: OnceLock<Mutex<File>> = OnceLock::new();
/// What it may use.
static LIMITED: OnceLock<(Asked, Calls, u64)> = OnceLock::new();

/// Says something to who asked. A size also lets it use what follows from that.
fn tell(heard: &Heard) {
    if let (Heard::Size(size), Some((asked, calls, base))) = (heard, LIMITED.get()) {
        limit(asked, *calls, *base, *size);
    }
    let (Some(out), Ok(mut line)) = (OUT.get(), serde_json::to_vec(heard)) else { return };
    line.push(b'\n');
    // Where nobody listens any more there is nobody to tell.
    let _ = out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
}

/// The whole of a process that tries a model.
pub(super) fn answer() -> ! {
    std::process::exit(match answered() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("this process tries models for another one, and cannot: {error}");
            2
        }
    })
}

fn answered() -> std::io::Result<()> {
    let stdout = std::io::stdout();
    let out = File::from(stdout.as_fd().try_clone_to_owned()?);
    // What native code prints is no part of the answer.
    nix::unistd::dup2_stdout(std::io::stderr())?;
    let mut text = Vec::new();
    std::io::stdin().take(MAX_REQUEST).read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    // Nobody is left to ask where this one is told of its parent's end too late.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw() as u32 != request.parent {
        return Ok(());
    }
    let _ = OUT.set(Mutex::new(out));
    let base = address_space();
    let calls = request.calls();
    prepare(&request.limits, calls, base)?;
    // What lies in other files is known when the model's own was read.
    limit(&request.limits, calls, base + beside(&request.limits), request.size);
    let _ = LIMITED.set((request.limits.clone(), calls, base));
    tell(&Heard::Hello(HELLO.into()));
    // No larger than the stack of the thread that plans the graph, as far as that is known: what fits here fits there.
    let work = std::thread::Builder::new().stack_size(STACK).spawn(move || tell(&Heard::Answer(tried(&request))));
    let work = work.unwrap_or_else(|_| out_of_memory());
    work.join().map_err(|_| std::io::Error::other("it panicked"))
}

/// Ends as what finds no memory does.
fn out_of_memory() -> ! {
    eprintln!("{OUT_OF_MEMORY}");
    std::process::abort()
}

/// Whether something failed for want of memory, in the words of the system or of a runtime: threads count too, by their stacks.
fn is_out_of_memory(why: &str) -> bool {
    let words =
        ["bad_alloc", "Cannot allocate memory", "Failed to allocate memory", "Resource temporarily unavailable"];
    words.iter().any(|word| why.contains(word))
}

/// Longer requests are refused: a graph file has at most 4 MiB.
const MAX_REQUEST: u64 = 64 << 20;
/// Most bytes of a model's files.
const MAX_BESIDE: u64 = 1 << 30;
/// What a thread has where nobody asks for more.
const STACK: usize = 2 << 20;

/// Does what is asked.
fn tried(request: &Request) -> Value {
    if let Some(folder) = &request.cache {
        cache::cache_in(folder.path());
    }
    #[cfg(feature = "ort")]
    if let Some(library) = &request.onnxruntime {
        crate::ort::find_onnxruntime(library.path());
    }
    let answer = match &request.task {
        Task::Plan(node) => {
            let found = caught(|| planned(node)).unwrap_or_else(|panic| {
                let mut errors = PlanErrors::default();
                errors.at("model", format!("cannot be tried: {panic}"));
                Err(errors)
            });
            let failed = match &found {
                Ok(record) => record.failed().any(|why| is_out_of_memory(&why.to_string())),
                Err(errors) => errors.messages().any(is_out_of_memory),
            };
            if failed {
                out_of_memory();
            }
            serde_json::to_value(found)
        }
        Task::Inspect(path) => {
            tell(&Heard::Doing { runtime: None, what: "was read".into() });
            let found: Result<Inspection, Unread> = match caught(|| crate::inspect::inspect(&path.path())) {
                Ok(found) => found.map_err(Unread::from),
                Err(panic) => Err(Unread::Model(panic)),
            };
            serde_json::to_value(found)
        }
    };
    answer.unwrap_or(Value::Null)
}

/// Plans a node as the process that asks will do, and records what it need not try again.
fn planned(node: &Node) -> Result<Record, PlanErrors> {
    let wrong = |why: String| {
        let mut errors = PlanErrors::default();
        errors.node(format!("what was asked is not understood: {why}"));
        errors
    };
    let config = Config::deserialize(&node.config).map_err(|error| wrong(error.to_string()))?;
    let model = config.model.clone().ok_or_else(|| wrong("there is no model".into()))?;
    if node.calibrate {
        crate::calibration::calibrate();
    }
    let spec = |spec: &Option<String>| spec.as_deref().and_then(|spec| spec.parse().ok());
    let given = Given::of(node.given.iter().map(|(port, connected)| (port.clone(), spec(connected))));
    let graph = node.graph.path();
    let allowed = node.allowed.iter().map(AnyPath::path).collect();
    let folders = Folders { graph, allowed, ..Folders::default() };
    let cx = Planning { node: "", folders: &folders, trials: &Trials { here: true, ..Trials::default() } };
    // A case that cannot be read is said by who asked.
    let case = config.case(&cx, &mut PlanErrors::default());
    let steps = Steps::recording(node.dead.clone(), tell);
    choose(&config, &model, &given, &cx, case, &steps, None)?;
    Ok(steps.into_record())
}

/// What never changes: no core is written, nothing outlives the limits, and this process goes first where memory runs out.
fn prepare(asked: &Asked, calls: Calls, base: u64) -> std::io::Result<()> {
    let most = asked.most(calls);
    let lower = |resource, most: u64| -> std::io::Result<()> {
        let (soft, hard) = getrlimit(resource)?;
        Ok(setrlimit(resource, soft.min(most), hard.min(most))?)
    };
    // Refused where the system has another idea of it; before the files of this process are somebody else's.
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's, which is nobody else's")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(Resource::RLIMIT_AS, most.memory.saturating_add(base + beside(asked)))?;
    lower(Resource::RLIMIT_CPU, seconds(most.cpu) + 1)?;
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Room for files of weights, until it is known how large they are; none where the limit was asked for.
fn beside(asked: &Asked) -> u64 {
    if asked.is_memory_asked() { 0 } else { MAX_BESIDE }
}

/// Lets it use what follows from a model's size, beyond `base` bytes of address space.
fn limit(asked: &Asked, calls: Calls, base: u64, size: u64) {
    let limits = asked.of(size, calls);
    let to = |resource, value: u64| {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, value.min(hard), hard);
        }
    };
    to(Resource::RLIMIT_AS, limits.memory.saturating_add(base));
    to(Resource::RLIMIT_CPU, seconds(limits.cpu));
}

/// The kernel counts in seconds; none is no limit but the end.
fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// How much address space the process has by now.
fn address_space() -> u64 {
    let text = limen::files::system_text("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(256 << 20, |kib| kib * 1024)
}
