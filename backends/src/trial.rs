//! Models are tried in a process of their own, which may die.
//!
//! A model is a program, and the runtimes that run it are native code: one that loops for ever, asks for more memory than there
//! is, or overflows a stack takes its process along. So a graph's models are read, folded and tried for the first time in
//! another process, with limits on memory, processor time and wall time, and a graph with a model that ends it is refused as any other
//! that is wrong.
//!
//! That process is the program that runs, started anew: [`serve`], called first in `main`, answers there (`limen_run::main`
//! calls it), or another program that [`Trials::program`] names. Where neither is there, models are tried in this process, and the
//! plan says so. No process is forked: the child is a new program that limits itself before it reads anything, and this one
//! keeps the wall clock, ends it, and takes its status.
//!
//! What is promised is the trial. The model is then loaded into this process too, from files with the same checksums, without being
//! run; its later calls run here, and may still end the process.

mod answer;
mod limits;
mod process;
mod steps;

pub(crate) use steps::Steps;

use crate::infer::{Choice, Config, choose, read_model};
use crate::inspect::Inspection;
use crate::onnx::ModelFile;
use crate::verify::{Case, Tolerance};
use crate::{cache, calibration, caught};
use answer::{AnyPath, Node, Request, Task, Unread};
use limen::backend::BackendError;
use limen::infer::InferPlan;
use limen::{Given, PlanErrors, Planning, Trials, catch_panic};
use limits::Asked;
use process::{Died, ask};
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use steps::Record;

/// The only argument of a process that tries a model.
const WORD: &str = "limen-model-trial";
/// What it says first.
const HELLO: &str = concat!("limen ", env!("CARGO_PKG_VERSION"));

/// What every Rust program says when it finds no memory, up to the number.
const OUT_OF_MEMORY: &str = "memory allocation of ";

/// Whether this program answers when it is started anew.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Answers a trial, where this process was started for one, and then ends the process; returns at once everywhere else.
///
/// Call it first in `main`, before any thread is started and any argument is looked at. From then on the models of every graph that
/// is planned are tried in a process of their own. [`limen_run::main`](https://docs.rs/limen-tools) calls it.
///
/// ```no_run
/// limen_backends::trial::serve();
/// // arguments, graphs, everything else
/// ```
pub fn serve() {
    let mut words = std::env::args_os().skip(1);
    if words.next().as_deref() == Some(OsStr::new(WORD)) && words.next().is_none() {
        answer::answer();
    }
    ANSWERS.store(true, Ordering::Relaxed);
}

/// The program that tries models, or why there is none.
fn program(trials: &Trials) -> Result<PathBuf, &'static str> {
    if trials.here {
        return Err("tried in this process, as was asked: a model that ends its process ends this one");
    }
    if let Some(program) = &trials.program {
        return Ok(program.clone());
    }
    if !ANSWERS.load(Ordering::Relaxed) {
        return Err("tried in this process: a model that ends its process ends this one; call \
                    `limen_backends::trial::serve` first in `main`, or name a program in `Options::trials`");
    }
    // The very file that runs, also when another one lies in its place by now.
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Ok(this.to_path_buf());
    }
    std::env::current_exe().map_err(|_| "tried in this process: the system does not say where its program is")
}

/// As [`inspect`](crate::inspect), in a process of its own where there is a program for it.
///
/// # Errors
/// What is wrong with the file, or what became of the process.
pub fn inspect(path: &Path, trials: &Trials) -> Result<Inspection, BackendError> {
    let Ok(program) = program(trials) else {
        let found = catch_panic(|| caught(|| crate::inspect::inspect(path)));
        return match found {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(BackendError::Model(panic)),
            Err(_) => Err(BackendError::Model("what reads it panicked".into())),
        };
    };
    let request = request(trials, path, Task::Inspect(AnyPath::new(path)));
    match ask(&program, &request).and_then(understood::<Result<Inspection, Unread>>) {
        Ok(found) => found.map_err(BackendError::from),
        Err(died) => Err(BackendError::Model(format!("{}; {}", died.sentence("it"), died.help))),
    }
}

fn request(trials: &Trials, model: &Path, task: Task) -> Request {
    #[cfg(feature = "ort")]
    let onnxruntime = crate::ort::told().map(AnyPath::new);
    #[cfg(not(feature = "ort"))]
    let onnxruntime = None;
    Request {
        parent: std::process::id(),
        limits: Asked::new(trials),
        size: model.metadata().map_or(0, |about| about.len()),
        cache: cache::folder().map(AnyPath::new),
        onnxruntime,
        task,
    }
}

fn understood<T: DeserializeOwned>(answer: serde_json::Value) -> Result<T, Died> {
    serde_json::from_value(answer).map_err(|error| Died {
        how: format!("answered what is not understood: {error}"),
        doing: String::new(),
        runtime: None,
        help: "name a program of the same version".into(),
    })
}

