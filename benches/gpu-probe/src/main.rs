//! Measures the behaviour of an NVIDIA GPU that the design of GPU backends depends on.
//!
//! The probe is one binary that can be built without a GPU and copied to a machine that has one. Each section runs in a child
//! process with a time limit, so that a panic, crash or hang of one does not affect the others.

mod check;
mod child;
mod costs;
mod cuda;
mod environment;
mod libraries;
mod models;
mod report;
mod shader;
mod sticky;
mod yardsticks;

use child::End;
use report::{Finding, Section};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
usage: gpu-probe [SECTION...] [OPTION...]

Measures the behaviour of this machine's GPU. Prints one JSON object and a table. Sections (default: all):
  libraries   which libraries, headers and Vulkan drivers are found, under which names
  sticky      which calls report an illegal store, and whether the process can recover
  costs       launches, events, copies, overlap, graphs, allocation
  yardsticks  matrix products of cuBLAS and of PyTorch, bandwidth of memory
  models      models through tract-cuda (only if built with the feature `tract`)
  shader      WGSL through Vulkan

options:
  --json FILE      write the JSON object to FILE instead of stdout
  --models DIR     ONNX files for the section `models`: mlp.onnx, resnet18.onnx, former.onnx
  --python PROGRAM the interpreter for the comparison with PyTorch (python3)
  --limit SECONDS  time limit of a section (600)
  --seed NUMBER    seed of the random inputs (default: from the clock)
  --software       let the section `shader` use a Vulkan driver that computes on the CPU

gpu-probe compile DIR [ARCHITECTURE...] compiles the CUDA kernels with NVRTC into DIR; this needs no GPU.";

const SECTIONS: [&str; 6] = ["libraries", "sticky", "costs", "yardsticks", "models", "shader"];

/// The options, which are passed on to every child.
#[derive(Clone, Debug)]
pub struct Options {
    pub json: Option<PathBuf>,
    pub models: Option<PathBuf>,
    pub python: String,
    pub limit: Duration,
    pub seed: u64,
    pub software: bool,
}

impl Options {
    /// The arguments of a child with these options.
    pub fn child(&self, words: &[&str]) -> Vec<String> {
        let mut arguments: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        // Each child has other random inputs.
        arguments.extend(["--seed".into(), (self.seed ^ fastrand::u64(..)).to_string()]);
        arguments.extend(["--python".into(), self.python.clone()]);
        if let Some(folder) = &self.models {
            arguments.extend(["--models".into(), folder.to_string_lossy().into_owned()]);
        }
        if self.software {
            arguments.push("--software".into());
        }
        arguments
    }
}

