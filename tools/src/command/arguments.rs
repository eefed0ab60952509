//! The definition of the command line: options, and the texts of `--help`. Verbs are in
//! [`super::Verb`].
//!
//! `limen-run GRAPH` is short for `limen-run run GRAPH`. A first word that is neither a verb nor
//! looks like a graph file is refused; only a folder with a graph in it is looked for on the disk,
//! to name that graph. Every option can be set as an environment variable; the command line wins.

use super::Verb;
use super::option_values::{CpuList, ModelLimits, ServerAddress, Shadow, variable_name};
use crate::fetch::fetched_files;
use crate::report::gate::Gate;
use crate::report::printed::Detail;
use crate::terminal::log::LogFormat;
use crate::text::escape::{one_line, shell_word};
use crate::text::paragraph::paragraph;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser};
use limen::policy::Telemetry;
use limen::text::nearest;
use limen::unit::Span;
use limen::{Layers, Options};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) const EXAMPLES: &str = "\
Examples:
  limen-run graph.yaml             run until the sources end, print the report
  limen-run check graph.yaml       print every problem of the graph, run nothing
  limen-run plan graph.yaml        print threads, edges, pools, memory, run nothing
  limen-run graph.yaml --set nodes.camera.config.rate=10Hz
                                   override one value; --profile, --overlay: many
  limen-run graph.yaml --duration 30s --warmup 2s
                                   measure 28 of 30 seconds
  limen-run graph.yaml --histograms out/
                                   HdrHistogram files, summary.json, run.json
  limen-run graph.yaml --fail-on 'p99(e2e) > 20ms' --fail-on 'lost > 0'
                                   exit with 3 if the run was slow or lossy

Figures for --fail-on (compared with < <= > >= == !=):
  lost, discarded             messages lost, messages discarded on purpose
  lost.overrun                messages lost for one reason
  left, failed                messages left in edges, failed calls
  accuracy, score.accuracy    a metric of a node; the node's name in front is
                              needed only if several nodes have the metric
  p99(e2e), max(e2e)          end-to-end latency of the worst path, compared
                              with a time (20ms) or a number of nanoseconds;
                              any percentile, such as p95
  p99(camera->labels)         end-to-end latency of one path
  p99(digit.compute)          a node's source, queue, wait, batch_wait, blocked,
                              compute, emit, residual, batch or skew
  A gate that cannot be judged (unknown figure, too few samples) trips.

Exit status:
  0   finished, stopped by a signal, or --duration reached
  1   a node failed, or could not be built
  2   bad arguments, or the graph was refused
  3   a gate tripped, or messages are not accounted for (a bug in limen)
  70  the graph did not stop in time
  129, 130, 143  a second SIGHUP, SIGINT or SIGTERM, half a second after the first or later

The first SIGINT or SIGTERM stops the sources, drains the messages in flight
and prints the report. Reports go to stdout; problems, events and progress go
to stderr. Every option can be set as LIMEN_NAME (LIMEN_FAIL_ON=...); separate
several expressions in LIMEN_FAIL_ON by `;`.";

