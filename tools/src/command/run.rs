//! The verb `run`: plan a graph, run it, print, dump and judge what came of it.
//!
//! Everything it prints is made by the crate's public functions; here is only their order, and which exit code follows
//! from what.

use super::arguments::RunArguments;
use super::dot::show_dot;
use super::option_values::Shadow;
use super::plan::{plan_json, show_plan, show_why};
use super::problems::show_problems;
use super::watch::execute;
use crate::dump::run_info::{GraphFile, RunInfo};
use crate::dump::{Dump, is_dumped};
use crate::report::exit_code::{FAILED, REFUSED};
use crate::report::gate::Verdict;
use crate::report::printed::show_report;
use crate::report::summary::Summary;
use crate::terminal::log::{self, complain, tell};
use crate::terminal::stdout::Stdout;
use crate::text::escape::one_line;
use crate::text::number::count;
use crate::text::paragraph::paragraph;
use limen::files::real_path;
use limen::plan::NodePlan;
use limen::{Layers, Plan, Problems, Registry, Report, RunError, Spec};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};

/// Problems of a graph on stderr.
fn complain_of(problems: &Problems) {
    if log::is_json() {
        problems.0.iter().for_each(log::complain_of);
        return;
    }
    log::show(&show_problems(problems, stderr().is_terminal()));
    complain(&format!("\n{}; nothing was started", count(problems.0.len(), "problem")));
}

/// Why a setting could not be laid over the nodes that run models.
enum NotLaid {
    Refused(Problems),
    Because(String),
}

/// An option that names a folder, the folder, and which names of files are written there.
type WritesTo<'a> = (&'a str, &'a Option<PathBuf>, &'a dyn Fn(&str) -> bool);

/// Whether a name is one of those under which compiled models, and what was found out about models, are kept: a checksum and an ending.
fn is_kept(name: &str) -> bool {
    let sum = name.split('.').next().unwrap_or_default();
    sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()) && name.len() > 64
}

/// One `limen-run GRAPH`.
pub(crate) struct Run<'a> {
    arguments: &'a RunArguments,
    stdout: Stdout,
}

impl<'a> Run<'a> {
    pub(crate) fn new(arguments: &'a RunArguments) -> Self {
        log::choose(arguments.log_format);
        let stdout = if arguments.json { Stdout::alone() } else { Stdout::default() };
        Run { arguments, stdout }
    }

    /// Does what the arguments ask for and gives the exit code.
    pub(crate) fn go(mut self, registry: &Registry) -> u8 {
        let arguments = self.arguments;
        let path = arguments.graph.as_deref().unwrap_or(Path::new(""));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if arguments.expand {
            return match Spec::from_file_with(path, &arguments.layers()) {
                Ok(spec) => {
                    registry.read_configs(&spec);
                    self.stdout.print_file(&spec.to_yaml_with_places())
                }
                Err(problems) => self.refused(&name, &problems),
            };
        }
        self.find_libraries();
        let mut layers = arguments.layers();
        if let Some(Shadow { backend, every }) = &arguments.shadow {
            let setting = format!("shadow={{ backend: {backend}, every: {every} }}");
            match self.lay_over_models(&mut layers, registry, &setting) {
                Ok(_) => {}
                Err(NotLaid::Refused(problems)) => return self.refused(&name, &problems),
                Err(NotLaid::Because(why)) => return self.not_started(&name, &why, REFUSED),
            }
        }
        let plan = match Plan::from_file(path, &layers, registry, &arguments.options()) {
            Ok(plan) => plan,
            Err(problems) => return self.refused(&name, &problems),
        };
        if let Some(code) = self.stdout_in_the_way(&plan) {
            return code;
        }
        let name = plan.graph().to_string();
        if let Err((error, gate)) =
            arguments.fail_on.iter().try_for_each(|gate| gate.check(&plan).map_err(|e| (e, gate)))
        {
            return self.not_started(&name, &format!("--fail-on '{gate}': {error}"), REFUSED);
        }
        if let Some(why) = self.in_the_way(&plan) {
            return self.not_started(&name, &why, REFUSED);
        }
        if arguments.check {
            return self.checked(&plan);
        }
        if arguments.dot {
            return self.stdout.print(&show_dot(&plan), 0);
        }
        if arguments.plan || arguments.why {
            let text = match (arguments.json, arguments.why) {
                (true, _) => format!("{:#}\n", plan_json(&plan)),
                (false, true) => show_why(&plan),
                (false, false) => show_plan(&plan),
            };
            return self.stdout.print(&text, 0);
        }
        // Found out now, not after an hour of measuring.
        for (option, folder) in [("--out", &arguments.out), ("--histograms", &arguments.histograms)] {
            if let Some(folder) = folder
                && let Err(error) = fs::create_dir_all(folder)
            {
                return self.not_started(&name, &format!("{option} {}: {error}", folder.display()), REFUSED);
            }
        }
        let graph = GraphFile::read(path);
        match execute(plan, arguments) {
            Ok((report, log)) => self.finish(&report, &graph, log),
            Err(error) => {
                let code = if matches!(error, RunError::Build { .. }) { FAILED } else { REFUSED };
                self.not_started(&name, &error.to_string(), code)
            }
        }
    }