fn main() -> ExitCode {
    let (words, options) = match arguments() {
        Ok(parsed) => parsed,
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    fastrand::seed(options.seed);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["help"] => println!("{USAGE}"),
        ["compile", folder, architectures @ ..] => return told(cuda::compile_all(folder.as_ref(), architectures)),
        ["child", rest @ ..] => {
            // On one line: the parent keeps only the last one.
            std::panic::set_hook(Box::new(|panic| eprintln!("{}", panic.to_string().replace('\n', " "))));
            return told(child(rest, &options));
        }
        sections => {
            if let Some(unknown) = sections.iter().find(|name| !SECTIONS.contains(name)) {
                eprintln!("there is no section `{unknown}`\n\n{USAGE}");
                return ExitCode::from(2);
            }
            let chosen = if sections.is_empty() { &SECTIONS } else { sections };
            if let Err(wrong) = probe(chosen, &options) {
                eprintln!("{wrong}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs a child process, selected by its first words.
fn child(words: &[&str], options: &Options) -> Result<(), String> {
    match words {
        ["libraries"] => libraries::section(options),
        ["sticky"] => sticky::section(options),
        ["sticky", "first", call] => sticky::first(call),
        ["sticky", "rebuild", way, rest @ ..] => sticky::rebuild(way, rest.contains(&"cublas")),
        ["sticky", "worker", model, rest @ ..] => sticky::worker(model.as_ref(), rest.contains(&"break")),
        ["costs"] => costs::section(),
        ["yardsticks"] => yardsticks::section(options),
        ["models"] => models::section(options),
        ["models", name, batch] => models::one(options, name, batch),
        ["shader"] => shader::section(options),
        ["shader", "endless"] => shader::endless(options),
        other => Err(format!("there is no child `{}`", other.join(" "))),
    }
}

/// The exit status for a child's result: a missing requirement is not a crash.
fn told(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // On one line: the parent keeps only the last one.
            eprintln!("{}", why.replace('\n', "; "));
            ExitCode::from(child::UNAVAILABLE as u8)
        }
    }
}

/// Runs the sections one after the other, and prints the findings.
fn probe(chosen: &[&str], options: &Options) -> Result<(), String> {
    let began = Instant::now();
    // Adds folders with libraries to the loader's path for the children, as a user would do by hand.
    let added = environment::extend_library_path(&options.python);
    let mut machine = environment::machine();
    machine.push(Finding::fact("folders added to the library path", added.join(":")));
    machine.push(Finding::fact("seed", options.seed));
    let seconds = began.elapsed().as_secs_f64();
    let mut sections = vec![Section { name: "machine".into(), state: "done".into(), seconds, findings: machine }];
    for &name in chosen {
        eprintln!("{name} ...");
        let start = Instant::now();
        let run =
            child::again(&options.child(&["child", name])).and_then(|command| child::start(command, options.limit));
        let (findings, end) = match run {
            Ok(running) => running.findings(),
            Err(why) => (Vec::new(), End::Crashed(why)),
        };
        sticky::remove_models();
        let seconds = start.elapsed().as_secs_f64();
        let section = Section { name: name.into(), state: end.to_string(), seconds, findings };
        eprintln!("{name}: {} ({seconds:.1} s)", section.state);
        sections.push(section);
        // After each section, because a later one may crash the machine.
        if let Some(file) = &options.json {
            std::fs::write(file, object(&sections)?).map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    let mut out = std::io::stdout().lock();
    let print = |e: std::io::Error| format!("the output: {e}");
    if options.json.is_none() {
        writeln!(out, "{}", object(&sections)?).map_err(print)?;
    }
    for section in &sections {
        writeln!(out, "{}", section.to_table()).map_err(print)?;
    }
    writeln!(out, "results that were wrong: {}", wrong_results(&sections)).map_err(print)
}

fn wrong_results(sections: &[Section]) -> usize {
    sections.iter().flat_map(|section| &section.findings).filter(|finding| finding.right == Some(false)).count()
}

/// The report as text: one JSON object.
fn object(sections: &[Section]) -> Result<String, String> {
    let object = json!({
        "probe": env!("CARGO_PKG_VERSION"),
        "seconds_since_1970": since_1970().as_secs(),
        "wrong_results": wrong_results(sections),
        "sections": sections.iter().map(Section::to_json).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&object).map_err(|e| e.to_string())? + "\n")
}

fn arguments() -> Result<(Vec<String>, Options), String> {
    let mut options = Options {
        json: None,
        models: None,
        python: "python3".into(),
        limit: Duration::from_secs(600),
        // Small enough to be exact as a number in JSON.
        seed: since_1970().as_nanos() as u64 % 1_000_000_007,
        software: false,
    };
    let mut words = Vec::new();
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "--json" => options.json = Some(value()?.into()),
            "--models" => options.models = Some(value()?.into()),
            "--python" => options.python = value()?,
            "--limit" => options.limit = Duration::from_secs(number(&value()?)?),
            "--seed" => options.seed = number(&value()?)?,
            "--software" => options.software = true,
            "-h" | "--help" => words = vec!["help".into()],
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => words.push(word),
        }
    }
    Ok((words, options))
}

#[allow(clippy::disallowed_methods, reason = "this program has no engine, and its report says when it ran")]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not an integer"))
}
