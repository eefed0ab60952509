//! The command line and its verbs: the arguments of each verb are a variant of [`Verb`], and
//! [`Verb::execute`] calls the function that does what it says.

pub(crate) mod arguments;
pub(crate) mod doctor;
pub(crate) mod explain;
mod fetch;
pub(crate) mod hist;
mod inspect;
pub(crate) mod kinds;
mod migrate;
pub(crate) mod model_starter;
pub(crate) mod option_values;
pub(crate) mod plan;
pub(crate) mod problems;
pub(crate) mod program;
#[cfg(feature = "recording")]
mod recover;
mod run;
pub(crate) mod schema;
mod simulated;
pub(crate) mod starter;
mod trial_run;
mod turns;
mod watch;

use crate::report::exit_code::REFUSED;
use crate::terminal::log::print_error;
use crate::terminal::stdout::Stdout;
use crate::text::escape::{one_line, shell_word};
use crate::text::paragraph::paragraph;
use arguments::{Arguments, RunArguments};
use clap::builder::BoolishValueParser;
use clap::{CommandFactory, Subcommand};
pub use fetch::FetchArguments;
use hist::HistVerb;
use limen::policy::Trials;
use limen::text::nearest;
use limen::{Layers, Registry};
use limen_infer::BackendOptions;
use model_starter::InputKind;
use option_values::ModelLimits;
use run::Run;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A verb of `limen-run`.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Run a graph from a file of any name; `limen-run GRAPH` is short for it
    #[command(after_help = arguments::EXAMPLES)]
    Run(Box<RunArguments>),
    /// Check a graph and print every problem; run nothing
    Check(Box<RunArguments>),
    /// Print the plan of a graph for this machine: threads, edges, pools, memory, backends; run
    /// nothing
    Plan(Box<RunArguments>),
    /// Compare each model of a graph on its backend and on another: difference of outputs, speed
    #[command(
        after_help = "Both run the same 32 fixed inputs. Exits with 2 if their outputs differ by more than the node's `verify:` \
                            allows (atol 1e-4, rtol 1e-3 by default)."
    )]
    VerifyBackend {
        /// The other backend: rten, tract, ort, wgpu or cuda; ort-webgpu, ort-cuda or ort-tensorrt
        /// for a provider of ort
        #[arg(long, value_name = "BACKEND", value_parser = option_values::backend_name)]
        against: String,
        /// The graph and its overrides
        #[command(flatten)]
        run: Box<RunArguments>,
    },
    /// Print the inputs, outputs, operators or tensors of a model or weights file, and which
    /// operators each backend supports
    Inspect {
        /// An ONNX model, or a `.safetensors`, `.npy`, `.npz`, `.pt` or `.gguf` file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print one JSON object, in the format of a node's `manifest:`
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
        /// List every weight of a model
        #[arg(long)]
        tensors: bool,
        /// Path of ONNX Runtime's library; default: LIMEN_ONNXRUNTIME, then ORT_DYLIB_PATH, then
        /// the system's search path
        #[arg(long, env = "LIMEN_ONNXRUNTIME", value_name = "FILE", hide_env = true)]
        onnxruntime: Option<PathBuf>,
        /// Limits for reading the file: one or more of size=2GiB,memory=4GiB,cpu=30s,wall=1m. With
        /// `none`, limen reads the file in this process, without limits
        #[arg(long, env = "LIMEN_MODEL_LIMITS", value_name = "LIMITS", hide_env = true)]
        model_limits: Option<ModelLimits>,
    },
    /// Measure every backend on the models of a graph, for `backend: auto` to choose by; needs
    /// --cache
    Calibrate(Box<RunArguments>),
    /// Compile the models of a graph ahead of time; needs --cache
    Compile(Box<RunArguments>),
    /// Download the files that a graph names by URL into the cache, and pin them in a lock beside
    /// the graph; a run reads only these
    #[command(after_help = fetch::EXAMPLES)]
    Fetch {
        /// How files are fetched
        #[command(flatten)]
        fetch: Box<FetchArguments>,
        /// The graph and its overrides
        #[command(flatten)]
        run: Box<RunArguments>,
    },
    /// Print a graph in Graphviz format: `limen-run dot graph.yaml | dot -Tsvg > graph.svg`
    Dot(Box<RunArguments>),
    /// Print the flat graph, each value with its origin; paths stay relative to the graph's folder,
    /// and ${NAME} unexpanded unless --env lists it
    Expand(Box<RunArguments>),
    /// Rename deprecated keys in graphs and the files that they include: show what changes, or
    /// change it with --write
    #[command(
        after_help = "Everything else in the files stays as it is. Exits with 1 if deprecated keys are left, so that CI can \
                            refuse them."
    )]
    Migrate {
        /// Graph files
        #[arg(value_name = "GRAPH", required = true)]
        graphs: Vec<PathBuf>,
        /// Change the files; each is replaced once its new text is complete
        #[arg(long)]
        write: bool,
        /// Also an overlay of these graphs; may be repeated
        #[arg(long, env = "LIMEN_OVERLAY", value_name = "FILE", hide_env = true)]
        overlay: Vec<PathBuf>,
        /// Also let the graphs include files of this folder; may be repeated
        #[arg(long, env = "LIMEN_ALLOW_PATH", value_name = "DIR", hide_env = true)]
        allow_path: Vec<PathBuf>,
    },
    /// Write the intact messages of a recording that was not finished into a new file, and read
    /// that back
    #[cfg(feature = "recording")]
    Recover {
        /// The recording, an MCAP file; it is not changed
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The new file, which must not exist; by default FILE with `-recovered` in its name
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print, add, draw, convert and compare the histograms of runs
    #[command(disable_help_subcommand = true)]
    Hist {
        /// The operation
        #[command(subcommand)]
        verb: HistVerb,
    },
    /// Print the JSON Schema of graph files, for editors
    Schema,
    /// Print shell completions: `limen-run completions bash > /etc/bash_completion.d/limen-run`
    Completions {
        /// Your shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write a starter graph into a new folder, or a graph that runs a model, or two in a chain
    New {
        /// The folder, which must not exist yet
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// An ONNX model, which is copied into the folder: the graph runs it, with what its file
        /// says about inputs, states and outputs. Given twice, the first finds text or objects in
        /// an image, and the second reads each of them
        #[arg(long, value_name = "FILE")]
        model: Vec<PathBuf>,
        /// Where the messages of the model's graph come from; by default what fits its first input
        #[arg(long, value_name = "KIND", requires = "model")]
        input: Option<InputKind>,
        /// Path of ONNX Runtime's library, which records a case of the model; default:
        /// LIMEN_ONNXRUNTIME, then ORT_DYLIB_PATH, then the system's search path
        #[arg(long, value_name = "FILE", env = "LIMEN_ONNXRUNTIME", hide_env = true)]
        onnxruntime: Option<PathBuf>,
        /// Limits of a model and its trial: size=2GiB,memory=4GiB,cpu=30s,wall=1m, or some of them;
        /// none: try models in this process, without limits
        #[arg(long, env = "LIMEN_MODEL_LIMITS", value_name = "LIMITS", hide_env = true)]
        model_limits: Option<ModelLimits>,
    },
    /// Check this host's settings for low latency, and print how to fix them
    Doctor {
        /// Print one JSON object
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
    },
    /// Explain a problem's code (`explain E0122`), a kind of node and its config
    /// (`explain resize`), or a key, a value or a counter (`explain unmatched`)
    Explain {
        /// A code, a kind, or a word of a graph or a report
        #[arg(value_name = "CODE|KIND|WORD")]
        what: String,
    },
    /// List the kinds of node that this program knows, each with a summary
    Kinds {
        /// Print one JSON object with the JSON schema of each kind's config
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
    },
}

impl Verb {
    /// Does what the verb says, and returns the exit code.
    pub(crate) fn execute(&self, registry: Registry) -> u8 {
        let print = |text: &str| Stdout::default().print(text, 0);
        match self {
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
            Verb::Fetch { fetch, run } => Run::execute(run, registry, |run, _| run.fetch(fetch)),
            Verb::Inspect { file, json, tensors, onnxruntime, model_limits } => {
                let options = with_library(&registry, onnxruntime.clone());
                let (registry, trials) =
                    (registry.with_extension(options), &model_limits.clone().unwrap_or_default().0);
                let shown = inspect::show_inspection(file, *json, *tensors, trials, registry.extensions());
                print_about(file, shown.map_err(|error| one_line(&inspect::reason(&error))), REFUSED)
            }
            Verb::Migrate { graphs, write, overlay, allow_path } => {
                let layers = Layers { overlays: overlay.clone(), allowed: allow_path.clone(), ..Layers::default() };
                match migrate::migrate(graphs, &layers, *write, &registry) {
                    Ok((text, code)) => Stdout::default().print(&text, code),
                    Err(error) => {
                        print_error(&error);
                        REFUSED
                    }
                }
            }
            #[cfg(feature = "recording")]
            Verb::Recover { file, out } => {
                print_about(file, recover::recover(file, out.as_deref()), crate::report::exit_code::FAILED)
            }
            Verb::New { folder, model, input, onnxruntime, model_limits } => {
                let trials = model_limits.clone().unwrap_or_default().0;
                let begun = begin_graph(folder, model, *input, onnxruntime.clone(), &trials, registry);
                print_about(folder, begun, REFUSED)
            }
            Verb::Hist { verb } => hist::hist(verb),
            Verb::Schema => print(&format!("{:#}\n", schema::schema(&registry))),
            Verb::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(*shell, &mut Arguments::command(), "limen-run", &mut text);
                print(&String::from_utf8_lossy(&text))
            }
            Verb::Doctor { json: true } => {
                print(&format!("{:#}\n", serde_json::json!({ "findings": doctor::examine() })))
            }
            Verb::Doctor { json: false } => print(&doctor::show_findings(&doctor::examine())),
            Verb::Kinds { json: true } => print(&kinds::kinds_json(&registry)),
            Verb::Kinds { json: false } => print(&kinds::show_kinds(&registry)),
            Verb::Explain { what } => match explain::explain(what, &registry) {
                Some(text) => print(&text),
                None => refuse_word(what, &registry),
            },
        }
    }
}

/// Prints the text of a verb about a file or a folder, or with its path why there is none. Returns
/// the exit code, which is `failed` then.
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
        None => "run `limen-run kinds` to list the kinds".into(),
    };
    print_error(&format!(
        "limen-run: expected a code such as E0122, a kind of node, a key or a counter, found `{what}`: {help}"
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
        (starter::begin(folder)?, Vec::new())
    } else {
        let options = with_library(&registry, onnxruntime);
        starter::begin_with_models(folder, models, input, registry, trials, &options)?
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