/// Checks, plans, runs and measures limen graphs.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "limen-run",
    version,
    about = "Runs a graph of nodes from a YAML file and reports where every microsecond and every message went.",
    after_help = EXAMPLES,
    term_width = 80,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// The arguments of a run, used when there is no verb.
    #[command(flatten)]
    pub run: RunArguments,
    /// The verb, if there is one.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// The arguments of one run.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArguments {
    /// The graph file; a name that ends in .yaml or .yml or contains `/` needs no command before it
    #[arg(value_name = "GRAPH", required = true)]
    pub graph: Option<PathBuf>,

    /// Apply one of the graph's `profiles`
    #[arg(long, env = "LIMEN_PROFILE", value_name = "NAME")]
    #[arg(hide_env = true, help_heading = "Overrides")]
    pub profile: Option<String>,

    /// Apply the keys of this file to the graph, after the profile; may be repeated
    #[arg(long, env = "LIMEN_OVERLAY", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Overrides")]
    pub overlay: Vec<PathBuf>,

    /// Repeat every n-th call of each model on another backend and report how far the outputs
    /// differ: ort, ort:10
    #[arg(long, env = "LIMEN_SHADOW", value_name = "BACKEND[:N]")]
    #[arg(hide_env = true, help_heading = "Overrides")]
    pub shadow: Option<Shadow>,

    /// Set one value, such as nodes.camera.config.rate=30Hz, after all other overrides; may be
    /// repeated
    #[arg(long, env = "LIMEN_SET", value_name = "PATH=VALUE", value_delimiter = ';')]
    #[arg(hide_env = true, help_heading = "Overrides")]
    pub set: Vec<String>,

    /// Let the graph read this environment variable as ${NAME}; LIMEN_* are always allowed; may be
    /// repeated
    #[arg(long, env = "LIMEN_ENV", value_name = "NAME", value_parser = variable_name)]
    #[arg(hide_env = true, help_heading = "Overrides")]
    pub env: Vec<String>,

    /// What is printed instead of a run.
    #[command(flatten)]
    pub dry_run: DryRun,

    /// Stop after this time, for example 5s or 1m30s, with exit code 0
    #[arg(long, env = "LIMEN_DURATION", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "Length of the run")]
    pub duration: Option<Span>,

    /// Call each source at most this often
    #[arg(long, env = "LIMEN_FRAMES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(hide_env = true, help_heading = "Length of the run")]
    pub frames: Option<u64>,

    /// Leave this first part of the run out of the histograms; counts still include it
    #[arg(long, env = "LIMEN_WARMUP", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "Length of the run")]
    pub warmup: Option<Span>,

    /// Run in one thread on a clock that jumps to what is due next: as fast as possible; waits are
    /// as in a real run, computing takes no time. For files and simulated data
    #[arg(long, env = "LIMEN_SIMULATED", value_parser = BoolishValueParser::new())]
    #[arg(conflicts_with_all = ["metrics", "monitor", "otlp", "trace", "interval"])]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub simulated: bool,

    /// CPUs by the kernel's numbers, such as 2,3 or 2-5; a graph's `core: 0` is the first of them
    #[arg(long, env = "LIMEN_CORES", value_name = "LIST")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub cores: Option<CpuList>,

    /// Write the graph's output files here instead of into its own folder; created if missing
    #[arg(long, env = "LIMEN_OUT", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub out: Option<PathBuf>,

    /// Also let the graph read and write in this folder; may be repeated
    #[arg(long, env = "LIMEN_ALLOW_PATH", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub allow_path: Vec<PathBuf>,

    /// Path of ONNX Runtime's library, for `backend: ort`; default: LIMEN_ONNXRUNTIME, then
    /// ORT_DYLIB_PATH, then the system's search path
    #[arg(long, env = "LIMEN_ONNXRUNTIME", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub onnxruntime: Option<PathBuf>,

    /// Path of ONNX Runtime's plugin for WebGPU, for `backend: ort` with `provider: webgpu`
    #[arg(long, env = "LIMEN_ONNXRUNTIME_PLUGIN", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub onnxruntime_plugin: Option<PathBuf>,

    /// Let `backend: wgpu` and `provider: webgpu` use an adapter that computes on the CPU, for
    /// tests
    #[arg(long, env = "LIMEN_ALLOW_SOFTWARE", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub allow_software: bool,

    /// GPU that `backend: wgpu`, `cuda`, and `ort` with `provider: cuda` or `tensorrt` use: its
    /// number in `limen-run doctor`, or a part of its name; default: the fastest kind, for CUDA the
    /// first
    #[arg(long, env = "LIMEN_GPU", value_name = "NUMBER|NAME")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub gpu: Option<String>,

    /// Let nodes of `kind: kernel` run: device programs that the graph contains
    #[arg(long, env = "LIMEN_ALLOW_KERNELS", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub allow_kernels: bool,

    /// Cache compiled models and the results of model trials in this folder, so that the next start
    /// skips both; fetched files are also there, by default in the user's cache folder
    #[arg(long, env = "LIMEN_CACHE", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub cache: Option<PathBuf>,

    /// Limits of a model and its trial: size=2GiB,memory=4GiB,cpu=30s,wall=1m, or some of them;
    /// none: try models in this process, without limits
    #[arg(long, env = "LIMEN_MODEL_LIMITS", value_name = "LIMITS")]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub model_limits: Option<ModelLimits>,

    /// Do not run if the system refuses something, such as pinning
    #[arg(long, env = "LIMEN_STRICT", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub strict: bool,

    /// Let the graph ask the kernel for real-time threads
    /// (`cores: { 1: { rt: { priority: 40 } } }`)
    #[arg(long, env = "LIMEN_ALLOW_RT", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub allow_rt: bool,

    /// Let the graph, and --metrics, listen on addresses that other machines can reach
    /// (`listen: '0.0.0.0:9000'`)
    #[arg(long, env = "LIMEN_ALLOW_PUBLIC", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Execution")]
    pub allow_public: bool,

    /// Bursts of messages whose latency is recorded: full, auto (1 burst in 16 under load), sampled
    /// (1 burst in 16), off
    #[arg(long, env = "LIMEN_TELEMETRY", value_name = "HOW", value_parser = telemetry())]
    #[arg(hide_env = true, hide_possible_values = true, help_heading = "Execution")]
    pub telemetry: Option<Telemetry>,

    /// Write HdrHistogram files (.hlog, .hgrm), summary.json, .csv and run.json into this folder
    #[arg(long, env = "LIMEN_HISTOGRAMS", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub histograms: Option<PathBuf>,

    /// Write a page about the run, one HTML file that needs no network: the graph, latencies,
    /// losses, threads
    #[arg(long, env = "LIMEN_REPORT", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Write a trace of what every thread did over time, for ui.perfetto.dev
    #[arg(long, env = "LIMEN_TRACE", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub trace: Option<PathBuf>,

    /// Compare the run with an earlier page that --report wrote
    #[arg(long, env = "LIMEN_REPORT_BASE", value_name = "FILE", requires = "report")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub report_base: Option<PathBuf>,

    /// Write a picture of the run in Graphviz format: busy nodes, messages, losses; with `plan`,
    /// `check` and `dot`, of the plan
    #[arg(long = "dot", env = "LIMEN_DOT", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub dot_file: Option<PathBuf>,

    /// Write this picture as SVG, which needs no network and no other program
    #[arg(long, env = "LIMEN_SVG", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub svg: Option<PathBuf>,

    /// Write this picture in Mermaid's language, for Markdown
    #[arg(long, env = "LIMEN_MERMAID", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub mermaid: Option<PathBuf>,

    /// Serve metrics to Prometheus while the graph runs, at http://ADDRESS/metrics; a port alone
    /// (9464; 0: any free port) is reachable only from this machine, another address needs
    /// --allow-public
    #[arg(long, env = "LIMEN_METRICS", value_name = "[ADDRESS:]PORT")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub metrics: Option<ServerAddress>,

    /// Send metrics to an OpenTelemetry collector every ten seconds, by OTLP over HTTP
    /// (`http://127.0.0.1:4318`; cargo feature `otlp`)
    #[arg(long, env = "LIMEN_OTLP", value_name = "URL")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub otlp: Option<String>,

    /// Length of an interval in the .hlog, at least 1s (the default); 0s for one interval over the
    /// whole run
    #[arg(long, env = "LIMEN_INTERVAL", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub interval: Option<Span>,

    /// Serve the run to `limen-top` through a socket that only this user may open
    #[arg(long, env = "LIMEN_MONITOR", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Output")]
    pub monitor: bool,

    /// Exit with 3 if this condition is true at the end, such as 'p99(e2e) > 20ms'; see below; may
    /// be repeated
    #[arg(long, env = "LIMEN_FAIL_ON", value_name = "EXPR", value_delimiter = ';')]
    #[arg(hide_env = true, help_heading = "Output")]
    pub fail_on: Vec<Gate>,

    /// Print the report, or with `check` and `plan` the plan, as exactly one JSON object
    #[arg(long, env = "LIMEN_JSON", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Output")]
    pub json: bool,

    /// Format of problems and events on stderr: json is one object per line
    #[arg(long, env = "LIMEN_LOG_FORMAT", value_name = "HOW", default_value = "text")]
    #[arg(hide_env = true, help_heading = "Output")]
    pub log_format: LogFormat,

    /// Also print every edge, thread and histogram
    #[arg(short, long, env = "LIMEN_VERBOSE", value_parser = BoolishValueParser::new(), conflicts_with = "quiet")]
    #[arg(hide_env = true, help_heading = "Output", action = ArgAction::SetTrue)]
    pub verbose: bool,

    /// Print only problems
    #[arg(short, long, env = "LIMEN_QUIET", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Output", action = ArgAction::SetTrue)]
    pub quiet: bool,
}