impl Died {
    /// What became of a model.
    fn sentence(&self, model: &str) -> String {
        let mut text = format!("{model} was tried in a process of its own, which {}", self.how);
        match (&self.runtime, self.doing.as_str()) {
            (_, "") => {}
            (Some(runtime), doing) => text.push_str(&format!(" while `{runtime}` {doing}")),
            (None, doing) => text.push_str(&format!(" while it {doing}")),
        }
        text
    }
}

/// Plans a node that runs a model, which is tried first.
pub(crate) fn planned(
    config: &Config,
    model: &str,
    given: &Given,
    cx: &Planning<'_>,
    case: Option<(Case, Tolerance)>,
) -> Result<InferPlan, PlanErrors> {
    let program = match program(cx.trials) {
        Ok(program) => program,
        Err(why) => return choose(config, model, given, cx, case, &Steps::default(), None).map(|plan| plan.note(why)),
    };
    let given_text = given.inputs().map(|(port, spec)| (port.to_string(), spec.map(ToString::to_string)));
    let others = config.verify.as_ref().map_or(0, |verify| u64::from(verify.against.is_some()))
        + u64::from(config.shadow.is_some());
    let all = config.backend == Choice::Auto || calibration::is_asked();
    let mut node = Node {
        config: config.to_json(),
        given: given_text.collect(),
        graph: AnyPath::new(&cx.folders.graph),
        allowed: cx.folders.allowed.iter().map(|folder| AnyPath::new(folder)).collect(),
        calibrate: calibration::is_asked(),
        dead: Vec::new(),
        runtimes: others + if all { 3 } else { 1 },
        threads: config.threads.clamp(1, 256) as u64,
        items: config.batch.max as u64,
        item: given
            .inputs()
            .filter_map(|(_, spec)| spec?.max_bytes())
            .fold(0, |sum, bytes| sum.saturating_add(bytes as u64)),
    };
    let path = cx.folders.input(model).unwrap_or_default();
    let case_path = config.verify.as_ref().and_then(|verify| cx.folders.input(verify.case.as_ref()?).ok());
    let files: Vec<&Path> = std::iter::once(path.as_path()).chain(case_path.as_deref()).collect();
    let mut is_again = false;
    loop {
        // Read here where what was found is kept by content, and handed on: what is looked up is what runs.
        let file = if is_kept(&node) { Some(read_model(model, cx)?) } else { None };
        let place = Place::of(&node, &files, file.as_ref(), case.as_ref().map(|(case, _)| case));
        let (record, note) = match place.find().filter(|_| !is_again) {
            Some((record, note)) => (record, note),
            None => match ask(&program, &request(cx.trials, &path, Task::Plan(node.clone()))).and_then(understood) {
                Ok(found) => {
                    let found: Result<Record, PlanErrors> = found;
                    let record = found?;
                    place.keep(&record);
                    (record, None)
                }
                Err(died) => {
                    let sentence = died.sentence(&format!("`{model}`"));
                    let is_dead = |name: &String| node.dead.iter().any(|(dead, _)| dead == name);
                    match died.runtime.filter(|name| config.backend == Choice::Auto && !is_dead(name)) {
                        Some(runtime) => node.dead.push((runtime, sentence)),
                        None => {
                            let mut errors = PlanErrors::default();
                            errors.at("model", sentence).help(died.help);
                            return Err(errors);
                        }
                    }
                    continue;
                }
            },
        };
        let steps = Steps::replaying(record, node.dead.clone());
        let planned = choose(config, model, given, cx, case.clone(), &steps, file);
        if steps.is_changed() && !is_again {
            is_again = true;
            continue;
        }
        return planned.map(|plan| match note {
            Some(note) => plan.note(note),
            None => plan,
        });
    }
}

/// Whether what is found out about a node is kept by the content of its files. What is to be measured is not looked up, and what died
/// may be mended by now.
fn is_kept(node: &Node) -> bool {
    cache::folder().is_some() && !node.calibrate && node.dead.is_empty()
}

/// Where what a trial found is kept: as long as the process lives, and in the folder for compiled models.
struct Place {
    /// What was asked, and which files were there.
    name: String,
    /// The same by content, where there is a folder.
    key: Option<cache::Key>,
}

/// What was found in this process, the newest last.
static KEPT: Mutex<Vec<(String, Record)>> = Mutex::new(Vec::new());
/// So many are kept.
const MOST_KEPT: usize = 64;

impl Place {
    fn of(node: &Node, files: &[&Path], file: Option<&ModelFile>, case: Option<&Case>) -> Self {
        let asked = serde_json::to_string(node).unwrap_or_default();
        let stamp = |path: &Path| {
            let about = path.metadata().ok()?;
            let time = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(format!("{} {} {time:?}", path.display(), about.len()))
        };
        let stamps: Vec<String> = files.iter().map(|path| stamp(path).unwrap_or_default()).collect();
        let name = format!("{asked}\n{}", stamps.join("\n"));
        Place { name, key: file.map(|file| Place::key(node, file, case)) }
    }

