//! Errors of nodes, from building them and from their calls, and of backends.

use crate::base::policy::OnError;
use crate::host::files::FileError;
use std::fmt;
use std::path::PathBuf;

/// An error of one node: it could not be built, or one of its calls failed.
///
/// The node's `on_error` policy decides what happens next, except that [`NodeErrorKind::DiskFull`]
/// has a policy of its own. `?` converts the errors of tensors and of the operating system.
///
/// ```
/// use limen::node::{NodeError, NodeErrorKind};
/// let error = NodeError::input("frame 7", "16 bytes are missing");
/// assert_eq!(error.to_string(), "frame 7: 16 bytes are missing");
/// assert!(matches!(error.kind(), NodeErrorKind::Input { .. }));
/// ```
// One pointer wide, so that the result of a successful call travels in registers.
pub struct NodeError(Box<NodeErrorKind>);

impl NodeError {
    /// Returns the kind of error.
    pub fn kind(&self) -> &NodeErrorKind {
        &self.0
    }

    /// What happens, if the node's `on_error` does not decide.
    pub(crate) fn then(&self) -> Option<OnError> {
        match *self.0 {
            NodeErrorKind::DiskFull { then, .. } => Some(then),
            _ => None,
        }
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl<E: Into<NodeErrorKind>> From<E> for NodeError {
    #[cold]
    fn from(error: E) -> Self {
        NodeError(Box::new(error.into()))
    }
}

/// The kinds of [`NodeError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A disk has no room for what a node writes. A run goes on without what does not fit, unless
    /// `then` says otherwise.
    #[error("{}: {source}", .path.display())]
    DiskFull {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
        /// What happens, whatever the node's `on_error` is.
        then: OnError,
    },
    /// The content of a file, device or message is not what it should be.
    #[error("{what}: {why}")]
    Input {
        /// The input, for example a file name.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A value larger than the bound planned for it.
    #[error("{what} must be at most the planned {bound}, got {size}: write a larger `{key}`")]
    TooLarge {
        /// What is too large.
        what: String,
        /// How large it is.
        size: usize,
        /// How large it may be.
        bound: usize,
        /// The key to write.
        key: &'static str,
    },
    /// A tensor was used with the wrong type, shape or layout.
    #[error(transparent)]
    Tensor(#[from] crate::message::tensor::TensorError),
    /// The inference backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The node emitted more than it declared while planning.
    #[error("port `{port}` must send at most {bound} messages per call, as declared, got more")]
    EmitsBound {
        /// The output port.
        port: String,
        /// The declared bound.
        bound: usize,
    },
    /// An output with `when_full: fail` found its edge full.
    #[error("edge `{edge}` is full (`when_full: fail`)")]
    EdgeFull {
        /// The edge, as `node/port -> node/port`.
        edge: String,
    },
    /// `set` of a name the node does not have.
    #[error("unknown setting `{name}`")]
    UnknownSetting {
        /// The requested name of the setting.
        name: String,
    },
    /// A call of the operating system failed, on a socket or a device.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// Any other error.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl NodeError {
    /// Creates an error about a file.
    pub fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        NodeErrorKind::File { path: path.into(), source }.into()
    }

    /// Creates an error about the content of an input.
    pub fn input(what: impl Into<String>, why: impl fmt::Display) -> Self {
        NodeErrorKind::Input { what: what.into(), why: why.to_string() }.into()
    }

    /// Creates any other error.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        NodeErrorKind::Other(error.into()).into()
    }
}

impl From<FileError> for NodeError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::System(path, error) => NodeError::file(path, error),
            FileError::Outside(why) | FileError::Irregular(why) | FileError::NotFetched { message: why, .. } => {
                NodeError::input("path", why)
            }
        }
    }
}

/// An error of a backend or a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend cannot work on this machine.
    #[error("not available: {0}")]
    Unavailable(String),
    /// The model cannot be read.
    #[error("cannot load the model: {0}")]
    Model(String),
    /// The model needs a feature the backend does not support.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A call failed.
    #[error("inference failed: {0}")]
    Call(String),
    /// The memory of a device has no room for a call. One of fewer items may have.
    #[error("the device has no memory left: {0}")]
    OutOfMemory(String),
    /// A call failed because its device was lost. The next call of the node, if its `on_error`
    /// allows one, opens it again.
    #[error("the device was lost: {0}")]
    DeviceLost(String),
    /// A call has no result because the call that wrote one of its inputs failed. That call is
    /// reported, this one is not.
    #[error("the call that wrote an input has failed")]
    InputLost,
    /// The model's results differ from the recorded ones.
    #[error("output `{output}` differs from the recorded output: {difference}")]
    Verify {
        /// Name of the model's output.
        output: String,
        /// Where and by how much.
        difference: String,
    },
}

impl BackendError {
    /// Creates the error of a failed call.
    pub fn call(error: impl fmt::Display) -> Self {
        BackendError::Call(error.to_string())
    }
}
