//! `limen-run` as a program: what its verbs are answered with, and what belongs to the process alone.
//!
//! Reports go to stdout and nothing else does; a stdout or stderr that was closed early is not an error.

use super::arguments::{Arguments, RunArguments, Verb, looks_like_graph, no_verb, verbs};
use super::doctor::{examine, show_findings};
use super::explain::explain;
use super::inspect::show_inspection;
use super::kinds::{kinds_json, show_kinds};
use super::run::Run;
use super::schema::schema;
use super::starter::begin;
use crate::report::exit_code::REFUSED;
use crate::terminal::log::complain;
use crate::terminal::stdout::Stdout;
use crate::text::escape::one_line;
use clap::CommandFactory;
use clap::error::ErrorKind;
use limen::Registry;
use limen::text::nearest;
use std::ffi::OsString;
use std::process::ExitCode;

/// The whole of `limen-run`, with the kinds of a registry.
///
/// Installs a panic hook and a signal handler: call it from `main` and do nothing else there.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     limen_run::main(limen_run::registry())
/// }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    limen_backends::trial::serve();
    std::panic::set_hook(Box::new(limen::panic_hook));
    // Before there are other threads, which inherit it.
    limen::files::outlive_size_limit();
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            if std::env::args_os().len() <= 1 {
                complain(verbs().trim_end());
                return ExitCode::from(REFUSED);
            }
            if let Some(text) = unknown_verb(error.kind(), std::env::args_os().nth(1)) {
                complain(&text);
                return ExitCode::from(REFUSED);
            }
            let text = error.render().to_string();
            if text.contains(|c: char| !matches!(c, '\n' | '\t') && limen::text::is_terminal_control(c)) {
                complain(text.trim_end());
            } else {
                // Help that nobody reads any more is no failure.
                let _ = error.print();
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(REFUSED));
        }
    };
    let code = match &arguments.verb {
        Some(Verb::Kinds { json: true }) => Stdout::default().print(&kinds_json(&registry), 0),
        Some(Verb::Kinds { json: false }) => Stdout::default().print(&show_kinds(&registry), 0),
        Some(Verb::Check(arguments)) => {
            Run::new(&RunArguments { check: true, plan: false, ..*arguments.clone() }).go(&registry)
        }
        Some(Verb::Plan(arguments)) => {
            Run::new(&RunArguments { plan: true, check: false, ..*arguments.clone() }).go(&registry)
        }
        Some(Verb::VerifyBackend { against, run }) => Run::new(run).verify_backend(&registry, against),
        Some(Verb::Inspect { file, json, model_limits }) => {
            match show_inspection(file, *json, &model_limits.clone().unwrap_or_default().0) {
                Ok(text) => Stdout::default().print(&text, 0),
                Err(error) => {
                    let text = format!("{}: {error}", file.to_string_lossy());
                    complain(&format!("limen-run: {}", one_line(&text)));
                    REFUSED
                }
            }
        }
        Some(Verb::Compile(arguments)) => Run::new(arguments).prepare_models(&registry),
        Some(Verb::Calibrate(arguments)) => {
            limen_backends::calibrate();
            Run::new(arguments).prepare_models(&registry)
        }
        Some(Verb::Dot(arguments)) => Run::new(&RunArguments { dot: true, ..*arguments.clone() }).go(&registry),
        Some(Verb::Expand(arguments)) => Run::new(&RunArguments { expand: true, ..*arguments.clone() }).go(&registry),
        Some(Verb::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "limen-run", &mut text);
            Stdout::default().print(&String::from_utf8_lossy(&text), 0)
        }
        Some(Verb::Schema) => Stdout::default().print(&format!("{:#}\n", schema(&registry)), 0),
        Some(Verb::New { folder }) => match begin(folder) {
            Ok(path) => {
                let path = path.display();
                Stdout::default().print(&format!("{path}\n\nlimen-run {path}\nlimen-run {path} --plan\n"), 0)
            }
            Err(error) => {
                complain(&format!("limen-run: {}: {error}", one_line(&folder.to_string_lossy())));
                REFUSED
            }
        },
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
                complain(&format!("`{what}` is neither a code such as E0122 nor a kind; {help}"));
                REFUSED
            }
        },
        Some(Verb::Run(arguments)) => Run::new(arguments).go(&registry),
        None => Run::new(&arguments.run).go(&registry),
    };
    ExitCode::from(code)
}

/// A first word that is no verb and no graph's file was taken for a file; what it could not be understood with is beside the point.
fn unknown_verb(error: ErrorKind, word: Option<OsString>) -> Option<String> {
    let word = word?.into_string().ok()?;
    let is_beside_it =
        matches!(error, ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    let is_verb = Arguments::command().find_subcommand(&word).is_some();
    (is_beside_it && !is_verb && !word.starts_with('-') && !looks_like_graph(word.as_ref())).then(|| no_verb(&word))
}
