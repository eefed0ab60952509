//! What a program asks of the kinds that run models.

use limen::node::Planning;
use std::path::PathBuf;

/// What a program asks of the kinds that run models, for every graph that is planned with a registry
/// ([`register_with`](crate::register_with)).
///
/// A program may plan graphs with different options at the same time; models are shared only between graphs of one `cache`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendOptions {
    /// The folder in which compiled models are kept, what [trials](crate::trial) of models found, and how long each backend takes. It
    /// is made when the first of these is written. Without it they are forgotten when the process ends.
    pub cache: Option<PathBuf>,
    /// Whether planning measures every backend on every model, and keeps the times in `cache` for `backend: auto` to go by.
    pub calibrate: bool,
    /// ONNX Runtime's library. By default the one that this process has loaded; before that the one in the environment's
    /// `ORT_DYLIB_PATH`, else the one that the system finds by its usual name. A process loads only one: where it has loaded another file
    /// than this, the backend `ort` is unavailable.
    pub onnxruntime: Option<PathBuf>,
}

impl BackendOptions {
    /// The options of the registry that a node is planned with.
    pub(crate) fn of<'a>(cx: &Planning<'a>) -> &'a BackendOptions {
        static DEFAULT: BackendOptions = BackendOptions { cache: None, calibrate: false, onnxruntime: None };
        cx.extensions.get().unwrap_or(&DEFAULT)
    }
}
