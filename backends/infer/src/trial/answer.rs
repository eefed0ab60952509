//! The trial process, from inside: it sets its own limits, tries the model and replies.

use super::limits::{RequestedLimits, TrialCalls};
use super::request::{
    AnyPath, GREETING, GivenSpec, OUT_OF_MEMORY, ReadError, Reply, RequestedNode, TrialRequest, TrialTask,
};
use crate::base::{BackendOptions, caught, sha256_of};
use crate::inspect::{Details, Inspection, inspect_within};
use crate::onnx::data_files_of;
use crate::plan::{InferConfig, Runtimes, choose};
use crate::steps::{TrialProgress, TrialRecord, TrialSteps};
use limen::Folders;
use limen::files::{FetchedFile, MemoryFiles, RemoteFiles};
use limen::node::{Connected, Extensions, PlanErrors, Planning};
use limen::policy::Trials;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Where replies go: the original stdout, to which nothing else prints any more.
static OUT: OnceLock<Mutex<File>> = OnceLock::new();
/// What the limits are computed from: the requested limits, the calls, and the memory in use at the
/// start.
static LIMITED: OnceLock<(RequestedLimits, TrialCalls, InUse)> = OnceLock::new();

/// What a limit of memory counts, and how many bytes of that are in use at the start.
#[derive(Clone, Copy)]
struct InUse {
    counted: Resource,
    bytes: u64,
}

impl InUse {
    /// The address space; or, with a driver of NVIDIA's, which reserves more of it than any machine
    /// has memory, what can be written.
    fn of(reserves_addresses: bool) -> InUse {
        let (counted, field) = match reserves_addresses {
            true => (Resource::RLIMIT_DATA, "VmData:"),
            false => (Resource::RLIMIT_AS, "VmSize:"),
        };
        let text = limen::files::system_text("/proc/self/status").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        InUse { counted, bytes: kib.map_or(256 << 20, |kib| kib * 1024) }
    }
}

/// Sends a reply to the parent. A size also sets the limits that follow from it.
fn send(reply: &Reply) {
    if let (Reply::Size(size), Some((asked, calls, in_use))) = (reply, LIMITED.get()) {
        limit(asked, *calls, *in_use, *size);
    }
    let (Some(out), Ok(mut line)) = (OUT.get(), serde_json::to_vec(reply)) else { return };
    line.push(b'\n');
    // If the parent is gone, nothing reads the reply.
    let _ = out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
}

fn send_progress(progress: TrialProgress<'_>) {
    send(&match progress {
        TrialProgress::Doing { runtime, what } => {
            Reply::Doing { runtime: runtime.map(str::to_string), what: what.to_string() }
        }
        TrialProgress::Size(size) => Reply::Size(size),
    });
}

/// The main function of a trial process.
pub(super) fn answer(runtimes: Runtimes) -> ! {
    std::process::exit(match serve_request(runtimes) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("the trial process of a model failed: {error}");
            2
        }
    })
}

fn serve_request(runtimes: Runtimes) -> std::io::Result<()> {
    let stdout = std::io::stdout();
    let out = File::from(stdout.as_fd().try_clone_to_owned()?);
    // Output of native code must not mix with the replies.
    nix::unistd::dup2_stdout(std::io::stderr())?;
    let mut text = Vec::new();
    let mut stdin = std::io::stdin().lock();
    stdin.by_ref().take(MAX_REQUEST).read_until(b'\n', &mut text)?;
    let request: TrialRequest = serde_json::from_slice(&text)?;
    // Die with the parent. If it exited before this call, no signal comes: compare its id.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw() as u32 != request.parent {
        return Ok(());
    }
    let _ = OUT.set(Mutex::new(out));
    // Before the limits are computed, which leave these bytes out.
    let memory = read_memory(&request.memory, stdin)?;
    let options = request.options();
    let opened = opened_first(&request, &runtimes, &options);
    // What goes wrong is found again in the trial.
    opened.iter().for_each(|open| _ = caught(|| open(&options)));
    let in_use = InUse::of(!opened.is_empty());
    let calls = request.calls();
    prepare(&request.limits, calls, in_use)?;
    // The size of the weights in other files is known only after the model's own file is read.
    let allowed = InUse { bytes: in_use.bytes.saturating_add(weights_allowance(&request.limits)), ..in_use };
    limit(&request.limits, calls, allowed, request.size);
    let _ = LIMITED.set((request.limits.clone(), calls, in_use));
    send(&Reply::Hello(GREETING.into()));
    // The default stack size of a thread, so that a model that fits here also fits the thread that
    // plans the graph.
    let work = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || send(&Reply::Answer(perform(&request, memory, &runtimes))));
    let work = work.unwrap_or_else(|_| out_of_memory());
    work.join().map_err(|_| std::io::Error::other("the trial panicked"))
}

