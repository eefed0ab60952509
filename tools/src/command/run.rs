//! The verbs on a graph file. `run` plans a graph, runs it, prints and dumps the report, and
//! applies the gates.
//!
//! The crate's public functions make everything it prints; this file decides their order and the
//! exit code.

use super::arguments::{DryRun, RunArguments};
use super::option_values::{ServerAddress, Shadow};
use super::plan::{plan_json, show_plan, show_why};
use super::problems::show_problems;
use super::simulated;
#[cfg(feature = "otlp")]
use super::watch::LastExport;
use super::watch::{Ended, Listeners, execute};
use crate::dump::run_info::{GraphFile, RunInfo};
use crate::dump::{Dump, is_dumped, write_file};
#[cfg(feature = "otlp")]
use crate::metrics::exporter::OtlpExporter;
use crate::metrics::server::MetricsServer;
use crate::monitor::Monitor;
use crate::page::{BaseReport, ReportPage};
use crate::picture::Picture;
use crate::report::condition;
use crate::report::exit_code::{FAILED, REFUSED};
use crate::report::gate::GateVerdict;
use crate::report::printed::show_report;
use crate::report::summary::Summary;
use crate::terminal::interrupt::name_unfinished;
use crate::terminal::log::{self, print_error, print_info};
use crate::terminal::stdout::Stdout;
use crate::text::escape::one_line;
use crate::text::number::count;
use crate::text::paragraph::paragraph;
use limen::files::{check_output, discard_unfinished, hold_output, real_path};
use limen::plan::NodePlan;
use limen::{Layers, Plan, Problems, Registry, RunError, Spec};
use limen_infer::{BEYOND_TOLERANCE, BackendOptions};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};

/// Prints the problems of a graph on stderr.
fn print_problems(problems: &Problems) {
    if log::is_json() {
        problems.0.iter().for_each(log::print_problem);
        return;
    }
    log::print_as_is(&show_problems(problems, stderr().is_terminal()));
    print_error(&format!("\n{}; nothing was started", count(problems.0.len(), "problem")));
}

/// Why nothing has run.
pub(crate) enum NotRun {
    /// The graph has problems.
    Refused(Problems),
    /// The reason, and the exit code.
    Because(String, u8),
    /// The reason was printed; the exit code.
    Printed(u8),
}

/// A reason with the exit code [`REFUSED`].
fn because(why: impl Into<String>) -> NotRun {
    NotRun::Because(why.into(), REFUSED)
}

/// An option that names an output folder, the folder, and a predicate for the names of files that
/// may be written there.
type OutputFolder<'a> = (&'a str, &'a Option<PathBuf>, &'a dyn Fn(&str) -> bool);

/// Makes the text of a picture.
type DrawPicture = fn(&Picture) -> String;

/// The options that name a picture, the files, and what draws them.
fn pictures(arguments: &RunArguments) -> impl Iterator<Item = (&'static str, &Path, DrawPicture)> {
    let RunArguments { dot_file, svg, mermaid, .. } = arguments;
    let dot = dot_file.as_deref().map(|path| ("--dot", path, Picture::dot as DrawPicture));
    let svg = svg.as_deref().map(|path| ("--svg", path, Picture::svg as DrawPicture));
    let mermaid = mermaid.as_deref().map(|path| ("--mermaid", path, Picture::mermaid as DrawPicture));
    [dot, svg, mermaid].into_iter().flatten()
}

/// The options that name a file which is written at the end, and the files.
fn written_files(arguments: &RunArguments) -> impl Iterator<Item = (&'static str, &Path)> {
    let page = arguments.report.as_deref().map(|path| ("--report", path));
    let trace = arguments.trace.as_deref().map(|path| ("--trace", path));
    page.into_iter().chain(trace).chain(pictures(arguments).map(|(option, path, _)| (option, path)))
}

/// Whether a name is that of a file in the model cache: a SHA-256 and an extension.
fn is_cached(name: &str) -> bool {
    let sum = name.split('.').next().unwrap_or_default();
    sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()) && name.len() > 64
}

/// Moves the problems of a key that an option set for every model to that option: the key's
/// setting, and the option as written.
fn at_option(mut problems: Problems, option: Option<(String, String)>) -> Problems {
    if let Some((setting, option)) = option {
        let ending = format!(".config.{setting}");
        let set = problems.0.iter_mut().filter(|p| p.place.line == 0 && p.place.file.ends_with(&ending));
        set.for_each(|problem| problem.place.file = option.as_str().into());
    }
    problems
}

