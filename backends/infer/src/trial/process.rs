//! The trial process, from its parent: it is started, its replies are read, and it is killed and
//! reaped.

use super::limits::Limits;
use super::request::{ARGUMENT, GREETING, OUT_OF_MEMORY, Reply, TrialRequest};
use limen::files::MemoryFiles;
use limen::unit::show_bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest line of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// The part of its stderr that is kept.
const MAX_STDERR: usize = 16 << 10;

/// A trial without an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrialFailure {
    /// How the process ended, such as `crashed (SIGSEGV)`.
    pub(super) how: String,
    /// The step it was at.
    pub(super) doing: String,
    /// The runtime of that step.
    pub(super) runtime: Option<String>,
    /// A way out.
    pub(super) help: String,
}

impl TrialFailure {
    /// Returns the error message about a model.
    pub(super) fn sentence(&self, model: &str) -> String {
        let mut text = format!("{model} was tried in a separate process, which {}", self.how);
        match (&self.runtime, self.doing.as_str()) {
            (_, "") => {}
            (Some(runtime), doing) => text.push_str(&format!(" while `{runtime}` {doing}")),
            (None, doing) => text.push_str(&format!(" while the model {doing}")),
        }
        text
    }
}

pub(super) fn decode<T: DeserializeOwned>(answer: serde_json::Value) -> Result<T, TrialFailure> {
    serde_json::from_value(answer).map_err(|error| TrialFailure {
        how: format!("sent an answer that cannot be read: {error}"),
        doing: String::new(),
        runtime: None,
        help: "name a trial program of the same version".into(),
    })
}

/// A running trial, and its replies so far.
struct Trial {
    child: Child,
    begun: Instant,
    hello: bool,
    doing: String,
    runtime: Option<String>,
    size: u64,
    answer: Option<serde_json::Value>,
    stderr: Vec<u8>,
}

/// Why reading the replies of a trial ended.
enum End {
    Answered,
    /// It closed its stdout.
    Closed,
    /// It exceeded its wall-clock limit.
    Late(Duration),
    /// Its answer is too long.
    TooLong,
}

/// Starts a program to try a model, and waits for the answer. `memory` has the files that the
/// request lists.
///
/// # Errors
/// How the process failed.
pub(super) fn run_trial(
    program: &Path,
    request: &TrialRequest,
    memory: &MemoryFiles,
) -> Result<serde_json::Value, TrialFailure> {
    let not_begun = |what: &str, error: std::io::Error| TrialFailure {
        how: format!("could not be started: {what}: {error}"),
        doing: String::new(),
        runtime: None,
        help: "write `--model-limits none` (in a program, `Trials::here`) to try models in this process".into(),
    };
    let name = program.display().to_string();
    let begun = Instant::now();
    let stdin = request_file(request, memory).map_err(|error| not_begun("the request cannot be written", error))?;
    // The child inherits nothing of this process but its environment.
    let child = Command::new(program)
        .arg(ARGUMENT)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The address space that further arenas and threads reserve would count against the limit.
        .env("MALLOC_ARENA_MAX", "2")
        .env("RTEN_NUM_THREADS", "1")
        .spawn()
        .map_err(|error| not_begun(&name, error))?;
    let mut trial = Trial {
        child,
        begun,
        hello: false,
        doing: String::new(),
        runtime: None,
        size: 0,
        answer: None,
        stderr: Vec::new(),
    };
    let mut end = trial.read_replies(request);
    let status = trial.reap(request, &mut end);
    match (trial.answer.take(), end) {
        (Some(answer), _) => Ok(answer),
        (None, end) => Err(trial.died(end, status, request, &name)),
    }
}

/// Returns the request and the files that it lists as a file in memory: unlike a pipe, it takes any
/// length without blocking, and unlike a file on disk, nothing else can open it.
fn request_file(request: &TrialRequest, memory: &MemoryFiles) -> std::io::Result<Stdio> {
    let mut file = File::from(memfd_create("limen-trial", MFdFlags::MFD_CLOEXEC)?);
    // In one write: serializing into the file would make a system call per token.
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    file.write_all(&line)?;
    for (_, bytes) in memory.iter() {
        file.write_all(bytes)?;
    }
    file.rewind()?;
    Ok(file.into())
}

