//! ONNX models on the CPU, through ONNX Runtime: the widest set of operators and the fastest
//! kernels.
//!
//! ONNX Runtime is a native library that is loaded on first use: from the path in
//! [`BackendOptions::onnxruntime`], else from the one in the environment's `ORT_DYLIB_PATH`, else
//! by its usual name from the system's search path. A graph file cannot name it, because loading a
//! library runs its code. It has to be version 1.22 or later. A process loads one library and never
//! unloads it; for a graph that names another file, `ort` is unavailable.
//!
//! Models run on the CPU; with `provider: webgpu` through an execution provider in a library of its
//! own, the plugin ([`webgpu`]); with `provider: cuda` or `tensorrt` through those of ONNX
//! Runtime's package for GPUs ([`nvidia`]).
//!
//! # Threads
//! With one thread a call runs on the thread that makes it. More threads are created while
//! planning, before any thread is pinned. They spin between the operators of a call, which saves a
//! third of a call of some milliseconds, and sleep between calls.

mod nvidia;
mod plugin;
mod values;
mod webgpu;

pub use self::nvidia::{NvidiaProvider, OrtCuda, OrtNvidiaRuntime, OrtTensorrt};
pub(crate) use self::plugin::plugin_for;
use self::values::{give, value};
pub use self::webgpu::OrtWebgpuRuntime;
use crate::base::{BackendOptions, caught};
use crate::cache::{self, CacheKey, CacheLookup, Compiled};
use crate::onnx::{
    Artifact, Call, DataFile, Deviation, Elem, Onnx, Op, Runner, Runtime, Take, aligns_fractional_corners,
    has_same_padding, with_left_out,
};
use ::ort::LoadDynamicError;
use ::ort::environment::Environment;
use ::ort::logging::LogLevel;
use ::ort::session::builder::{GraphOptimizationLevel, PrepackedWeights, SessionBuilder};
use ::ort::session::{Session, SessionInputValue};
use limen::backend::{BackendError, BatchRef, Capabilities, Ops, SessionMetadata};
use limen::files::{InputFile, real_path};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The backend `ort`.
pub type Ort = Onnx<OrtRuntime>;

/// The most entries of a folder that are searched for a library.
const MAX_LISTED: usize = 1000;

/// The library of this process. ort and ONNX Runtime support only one.
static LIBRARY: Mutex<Library> = Mutex::new(Library { loaded: None, failed: BTreeMap::new() });

/// The state of ONNX Runtime's library in this process.
struct Library {
    /// The loaded file, and its environment or why that could not be created. Never unloaded.
    loaded: Option<(PathBuf, Result<Environment, String>)>,
    /// Files that could not be loaded, and why.
    failed: BTreeMap<PathBuf, String>,
}

fn lock_library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the library that a trial has to load: that of the options, else the one that this
/// process has loaded; `None` if neither.
pub(crate) fn library_for(options: &BackendOptions) -> Option<PathBuf> {
    options.onnxruntime.clone().or_else(|| Some(lock_library().loaded.as_ref()?.0.clone()))
}

/// Returns ONNX Runtime's environment, and loads the library on first use.
fn environment(options: &BackendOptions) -> Result<Environment, BackendError> {
    lock_library().environment(options.onnxruntime.as_deref()).map_err(BackendError::Unavailable)
}

impl Library {
    fn environment(&mut self, asked: Option<&Path>) -> Result<Environment, String> {
        // A path is relative to the working directory; a bare name is left to the system's search.
        let absolute = |path: &Path| match is_bare(path) {
            true => path.to_path_buf(),
            false => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
        };
        let asked = asked.map(absolute);
        if let Some((loaded, environment)) = &self.loaded {
            return match asked {
                Some(asked) if asked != *loaded && (is_bare(loaded) || real_path(&asked) != real_path(loaded)) => {
                    Err(format!(
                        "ONNX Runtime: `{0}` is not loaded, because this process has loaded `{1}` and can load only one library: \
                         name `{1}` for this graph, or run this graph in another process",
                        asked.display(),
                        loaded.display()
                    ))
                }
                _ => environment.clone(),
            };
        }
        let variable = || std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty()).map(PathBuf::from);
        let usual = || format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX).into();
        let path = asked.or_else(variable).unwrap_or_else(usual);
        if let Some(why) = self.failed.get(&path) {
            return Err(why.clone());
        }
        let unusable = |why: String| {
            format!(
                "ONNX Runtime is not loaded: {why}. Install the library, for example with `pip install onnxruntime`, and \
                 name its file `onnxruntime/capi/libonnxruntime.so.…` with `--onnxruntime FILE` or in ORT_DYLIB_PATH"
            )
        };
        let load = || match no_library(&path) {
            Some(why) => Err(why),
            None => ::ort::init_from(&path).map_err(|error| match error {
                LoadDynamicError::Dlopen { .. } if is_bare(&path) => format!("`{}` was not found", path.display()),
                error => error.to_string(),
            }),
        };
        let begun = caught(load).and_then(|result| result);
        let builder = match begun {
            Ok(builder) => builder.with_name("limen").with_telemetry(false),
            Err(why) => {
                let why = unusable(why);
                self.failed.insert(path, why.clone());
                return Err(why);
            }
        };
        let environment = caught(|| builder.build().map_err(|error| error.to_string())).and_then(|result| result);
        let environment = environment.map_err(unusable);
        if let Ok(environment) = &environment {
            // Errors are returned and reported by the engine; ONNX Runtime would also print them to
            // stderr.
            environment.set_log_level(LogLevel::Fatal);
        }
        self.loaded = Some((path, environment.clone()));
        environment
    }
}