/// The backend options of a registry.
fn backend_options(registry: &Registry) -> BackendOptions {
    registry.extensions().get().cloned().unwrap_or_default()
}

/// One command on a graph file.
pub(crate) struct Run<'a> {
    pub(super) arguments: &'a RunArguments,
    pub(super) path: &'a Path,
    /// The name of the graph; until it is planned, that of its file.
    name: String,
    pub(super) stdout: Stdout,
}

impl<'a> Run<'a> {
    /// Does what one of the functions below does, prints why it could not, and returns the exit
    /// code.
    pub(crate) fn execute(
        arguments: &'a RunArguments,
        registry: Registry,
        command: impl FnOnce(&mut Self, Registry) -> Result<u8, NotRun>,
    ) -> u8 {
        log::set_format(arguments.log_format);
        let stdout = if arguments.json { Stdout::alone() } else { Stdout::default() };
        let path = arguments.graph.as_deref().unwrap_or(Path::new(""));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut run = Run { arguments, path, name, stdout };
        let (json, code) = match command(&mut run, registry) {
            Ok(code) | Err(NotRun::Printed(code)) => return code,
            Err(NotRun::Refused(problems)) => {
                print_problems(&problems);
                (Summary::refused(&run.name, &problems).json(), REFUSED)
            }
            Err(NotRun::Because(why, code)) => {
                print_error(&format!("limen-run: {}; nothing has run", one_line(&why)));
                (Summary::not_started(&run.name, &why, code).json(), code)
            }
        };
        if arguments.json { run.stdout.print(&json, code) } else { code }
    }

    /// `run`, or what an option of it asks for instead.
    pub(crate) fn run_or_dry_run(&mut self, registry: Registry) -> Result<u8, NotRun> {
        match &self.arguments.dry_run {
            DryRun { check: true, .. } => self.check(registry),
            DryRun { plan: true, .. } | DryRun { why: true, .. } => self.plan(registry),
            _ => self.run(registry),
        }
    }

    /// `expand`: prints the flat graph.
    pub(crate) fn expand(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let spec = Spec::from_file_with(self.path, &self.arguments.layers()).map_err(NotRun::Refused)?;
        registry.read_configs(&spec);
        Ok(self.stdout.print_file(&spec.to_yaml_with_places()))
    }

    /// `check`: prints that the graph can run.
    pub(crate) fn check(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let json = self.arguments.json;
        self.print_planned(registry, |plan| {
            if json {
                let mut object = plan_json(plan);
                object["ok"] = true.into();
                return format!("{object:#}\n");
            }
            let (nodes, edges) = (count(plan.nodes().len(), "node"), count(plan.edges().len(), "edge"));
            let mut text = format!("graph `{}`: {nodes}, {edges}: ok\n", one_line(plan.graph()));
            plan.notes().iter().for_each(|note| paragraph(&mut text, "note: ", note));
            text
        })
    }

    /// `plan`: prints the plan, or the reasons for it.
    pub(crate) fn plan(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let (json, why) = (self.arguments.json, self.arguments.dry_run.why);
        self.print_planned(registry, |plan| match (json, why) {
            (true, _) => format!("{:#}\n", plan_json(plan)),
            (false, true) => show_why(plan),
            (false, false) => show_plan(plan),
        })
    }

    /// `dot`: prints the graph for Graphviz.
    pub(crate) fn dot(&mut self, registry: Registry) -> Result<u8, NotRun> {
        self.print_planned(registry, |plan| Picture::new(plan).dot())
    }

    /// Plans the graph, writes the pictures of it that were asked for, and prints a text about it.
    fn print_planned(&mut self, registry: Registry, text: impl FnOnce(&Plan) -> String) -> Result<u8, NotRun> {
        let plan = self.planned(registry)?;
        match self.write_pictures(&Picture::new(&plan)) {
            0 => Ok(self.stdout.print(&text(&plan), 0)),
            code => Ok(code),
        }
    }

