//! The command line: what may be typed, what it means, and what `--help` says of it.
//!
//! `limen-run GRAPH` is `limen-run run GRAPH`; a word that is neither a verb nor looks like a graph file is refused
//! rather than looked for on the disk. Every option can be given as an environment variable; the command line wins.

use super::option_values::{CpuList, ModelLimits, Shadow};
use crate::report::gate::Gate;
use crate::report::printed::Detail;
use crate::terminal::log::LogFormat;
use crate::text::escape::one_line;
use crate::text::paragraph::paragraph;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use limen::policy::Telemetry;
use limen::text::nearest;
use limen::unit::Span;
use limen::{Layers, Options};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  limen-run graph.yaml             run until the sources end, print the report
  limen-run check graph.yaml       every problem of the graph; start nothing
  limen-run plan graph.yaml        threads, edges, pools, memory; start nothing
  limen-run graph.yaml --set nodes.camera.config.rate=10Hz
                                   change one value; --profile, --overlay: many
  limen-run graph.yaml --duration 30s --warmup 2s
                                   measure 28 of 30 seconds
  limen-run graph.yaml --histograms out/
                                   HdrHistogram files, summary.json, run.json
  limen-run graph.yaml --fail-on 'p99(e2e) > 20ms' --fail-on 'lost > 0'
                                   exit with 3 where it was slow or lossy

Figures for --fail-on (compared with < <= > >= == !=):
  lost, thinned               messages lost, messages let go on purpose
  lost.overrun                messages lost for one reason
  left, failed                messages left in edges, failed calls
  accuracy, score.accuracy    what a node reports, by its name or with the
                              node's in front
  p50|p90|p99|p99.9|max(e2e)  end to end, the worst path; compared with a time
                              (20ms) or nanoseconds
  p99(camera->labels)         end to end, one path
  p99(digit.compute)          a node's source, queue, hold, blocked, compute,
                              emit, closure, batch or skew
  What cannot be judged (an unknown figure, too few samples) trips the gate.

Exit status:
  0   finished, stopped by a signal, or --duration reached
  1   a node failed, or could not be built
  2   bad arguments, or the graph was refused
  3   a gate tripped, or limen broke its own laws
  70  the graph did not stop in time
  130 a second SIGINT or SIGTERM

The first SIGINT or SIGTERM stops the sources, lets what is on its way arrive
and prints everything. Reports go to stdout, problems, events and progress to
stderr. Every option can be set as LIMEN_NAME (LIMEN_FAIL_ON=...); with several
--fail-on in LIMEN_FAIL_ON, separate them by `;`.";

/// Checks, plans, runs and measures limen graphs.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "limen-run",
    version,
    about = "Runs a graph of nodes from a YAML file and says where every microsecond and every message went.",
    after_help = EXAMPLES,
    term_width = 80,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// Running is what happens without a verb.
    #[command(flatten)]
    pub run: RunArguments,
    /// What to do instead.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// What `limen-run` does.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Run a graph, whatever its file is called; `limen-run GRAPH` is short for it
    #[command(after_help = EXAMPLES)]
    Run(Box<RunArguments>),
    /// Check a graph and print every problem; start nothing
    Check(Box<RunArguments>),
    /// Print what a graph means on this machine: threads, edges, pools, memory, backends; start nothing
    Plan(Box<RunArguments>),
    /// Compare each model of a graph with another backend: how far apart they are, how fast each is
    #[command(
        after_help = "Both get 32 inputs that are the same every time. Exits with 2 where they are further apart than the node's \
                            `verify:` allows (atol 1e-4, rtol 1e-3 by default)."
    )]
    VerifyBackend {
        /// The other backend: rten, tract or ort
        #[arg(long, value_name = "BACKEND", value_parser = ["rten", "tract", "ort"])]
        against: String,
        /// The graph, and what is laid over it
        #[command(flatten)]
        run: Box<RunArguments>,
    },
    /// Print what a model or file of weights says of itself, and what each backend makes of it
    Inspect {
        /// An ONNX model, or a `.safetensors`, `.npy` or `.npz` file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print one JSON object: what `manifest:` of a node takes
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
        /// What reading it may use: memory=4GiB,cpu=30s,wall=1m, or some of them; none: read in this process
        #[arg(long, env = "LIMEN_MODEL_LIMITS", value_name = "LIMITS", hide_env = true)]
        model_limits: Option<ModelLimits>,
    },
    /// Measure every backend on the models of a graph, for `backend: auto` to go by; needs --cache
    Calibrate(Box<RunArguments>),
    /// Compile the models of a graph ahead of time; needs --cache
    Compile(Box<RunArguments>),
    /// Print a graph as Graphviz draws it: `limen-run dot graph.yaml | dot -Tsvg > graph.svg`
    Dot(Box<RunArguments>),
    /// Print the flat graph, each value with where it comes from; ${NAME} stays unless --env lists it
    Expand(Box<RunArguments>),
    /// Print the JSON Schema of graph files, for editors
    Schema,
    /// Print completions for a shell: `limen-run completions bash > /etc/bash_completion.d/limen-run`
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write a graph to begin with into a new folder
    New {
        /// The folder, which must not exist yet
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Say what this host lacks for low latency, and what mends it
    Doctor {
        /// Print one JSON object
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
    },
    /// Say what a problem's code means (`explain E0122`), or what a kind of node takes (`explain resize`)
    Explain {
        /// A code, or a kind
        #[arg(value_name = "CODE|KIND")]
        what: String,
    },
    /// List the kinds of nodes this program knows, with what each does
    Kinds {
        /// Print one JSON object with the JSON schema of each kind's config
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
    },
}