/// Options that print something about a graph and run nothing.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DryRun {
    /// Check the graph, print every problem, run nothing
    #[arg(long, env = "LIMEN_CHECK", value_parser = BoolishValueParser::new(), conflicts_with = "plan")]
    #[arg(hide_env = true, help_heading = "Dry run")]
    pub check: bool,

    /// Print the plan (threads, edges, pools, memory, backends), run nothing
    #[arg(long, env = "LIMEN_PLAN", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Dry run")]
    pub plan: bool,

    /// Print, instead of the plan, why each node is on its thread, and why edges and pools have
    /// their sizes
    #[arg(long, env = "LIMEN_WHY", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Dry run")]
    pub why: bool,
}

fn telemetry() -> impl TypedValueParser<Value = Telemetry> {
    PossibleValuesParser::new(["auto", "full", "sampled", "off"]).map(|word| match word.as_str() {
        "full" => Telemetry::Full,
        "sampled" => Telemetry::Sampled,
        "off" => Telemetry::Off,
        _ => Telemetry::Auto,
    })
}

impl Arguments {
    /// Parses a command line; its first word is the program's name.
    ///
    /// # Errors
    /// What is wrong with it, or the text of `--help` and `--version`; [`clap::Error::exit_code`]
    /// tells them apart, and [`clap::Error::exit`] prints it as `limen-run` does.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let arguments = Arguments::try_parse_from(words)?;
        let graph = arguments.runs().and_then(|run| run.graph.as_deref());
        if let Some(text) = graph.and_then(names_folder) {
            return Err(Arguments::command().error(ErrorKind::InvalidSubcommand, text));
        }
        match &arguments.run.graph {
            Some(graph) if arguments.verb.is_none() && !looks_like_graph(graph) => {
                Err(Arguments::command().error(ErrorKind::InvalidSubcommand, no_verb(&graph.to_string_lossy())))
            }
            _ => Ok(arguments),
        }
    }

    /// Returns the arguments of a run, if the verb takes them.
    fn runs(&self) -> Option<&RunArguments> {
        match &self.verb {
            None => Some(&self.run),
            Some(
                Verb::Run(run)
                | Verb::Check(run)
                | Verb::Plan(run)
                | Verb::Calibrate(run)
                | Verb::Compile(run)
                | Verb::Dot(run)
                | Verb::Expand(run)
                | Verb::Fetch { run, .. }
                | Verb::VerifyBackend { run, .. },
            ) => Some(run),
            Some(_) => None,
        }
    }
}