    /// Plans the graph as it would run, and checks what the options name.
    fn planned(&mut self, registry: Registry) -> Result<Plan, NotRun> {
        let (registry, arguments) = (&self.with_backend_options(registry, false), self.arguments);
        let (mut layers, mut option) = (arguments.layers(), None);
        if let Some(Shadow { backend, every }) = &arguments.shadow {
            let setting = format!("shadow={{ backend: {backend}, every: {every} }}");
            self.set_for_models(&mut layers, registry, &setting)?;
            option = Some((setting, format!("--shadow {backend}:{every}")));
        }
        let plan =
            self.plan_with(&layers, registry).map_err(|problems| NotRun::Refused(at_option(problems, option)))?;
        self.refuse_stdout_conflict(&plan)?;
        self.name = plan.graph().to_string();
        for gate in &arguments.fail_on {
            gate.check(&plan).map_err(|error| because(format!("--fail-on '{gate}': {error}")))?;
            if let Some(warning) = condition::deprecation(&gate.to_string()) {
                print_info(&format!("limen-run: --fail-on '{gate}': {warning}"));
            }
        }
        self.refuse_overwriting(&plan, registry)?;
        // Fails now, not after an hour of measuring.
        for (option, path) in written_files(arguments) {
            check_output(path).map_err(|error| because(format!("{option} {}: {error}", path.display())))?;
        }
        Ok(plan)
    }

    fn plan_with(&self, layers: &Layers, registry: &Registry) -> Result<Plan, Problems> {
        Plan::from_file(self.path, layers, registry, &self.arguments.options())
    }

    /// `run`: runs the graph to its end.
    fn run(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let (plan, arguments) = (self.planned(registry)?, self.arguments);
        for (option, folder) in [("--out", &arguments.out), ("--histograms", &arguments.histograms)] {
            let Some(folder) = folder else { continue };
            fs::create_dir_all(folder).map_err(|error| because(format!("{option} {}: {error}", folder.display())))?;
        }
        // The reader of a pipe would see the end of it if it were only opened as a check.
        let mut held = Vec::new();
        for (option, path) in written_files(arguments) {
            let opened = hold_output(path);
            held.extend(opened.map_err(|error| because(format!("{option} {}: {error}", path.display())))?);
        }
        let read = |base: &Path| {
            BaseReport::read(base).map_err(|error| because(format!("--report-base {}: {error}", base.display())))
        };
        let base = arguments.report_base.as_deref().map(read).transpose()?;
        let server = self.metrics_server().map_err(because)?;
        #[cfg(not(feature = "otlp"))]
        if arguments.otlp.is_some() {
            return Err(because("--otlp: this program was built without OTLP: build limen-run with `--features otlp`"));
        }
        let graph = GraphFile::read(self.path);
        let monitor = self.monitor(&plan).map_err(|why| because(format!("--monitor: {why}")))?;
        #[cfg(feature = "otlp")]
        let exporter = {
            let exporter = arguments.otlp.as_deref().map(OtlpExporter::new).transpose();
            exporter.map_err(|why| because(format!("--otlp: {why}")))?
        };
        let listeners = Listeners {
            server,
            #[cfg(feature = "otlp")]
            exporter,
            monitor,
        };
        let ran =
            if arguments.simulated { simulated::execute(plan, arguments) } else { execute(plan, arguments, listeners) };
        #[cfg_attr(not(feature = "otlp"), allow(unused_mut, reason = "the last message to a collector is taken out"))]
        let mut ended = ran.map_err(|error| {
            // A node that hangs while it is built keeps the files of others open.
            discard_unfinished();
            name_unfinished();
            NotRun::Because(error.to_string(), if matches!(error, RunError::Build { .. }) { FAILED } else { REFUSED })
        })?;
        #[cfg(feature = "otlp")]
        let export = ended.export.take();
        let code = self.finish(ended, &graph, base.as_ref());
        #[cfg(feature = "otlp")]
        export.into_iter().for_each(LastExport::send);
        Ok(code)
    }

    /// Opens the socket for monitors, if the command line or the graph asks for one. A graph goes
    /// on without the one it asks for itself.
    fn monitor(&self, plan: &Plan) -> io::Result<Option<Monitor>> {
        if self.arguments.simulated || (!self.arguments.monitor && !plan.monitor()) {
            return Ok(None);
        }
        match Monitor::new(plan) {
            Ok(monitor) => {
                if !self.arguments.quiet {
                    let path = one_line(&monitor.path().display().to_string());
                    print_info(&format!("limen-run: `limen-top` can watch at {path}"));
                }
                Ok(Some(monitor))
            }
            Err(error) if self.arguments.monitor => Err(error),
            Err(error) => {
                let why = one_line(&error.to_string());
                print_error(&format!(
                    "limen-run: `run: {{ monitor: true }}`: {why}; the run continues without a monitor"
                ));
                Ok(None)
            }
        }
    }

