//! The process that tries a model, as the one that waits for it sees it: it is started, heard out, ended and reaped.

use super::limits::Limits;
use super::request::{HELLO, Heard, OUT_OF_MEMORY, Request, WORD};
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

/// Longer answers are none.
const MAX_ANSWER: usize = 64 << 20;
/// Of what it says on its standard error so much is looked at.
const MAX_SAID: usize = 16 << 10;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Died {
    /// What became of the process, as in `it crashed (SIGSEGV)`, without the `it`.
    pub(super) how: String,
    /// What it was doing.
    pub(super) doing: String,
    /// The runtime that it was doing it with.
    pub(super) runtime: Option<String>,
    /// What may help.
    pub(super) help: String,
}

impl Died {
    /// What became of a model.
    pub(super) fn sentence(&self, model: &str) -> String {
        let mut text = format!("{model} was tried in a process of its own, which {}", self.how);
        match (&self.runtime, self.doing.as_str()) {
            (_, "") => {}
            (Some(runtime), doing) => text.push_str(&format!(" while `{runtime}` {doing}")),
            (None, doing) => text.push_str(&format!(" while it {doing}")),
        }
        text
    }
}

pub(super) fn understood<T: DeserializeOwned>(answer: serde_json::Value) -> Result<T, Died> {
    serde_json::from_value(answer).map_err(|error| Died {
        how: format!("answered what is not understood: {error}"),
        doing: String::new(),
        runtime: None,
        help: "name a program of the same version".into(),
    })
}

/// A trial that was begun, and what was heard of it so far.
struct Trial {
    child: Child,
    begun: Instant,
    hello: bool,
    doing: String,
    runtime: Option<String>,
    size: u64,
    answer: Option<serde_json::Value>,
    /// Its standard error.
    said: Vec<u8>,
}

/// How a trial came to its end.
enum End {
    /// Everything it had to say was heard.
    Answered,
    /// It says nothing more.
    Silent,
    Late(Duration),
    TooMuch,
}

/// Asks a program to try a model, and waits for the answer.
///
/// # Errors
/// What became of it instead.
pub(super) fn ask(program: &Path, request: &Request) -> Result<serde_json::Value, Died> {
    let not_begun = |what: &str, error: std::io::Error| Died {
        how: format!("could not be started: {what}: {error}"),
        doing: String::new(),
        runtime: None,
        help: "`--model-limits none` (in a program, `Trials::here`) tries models in this process".into(),
    };
    let name = program.display().to_string();
    let begun = Instant::now();
    let stdin = written(request).map_err(|error| not_begun("the request", error))?;
    // The child takes nothing of this process but its environment: it is started anew, by no fork of these threads.
    let child = Command::new(program)
        .arg(WORD)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Reserved address space would count against the limit.
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
        said: Vec::new(),
    };
    let mut end = trial.hear(request);
    let status = trial.reap(request, &mut end);
    match (trial.answer.take(), end) {
        (Some(answer), _) => Ok(answer),
        (None, end) => Err(trial.died(end, status, request, &name)),
    }
}

/// The request as a file in memory: writing it waits for nobody, however long it is.
fn written(request: &Request) -> std::io::Result<Stdio> {
    let mut file = File::from(memfd_create("limen-trial", MFdFlags::MFD_CLOEXEC)?);
    // At once: a call of the kernel for each word of it would take longer than reading the model.
    file.write_all(&serde_json::to_vec(request)?)?;
    file.rewind()?;
    Ok(file.into())
}

impl Trial {
    fn limits(&self, request: &Request) -> Limits {
        request.limits.of(self.size, request.calls())
    }

