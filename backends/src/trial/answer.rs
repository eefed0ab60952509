//! The process that tries a model, as it sees itself: it limits itself, then reads what it is asked and answers.

use super::limits::{Asked, Calls};
use super::request::{AnyPath, HELLO, Heard, Node, OUT_OF_MEMORY, Request, Task, Unread};
use crate::base::caught;
use crate::cache;
use crate::inspect::{Inspection, inspect};
use crate::plan::{Config, choose};
use crate::steps::{Progress, Record, Steps};
use limen::Folders;
use limen::node::{Connected, PlanErrors, Planning};
use limen::policy::Trials;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

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

fn tell_progress(progress: Progress<'_>) {
    tell(&match progress {
        Progress::Doing { runtime, what } => {
            Heard::Doing { runtime: runtime.map(str::to_string), what: what.to_string() }
        }
        Progress::Size(size) => Heard::Size(size),
    });
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
        crate::backend::find_onnxruntime(library.path());
    }
    let answer = match &request.task {
        Task::Plan(node) => {
            let found = caught(|| planned(node)).unwrap_or_else(|panic| {
                let mut errors = PlanErrors::default();
                errors.at("model", format!("cannot be tried: {panic}"));
                Err(errors)
            });
            let failed = match &found {
                Ok(record) => record.failures().any(|why| is_out_of_memory(&why.to_string())),
                Err(errors) => errors.messages().any(is_out_of_memory),
            };
            if failed {
                out_of_memory();
            }
            serde_json::to_value(found)
        }
        Task::Inspect(path) => {
            tell(&Heard::Doing { runtime: None, what: "was read".into() });
            let found: Result<Inspection, Unread> = match caught(|| inspect(&path.path())) {
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
        cache::calibrate();
    }
    let spec = |spec: &Option<String>| spec.as_deref().and_then(|spec| spec.parse().ok());
    let given = Connected::of(node.given.iter().map(|(port, connected)| (port.clone(), spec(connected))));
    let graph = node.graph.path();
    let allowed = node.allowed.iter().map(AnyPath::path).collect();
    let folders = Folders { graph, allowed, ..Folders::default() };
    let cx = Planning { node: "", folders: &folders, trials: &Trials { here: true, ..Trials::default() } };
    // A case that cannot be read is said by who asked.
    let case = config.case(&cx, &mut PlanErrors::default());
    let steps = Steps::recording(node.dead.clone(), tell_progress);
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