/// Returns what opens the devices that the node may use, before what their drivers take is limited.
fn opened_first(request: &TrialRequest, runtimes: &Runtimes, options: &BackendOptions) -> Vec<fn(&BackendOptions)> {
    let TrialTask::Plan(node) = &request.task else { return Vec::new() };
    let Ok(config) = InferConfig::deserialize(&node.config) else { return Vec::new() };
    let considered = runtimes.considered(&config, options);
    considered.iter().filter_map(|candidate| candidate.built?.opens_first).collect()
}

/// Reads the files in memory that follow the request.
fn read_memory(files: &[(String, u64)], mut from: impl Read) -> std::io::Result<MemoryFiles> {
    let mut memory = MemoryFiles::default();
    for (name, length) in files {
        let mut bytes = Vec::new();
        let room = usize::try_from(*length).map_err(std::io::Error::other)?;
        bytes.try_reserve_exact(room).map_err(std::io::Error::other)?;
        if from.by_ref().take(*length).read_to_end(&mut bytes)? < room {
            return Err(std::io::Error::other(format!("`{name}` is truncated")));
        }
        memory.add(name, bytes);
    }
    Ok(memory)
}

/// Aborts with the message that Rust prints when an allocation fails.
fn out_of_memory() -> ! {
    eprintln!("{OUT_OF_MEMORY}");
    std::process::abort()
}

/// Whether an error message says that memory ran out. Failing to start a thread counts: its stack
/// did not fit.
fn is_out_of_memory(why: &str) -> bool {
    let words =
        ["bad_alloc", "Cannot allocate memory", "Failed to allocate memory", "Resource temporarily unavailable"];
    words.iter().any(|word| why.contains(word))
}

/// The longest request. A graph file has at most 4 MiB.
const MAX_REQUEST: u64 = 64 << 20;
/// The default stack size of a thread.
const STACK: usize = 2 << 20;