/// The message for a folder with a graph file in it.
fn names_folder(graph: &Path) -> Option<String> {
    let inside = graph.join("graph.yaml");
    let is_folder = graph.is_dir() && inside.is_file();
    let shown = |path: &Path| one_line(&path.to_string_lossy());
    is_folder.then(|| {
        format!("expected a graph file, found the folder `{}`; did you mean `{}`?", shown(graph), shown(&inside))
    })
}

/// The message for a first word that is neither a verb nor the name of a graph file.
pub(crate) fn no_verb(word: &str) -> String {
    let command = Arguments::command();
    let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let shown = one_line(word);
    match nearest(word, verbs.iter().copied()) {
        Some(near) => format!("expected a command or a graph file, found `{shown}`; did you mean `{near}`?"),
        None => {
            let mut text = format!(
                "expected a command, or a graph file whose path ends in .yaml or .yml or contains `/`, found `{shown}`\n"
            );
            paragraph(&mut text, "the commands: ", &verbs.join(", "));
            let word = one_line(&shell_word(word));
            text + &format!("`limen-run run {word}` runs a graph file of any name")
        }
    }
}

/// The verbs, a line each: printed when there are no arguments.
pub(crate) fn verbs() -> String {
    let mut text = String::from("Usage: limen-run <GRAPH>\n       limen-run <COMMAND> ..\n\n");
    let command = Arguments::command();
    let widest = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    for verb in command.get_subcommands() {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        paragraph(&mut text, &format!("  {:widest$}  ", verb.get_name()), &about);
    }
    text.push_str("\n`limen-run --help` lists the options; `limen-run new FOLDER` starts a graph.\n");
    text
}

