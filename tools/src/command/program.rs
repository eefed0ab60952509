//! The program `limen-run`: dispatches its verbs, and sets up the process (panic hook, signals, limits).
//!
//! Only reports go to stdout. A stdout or stderr that was closed early is not an error.

use super::arguments::{Arguments, RunArguments, Verb, looks_like_graph, no_verb, verbs};
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
    limen_backends::trial::serve();
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
    let code = match &arguments.verb {
        Some(Verb::Kinds { json: true }) => Stdout::default().print(&kinds_json(&registry), 0),
        Some(Verb::Kinds { json: false }) => Stdout::default().print(&show_kinds(&registry), 0),
        Some(Verb::Check(arguments)) => {
            Run::new(&RunArguments { check: true, plan: false, ..*arguments.clone() }).go(registry)
        }
        Some(Verb::Plan(arguments)) => {
            Run::new(&RunArguments { plan: true, check: false, ..*arguments.clone() }).go(registry)
        }
        Some(Verb::VerifyBackend { against, run }) => Run::new(run).verify_backend(registry, against),
        Some(Verb::Inspect { file, json, tensors, onnxruntime, model_limits }) => {
            let options = with_library(&registry, onnxruntime.clone());
            match show_inspection(file, *json, *tensors, &model_limits.clone().unwrap_or_default().0, &options) {
                Ok(text) => Stdout::default().print(&text, 0),
                Err(error) => {
                    let text = format!("{}: {}", file.to_string_lossy(), reason(&error));
                    print_error(&format!("limen-run: {}", one_line(&text)));
                    REFUSED
                }
            }
        }
        Some(Verb::Compile(arguments)) => Run::new(arguments).prepare_models(registry, false),
        Some(Verb::Calibrate(arguments)) => Run::new(arguments).prepare_models(registry, true),
        Some(Verb::Dot(arguments)) => Run::new(&RunArguments { dot: true, ..*arguments.clone() }).go(registry),
        Some(Verb::Expand(arguments)) => Run::new(&RunArguments { expand: true, ..*arguments.clone() }).go(registry),
        Some(Verb::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "limen-run", &mut text);
            Stdout::default().print(&String::from_utf8_lossy(&text), 0)
        }
        #[cfg(feature = "recording")]
        Some(Verb::Recover { file, out }) => match recover(file, out.as_deref()) {
            Ok(text) => Stdout::default().print(&text, 0),
            Err(error) => {
                print_error(&format!("limen-run: {}: {error}", one_line(&file.to_string_lossy())));
                crate::report::exit_code::FAILED
            }
        },
        Some(Verb::Hist { verb }) => hist(verb),
        Some(Verb::Schema) => Stdout::default().print(&format!("{:#}\n", schema(&registry)), 0),
        Some(Verb::New { folder, model, input, onnxruntime, model_limits }) => {
            let trials = model_limits.clone().unwrap_or_default().0;
            match begin_graph(folder, model, *input, onnxruntime.clone(), &trials, registry) {
                Ok(text) => Stdout::default().print(&text, 0),
                Err(error) => {
                    print_error(&format!("limen-run: {}: {error}", one_line(&folder.to_string_lossy())));
                    REFUSED
                }
            }
        }
        Some(Verb::Doctor { json }) => {
            let findings = examine();
            let text = if *json {
                format!("{:#}\n", serde_json::json!({ "findings": findings }))
            } else {
                show_findings(&findings)
            };
            Stdout::default().print(&text, 0)
        }
        Some(Verb::Explain { what }) => match explain(what, &registry) {
            Some(text) => Stdout::default().print(&text, 0),
            None => {
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
        },
        Some(Verb::Run(arguments)) => Run::new(arguments).go(registry),
        None => Run::new(&arguments.run).go(registry),
    };
    ExitCode::from(code)
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
