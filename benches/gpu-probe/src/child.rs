//! Child processes of this binary, which isolate crashes and hangs.
//!
//! A process with a broken GPU context may neither report it nor exit. So everything that uses a GPU runs in a child with a
//! time limit, and its findings before its end are kept.

use crate::report::Finding;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The exit status of a child whose requirement is missing; its last line on stderr says which.
pub const UNAVAILABLE: i32 = 69;

/// The number of bytes of a child's stderr that are kept.
const KEPT_ERRORS: usize = 4096;

/// How a child ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Done,
    Unavailable(String),
    Crashed(String),
    TimedOut(Duration),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Unavailable(why) => write!(f, "unavailable: {why}"),
            Self::Crashed(how) => write!(f, "crashed: {how}"),
            Self::TimedOut(limit) => write!(f, "timed out after {limit:.0?}"),
        }
    }
}

/// A line of a child's output, and when it was read.
pub struct Line {
    pub text: String,
    pub at: Instant,
}

/// A running child.
pub struct Running {
    child: Child,
    lines: Receiver<Line>,
    errors: Option<thread::JoinHandle<String>>,
    deadline: Instant,
    limit: Duration,
    pub started: Instant,
}

/// This binary again, with other arguments.
pub fn again(arguments: &[String]) -> Result<Command, String> {
    let binary = std::env::current_exe().map_err(|e| format!("the path of this binary: {e}"))?;
    let mut command = Command::new(binary);
    command.args(arguments);
    Ok(command)
}

/// Starts a command with a time limit.
pub fn start(mut command: Command, limit: Duration) -> Result<Running, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            // A child that hangs in a driver must not outlive its parent, which enforces the limit. The parent may be gone already.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            // GPU memory is mapped into the process, so a core file would be very large.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            Ok(())
        });
    }
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    let (send, lines) = channel();
    let out = child.stdout.take();
    thread::spawn(move || {
        let Some(out) = out else { return };
        let mut out = BufReader::new(out);
        let mut bytes = Vec::new();
        while matches!(out.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_string();
            if send.send(Line { text, at: Instant::now() }).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    let err = child.stderr.take();
    let errors = thread::spawn(move || {
        let (mut kept, mut part) = (Vec::new(), [0u8; 1024]);
        let Some(mut err) = err else { return String::new() };
        while let Ok(n @ 1..) = err.read(&mut part) {
            kept.extend_from_slice(&part[..n]);
            if kept.len() > 2 * KEPT_ERRORS {
                kept.drain(..kept.len() - KEPT_ERRORS);
            }
        }
        String::from_utf8_lossy(&kept).into_owned()
    });
    Ok(Running { child, lines, errors: Some(errors), deadline: started + limit, limit, started })
}

impl Running {
    /// Returns the next line of the child's output; `None` at its end or when the time limit is reached.
    pub fn line(&mut self) -> Option<Line> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).ok()
    }

    /// Waits for the child's end, or kills it at the time limit. Also returns when it ended.
    pub fn end(mut self) -> (End, Instant) {
        let mut killed = false;
        let mut last = self.deadline;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Err(_) => break None,
                Ok(None) => {}
            }
            if Instant::now() > last {
                if killed {
                    break None;
                }
                // Kills only the process; the driver handles the device.
                let _ = self.child.kill();
                killed = true;
                last = Instant::now() + Duration::from_secs(20);
            }
            thread::sleep(Duration::from_micros(500));
        };
        let gone = Instant::now();
        if killed {
            let end = match status {
                Some(_) => End::TimedOut(self.limit),
                None => End::Crashed("it was killed after its time limit and did not end within 20 s".into()),
            };
            return (end, gone);
        }
        let errors = self.errors.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let last_words = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no words").to_string();
        let end = match status {
            None => End::Crashed("its end could not be awaited".into()),
            Some(status) if status.success() => End::Done,
            Some(status) if status.code() == Some(UNAVAILABLE) => End::Unavailable(last_words),
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => End::Crashed(format!("signal {signal}: {last_words}")),
                (None, code) => End::Crashed(format!("status {}: {last_words}", code.unwrap_or(-1))),
            },
        };
        (end, gone)
    }

    /// Collects the child's findings until it ends. Other lines go to stderr.
    pub fn findings(mut self) -> (Vec<Finding>, End) {
        let mut found = Vec::new();
        while let Some(line) = self.line() {
            match Finding::from_line(&line.text) {
                Some(finding) => found.push(finding),
                None => eprintln!("{}", line.text),
            }
        }
        let (end, _) = self.end();
        (found, end)
    }
}

/// Exits without cleanup, which may hang with a broken device.
pub fn leave(status: i32) -> ! {
    // SAFETY: ends the process, whatever its state.
    unsafe { libc::_exit(status) }
}
