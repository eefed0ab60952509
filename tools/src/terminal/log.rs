//! What is said on stderr while and before a graph runs: as text, or as one JSON object a line.

use crate::terminal::events::Told;
use crate::text::escape::{plain, plain_json};
use clap::ValueEnum;
use limen::Problem;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How lines on stderr are written. An object has `time` (seconds since 1970), `level`, `message`; that of a problem also `code`,
/// `file`, `line`, `column`, `help`; that of an event `event` (its kind), `at` (ns of the run's clock), `count` (for how many it
/// stands), and `node` and `edge` where it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Signal handlers write too, so the format is the process's.
static JSON: AtomicBool = AtomicBool::new(false);

/// Chooses the format of the process.
pub(crate) fn choose(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Says what went wrong. Where stderr is closed there is nobody to tell.
pub(crate) fn complain(text: &str) {
    say("error", text, Value::Null);
}

/// Says what was made for the terminal, colours and all.
pub(crate) fn show(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Says what is worth knowing.
pub(crate) fn tell(text: &str) {
    say("info", text, Value::Null);
}

/// Says what happened while a graph runs, as the format of the process has it.
pub(crate) fn tell_of(told: &Told) {
    let line = if is_json() { plain_json(told.json().to_string()) } else { told.text() };
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says one problem of a graph as an object.
pub(crate) fn complain_of(problem: &Problem) {
    let place = &problem.place;
    let more = json!({
        "code": problem.code, "file": &*place.file, "line": place.line, "column": place.column, "help": problem.help,
    });
    say("error", &problem.message, more);
}

#[allow(clippy::disallowed_methods, reason = "a line of a log says when it was written, which no interval is made of")]
fn say(level: &str, text: &str, more: Value) {
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