/// Everything about one run.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArguments {
    /// Print the graph as Graphviz draws it.
    #[arg(skip)]
    pub dot: bool,

    /// Print the flat graph.
    #[arg(skip)]
    pub expand: bool,

    /// The graph file; a name that ends in .yaml or .yml or contains `/` needs no verb before it
    #[arg(value_name = "GRAPH", required = true)]
    pub graph: Option<PathBuf>,

    /// Lay one of the graph's `profiles` over it
    #[arg(long, env = "LIMEN_PROFILE", value_name = "NAME")]
    #[arg(hide_env = true, help_heading = "What is laid over the graph")]
    pub profile: Option<String>,

    /// Lay the keys of this file over the graph's, after the profile; may be repeated
    #[arg(long, env = "LIMEN_OVERLAY", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "What is laid over the graph")]
    pub overlay: Vec<PathBuf>,

    /// Repeat every n-th call of each model on another backend and report how far apart they were: ort, ort:10
    #[arg(long, env = "LIMEN_SHADOW", value_name = "BACKEND[:N]")]
    #[arg(hide_env = true, help_heading = "What is laid over the graph")]
    pub shadow: Option<Shadow>,

    /// Set one value, such as nodes.camera.config.rate=30Hz, over everything else; may be repeated
    #[arg(long, env = "LIMEN_SET", value_name = "PATH=VALUE", value_delimiter = ';')]
    #[arg(hide_env = true, help_heading = "What is laid over the graph")]
    pub set: Vec<String>,

    /// Let the graph read this environment variable as ${NAME}, as it may LIMEN_*; may be repeated
    #[arg(long, env = "LIMEN_ENV", value_name = "NAME")]
    #[arg(hide_env = true, help_heading = "What is laid over the graph")]
    pub env: Vec<String>,

    /// Check the graph, print every problem, start nothing
    #[arg(long, env = "LIMEN_CHECK", value_parser = BoolishValueParser::new(), conflicts_with = "plan")]
    #[arg(hide_env = true, help_heading = "Look, do not run")]
    pub check: bool,

    /// Print the plan (threads, edges, pools, memory, backends), start nothing
    #[arg(long, env = "LIMEN_PLAN", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Look, do not run")]
    pub plan: bool,

    /// With `plan`: why each node is where it is, and edges and pools are as large as they are
    #[arg(long, env = "LIMEN_WHY", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Look, do not run")]
    pub why: bool,

    /// Stop after this time, for example 5s or 1m30s; it counts as done
    #[arg(long, env = "LIMEN_DURATION", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "Bound the run")]
    pub duration: Option<Span>,

    /// Call each source at most this often
    #[arg(long, env = "LIMEN_FRAMES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(hide_env = true, help_heading = "Bound the run")]
    pub frames: Option<u64>,

    /// Leave the first part of the run out of the histograms; messages are counted all the same
    #[arg(long, env = "LIMEN_WARMUP", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "Bound the run")]
    pub warmup: Option<Span>,

    /// CPUs by the kernel's numbers, such as 2,3 or 2-5; a graph's `core: 0` is the first of them
    #[arg(long, env = "LIMEN_CORES", value_name = "LIST")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub cores: Option<CpuList>,

    /// Write the graph's output files here instead of into its own folder; made if it is not there
    #[arg(long, env = "LIMEN_OUT", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub out: Option<PathBuf>,

    /// Let the graph read and write in this folder too; may be repeated
    #[arg(long, env = "LIMEN_ALLOW_PATH", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub allow_path: Vec<PathBuf>,

    /// ONNX Runtime's library, for `backend: ort`; else the one in ORT_DYLIB_PATH, else where the system looks
    #[arg(long, env = "LIMEN_ONNXRUNTIME", value_name = "FILE")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub onnxruntime: Option<PathBuf>,

    /// Keep compiled models, and what trying models out found, in this folder: the next start does neither
    #[arg(long, env = "LIMEN_CACHE", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub cache: Option<PathBuf>,

    /// What trying a model out may use: memory=4GiB,cpu=30s,wall=1m, or some of them; none: tried in this process
    #[arg(long, env = "LIMEN_MODEL_LIMITS", value_name = "LIMITS")]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub model_limits: Option<ModelLimits>,

    /// Do not run where the system refuses something, such as pinning
    #[arg(long, env = "LIMEN_STRICT", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub strict: bool,

    /// Let the graph ask the kernel for real-time threads (`cores: { 1: { rt: { priority: 40 } } }`)
    #[arg(long, env = "LIMEN_ALLOW_RT", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub allow_rt: bool,

    /// Let the graph listen where other machines reach it (`listen: '0.0.0.0:9000'`)
    #[arg(long, env = "LIMEN_ALLOW_PUBLIC", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Where and how it runs")]
    pub allow_public: bool,

    /// Latencies of which messages: full, auto (1 burst in 16 under load), sampled (1 in 16), off
    #[arg(long, env = "LIMEN_TELEMETRY", value_name = "HOW", value_parser = telemetry())]
    #[arg(hide_env = true, hide_possible_values = true, help_heading = "Where and how it runs")]
    pub telemetry: Option<Telemetry>,

    /// Write HdrHistogram files (.hlog, .hgrm), summary.json, .csv and run.json into this folder
    #[arg(long, env = "LIMEN_HISTOGRAMS", value_name = "DIR")]
    #[arg(hide_env = true, help_heading = "What comes out")]
    pub histograms: Option<PathBuf>,

    /// Length of an interval in the .hlog, from 1s, which is the default; 0s for one over the whole run
    #[arg(long, env = "LIMEN_INTERVAL", value_name = "TIME")]
    #[arg(hide_env = true, help_heading = "What comes out")]
    pub interval: Option<Span>,

    /// Exit with 3 if this holds at the end, such as 'p99(e2e) > 20ms'; see below; may be repeated
    #[arg(long, env = "LIMEN_FAIL_ON", value_name = "EXPR", value_delimiter = ';')]
    #[arg(hide_env = true, help_heading = "What comes out")]
    pub fail_on: Vec<Gate>,

    /// Print the report, or with `check` and `plan` the plan, as exactly one JSON object
    #[arg(long, env = "LIMEN_JSON", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "What comes out")]
    pub json: bool,

    /// How problems and events are written on stderr: json is one object a line
    #[arg(long, env = "LIMEN_LOG_FORMAT", value_name = "HOW", default_value = "text")]
    #[arg(hide_env = true, help_heading = "What comes out")]
    pub log_format: LogFormat,

    /// Print every edge, thread and histogram too
    #[arg(short, long, env = "LIMEN_VERBOSE", value_parser = BoolishValueParser::new(), conflicts_with = "quiet")]
    #[arg(hide_env = true, help_heading = "What comes out", action = ArgAction::SetTrue)]
    pub verbose: bool,

    /// Print only what went wrong
    #[arg(short, long, env = "LIMEN_QUIET", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "What comes out", action = ArgAction::SetTrue)]
    pub quiet: bool,
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
    /// Reads a command line, its first word being the program's name.
    ///
    /// # Errors
    /// What is wrong with it, or the text of `--help` and `--version`; [`clap::Error::exit_code`] tells them apart.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let arguments = Arguments::try_parse_from(words)?;
        match &arguments.run.graph {
            Some(graph) if arguments.verb.is_none() && !looks_like_graph(graph) => {
                Err(Arguments::command().error(ErrorKind::InvalidSubcommand, no_verb(&graph.to_string_lossy())))
            }
            _ => Ok(arguments),
        }
    }
}