impl Trial {
    fn limits(&self, request: &TrialRequest) -> Limits {
        request.limits.of(self.size, request.calls())
    }

    /// Reads its output until it has answered, closes its stdout, or its time is up.
    fn read_replies(&mut self, request: &TrialRequest) -> End {
        let (Some(mut stdout), Some(mut stderr)) = (self.child.stdout.take(), self.child.stderr.take()) else {
            return End::Closed;
        };
        let (mut line, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        let mut is_stderr_open = true;
        loop {
            let wall = self.limits(request).wall;
            let left = wall.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return End::Late(wall);
            }
            // Rounded up, so that the last millisecond does not spin.
            let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
            let mut ends = vec![PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if is_stderr_open {
                ends.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
            }
            match nix::poll::poll(&mut ends, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return End::Closed,
            }
            let is_ready = |end: Option<&PollFd<'_>>| end.and_then(PollFd::revents).is_some_and(|e| !e.is_empty());
            let (stdout_is_ready, stderr_is_ready) = (is_ready(ends.first()), is_ready(ends.get(1)));
            if stderr_is_ready {
                match stderr.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => is_stderr_open = false,
                    Ok(n) => {
                        let room = MAX_STDERR.saturating_sub(self.stderr.len());
                        self.stderr.extend_from_slice(&chunk[..n.min(room)]);
                    }
                }
            }
            if stdout_is_ready {
                let n = match stdout.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => {
                        // Its last words on stderr, such as why it aborted, have arrived by now.
                        let mut rest = stderr.take(MAX_STDERR as u64);
                        let mut poll = [PollFd::new(rest.get_ref().as_fd(), PollFlags::POLLIN)];
                        if is_stderr_open && nix::poll::poll(&mut poll, PollTimeout::ZERO).is_ok_and(|n| n > 0) {
                            let n = rest.read(&mut chunk).unwrap_or(0);
                            self.stderr.extend_from_slice(&chunk[..n]);
                        }
                        return End::Closed;
                    }
                    Ok(n) => n,
                };
                for part in chunk[..n].split_inclusive(|byte| *byte == b'\n') {
                    if line.len() + part.len() > MAX_ANSWER {
                        return End::TooLong;
                    }
                    line.extend_from_slice(part);
                    if line.ends_with(b"\n") {
                        self.take(&line);
                        line.clear();
                    }
                }
                if self.answer.is_some() {
                    return End::Answered;
                }
            }
        }
    }

    /// Handles one line. Unknown lines are ignored: a program that does not answer trials may print
    /// anything.
    fn take(&mut self, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(Reply::Hello(hello)) => self.hello = hello == GREETING,
            Ok(Reply::Doing { runtime, what }) => (self.runtime, self.doing) = (runtime, what),
            Ok(Reply::Size(size)) => self.size = size,
            Ok(Reply::Answer(answer)) if self.hello => self.answer = Some(answer),
            Ok(Reply::Answer(_)) | Err(_) => {}
        }
    }

    /// Kills the process and reaps it.
    fn reap(&mut self, request: &TrialRequest, end: &mut End) -> Option<ExitStatus> {
        // After it closed its stdout it is about to exit by itself, and its status says why.
        let wall = self.limits(request).wall;
        while matches!(end, End::Closed) {
            match self.child.try_wait() {
                Ok(None) if self.begun.elapsed() >= wall => *end = End::Late(wall),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => return Some(status),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    fn died(self, end: End, status: Option<ExitStatus>, request: &TrialRequest, program: &str) -> TrialFailure {
        let limits = self.limits(request);
        let stderr = String::from_utf8_lossy(&self.stderr);
        let signal = status.and_then(|status| status.signal());
        let more =
            |what: &str| format!("raise the limit with `--model-limits {what}`, or use another model or backend");
        let other = "use another backend, or export the model with other operators".to_string();
        let memory = show_bytes(limits.memory);
        let (how, help) = match (end, signal) {
            (End::Late(wall), _) => {
                (format!("was still running after {wall:?} and was killed"), more(&format!("wall={:?}", wall * 2)))
            }
            (End::TooLong, _) => (format!("sent an answer of more than {}", show_bytes(MAX_ANSWER as u64)), other),
            (_, Some(nix::libc::SIGXCPU)) => {
                let cpu = limits.cpu;
                (format!("used more than {cpu:?} of CPU time"), more(&format!("cpu={:?}", cpu * 2)))
            }
            (_, Some(_)) if stderr.contains(OUT_OF_MEMORY) => {
                let twice = limits.memory.saturating_mul(2).div_ceil(1 << 20);
                (format!("needed more than {memory} of memory"), more(&format!("memory={twice}MiB")))
            }
            (_, Some(_)) if stderr.contains("has overflowed its stack") => ("overflowed its stack".into(), other),
            (_, Some(nix::libc::SIGKILL)) => {
                ("was killed (SIGKILL), as the system does when memory runs out".into(), other)
            }
            (_, Some(signal)) => (format!("crashed ({})", signal_name(signal)), other),
            (_, None) if !self.hello => {
                let message = format!("is `{program}`, which does not answer as limen {}", env!("CARGO_PKG_VERSION"));
                let help = "name a program that calls `limen_infer::trial::serve` first in its `main`, such as \
                            `limen-run`, of the same version and with the same backends";
                (message, help.into())
            }
            (_, None) => {
                let code = status.and_then(|status| status.code()).unwrap_or_default();
                (format!("ended with exit code {code} without an answer"), other)
            }
        };
        TrialFailure { how, doing: self.doing, runtime: self.runtime, help }
    }
}

fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::limits::RequestedLimits;
    use super::super::request::{AnyPath, TrialTask};
    use super::*;
    use limen::policy::Trials;
    use std::os::unix::fs::PermissionsExt;

    /// Promise (models): The error of a failed trial says how the process failed.
    ///
    /// Shell scripts in place of the program, each with the expected error.
    #[test]
    fn every_way_a_trial_can_fail_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let hello = format!(r#"echo '{{"Hello":"{GREETING}"}}'"#);
        let doing = r#"echo '{"Doing":{"runtime":"rten","what":"ran it"}}'"#;
        for (name, script, how) in [
            ("other", "echo hello; exit 3".to_string(), "which does not answer as limen"),
            ("version", r#"echo '{"Hello":"limen 0"}'; echo '{"Answer":1}'"#.into(), "which does not answer as limen"),
            ("ends", format!("{hello}; exit 3"), "ended with exit code 3 without an answer"),
            ("crashes", format!("{hello}; {doing}; kill -SEGV $$"), "crashed (SIGSEGV)"),
            ("aborts", format!("{hello}; {doing}; kill -ABRT $$"), "crashed (SIGABRT)"),
            ("killed", format!("{hello}; {doing}; kill -KILL $$"), "was killed (SIGKILL)"),
            (
                "stack",
                format!("{hello}; echo 'it has overflowed its stack' >&2; kill -ABRT $$"),
                "overflowed its stack",
            ),
            ("memory", format!("{hello}; echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$"), "of memory"),
            ("cpu", format!("{hello}; {doing}; kill -XCPU $$"), "used more than 10s of CPU time"),
            ("hangs", format!("{hello}; exec sleep 1000"), "was still running after 500ms and was killed"),
            (
                "closes",
                format!("{hello}; exec >&- 2>&-; exec sleep 1000"),
                "was still running after 500ms and was killed",
            ),
            ("floods", format!("{hello}; exec cat /dev/zero"), "sent an answer of more than 64.0 MiB"),
            ("shouts", format!("{hello}; cat /dev/zero >&2; true"), "was still running after 500ms and was killed"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let is_late = ["hangs", "closes", "shouts"].contains(&name);
            let trials = Trials { wall: is_late.then_some(Duration::from_millis(500)), ..Trials::default() };
            let request = TrialRequest {
                parent: std::process::id(),
                limits: RequestedLimits::new(&trials),
                size: 0,
                cache: None,
                onnxruntime: None,
                onnxruntime_plugin: None,
                memory: Vec::new(),
                allow_software: false,
                gpu: None,
                report_differences: false,
                task: TrialTask::Inspect(AnyPath::new("model.onnx".as_ref())),
            };
            let died = run_trial(&path, &request, &MemoryFiles::default()).unwrap_err();
            assert!(died.how.contains(how), "{name}: {died:?}");
            assert_eq!(died.runtime.is_some(), script.contains("Doing"), "{name}: {died:?}");
        }
    }
}