/// Whether a word is the name of a graph file.
pub(crate) fn looks_like_graph(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b".yaml") || bytes.ends_with(b".yml") || bytes.contains(&b'/')
}

impl RunArguments {
    /// Returns the options for planning.
    pub fn options(&self) -> Options {
        let graph = self.graph.as_deref().unwrap_or(Path::new(""));
        Options {
            remote: Some(fetched_files(graph, self.cache.as_deref())),
            cpus: self.cores.as_ref().map(|list| list.0.clone()),
            frames: self.frames,
            warmup: self.warmup.map(|span| span.0),
            telemetry: self.telemetry,
            spans: self.trace.is_some(),
            strict: self.strict.then_some(true),
            allow_rt: self.allow_rt,
            allow_public: self.allow_public,
            out: self.out.clone(),
            trials: self.model_limits.clone().unwrap_or_default().0,
        }
    }

    /// Returns the overrides of the graph.
    pub fn layers(&self) -> Layers {
        Layers {
            profile: self.profile.clone(),
            overlays: self.overlay.clone(),
            set: self.set.clone(),
            env: self.env.clone(),
            allowed: self.allow_path.clone(),
            ..Layers::default()
        }
    }

    /// Returns whether a picture of the run is asked for.
    pub(crate) fn has_picture(&self) -> bool {
        self.dot_file.is_some() || self.svg.is_some() || self.mermaid.is_some()
    }

    /// Returns how much of the report is printed.
    pub fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Problems,
            (_, true) => Detail::Full,
            _ => Detail::Usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::policy::Trials;
    use std::time::Duration;

    fn read(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::read(std::iter::once("limen-run").chain(words.split_whitespace()))
    }