    /// Says so, and gives the exit code, where the graph reads or writes the file that stdout is. Nothing may be said there before.
    fn stdout_in_the_way(&self, plan: &Plan) -> Option<u8> {
        let why = self.stdout.in_the_way(plan)?;
        complain(&format!("limen-run: {}; nothing has run", one_line(&why)));
        Some(REFUSED)
    }

    /// A file of the graph that an option of the command line would have written over: what it reads, or what one of its nodes writes.
    fn in_the_way(&self, plan: &Plan) -> Option<String> {
        let is_dumped = |name: &str| is_dumped(plan.graph(), name);
        let options: [WritesTo<'_>; 2] =
            [("--histograms", &self.arguments.histograms, &is_dumped), ("--cache", &self.arguments.cache, &is_kept)];
        options.into_iter().find_map(|(option, folder, is_written)| {
            let folder = folder.as_ref()?;
            let about = |name: &OsStr, what: String| {
                let path = folder.join(name);
                format!("{option} {}: it writes `{}`, {what}; name another folder", folder.display(), path.display())
            };
            let is_written = |name: &OsStr| name.to_str().is_some_and(is_written);
            // A folder that is not there yet holds nothing.
            let there = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
            let read = there.filter(|name| is_written(name)).find_map(|name| {
                let read = plan.reads(&folder.join(&name))?;
                Some(about(&name, format!("which the graph reads as `{}`", read.display())))
            });
            read.or_else(|| {
                let real = real_path(folder);
                let here = plan.writes().filter(|(_, path)| path.parent() == Some(real.as_path()));
                here.filter_map(|(node, path)| Some((node, path.file_name()?)))
                    .find(|(_, name)| is_written(name))
                    .map(|(node, name)| about(name, format!("and so does `{node}`")))
            })
        })
    }

    /// Says where native libraries and compiled models are, as far as the arguments do.
    fn find_libraries(&self) {
        if let Some(folder) = &self.arguments.cache {
            limen_backends::cache_in(folder);
        }
        #[cfg(feature = "ort")]
        if let Some(library) = &self.arguments.onnxruntime {
            limen_backends::find_onnxruntime(library);
        }
        #[cfg(not(feature = "ort"))]
        if let Some(library) = &self.arguments.onnxruntime {
            let library = one_line(&library.display().to_string());
            complain(&format!(
                "limen-run: --onnxruntime {library} is not looked at: this program was built without the backend `ort` (cargo feature `ort`)"
            ));
        }
    }

    /// Plans the graph, which compiles or measures its models and keeps what came of it, and prints that.
    pub(crate) fn prepare_models(self, registry: &Registry) -> u8 {
        if self.arguments.cache.is_none() {
            let name = self.arguments.graph.as_deref().unwrap_or(Path::new("")).display().to_string();
            return self.not_started(&name, "what comes of it needs a folder: add `--cache DIR`", REFUSED);
        }
        self.find_libraries();
        let path = self.arguments.graph.as_deref().unwrap_or(Path::new(""));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match Plan::from_file(path, &self.arguments.layers(), registry, &self.arguments.options()) {
            Ok(plan) => match self.in_the_way(&plan) {
                Some(why) => self.stdout_in_the_way(&plan).unwrap_or_else(|| self.not_started(&name, &why, REFUSED)),
                None => self.models(&plan, |node| node.kind == "infer"),
            },
            Err(problems) => self.refused(&name, &problems),
        }
    }

    /// Prints what the nodes that run models say of themselves.
    fn models(mut self, plan: &Plan, is_shown: impl Fn(&NodePlan) -> bool) -> u8 {
        if let Some(code) = self.stdout_in_the_way(plan) {
            return code;
        }
        let mut text = String::new();
        for node in plan.nodes().iter().filter(|node| is_shown(node)) {
            text.push_str(&format!("{}\n", node.name));
            node.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        }
        self.stdout.print(&text, 0)
    }

    /// Plans the graph with every model compared with another backend, and prints what was found.
    pub(crate) fn verify_backend(self, registry: &Registry, against: &str) -> u8 {
        self.find_libraries();
        let arguments = self.arguments;
        let path = arguments.graph.as_deref().unwrap_or(Path::new(""));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut layers = arguments.layers();
        let models = match self.lay_over_models(&mut layers, registry, &format!("verify.against={against}")) {
            Ok(models) => models,
            Err(NotLaid::Refused(problems)) => return self.refused(&name, &problems),
            Err(NotLaid::Because(why)) => return self.not_started(&name, &why, REFUSED),
        };
        let plan = match Plan::from_file(path, &layers, registry, &arguments.options()) {
            Ok(plan) => plan,
            Err(problems) => return self.refused(&name, &problems),
        };
        self.models(&plan, |node| models.contains(&node.name))
    }

    /// Sets a key of every node that runs a model, and says which they are.
    fn lay_over_models(&self, layers: &mut Layers, registry: &Registry, setting: &str) -> Result<Vec<String>, NotLaid> {
        let path = self.arguments.graph.as_deref().unwrap_or(Path::new(""));
        let plan = Plan::from_file(path, layers, registry, &self.arguments.options()).map_err(NotLaid::Refused)?;
        let is_model = |node: &&NodePlan| node.kind == "infer" && !node.notes.iter().any(|note| note == "backend mock");
        let models: Vec<String> = plan.nodes().iter().filter(is_model).map(|node| node.name.clone()).collect();
        if models.is_empty() {
            return Err(NotLaid::Because("no node of this graph runs a model that could be compared".into()));
        }
        if let Some(inner) = models.iter().find(|model| model.contains('.')) {
            let why =
                format!("`{inner}` is inside a subgraph, out of reach from here; write `{setting}` in its `config`");
            return Err(NotLaid::Because(why));
        }
        layers.set.extend(models.iter().map(|model| format!("nodes.{model}.config.{setting}")));
        Ok(models)
    }

    fn refused(mut self, name: &str, problems: &Problems) -> u8 {
        complain_of(problems);
        if !self.arguments.json {
            return REFUSED;
        }
        self.stdout.print(&Summary::refused(name, problems).json(), REFUSED)
    }

    fn not_started(mut self, name: &str, error: &str, code: u8) -> u8 {
        complain(&format!("limen-run: {}; nothing has run", one_line(error)));
        if !self.arguments.json {
            return code;
        }
        self.stdout.print(&Summary::not_started(name, error, code).json(), code)
    }

    fn checked(mut self, plan: &Plan) -> u8 {
        let text = if self.arguments.json {
            let mut object = plan_json(plan);
            object["ok"] = true.into();
            format!("{object:#}\n")
        } else {
            let (nodes, edges) = (count(plan.nodes().len(), "node"), count(plan.edges().len(), "edge"));
            let mut text = format!("graph `{}`: {nodes}, {edges}: ok\n", one_line(plan.graph()));
            plan.notes().iter().for_each(|note| paragraph(&mut text, "note: ", note));
            text
        };
        self.stdout.print(&text, 0)
    }

    /// Prints, dumps and judges a report.
    fn finish(mut self, report: &Report, graph: &GraphFile, log: Option<io::Result<PathBuf>>) -> u8 {
        let arguments = self.arguments;
        let verdicts: Vec<Verdict> = arguments.fail_on.iter().map(|gate| gate.judge(report)).collect();
        let summary = Summary::new(report, &verdicts);
        let text = if arguments.json { summary.json() } else { show_report(report, arguments.detail()) };
        let mut code = self.stdout.print(&text, summary.exit_code);
        for verdict in verdicts.iter().filter(|v| v.tripped || arguments.verbose) {
            complain(&format!("gate: {}", one_line(&verdict.text)));
        }
        if let Some(folder) = &arguments.histograms {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let run = RunInfo::new(report, graph, words);
            let log = log.transpose();
            let files =
                log.and_then(|log| Dump { report, summary: &summary, run: &run, log: log.as_deref() }.write(folder));
            match files {
                Ok(files) if !arguments.quiet => {
                    let folder = one_line(&folder.display().to_string());
                    tell(&format!("limen-run: {} in {folder}", count(files.len(), "file")));
                }
                Ok(_) => {}
                Err(error) => {
                    complain(&format!("limen-run: --histograms: {}", one_line(&error.to_string())));
                    code = code.max(FAILED);
                }
            }
        }
        code
    }
}