/// Performs the task of a request.
fn perform(request: &TrialRequest, memory: MemoryFiles, runtimes: &Runtimes) -> Value {
    let answer = match &request.task {
        TrialTask::Plan(node) => {
            let found = caught(|| planned(node, runtimes, request.options(), request.limits.max_size(), memory));
            let found = found.unwrap_or_else(|panic| {
                let mut errors = PlanErrors::default();
                errors.at("model", format!("the model cannot be tried: {panic}"));
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
        TrialTask::DataFiles(path) => {
            send(&Reply::Doing { runtime: None, what: "was read".into() });
            let found = caught(|| data_files_of(&path.path(), request.limits.max_size()));
            serde_json::to_value(found.map_err(ReadError::Model).and_then(|found| found.map_err(ReadError::from)))
        }
        TrialTask::Inspect(path) => {
            send(&Reply::Doing { runtime: None, what: "was read".into() });
            let found: Result<(Inspection, Details), ReadError> = match caught(|| {
                inspect_within(&path.path(), request.limits.max_size(), &|size| send(&Reply::Size(size)))
            }) {
                Ok(Ok(found)) => {
                    let details =
                        Details { ops: found.deviating(runtimes, &request.options()), ..found.details.clone() };
                    Ok((found, details))
                }
                Ok(Err(error)) => Err(ReadError::from(error)),
                Err(panic) => Err(ReadError::Model(panic)),
            };
            serde_json::to_value(found)
        }
    };
    answer.unwrap_or(Value::Null)
}

/// Plans a node as the parent will, and records the results of the steps that run the model.
fn planned(
    node: &RequestedNode,
    runtimes: &Runtimes,
    options: BackendOptions,
    max_size: u64,
    memory: MemoryFiles,
) -> Result<TrialRecord, PlanErrors> {
    let wrong = |why: String| {
        let mut errors = PlanErrors::default();
        errors.node(format!("the request of the trial cannot be read: {why}"));
        errors
    };
    let config = InferConfig::deserialize(&node.config).map_err(|error| wrong(error.to_string()))?;
    // The parent has them.
    config.check_names(runtimes).map_err(|_| {
        let known = runtimes.names();
        let mut named = std::iter::once(&*config.backend).chain(config.compared().map(|(_, name)| name));
        let name = named.find(|name| !known.contains(name)).unwrap_or(&config.backend);
        let mut errors = PlanErrors::default();
        errors
            .node(format!("backend `{name}` is not registered in the trial process"))
            .help(format!("call `limen_infer::trial::serve` first in `main` of the program that registers `{name}`"));
        errors
    })?;
    let model = config.model.clone().ok_or_else(|| wrong("the config has no `model`".into()))?;
    let given = node.given.iter().map(|(port, given)| (port.clone(), given.as_ref().and_then(GivenSpec::spec)));
    let given = Connected::of(given);
    let graph = node.graph.path();
    let allowed = node.allowed.iter().map(AnyPath::path).collect();
    let copies = node.remote.iter().map(|(url, path, size, sha256)| {
        (url.clone(), FetchedFile { path: path.path(), size: *size, sha256: sha256.clone() })
    });
    // The parent advises what to do about a file that is not there.
    let remote = RemoteFiles::new(copies.collect(), sha256_of, "");
    let folders = Folders { graph, allowed, memory, remote, ..Folders::default() };
    let trials = Trials { here: true, size: Some(max_size), ..Trials::default() };
    let extensions = Extensions::default().with(options).with(runtimes.clone());
    let cx = Planning {
        node: "",
        folders: &folders,
        trials: &trials,
        extensions: &extensions,
        isolation: limen::policy::Isolation::None,
    };
    // The parent reports a case that cannot be read.
    let recorded = config.recorded(&cx, &mut PlanErrors::default());
    let steps = TrialSteps::recording(node.dead.clone(), send_progress);
    choose(&config, &model, &given, &cx, recorded, &steps, None)?;
    Ok(steps.into_record())
}

/// Sets the limits that do not depend on the model's size: no core dump, and hard limits. Makes
/// this process the first that the kernel kills when memory runs out.
fn prepare(asked: &RequestedLimits, calls: TrialCalls, in_use: InUse) -> std::io::Result<()> {
    let most = asked.most(calls);
    let lower = |resource, most: u64| -> std::io::Result<()> {
        let (soft, hard) = getrlimit(resource)?;
        Ok(setrlimit(resource, soft.min(most), hard.min(most))?)
    };
    // Before `set_dumpable(false)`, which makes root the owner of this process's files in /proc. A
    // failure does no harm.
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel, which no graph can name")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(in_use.counted, most.memory.saturating_add(in_use.bytes.saturating_add(weights_allowance(asked))))?;
    lower(Resource::RLIMIT_CPU, seconds(most.cpu) + 1)?;
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Returns the allowance for files of weights until their size is known; 0 if a memory limit was
/// requested.
fn weights_allowance(asked: &RequestedLimits) -> u64 {
    if asked.is_memory_asked() { 0 } else { asked.max_size() }
}

/// Sets the soft limits that follow from a model's size, on top of what is in use.
fn limit(asked: &RequestedLimits, calls: TrialCalls, in_use: InUse, size: u64) {
    let limits = asked.of(size, calls);
    let to = |resource, value: u64| {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, value.min(hard), hard);
        }
    };
    to(in_use.counted, limits.memory.saturating_add(in_use.bytes));
    to(Resource::RLIMIT_CPU, seconds(limits.cpu));
}

/// Rounds up to whole seconds, as the kernel counts; at least 1, since 0 would kill the process at
/// once.
fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}