    fn run(words: &str) -> RunArguments {
        let arguments = read(words).unwrap_or_else(|e| panic!("{words}: {e}"));
        match arguments.verb {
            Some(Verb::Run(run)) => *run,
            None => arguments.run,
            Some(other) => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn the_clap_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_graph_file_needs_no_verb() {
        for words in ["g.yaml", "a/b.yml", "./g", "run g", "run kinds", "--json g.yaml", "g.yaml --duration 5s -v"] {
            assert!(run(words).graph.is_some(), "{words}");
        }
        assert!(matches!(read("kinds --json").unwrap().verb, Some(Verb::Kinds { json: true })));
    }

    #[test]
    fn a_wrong_command_line_exits_with_2() {
        for (words, expected) in [
            ("", "<GRAPH>"),
            ("kidns", "found `kidns`; did you mean `kinds`?"),
            ("camera", "expected a command, or a graph file whose path ends in .yaml"),
            ("camera", "the commands: run, check, plan, "),
            ("g.yaml h.yaml", "'h.yaml' cannot be used with '<GRAPH>'"),
            ("g.yaml --duration 5", "expected a duration such as `10ms`, found `5`"),
            ("g.yaml --frames 0", "0 is not in"),
            ("g.yaml --cores 1-x", "found `x`"),
            ("g.yaml --cores 5-2", "as in 2-5"),
            ("g.yaml --cores 0,1,0", "found CPU 0 twice"),
            ("g.yaml --cores 0-9999999999", "expected CPU numbers from 0 to 1023"),
            ("g.yaml --fail-on accuracy", "expected one of < <= > >= == !="),
            ("g.yaml --telemetry all", "invalid value 'all'"),
            ("g.yaml --model-limits memory", "expected a size"),
            ("g.yaml --model-limits cpu=3", "expected a duration such as `10ms`, found `3`"),
            ("g.yaml --model-limits wall=0s", "`wall` must be above 0s, got 0s"),
            ("g.yaml --model-limits disk=3GiB", "or limits such as `size=2GiB,memory=4GiB,cpu=30s,wall=1m`"),
            ("g.yaml --metrics robot.local:9464", "found `robot.local:9464`"),
            (
                "g.yaml --env RATE=5Hz",
                "write `--env RATE`, and set the variable before the command: `RATE=5Hz limen-run …`",
            ),
            ("g.yaml --env 5", "expected the name of a variable, such as `RATE`"),
            ("g.yaml --check --plan", "cannot be used with"),
            ("g.yaml -q -v", "cannot be used with"),
            ("g.yaml --histogram x", "--histograms"),
        ] {
            let error = read(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words}");
            assert!(error.to_string().contains(expected), "{words}: {error}");
        }
    }

    #[test]
    fn help_exits_with_0_and_fits_80_columns() {
        for words in ["--help", "-h", "run --help", "kinds -h", "--version"] {
            assert_eq!(read(words).unwrap_err().exit_code(), 0, "{words}");
        }
        let help = read("--help").unwrap_err().to_string();
        for option in ["--check", "--plan", "--fail-on", "--telemetry", "kinds", "Exit status", "LIMEN_"] {
            assert!(help.contains(option), "{option}:\n{help}");
        }
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
    }

    #[test]
    fn options_reach_the_plan() {
        let words = "run g --cores 3,0-1 --frames 7 --warmup 20ms --telemetry full --strict --out o --model-limits size=2GiB,memory=3GiB,cpu=9s \
                     --allow-path a --allow-path b --fail-on lost>0 --fail-on left>0";
        let run = run(words);
        let options = run.options();
        assert_eq!(options.cpus, Some(vec![3, 0, 1]));
        assert_eq!((options.frames, options.strict), (Some(7), Some(true)));
        assert_eq!(options.warmup, Some(Duration::from_millis(20)));
        assert_eq!(options.telemetry, Some(Telemetry::Full));
        assert_eq!(
            options.trials,
            Trials {
                size: Some(2 << 30),
                memory: Some(3 << 30),
                cpu: Some(Duration::from_secs(9)),
                ..Trials::default()
            }
        );
        assert!("none".parse::<ModelLimits>().unwrap().0.here);
        assert_eq!(run.fail_on.len(), 2);
        assert_eq!((run.out.clone(), run.layers().allowed.len()), (Some("o".into()), 2));
    }
}