/// What ONNX Runtime 1.22 to 1.32 computes otherwise than ONNX.
const DEVIATIONS: &[Deviation] = &[
    Deviation { op: "AveragePool", concerns: pads_without_dilation, what: PADS_WITHOUT_DILATION },
    Deviation { op: "LpPool", concerns: pads_without_dilation, what: PADS_WITHOUT_DILATION },
    Deviation { op: "MaxPool", concerns: pads_without_dilation, what: PADS_WITHOUT_DILATION },
    Deviation {
        op: "MaxUnpool",
        concerns: |op| op.has_input(2),
        what: "applies its indices to `output_shape` instead of the shape without padding",
    },
    Deviation {
        op: "Resize",
        concerns: aligns_fractional_corners,
        what: "aligns corners to the rounded length if the scales produce a fractional length",
    },
];

const PADS_WITHOUT_DILATION: &str = "ignores `dilations` in the padding of `SAME_UPPER` and `SAME_LOWER`";

fn pads_without_dilation(op: &Op) -> bool {
    has_same_padding(op) && op.ints("dilations").iter().any(|dilation| *dilation != 1)
}

/// Whether a path is only a name, which the system looks for itself.
fn is_bare(path: &Path) -> bool {
    path.components().count() == 1
}

/// Returns why there is no library at a path; `None` if only loading it shows.
fn no_library(path: &Path) -> Option<String> {
    let shown = path.display();
    if is_bare(path) {
        return None;
    }
    if path.is_dir() {
        let names = std::fs::read_dir(path).into_iter().flatten().take(MAX_LISTED).flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        return Some(match names.find(|name| name.starts_with("libonnxruntime.so")) {
            Some(name) => format!("`{shown}` is a folder that contains `{name}`"),
            None => format!("`{shown}` is a folder"),
        });
    }
    let mut begin = [0; 4];
    match InputFile::open(path).map(|mut file| file.read_exact(&mut begin)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!("`{shown}` does not exist")),
        Err(error) => Some(format!("`{shown}` cannot be read: {error}")),
        Ok(read) => (read.is_err() || begin != *b"\x7fELF").then(|| format!("`{shown}` is not a library")),
    }
}

/// Returns why no session was created on a device, and what to do; the error as it is if nothing is
/// known of it.
fn why_no_session(device: &str, error: &str) -> BackendError {
    if !error.contains("fallback to CPU EP has been explicitly disabled") {
        return BackendError::Unsupported(error.into());
    }
    let own = if device == "webgpu" { "wgpu" } else { "cuda" };
    BackendError::Unsupported(format!(
        "`provider: {device}` does not support some operators of the model, which ONNX Runtime does not name: write \
         `cpu_fallback: true` to run these operators on the CPU, `backend: {own}`, or `provider: cpu`"
    ))
}

fn unsupported(error: impl Display) -> BackendError {
    BackendError::Unsupported(error.to_string())
}

/// A model for ONNX Runtime. Each thread has its own session; packed weights are shared.
pub struct OrtRuntime {
    model: Arc<Vec<u8>>,
    data: Data,
    packed: PrepackedWeights,
    made: Mutex<Made>,
    environment: Environment,
    /// The cache folder.
    cache: Option<PathBuf>,
    /// The key of the optimized model in the cache.
    key: CacheKey,
}

/// The optimized form of a model.
#[derive(Default)]
struct Made {
    /// From the cache on disk.
    optimized: Option<Vec<u8>>,
    compiled: Compiled,
}

