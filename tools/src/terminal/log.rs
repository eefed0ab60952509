//! Messages on stderr before and during a run: as text, or as one JSON object per line.
//!
//! While a graph runs, and when a signal is answered, nothing waits for whoever reads stderr: a
//! line that stderr does not take within a tenth of a second is not printed, and counted.

use crate::terminal::events::EventLine;
use crate::text::escape::{plain, plain_json};
use crate::text::number::count;
use clap::ValueEnum;
use limen::Problem;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The format of lines on stderr. An object has `time` (seconds since 1970), `level`, `message`;
/// that of a problem also `code`, `file`, `line`, `column`, `help`; that of an event `event` (its
/// kind), `at` (ns of the run's clock), `count` (the number of events it stands for), and `node`
/// and `edge` if it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for a terminal
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// The format of the process; static because the signal handler prints too.
static JSON: AtomicBool = AtomicBool::new(false);

/// How long a line may wait for stderr while a graph runs, ms; not at all if lines before it were
/// not printed.
const WAIT_MS: u8 = 100;
/// A pipe with room takes so many bytes without blocking (`PIPE_BUF`).
const PIECE: usize = 4096;

thread_local! {
    /// Whether this thread waits for whoever reads stderr.
    static WAITS: Cell<bool> = const { Cell::new(true) };
}

/// Lines that were not printed.
static UNPRINTED: AtomicU64 = AtomicU64::new(0);

/// While this exists, the thread that made it does not wait for whoever reads stderr.
#[derive(Debug)]
pub(crate) struct Unwaiting;

impl Unwaiting {
    pub(crate) fn begin() -> Self {
        WAITS.set(false);
        Unwaiting
    }
}

impl Drop for Unwaiting {
    fn drop(&mut self) {
        WAITS.set(true);
    }
}

/// Whether stderr takes a line, or may be waited for.
pub(crate) fn takes_lines() -> bool {
    let wait = if UNPRINTED.load(Ordering::Relaxed) > 0 { PollTimeout::ZERO } else { PollTimeout::from(WAIT_MS) };
    WAITS.get()
        || matches!(
            poll(&mut [PollFd::new(io::stderr().as_fd(), PollFlags::POLLOUT)], wait),
            Ok(1..) | Err(Errno::EINTR)
        )
}

/// Prints a line, after a line on those before it that were not printed.
fn write_line(line: &str) {
    let unprinted = UNPRINTED.load(Ordering::Relaxed);
    if unprinted > 0 {
        let lines = count(usize::try_from(unprinted).unwrap_or(usize::MAX), "line");
        let text = format!("limen-run: stderr was not read: {lines} not printed");
        if try_write(&log_line("error", &text, Value::Null)) {
            UNPRINTED.fetch_sub(unprinted, Ordering::Relaxed);
        }
    }
    if !try_write(line) {
        UNPRINTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes a line; false if stderr did not take it. Another error is ignored.
fn try_write(line: &str) -> bool {
    let line = format!("{line}\n");
    if WAITS.get() {
        let _ = io::stderr().write_all(line.as_bytes());
        return true;
    }
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        if !takes_lines() {
            return false;
        }
        // Without the lock of `Stderr`, which a thread may hold that waits.
        match nix::unistd::write(io::stderr().as_fd(), &rest[..rest.len().min(PIECE)]) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// Sets the format of the process.
pub(crate) fn set_format(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Prints an error. A closed stderr is ignored.
pub(crate) fn print_error(text: &str) {
    print("error", text, Value::Null);
}

/// Prints text without escaping it, with its terminal colours.
pub(crate) fn print_as_is(text: &str) {
    write_line(text);
}

/// Prints information.
pub(crate) fn print_info(text: &str) {
    print("info", text, Value::Null);
}

/// Prints an event of a running graph.
pub(crate) fn print_event(event: &EventLine) {
    write_line(&if is_json() { plain_json(event.json().to_string()) } else { event.text() });
}

/// Prints a problem of a graph as a JSON object.
pub(crate) fn print_problem(problem: &Problem) {
    let place = &problem.place;
    let more = json!({
        "code": problem.code, "file": &*place.file, "line": place.line, "column": place.column, "help": problem.help,
    });
    print("error", &problem.message, more);
}

fn print(level: &str, text: &str, more: Value) {
    write_line(&log_line(level, text, more));
}

#[allow(clippy::disallowed_methods, reason = "the wall-clock time of a log line; no interval is computed from it")]
fn log_line(level: &str, text: &str, more: Value) -> String {
    if is_json() {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut object = json!({ "time": time, "level": level, "message": text.trim() });
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        plain_json(object.to_string())
    } else {
        plain(text)
    }
}