/// What is said of a word that is no verb, and no graph's file by its name.
pub(crate) fn no_verb(word: &str) -> String {
    let command = Arguments::command();
    let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let shown = one_line(word);
    match nearest(word, verbs.iter().copied()) {
        Some(near) => format!("there is no verb `{shown}`; did you mean `{near}`?"),
        None => {
            let mut text =
                format!("there is no verb `{shown}`, and files of graphs end in .yaml or .yml or contain `/`\n");
            paragraph(&mut text, "the verbs: ", &verbs.join(", "));
            text + &format!("`limen-run run {shown}` runs any file")
        }
    }
}

/// The verbs, a line each, for who types nothing.
pub(crate) fn verbs() -> String {
    let mut text = String::from("Usage: limen-run <GRAPH>\n       limen-run <VERB> ..\n\n");
    let command = Arguments::command();
    let widest = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    for verb in command.get_subcommands() {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        paragraph(&mut text, &format!("  {:widest$}  ", verb.get_name()), &about);
    }
    text.push_str("\n`limen-run --help` has the options; `limen-run new FOLDER` begins a graph.\n");
    text
}

/// Whether a word is a graph's file by its name.
pub(crate) fn looks_like_graph(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b".yaml") || bytes.ends_with(b".yml") || bytes.contains(&b'/')
}

