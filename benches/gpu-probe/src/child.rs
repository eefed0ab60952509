//! Child processes of this same binary: whatever crashes or hangs does so alone.
//!
//! A process whose GPU context is broken cannot be trusted to say so, nor to end. So everything that touches a GPU runs in
//! a child with a time limit, and what it found before its end is kept.

use crate::report::Finding;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The status with which a child says that what it needs is not there; why is on its last line of errors.
pub const UNAVAILABLE: i32 = 69;

/// How many bytes of a child's errors are kept.
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

/// A child that runs.
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

/// Starts a command that may take as long as `limit`.
pub fn start(mut command: Command, limit: Duration) -> Result<Running, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            // A child that hangs in a driver must not outlive whoever watches its limit. The parent may be gone already.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            // Memory of a GPU is mapped into the process: a core file would be as large.
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
    /// The next line that the child writes; `None` at the end of its output or of its time.
    pub fn line(&mut self) -> Option<Line> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).ok()
    }

    /// Waits for the child's end, or ends it when its time is up. Also says when it was gone.
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
                // Only the process: the device is left to its driver.
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

    /// Gathers what the child finds until it ends. Lines that are no findings go to this process's errors.
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

/// Ends this process without running what would clean up: with a broken device, that may hang.
pub fn leave(status: i32) -> ! {
    // SAFETY: ends the process, whatever its state.
    unsafe { libc::_exit(status) }
}