    fn key(node: &Node, file: &ModelFile, case: Option<&Case>) -> cache::Key {
        let mut parts = vec!["trial".to_string(), node.config.to_string(), format!("{:?}", node.given), file.sum()];
        parts.extend(case.map(Case::digest));
        let versions = crate::candidate::Candidate::all();
        parts.extend(versions.iter().map(|candidate| format!("{} {}", candidate.name, candidate.version())));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        cache::Key::of_trial(&parts)
    }

    /// What was found before, and what the plan says of that.
    fn find(&self) -> Option<(Record, Option<String>)> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, record)) = kept.iter().find(|(name, _)| *name == self.name) {
            return Some((record.clone(), None));
        }
        drop(kept);
        let (folder, key) = (cache::folder()?, self.key.as_ref()?);
        let cache::Found::Entry(bytes) = cache::read(folder, key) else { return None };
        let mut record: Record = serde_json::from_slice(&bytes).ok()?;
        // What this process compiles is its own to say.
        record.forget(crate::infer::COMPILED);
        Some((record, Some(format!("tried before, and what came of it found in {}", folder.display()))))
    }

    fn keep(&self, record: &Record) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(name, _)| *name != self.name);
        if kept.len() == MOST_KEPT {
            kept.remove(0);
        }
        kept.push((self.name.clone(), record.clone()));
        drop(kept);
        if let (Some(folder), Some(key), Ok(text)) = (cache::folder(), &self.key, serde_json::to_vec(record)) {
            // Where it cannot be written, the next start tries again, which is all it would have spared.
            let _ = cache::write(folder, key, &text);
        }
    }
}

#[cfg(all(test, feature = "rten"))]
mod tests {
    use super::*;
    use crate::onnx::tests::{external, model};
    use answer::Heard;
    use limen::Folders;
    use rten_onnx::onnx::DataType as D;
    use std::cell::RefCell;

    thread_local! {
        /// The folder whose files go when a runtime is about to load a model, and how often that was.
        static FOLDER: RefCell<(PathBuf, usize)> = RefCell::default();
    }

    fn remove_files(heard: &Heard) {
        if matches!(heard, Heard::Doing { what, .. } if what == "loaded it") {
            FOLDER.with_borrow_mut(|(folder, times)| {
                *times += 1;
                for name in ["m.onnx", "m.onnx.data"] {
                    let _ = std::fs::remove_file(folder.join(name));
                }
            });
        }
    }

    /// What is checked, compared with a checksum and loaded by each runtime was read once: nobody misses the files by then.
    #[test]
    fn a_models_files_are_read_once() {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        let beside = model(&[x], &[y], &[external("w", &[2], "m.onnx.data", 0, 8)], &["y = Add x w"]);
        let alone = model(&[x], &[y], &[], &["y = Relu x"]);
        for (file, config, loads) in [
            (&alone, serde_json::json!({ "model": "m.onnx", "sha256": crate::weights::sha256(&alone) }), 1),
            (&beside, serde_json::json!({ "model": "m.onnx" }), 1),
            (&beside, serde_json::json!({ "model": "m.onnx", "backend": "auto" }), 1),
            (&beside, serde_json::json!({ "model": "m.onnx", "verify": { "against": "rten" } }), 2),
            (
                &beside,
                serde_json::json!({ "model": "m.onnx", "verify": { "against": "rten" }, "shadow": { "backend": "rten" } }),
                3,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("m.onnx"), file).unwrap();
            std::fs::write(folder.path().join("m.onnx.data"), [0; 8]).unwrap();
            FOLDER.set((folder.path().into(), 0));
            let folders = Folders { graph: folder.path().into(), ..Folders::default() };
            let cx = Planning { node: "m", folders: &folders, trials: &Trials::default() };
            let steps = Steps::recording(Vec::new(), remove_files);
            let text = config.to_string();
            let config: Config = serde_json::from_value(config).unwrap();
            let planned = choose(&config, "m.onnx", &Given::default(), &cx, None, &steps, None);
            assert!(planned.is_ok(), "{text}: {planned:?}");
            assert!(!folder.path().join("m.onnx").exists(), "{text}");
            assert!(FOLDER.take().1 >= loads, "{text}");
        }
    }

    /// What was looked up by its checksum is what runs, also when another file has taken its place since.
    #[test]
    fn a_file_that_was_read_is_not_read_again() {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, model(&[x], &[y], &[], &["y = Relu x"])).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let cx = Planning { node: "m", folders: &folders, trials: &Trials::default() };
        let config: Config = serde_json::from_value(serde_json::json!({ "model": "m.onnx" })).unwrap();
        let file = read_model("m.onnx", &cx).unwrap();
        std::fs::write(&path, "none").unwrap();
        let plan = |file| choose(&config, "m.onnx", &Given::default(), &cx, None, &Steps::default(), file);
        assert!(plan(Some(file)).is_ok());
        assert!(format!("{:?}", plan(None).unwrap_err()).contains("this is text, not an ONNX model"));
    }
}