impl Debug for OrtRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OrtRuntime")
    }
}

impl Runtime for OrtRuntime {
    const NAME: &'static str = "ort";
    const COMPILES: bool = false;
    const IS_LIBRARY: bool = true;
    type Shared = Home;
    type Runner = OrtRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        environment(options)?;
        let dtypes = Elem::readable(|elem, input| value(input, elem).is_ok());
        Ok(Capabilities::cpu(format!("ONNX Runtime {}", version()), dtypes, Ops::Unlisted))
    }

    /// The text that the library has about itself: its branch, commit, and flags of the compiler.
    fn build(options: &BackendOptions) -> String {
        environment(options).ok().and_then(|_| caught(::ort::info).ok()).unwrap_or_default().to_string()
    }

    /// Its kernels of `QLinearConv`, into which it fuses quantized convolutions, are fast; those of
    /// `ConvInteger` are not.
    fn is_slow_in_8_bits(operator: &str) -> bool {
        operator == "ConvInteger"
    }

    fn deviations() -> &'static [Deviation] {
        DEVIATIONS
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let environment = environment(options)?;
        let version = Self::build(options);
        let sums = artifact.outline.files.values().map(String::as_str).collect::<Vec<_>>().join(" ");
        let key = CacheKey::of(&[&artifact.outline.sha256, &sums, Self::NAME, &version, "cpu"]);
        let mut made = Made::default();
        let cache = options.cache.clone();
        match cache.as_deref().map(|folder| cache::read(folder, &key)) {
            Some(CacheLookup::Entry(bytes)) => made.optimized = Some(bytes),
            Some(CacheLookup::Damaged(why)) => made.compiled.warnings.push(format!("compiled the model again: {why}")),
            Some(CacheLookup::Nothing) | None => {}
        }
        let model = with_left_out(artifact.bytes, &artifact.outline.ops);
        let data = data(artifact.data);
        Ok(OrtRuntime { model, data, packed: PrepackedWeights::new(), made: Mutex::new(made), environment, cache, key })
    }

    fn share(&self, call: &Call) -> Result<Home, BackendError> {
        Ok(home(Opened::on_cpu(self.session(call.threads)?)))
    }

    fn runner(&self, home: &Home, call: &Call) -> Result<OrtRunner, BackendError> {
        OrtRunner::new(home, call, || Ok(Opened::on_cpu(self.session(call.threads)?)))
    }

    fn compiled(&self) -> Option<Compiled> {
        Some(self.made.lock().unwrap_or_else(PoisonError::into_inner).compiled.clone())
    }
}

/// The branch of the loaded library, which is its version.
fn version() -> &'static str {
    let about: &'static str = caught(::ort::info).unwrap_or_default();
    about.split(", ").find_map(|part| part.strip_prefix("git-branch=")).unwrap_or("unknown")
}

/// Files of weights, by their names in the model.
type Data = Vec<(String, Arc<[u8]>)>;

fn data(files: Vec<DataFile>) -> Data {
    files.into_iter().map(|file| (file.name, Arc::from(&file.bytes[..]))).collect()
}

/// Begins a session.
fn builder(
    environment: &Environment,
    data: &Data,
    threads: usize,
    level: GraphOptimizationLevel,
) -> Result<SessionBuilder, BackendError> {
    let mut builder = Session::builder(environment)
        .map_err(unsupported)?
        .with_intra_threads(threads)
        .map_err(unsupported)?
        .with_config_entry("session.force_spinning_stop", "1")
        .map_err(unsupported)?
        .with_optimization_level(level)
        .map_err(unsupported)?
        .with_log_level(LogLevel::Fatal)
        .map_err(unsupported)?;
    for (name, bytes) in data {
        builder = builder.with_external_initializer_file_in_memory(name, bytes.clone()).map_err(unsupported)?;
    }
    Ok(builder)
}

impl OrtRuntime {
    fn builder(&self, threads: usize, level: GraphOptimizationLevel) -> Result<SessionBuilder, BackendError> {
        builder(&self.environment, &self.data, threads, level)?
            .with_prepacked_weights(&self.packed)
            .map_err(unsupported)
    }

