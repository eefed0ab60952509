//! The program `limen-run`: dispatches its verbs, and sets up the process (panic hook, signals, limits).
//!
//! Only reports go to stdout. A stdout or stderr that was closed early is not an error.

use super::arguments::{Arguments, Verb, looks_like_graph, no_verb, verbs};
use super::doctor::{examine, show_findings};
use super::explain::explain;
use super::hist::hist;
use super::inspect::{reason, show_inspection};
use super::kinds::{kinds_json, show_kinds};
use super::model_starter::InputKind;
#[cfg(feature = "recording")]
use super::recover::recover;
use super::run::Run;
use super::schema::schema;
use super::starter::{begin, begin_with_models};
use crate::report::exit_code::REFUSED;
use crate::terminal::log::print_error;
use crate::terminal::stdout::Stdout;
use crate::text::escape::{one_line, shell_word};
use crate::text::paragraph::paragraph;
use clap::CommandFactory;
use clap::error::ErrorKind;
use limen::Registry;
use limen::policy::Trials;
use limen::text::nearest;
use limen_backends::BackendOptions;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
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
    limen_backends::trial::serve_for(&registry);
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
        Some(verb) => return ExitCode::from(execute(verb, registry)),
    };
    ExitCode::from(Run::execute(run, registry, Run::run_or_dry_run))
}

/// Does what a verb says, and returns the exit code.
fn execute(verb: &Verb, registry: Registry) -> u8 {
    let print = |text: &str| Stdout::default().print(text, 0);
    match verb {
        Verb::Run(run) => Run::execute(run, registry, Run::run_or_dry_run),
        Verb::Check(run) => Run::execute(run, registry, Run::check),
        Verb::Plan(run) => Run::execute(run, registry, Run::plan),
        Verb::Dot(run) => Run::execute(run, registry, Run::dot),
        Verb::Expand(run) => Run::execute(run, registry, Run::expand),
        Verb::Compile(run) => Run::execute(run, registry, Run::compile),
        Verb::Calibrate(run) => Run::execute(run, registry, Run::calibrate),
        Verb::VerifyBackend { against, run } => {
            Run::execute(run, registry, |run, registry| run.verify_backend(registry, against))
        }
        Verb::Inspect { file, json, tensors, onnxruntime, model_limits } => {
            let options = with_library(&registry, onnxruntime.clone());
            let (registry, trials) = (registry.with_extension(options), &model_limits.clone().unwrap_or_default().0);
            let shown = show_inspection(file, *json, *tensors, trials, registry.extensions());
            print_about(file, shown.map_err(|error| one_line(&reason(&error))), REFUSED)
        }
        #[cfg(feature = "recording")]
        Verb::Recover { file, out } => {
            print_about(file, recover(file, out.as_deref()), crate::report::exit_code::FAILED)
        }
        Verb::New { folder, model, input, onnxruntime, model_limits } => {
            let trials = model_limits.clone().unwrap_or_default().0;
            let begun = begin_graph(folder, model, *input, onnxruntime.clone(), &trials, registry);
            print_about(folder, begun, REFUSED)
        }
        Verb::Hist { verb } => hist(verb),
        Verb::Schema => print(&format!("{:#}\n", schema(&registry))),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "limen-run", &mut text);
            print(&String::from_utf8_lossy(&text))
        }
        Verb::Doctor { json: true } => print(&format!("{:#}\n", serde_json::json!({ "findings": examine() }))),
        Verb::Doctor { json: false } => print(&show_findings(&examine())),
        Verb::Kinds { json: true } => print(&kinds_json(&registry)),
        Verb::Kinds { json: false } => print(&show_kinds(&registry)),
        Verb::Explain { what } => match explain(what, &registry) {
            Some(text) => print(&text),
            None => refuse_word(what, &registry),
        },
    }
}

/// Prints the text of a verb about a file or a folder, or with its path why there is none. Returns the exit code, which is `failed` then.
fn print_about(path: &Path, text: Result<String, impl Display>, failed: u8) -> u8 {
    match text {
        Ok(text) => Stdout::default().print(&text, 0),
        Err(error) => {
            print_error(&format!("limen-run: {}: {error}", one_line(&path.to_string_lossy())));
            failed
        }
    }
}

/// Prints that there is nothing to explain a word with, and returns the exit code.
fn refuse_word(what: &str, registry: &Registry) -> u8 {
    let what = one_line(what);
    let kinds: Vec<&str> = registry.kinds().map(|kind| kind.name.as_str()).collect();
    let help = match nearest(&what, kinds) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`limen-run kinds` lists the kinds".into(),
    };
    print_error(&format!(
        "limen-run: `{what}` is not a code such as E0122, a kind of node, a key or a counter; {help}"
    ));
    REFUSED
}

/// Returns the backend options of a registry, with another library of ONNX Runtime if there is one.
fn with_library(registry: &Registry, library: Option<PathBuf>) -> BackendOptions {
    let registered: BackendOptions = registry.extensions().get().cloned().unwrap_or_default();
    BackendOptions { onnxruntime: library.or(registered.onnxruntime.clone()), ..registered }
}

/// Writes a new graph, and returns what to do next.
fn begin_graph(
    folder: &Path,
    models: &[PathBuf],
    input: Option<InputKind>,
    onnxruntime: Option<PathBuf>,
    trials: &Trials,
    registry: Registry,
) -> std::io::Result<String> {
    let (path, notes) = if models.is_empty() {
        (begin(folder)?, Vec::new())
    } else {
        let options = with_library(&registry, onnxruntime);
        begin_with_models(folder, models, input, registry, trials, &options)?
    };
    let path = path.display().to_string();
    let mut text = format!("{}\n\n", one_line(&path));
    for note in notes {
        paragraph(&mut text, "note: ", &note);
        text.push('\n');
    }
    let word = one_line(&shell_word(&path));
    Ok(text + &format!("limen-run {word}\nlimen-run {word} --plan\n"))
}

/// The message for a first word that is neither a verb nor a graph file. clap takes it for a file, and its error
/// about the following words would mislead.
fn unknown_verb(error: ErrorKind, word: Option<OsString>) -> Option<String> {
    let word = word?.into_string().ok()?;
    let may_mislead =
        matches!(error, ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    let is_verb = Arguments::command().find_subcommand(&word).is_some();
    (may_mislead && !is_verb && !word.starts_with('-') && !looks_like_graph(word.as_ref())).then(|| no_verb(&word))
}