    /// Hears it until it has answered, falls silent, or its time is up.
    fn hear(&mut self, request: &Request) -> End {
        let (Some(mut stdout), Some(mut stderr)) = (self.child.stdout.take(), self.child.stderr.take()) else {
            return End::Silent;
        };
        let (mut line, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        let mut is_stderr_open = true;
        loop {
            let wall = self.limits(request).wall;
            let left = wall.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return End::Late(wall);
            }
            // Rounded up, so that what is left is not asked for again and again.
            let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
            let mut ends = vec![PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if is_stderr_open {
                ends.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
            }
            match nix::poll::poll(&mut ends, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return End::Silent,
            }
            let is_ready = |end: Option<&PollFd<'_>>| end.and_then(PollFd::revents).is_some_and(|e| !e.is_empty());
            let (hears, complains) = (is_ready(ends.first()), is_ready(ends.get(1)));
            if complains {
                match stderr.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => is_stderr_open = false,
                    Ok(n) => {
                        let room = MAX_SAID.saturating_sub(self.said.len());
                        self.said.extend_from_slice(&chunk[..n.min(room)]);
                    }
                }
            }
            if hears {
                let n = match stdout.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => {
                        // What it said last, such as why it aborts, is there by now.
                        let mut rest = stderr.take(MAX_SAID as u64);
                        let mut poll = [PollFd::new(rest.get_ref().as_fd(), PollFlags::POLLIN)];
                        if is_stderr_open && nix::poll::poll(&mut poll, PollTimeout::ZERO).is_ok_and(|n| n > 0) {
                            let n = rest.read(&mut chunk).unwrap_or(0);
                            self.said.extend_from_slice(&chunk[..n]);
                        }
                        return End::Silent;
                    }
                    Ok(n) => n,
                };
                for part in chunk[..n].split_inclusive(|byte| *byte == b'\n') {
                    if line.len() + part.len() > MAX_ANSWER {
                        return End::TooMuch;
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

    /// Takes one line. What is none of ours is passed over: a program that answers no trials may print anything.
    fn take(&mut self, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(Heard::Hello(hello)) => self.hello = hello == HELLO,
            Ok(Heard::Doing { runtime, what }) => (self.runtime, self.doing) = (runtime, what),
            Ok(Heard::Size(size)) => self.size = size,
            Ok(Heard::Answer(answer)) if self.hello => self.answer = Some(answer),
            Ok(Heard::Answer(_)) | Err(_) => {}
        }
    }

    /// Ends the process, and takes its status from the kernel, so that nothing is left of it.
    fn reap(&mut self, request: &Request, end: &mut End) -> Option<ExitStatus> {
        // One that fell silent is about to end by itself, and its status says why.
        let wall = self.limits(request).wall;
        while matches!(end, End::Silent) {
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

    fn died(self, end: End, status: Option<ExitStatus>, request: &Request, program: &str) -> Died {
        let limits = self.limits(request);
        let said = String::from_utf8_lossy(&self.said);
        let signal = status.and_then(|status| status.signal());
        let more = |what: &str| format!("give it more with `--model-limits {what}`, or take another model or backend");
        let other = "take another backend, or export the model in another way".to_string();
        let memory = show_bytes(limits.memory);
        let (how, help) = match (end, signal) {
            (End::Late(wall), _) => {
                (format!("had not ended after {wall:?} and was ended"), more(&format!("wall={:?}", wall * 2)))
            }
            (End::TooMuch, _) => ("answered with more than is read".into(), other),
            (_, Some(nix::libc::SIGXCPU)) => {
                let cpu = limits.cpu;
                (format!("used up its {cpu:?} of processor time"), more(&format!("cpu={:?}", cpu * 2)))
            }
            (_, Some(_)) if said.contains(OUT_OF_MEMORY) => {
                let twice = limits.memory.saturating_mul(2).div_ceil(1 << 20);
                (format!("needed more than its {memory} of memory"), more(&format!("memory={twice}MiB")))
            }
            (_, Some(_)) if said.contains("has overflowed its stack") => ("overflowed its stack".into(), other),
            (_, Some(nix::libc::SIGKILL)) => {
                ("was killed (SIGKILL), as the system does where memory runs out".into(), other)
            }
            (_, Some(signal)) => (format!("crashed ({})", signal_name(signal)), other),
            (_, None) if !self.hello => {
                let message = format!("is `{program}`, which does not answer as limen {}", env!("CARGO_PKG_VERSION"));
                let help = "name a program that calls `limen_backends::trial::serve` first in its `main`, such as \
                            `limen-run`, of the same version and with the same backends";
                (message, help.into())
            }
            (_, None) => {
                let code = status.and_then(|status| status.code()).unwrap_or_default();
                (format!("ended with exit code {code} and without an answer"), other)
            }
        };
        Died { how, doing: self.doing, runtime: self.runtime, help }
    }
}

fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::limits::Asked;
    use super::super::request::{AnyPath, Task};
    use super::*;
    use limen::policy::Trials;
    use std::os::unix::fs::PermissionsExt;

    /// Scripts in place of a program that tries models, each with what is said of it.
    #[test]
    fn whatever_becomes_of_a_trial_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let hello = format!(r#"echo '{{"Hello":"{HELLO}"}}'"#);
        let doing = r#"echo '{"Doing":{"runtime":"rten","what":"ran it"}}'"#;
        for (name, script, how) in [
            ("other", "echo hello; exit 3".to_string(), "which does not answer as limen"),
            ("version", r#"echo '{"Hello":"limen 0"}'; echo '{"Answer":1}'"#.into(), "which does not answer as limen"),
            ("ends", format!("{hello}; exit 3"), "ended with exit code 3 and without an answer"),
            ("crashes", format!("{hello}; {doing}; kill -SEGV $$"), "crashed (SIGSEGV)"),
            ("aborts", format!("{hello}; {doing}; kill -ABRT $$"), "crashed (SIGABRT)"),
            ("killed", format!("{hello}; {doing}; kill -KILL $$"), "was killed (SIGKILL)"),
            (
                "stack",
                format!("{hello}; echo 'it has overflowed its stack' >&2; kill -ABRT $$"),
                "overflowed its stack",
            ),
            ("memory", format!("{hello}; echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$"), "of memory"),
            ("cpu", format!("{hello}; {doing}; kill -XCPU $$"), "used up its 10s of processor time"),
            ("hangs", format!("{hello}; exec sleep 1000"), "had not ended after 500ms and was ended"),
            ("closes", format!("{hello}; exec >&- 2>&-; exec sleep 1000"), "had not ended after 500ms and was ended"),
            ("floods", format!("{hello}; exec cat /dev/zero"), "answered with more than is read"),
            ("shouts", format!("{hello}; cat /dev/zero >&2; true"), "had not ended after 500ms and was ended"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let is_late = ["hangs", "closes", "shouts"].contains(&name);
            let trials = Trials { wall: is_late.then_some(Duration::from_millis(500)), ..Trials::default() };
            let request = Request {
                parent: std::process::id(),
                limits: Asked::new(&trials),
                size: 0,
                cache: None,
                onnxruntime: None,
                task: Task::Inspect(AnyPath::new("model.onnx".as_ref())),
            };
            let died = ask(&path, &request).unwrap_err();
            assert!(died.how.contains(how), "{name}: {died:?}");
            assert_eq!(died.runtime.is_some(), script.contains("Doing"), "{name}: {died:?}");
        }
    }
}