    fn session(&self, threads: usize) -> Result<Session, BackendError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Made { optimized, compiled } = &mut *made;
        if let Some(bytes) = optimized {
            match self.builder(threads, GraphOptimizationLevel::Disable)?.commit_from_memory(bytes) {
                Ok(session) => {
                    compiled.from_disk += 1;
                    return Ok(session);
                }
                Err(error) => {
                    let why = format!("compiled the model again: ONNX Runtime rejects the cached model: {error}");
                    compiled.warnings.push(why);
                    *optimized = None;
                }
            }
        }
        let begun = Instant::now();
        let mut builder = self.builder(threads, GraphOptimizationLevel::All)?;
        // Only the first compiled model is cached.
        let kept = match self.cache.as_deref().filter(|_| compiled.compiled == 0) {
            // The optimized model would refer to files of weights in the cache folder.
            Some(_) if !self.data.is_empty() => {
                compiled.warnings.push("the compiled model is not cached: the weights are in separate files".into());
                None
            }
            Some(folder) => match cache::room(folder) {
                Ok(room) => Some((folder, room)),
                Err(error) => {
                    compiled.warnings.push(not_kept(folder, &error));
                    None
                }
            },
            None => None,
        };
        if let Some((_, room)) = &kept {
            builder = builder.with_optimized_model_path(room).map_err(unsupported)?;
        }
        let session = builder.commit_from_memory(&self.model).map_err(unsupported);
        if let Some((folder, room)) = kept {
            let written = limen::files::read(&room, cache::MAX_BYTES).and_then(|bytes| match &session {
                Ok(_) => cache::write(folder, &self.key, &bytes),
                Err(_) => Ok(()),
            });
            let _ = std::fs::remove_file(&room);
            if let Err(error) = written {
                compiled.warnings.push(not_kept(folder, &error));
            }
        }
        let session = session?;
        compiled.compiled += 1;
        compiled.compile_ns += begun.elapsed().as_nanos() as u64;
        Ok(session)
    }
}

fn not_kept(folder: &Path, error: &std::io::Error) -> String {
    format!("the compiled model cannot be written to `{}`: {error}", folder.display())
}

/// A session, and where it computes.
struct Opened {
    /// `None` once it is released.
    session: Option<Session>,
    /// What its metadata say of the device.
    device: Arc<str>,
    /// Whether it is one of the plugin, whose sessions are used one at a time: see
    /// [`plugin::alone`].
    is_alone: bool,
}

impl Opened {
    fn on_cpu(session: Session) -> Self {
        Opened { session: Some(session), device: Arc::from("cpu"), is_alone: false }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _alone = self.is_alone.then(plugin::alone);
        self.session = None;
    }
}

/// Where a node's first session, created while planning, is between its runners: the trial returns
/// it, and the node takes it.
#[derive(Clone)]
pub struct Home(Arc<Mutex<Option<Opened>>>);

impl Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Home")
    }
}

fn home(opened: Opened) -> Home {
    Home(Arc::new(Mutex::new(Some(opened))))
}

impl Home {
    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model on one thread, through ONNX Runtime.
pub struct OrtRunner {
    /// `Some` until it is returned to `home`.
    opened: Option<Opened>,
    home: Home,
    elems: Vec<Elem>,
    /// The name of each output in the model, and its index in the session.
    outputs: Vec<(String, usize)>,
    threads: usize,
}

impl Debug for OrtRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrtRunner").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl OrtRunner {
    /// Takes the session that is at home, or else opens one.
    fn new(
        home: &Home,
        call: &Call,
        open: impl FnOnce() -> Result<Opened, BackendError>,
    ) -> Result<OrtRunner, BackendError> {
        let made = home.lock().take();
        let opened = match made {
            Some(opened) => opened,
            None => open()?,
        };
        let (inputs, outputs) = match &opened.session {
            Some(session) => (session.inputs(), session.outputs()),
            None => (&[][..], &[][..]),
        };
        let find = |name: &str, outlets: &[::ort::value::Outlet]| {
            let at = outlets.iter().position(|outlet| outlet.name() == name);
            at.ok_or_else(|| BackendError::Model(format!("ONNX Runtime does not find the tensor `{name}`")))
        };
        let found = call.inputs.iter().map(|input| Ok((find(&input.name, inputs)?, input.elem)));
        let found = found.collect::<Result<Vec<_>, BackendError>>()?;
        if found.iter().enumerate().any(|(at, (found, _))| at != *found) || found.len() != inputs.len() {
            return Err(BackendError::Model("ONNX Runtime and limen find different inputs in the model".into()));
        }
        let outputs = call.outputs.iter().map(|name| Ok((name.clone(), find(name, outputs)?)));
        let outputs = outputs.collect::<Result<_, BackendError>>()?;
        let elems = found.into_iter().map(|(_, elem)| elem).collect();
        Ok(OrtRunner { opened: Some(opened), home: home.clone(), elems, outputs, threads: call.threads })
    }
}

