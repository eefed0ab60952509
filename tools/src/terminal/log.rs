//! Messages on stderr before and during a run: as text, or as one JSON object per line.

use crate::terminal::events::EventLine;
use crate::text::escape::{plain, plain_json};
use clap::ValueEnum;
use limen::Problem;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The format of lines on stderr. An object has `time` (seconds since 1970), `level`, `message`; that of a problem also `code`,
/// `file`, `line`, `column`, `help`; that of an event `event` (its kind), `at` (ns of the run's clock), `count` (the number of
/// events it stands for), and `node` and `edge` if it has them.
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
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints information.
pub(crate) fn print_info(text: &str) {
    print("info", text, Value::Null);
}

/// Prints an event of a running graph.
pub(crate) fn print_event(event: &EventLine) {
    let line = if is_json() { plain_json(event.json().to_string()) } else { event.text() };
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a problem of a graph as a JSON object.
pub(crate) fn print_problem(problem: &Problem) {
    let place = &problem.place;
    let more = json!({
        "code": problem.code, "file": &*place.file, "line": place.line, "column": place.column, "help": problem.help,
    });
    print("error", &problem.message, more);
}

#[allow(clippy::disallowed_methods, reason = "the wall-clock time of a log line; no interval is computed from it")]
fn print(level: &str, text: &str, more: Value) {
    let line = if is_json() {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut object = json!({ "time": time, "level": level, "message": text.trim() });
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        plain_json(object.to_string())
    } else {
        plain(text)
    };
    let _ = writeln!(io::stderr(), "{line}");
}
