//! The settings of the kinds that run models.

use limen::node::Planning;
use limen::policy::Isolation;
use std::borrow::Cow;
use std::path::PathBuf;

/// The settings of the kinds that run models, for every graph that is planned with a registry
/// ([`register_with`](crate::register_with)).
///
/// A program may plan graphs with different options at the same time; models are shared only
/// between graphs of one `cache`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendOptions {
    /// The folder for compiled models, results of [trials](crate::trial) and measured times of the
    /// backends. It is created when the first of these is written. Without it they are kept in
    /// memory only, until the process ends.
    pub cache: Option<PathBuf>,
    /// Whether planning measures every backend on every model and stores the times in `cache`, by
    /// which `backend: auto` ranks the backends. Has no effect without `cache`.
    pub calibrate: bool,
    /// The path of ONNX Runtime's library. By default the library that this process has loaded; if
    /// it has loaded none, the one in the environment's `ORT_DYLIB_PATH`, else the one that the
    /// system finds by its usual name. A process can load only one: if it has loaded another file,
    /// the backend `ort` is unavailable.
    pub onnxruntime: Option<PathBuf>,
    /// The path of ONNX Runtime's plugin for WebGPU, for `backend: ort` with `provider: webgpu`. By
    /// default the one that this process has loaded; a process can load only one. A graph file
    /// cannot name it, because loading a library runs its code.
    pub onnxruntime_plugin: Option<PathBuf>,
    /// Whether the backend `wgpu`, and `ort` with `provider: webgpu`, may take an adapter that
    /// computes on the CPU, as Mesa's lavapipe does. That is slower than every other backend, and
    /// for tests.
    pub allow_software: bool,
    /// The GPU that the backends `wgpu` and `cuda` take: its number among those of the backend, or
    /// a part of its name, in any case. By default `wgpu` takes an adapter of the fastest kind, and
    /// `cuda` the first GPU.
    pub gpu: Option<String>,
    /// Whether kernels of a graph may run (`kind: kernel`): programs for a device, which the graph
    /// must allow, too.
    pub allow_kernels: bool,
    /// Whether the device `cuda` is used in a process of its own, which may end without ending this
    /// one. A graph may ask for it, too (`run: { isolation: process }`). That process is this
    /// program, so `main` has to call [`trial::serve`](crate::trial::serve) first.
    pub isolation: Isolation,
    /// Whether an output that differs from that of `verify.against` by more than the tolerance is a
    /// note of the plan, which begins with [`BEYOND_TOLERANCE`], instead of an error: for a program
    /// that shows the whole comparison.
    pub report_differences: bool,
}

/// The beginning of a note about an output that differs by more than the tolerance.
pub const BEYOND_TOLERANCE: &str = "beyond the tolerance: ";

impl BackendOptions {
    /// The options of the registry that a node is planned with.
    #[doc(hidden)]
    pub fn of<'a>(cx: &Planning<'a>) -> Cow<'a, BackendOptions> {
        static DEFAULT: BackendOptions = BackendOptions {
            cache: None,
            calibrate: false,
            onnxruntime: None,
            onnxruntime_plugin: None,
            allow_software: false,
            gpu: None,
            allow_kernels: false,
            isolation: Isolation::None,
            report_differences: false,
        };
        let options = cx.extensions.get().unwrap_or(&DEFAULT);
        match cx.isolation {
            Isolation::Process => Cow::Owned(BackendOptions { isolation: Isolation::Process, ..options.clone() }),
            _ => Cow::Borrowed(options),
        }
    }
}