impl Runner for OrtRunner {
    fn run(&mut self, _: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        let values: Vec<SessionInputValue<'_>> =
            std::iter::zip(inputs, &self.elems).map(|(input, elem)| value(input, *elem)).collect::<Result<_, _>>()?;
        let opened = self.opened.as_mut().ok_or_else(|| BackendError::Call("the session has ended".into()))?;
        let session = opened.session.as_mut().ok_or_else(|| BackendError::Call("the session has ended".into()))?;
        // Before the outputs, so that they are released first.
        let _alone = opened.is_alone.then(plugin::alone);
        let outputs = session.run(&values[..]).map_err(BackendError::call)?;
        for (at, (name, found)) in self.outputs.iter().enumerate() {
            give(at, name, &outputs[*found], take)?;
        }
        Ok(())
    }

    fn metadata(&self) -> SessionMetadata {
        let device = self.opened.as_ref().map_or("", |opened| &opened.device);
        SessionMetadata { device: device.into(), threads: self.threads, ..SessionMetadata::default() }
    }
}

impl Drop for OrtRunner {
    fn drop(&mut self) {
        let opened = self.opened.take();
        // One that lies there is released after the lock of `home`.
        let _other = std::mem::replace(&mut *self.home.lock(), opened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::graphs;

    #[test]
    fn a_cached_model_that_ort_refuses_is_compiled_again() {
        let path = graphs("digits/digits.onnx");
        let artifact = || Artifact::parse(&path, std::fs::read(&path).unwrap()).unwrap();
        let runtime = OrtRuntime::load(artifact(), &BackendOptions::default()).unwrap();
        runtime.made.lock().unwrap().optimized = Some(b"no model of this version".to_vec());
        drop(runtime.session(1).unwrap());
        let found = runtime.compiled().unwrap();
        assert_eq!((found.compiled, found.from_disk, found.warnings.len()), (1, 0, 1), "{found:?}");
        assert!(
            found.warnings[0].starts_with("compiled the model again: ONNX Runtime rejects the cached model"),
            "{found:?}"
        );
        drop(runtime.session(1).unwrap());
        assert_eq!(runtime.compiled().unwrap().warnings.len(), 1, "reported once");

        let runtime = OrtRuntime::load(artifact(), &BackendOptions::default()).unwrap();
        runtime.made.lock().unwrap().optimized = Some(Arc::unwrap_or_clone(artifact().bytes));
        drop(runtime.session(1).unwrap());
        let found = runtime.compiled().unwrap();
        assert_eq!((found.compiled, found.from_disk, found.warnings.len()), (0, 1, 0), "{found:?}");
    }

    #[test]
    fn a_path_without_a_library_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("empty")).unwrap();
        std::fs::create_dir_all(at("capi")).unwrap();
        std::fs::write(at("capi/libonnxruntime.so.1.32.0"), "\x7fELF").unwrap();
        std::fs::write(at("array.npy"), "\u{93}NUMPY").unwrap();
        std::fs::write(at("short"), "x").unwrap();
        for (name, expected) in [
            ("none", Some("none` does not exist")),
            ("empty", Some("empty` is a folder")),
            ("capi", Some("capi` is a folder that contains `libonnxruntime.so.1.32.0`")),
            ("array.npy", Some("array.npy` is not a library")),
            ("short", Some("short` is not a library")),
            ("capi/libonnxruntime.so.1.32.0", None),
        ] {
            let said = no_library(&at(name));
            match expected {
                Some(expected) => {
                    assert!(said.as_ref().is_some_and(|said| said.contains(expected)), "{name}: {said:?}")
                }
                None => assert_eq!(said, None, "{name}"),
            }
        }
        assert_eq!(no_library(Path::new("libonnxruntime.so")), None, "the system looks for a name");
    }

    #[test]
    fn a_second_library_is_refused_with_the_name_of_the_first() {
        let options =
            |library: &Path| BackendOptions { onnxruntime: Some(library.into()), ..BackendOptions::default() };
        let found = OrtRuntime::probe(&BackendOptions::default()).unwrap();
        let loaded = library_for(&BackendOptions::default()).unwrap();
        assert_eq!(OrtRuntime::probe(&options(&loaded)), Ok(found));
        let elsewhere = Path::new("/nowhere/libonnxruntime.so");
        assert_eq!(
            library_for(&options(elsewhere)).as_deref(),
            Some(elsewhere),
            "a trial gets the library of the options"
        );
        let why = OrtRuntime::probe(&options(elsewhere)).unwrap_err().to_string();
        for part in ["`/nowhere/libonnxruntime.so` is not loaded", &*loaded.to_string_lossy(), "in another process"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}
