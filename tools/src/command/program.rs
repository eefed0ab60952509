//! The program `limen-run`: sets up the process (panic hook, signals, limits), and executes a verb
//! or runs a graph.
//!
//! Only reports go to stdout. A stdout or stderr that was closed early is not an error.

use super::arguments::{Arguments, looks_like_graph, no_verb, verbs};
use super::run::Run;
use crate::report::exit_code::REFUSED;
use crate::terminal::log::print_error;
use clap::CommandFactory;
use clap::error::ErrorKind;
use limen::Registry;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `limen-run` with the kinds of a registry, and returns its exit code.
///
/// Installs a panic hook and a signal handler. Call it from `main`, and do nothing else there.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     limen_run::main(limen_run::registry())
/// }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    limen_infer::trial::serve(&registry);
    std::panic::set_hook(Box::new(limen::panic_hook));
    // Before other threads exist: they inherit it.
    limen::files::outlive_size_limit();
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            if std::env::args_os().len() <= 1 {
                print_error(verbs().trim_end());
                return ExitCode::from(REFUSED);
            }
            if let Some(text) = unknown_verb(error.kind(), std::env::args_os().nth(1)) {
                print_error(&text);
                return ExitCode::from(REFUSED);
            }
            let text = error.render().to_string();
            if text.contains(|c: char| !matches!(c, '\n' | '\t') && limen::text::is_terminal_control(c)) {
                print_error(text.trim_end());
            } else {
                // A closed stdout is not a failure.
                let _ = error.print();
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(REFUSED));
        }
    };
    let run = match &arguments.verb {
        None => &arguments.run,
        Some(verb) => return ExitCode::from(verb.execute(registry)),
    };
    ExitCode::from(Run::execute(run, registry, Run::run_or_dry_run))
}

/// The message for a first word that is neither a verb nor a graph file. clap takes it for a file,
/// and its error about the following words would mislead.
fn unknown_verb(error: ErrorKind, word: Option<OsString>) -> Option<String> {
    let word = word?.into_string().ok()?;
    let may_mislead =
        matches!(error, ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    let is_verb = Arguments::command().find_subcommand(&word).is_some();
    (may_mislead && !is_verb && !word.starts_with('-') && !looks_like_graph(word.as_ref())).then(|| no_verb(&word))
}