    /// Prints an error if stdout is a file that the graph reads or writes. Must come before any
    /// output.
    fn refuse_stdout_conflict(&self, plan: &Plan) -> Result<(), NotRun> {
        let Some(why) = self.stdout.conflict(plan) else { return Ok(()) };
        print_error(&format!("limen-run: {}; nothing has run", one_line(&why)));
        Err(NotRun::Printed(REFUSED))
    }

    /// Refuses options that would overwrite a file of the graph, read or written by it.
    fn refuse_overwriting(&self, plan: &Plan, registry: &Registry) -> Result<(), NotRun> {
        self.overwritten_file(plan, registry).map_or(Ok(()), |why| Err(because(why)))
    }

    /// The message for a file of the graph, read or written by it, that an option of the command
    /// line would overwrite.
    fn overwritten_file(&self, plan: &Plan, registry: &Registry) -> Option<String> {
        let cache = backend_options(registry).cache;
        let is_dumped = |name: &str| is_dumped(plan.graph(), name);
        let options: [OutputFolder<'_>; 2] =
            [("--histograms", &self.arguments.histograms, &is_dumped), ("--cache", &cache, &is_cached)];
        let mut others = Vec::new();
        for (option, path) in written_files(self.arguments) {
            let about = |what| format!("{option} {}: would overwrite {what}: name another file", path.display());
            if let Some(read) = plan.reads(path) {
                return Some(about(format!("`{}`, which the graph reads", read.display())));
            }
            let is_dump = |name: &OsStr| name.to_str().is_some_and(is_dumped);
            if let Some(folder) = &self.arguments.histograms
                && path.file_name().is_some_and(is_dump)
                && path.parent().is_some_and(|parent| real_path(parent) == real_path(folder))
            {
                return Some(about("a file of --histograms".into()));
            }
            let real = real_path(path);
            if let Some((node, _)) = plan.writes().find(|(_, written)| *written == real) {
                return Some(about(format!("the file that the node `{node}` writes")));
            }
            if let Some((other, _)) = others.iter().find(|(_, other)| *other == real) {
                return Some(about(format!("the file of {other}")));
            }
            others.push((option, real));
        }
        options.into_iter().find_map(|(option, folder, is_written)| {
            let folder = folder.as_ref()?;
            let about = |name: &OsStr, what: String| {
                let path = folder.join(name);
                format!(
                    "{option} {}: would overwrite `{}`, {what}: name another folder",
                    folder.display(),
                    path.display()
                )
            };
            let is_written = |name: &OsStr| name.to_str().is_some_and(is_written);
            // A folder that does not exist yet is empty.
            let present = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
            let read = present.filter(|name| is_written(name)).find_map(|name| {
                let read = plan.reads(&folder.join(&name))?;
                Some(about(&name, format!("which the graph reads as `{}`", read.display())))
            });
            read.or_else(|| {
                let real = real_path(folder);
                let here = plan.writes().filter(|(_, path)| path.parent() == Some(real.as_path()));
                here.filter_map(|(node, path)| Some((node, path.file_name()?)))
                    .find(|(_, name)| is_written(name))
                    .map(|(node, name)| about(name, format!("which the node `{node}` writes")))
            })
        })
    }

    /// Sets the backend options: those of the command line, else those that the registry has.
    fn with_backend_options(&self, registry: Registry, calibrate: bool) -> Registry {
        let RunArguments { cache, onnxruntime, onnxruntime_plugin, allow_software, gpu, allow_kernels, .. } =
            self.arguments;
        #[cfg(not(feature = "ort"))]
        for (option, library) in [("--onnxruntime", onnxruntime), ("--onnxruntime-plugin", onnxruntime_plugin)] {
            let Some(library) = library else { continue };
            let library = one_line(&library.display().to_string());
            print_error(&format!(
                "limen-run: {option} {library} is ignored: this program was built without the backend `ort` (cargo feature `ort`)"
            ));
        }
        #[cfg(not(any(feature = "wgpu", feature = "cuda", feature = "ort")))]
        if let Some(gpu) = gpu {
            print_error(&format!(
                "limen-run: --gpu {} is ignored: this program was built without the backends `wgpu`, `cuda` and `ort` (cargo features)",
                one_line(gpu)
            ));
        }
        let registered = backend_options(&registry);
        registry.with_extension(BackendOptions {
            cache: cache.clone().or(registered.cache),
            calibrate: calibrate || registered.calibrate,
            onnxruntime: onnxruntime.clone().or(registered.onnxruntime),
            onnxruntime_plugin: onnxruntime_plugin.clone().or(registered.onnxruntime_plugin),
            allow_software: *allow_software || registered.allow_software,
            gpu: gpu.clone().filter(|gpu| !gpu.is_empty()).or(registered.gpu),
            allow_kernels: *allow_kernels || registered.allow_kernels,
            ..registered
        })
    }

    /// `calibrate`: measures every backend on the models.
    pub(crate) fn calibrate(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let registry = self.with_backend_options(registry, true);
        self.prepare_models(&registry)
    }

    /// `compile`: compiles the models ahead of time.
    pub(crate) fn compile(&mut self, registry: Registry) -> Result<u8, NotRun> {
        let registry = self.with_backend_options(registry, false);
        self.prepare_models(&registry)
    }

    /// Plans the graph, which compiles or measures its models and caches the results, and prints
    /// the notes of the models.
    fn prepare_models(&mut self, registry: &Registry) -> Result<u8, NotRun> {
        if backend_options(registry).cache.is_none() {
            self.name = self.path.display().to_string();
            return Err(because("expected a folder for the results, found none: add `--cache DIR`"));
        }
        let plan = self.plan_with(&self.arguments.layers(), registry).map_err(NotRun::Refused)?;
        self.refuse_stdout_conflict(&plan)?;
        self.refuse_overwriting(&plan, registry)?;
        self.print_notes(&plan, |node| node.kind == "infer")
    }

    /// Prints the notes of some nodes.
    fn print_notes(&mut self, plan: &Plan, is_shown: impl Fn(&NodePlan) -> bool) -> Result<u8, NotRun> {
        self.refuse_stdout_conflict(plan)?;
        let mut text = String::new();
        for node in plan.nodes().iter().filter(|node| is_shown(node)) {
            text.push_str(&format!("{}\n", node.name));
            node.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        }
        Ok(self.stdout.print(&text, 0))
    }

    /// `verify-backend`: plans the graph with every model compared with another backend, and prints
    /// what was found.
    pub(crate) fn verify_backend(&mut self, registry: Registry, against: &str) -> Result<u8, NotRun> {
        let registry = self.with_backend_options(registry, false);
        let options = BackendOptions { report_differences: true, ..backend_options(&registry) };
        let registry = &registry.with_extension(options);
        let mut layers = self.arguments.layers();
        let setting = format!("verify.against={against}");
        let models = self.set_for_models(&mut layers, registry, &setting)?;
        let option = (setting, format!("--against {against}"));
        let plan = self.plan_with(&layers, registry);
        let plan = plan.map_err(|problems| NotRun::Refused(at_option(problems, Some(option))))?;
        let differs = plan.nodes().iter().flat_map(|node| &node.notes).any(|note| note.starts_with(BEYOND_TOLERANCE));
        let code = self.print_notes(&plan, |node| models.contains(&node.name))?;
        Ok(if differs && code == 0 { REFUSED } else { code })
    }

    /// Sets a key of every node that runs a model, and returns the names of those nodes.
    fn set_for_models(&self, layers: &mut Layers, registry: &Registry, setting: &str) -> Result<Vec<String>, NotRun> {
        let plan = self.plan_with(layers, registry).map_err(NotRun::Refused)?;
        let is_model = |node: &&NodePlan| node.kind == "infer" && !node.notes.iter().any(|note| note == "backend mock");
        let models: Vec<String> = plan.nodes().iter().filter(is_model).map(|node| node.name.clone()).collect();
        if models.is_empty() {
            return Err(because("expected an `infer` node with a model, found none that can be compared"));
        }
        if let Some(inner) = models.iter().find(|model| model.contains('.')) {
            return Err(because(format!(
                "`{inner}` is inside a subgraph, which this option cannot change: write `{setting}` in the `config` of `{inner}`"
            )));
        }
        layers.set.extend(models.iter().map(|model| format!("nodes.{model}.config.{setting}")));
        Ok(models)
    }

    /// Starts the server of `--metrics`, if there is one.
    fn metrics_server(&self) -> Result<Option<MetricsServer>, String> {
        let Some(ServerAddress(address)) = self.arguments.metrics else { return Ok(None) };
        if !address.ip().to_canonical().is_loopback() && !self.arguments.allow_public {
            return Err(format!(
                "--metrics {address}: other machines could reach this address: write `--metrics {}`, or add --allow-public",
                address.port()
            ));
        }
        let server = MetricsServer::bind(address).map_err(|error| format!("--metrics {address}: {error}"))?;
        // Nobody could guess a free port.
        if !self.arguments.quiet || address.port() == 0 {
            print_info(&format!("limen-run: metrics at http://{}/metrics", server.address()));
        }
        Ok(Some(server))
    }

    /// Writes the pictures that were asked for, and returns the exit code.
    fn write_pictures(&self, picture: &Picture) -> u8 {
        let mut code = 0;
        for (option, path, text) in pictures(self.arguments) {
            let shown = one_line(&path.display().to_string());
            match write_file(path, &text(picture)) {
                Ok(()) if !self.arguments.quiet => print_info(&format!("limen-run: picture in {shown}")),
                Ok(()) => {}
                Err(error) => {
                    print_error(&format!("limen-run: {option} {shown}: {}", one_line(&error.to_string())));
                    code = FAILED;
                }
            }
        }
        code
    }

    /// Applies the gates to a report, prints it and dumps it.
    fn finish(&mut self, ended: Ended, graph: &GraphFile, base: Option<&BaseReport>) -> u8 {
        let Ended { report, log, page, picture, trace, .. } = ended;
        let (report, arguments) = (&report, self.arguments);
        let verdicts: Vec<GateVerdict> = arguments.fail_on.iter().map(|gate| gate.judge(report)).collect();
        let summary = Summary::new(report, &verdicts);
        let text = if arguments.json { summary.json() } else { show_report(report, arguments.detail()) };
        let mut code = self.stdout.print(&text, summary.exit_code);
        for verdict in verdicts.iter().filter(|v| v.tripped || arguments.verbose) {
            print_error(&format!("gate: {}", one_line(&verdict.text)));
        }
        if let Some(picture) = picture {
            code = code.max(self.write_pictures(&picture));
        }
        if let (Some(path), Some(trace)) = (&arguments.trace, trace) {
            code = code.max(self.name_trace(path, trace));
        }
        if arguments.histograms.is_none() && arguments.report.is_none() {
            return code;
        }
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let run = RunInfo::new(report, graph, words);
        if let (Some(path), Some(page)) = (&arguments.report, page) {
            let shown = one_line(&path.display().to_string());
            match ReportPage::write(path, &page.html(report, &summary, &run, base)) {
                Ok(()) if !arguments.quiet => print_info(&format!("limen-run: report in {shown}")),
                Ok(()) => {}
                Err(error) => {
                    print_error(&format!("limen-run: --report {shown}: {}", one_line(&error.to_string())));
                    code = code.max(FAILED);
                }
            }
        }
        if let Some(folder) = &arguments.histograms {
            let log = log.transpose();
            let files =
                log.and_then(|log| Dump { report, summary: &summary, run: &run, log: log.as_deref() }.write(folder));
            match files {
                Ok(files) if !arguments.quiet => {
                    let folder = one_line(&folder.display().to_string());
                    print_info(&format!("limen-run: {} in {folder}", count(files.len(), "file")));
                }
                Ok(_) => {}
                Err(error) => {
                    print_error(&format!("limen-run: --histograms: {}", one_line(&error.to_string())));
                    code = code.max(FAILED);
                }
            }
        }
        code
    }

    /// Says where the trace is, and what is missing in it. Returns the exit code.
    fn name_trace(&self, path: &Path, trace: io::Result<u64>) -> u8 {
        let shown = one_line(&path.display().to_string());
        match trace {
            Ok(0) if self.arguments.quiet => return 0,
            Ok(0) => print_info(&format!("limen-run: trace in {shown}, for ui.perfetto.dev")),
            Ok(lost) => {
                let lost = count(usize::try_from(lost).unwrap_or(usize::MAX), "span");
                print_error(&format!(
                    "limen-run: trace in {shown}, incomplete: the buffer was full and discarded {lost}"
                ));
            }
            Err(error) => {
                print_error(&format!("limen-run: --trace {shown}: {}", one_line(&error.to_string())));
                return FAILED;
            }
        }
        0
    }
}