impl RunArguments {
    /// What planning is told.
    pub fn options(&self) -> Options {
        Options {
            cpus: self.cores.as_ref().map(|list| list.0.clone()),
            frames: self.frames,
            warmup: self.warmup.map(|span| span.0),
            telemetry: self.telemetry,
            strict: self.strict.then_some(true),
            allow_rt: self.allow_rt,
            allow_public: self.allow_public,
            out: self.out.clone(),
            trials: self.model_limits.clone().unwrap_or_default().0,
        }
    }

    /// What is laid over the graph.
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

    /// How much of the report is printed.
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
    fn the_definition_is_sound() {
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
    fn what_is_wrong_ends_with_2() {
        for (words, expected) in [
            ("", "<GRAPH>"),
            ("kidns", "there is no verb `kidns`; did you mean `kinds`?"),
            ("camera", "there is no verb `camera`, and files of graphs end in .yaml"),
            ("camera", "the verbs: run, check, plan, "),
            ("g.yaml h.yaml", "'h.yaml' cannot be used with '<GRAPH>'"),
            ("g.yaml --duration 5", "`5` is not a time with its unit"),
            ("g.yaml --frames 0", "0 is not in"),
            ("g.yaml --cores 1-x", "`x` is not a CPU"),
            ("g.yaml --cores 5-2", "write 2-5"),
            ("g.yaml --cores 0,1,0", "named twice"),
            ("g.yaml --cores 0-9999999999", "is not a CPU"),
            ("g.yaml --fail-on accuracy", "expected one of < <= > >= == !="),
            ("g.yaml --telemetry all", "invalid value 'all'"),
            ("g.yaml --model-limits memory", "is not a size"),
            ("g.yaml --model-limits cpu=3", "`3` is not a time with its unit"),
            ("g.yaml --model-limits wall=0s", "no time is too short"),
            ("g.yaml --model-limits disk=3GiB", "`disk` is not a limit: write `memory=4GiB,cpu=30s,wall=1m`"),
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
    fn help_is_no_error() {
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
        let words = "run g --cores 3,0-1 --frames 7 --warmup 20ms --telemetry full --strict --out o --model-limits memory=3GiB,cpu=9s \
                     --allow-path a --allow-path b --fail-on lost>0 --fail-on left>0";
        let run = run(words);
        let options = run.options();
        assert_eq!(options.cpus, Some(vec![3, 0, 1]));
        assert_eq!((options.frames, options.strict), (Some(7), Some(true)));
        assert_eq!(options.warmup, Some(Duration::from_millis(20)));
        assert_eq!(options.telemetry, Some(Telemetry::Full));
        assert_eq!(
            options.trials,
            Trials { memory: Some(3 << 30), cpu: Some(Duration::from_secs(9)), ..Trials::default() }
        );
        assert!("none".parse::<ModelLimits>().unwrap().0.here);
        assert_eq!(run.fail_on.len(), 2);
        assert_eq!((run.out.clone(), run.layers().allowed.len()), (Some("o".into()), 2));
    }
}
