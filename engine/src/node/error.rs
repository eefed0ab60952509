//! Errors of nodes, from building them and from their calls.

use crate::base::policy::OnError;
use crate::host::files::FileError;
use std::fmt;
use std::path::PathBuf;

/// An error of one node: it could not be built, or one of its calls failed.
///
/// The node's `on_error` policy, not the error, decides what happens next, except that [`NodeErrorKind::DiskFull`] has a policy of its own. One
/// pointer wide, so that the result of a
/// successful call travels in registers: it is checked once per message.
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
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A disk has no room for what a node writes. A run goes on without what does not fit, unless `then` says otherwise.
    #[error("{}: {source}", .path.display())]
    DiskFull {
        /// The file.
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
    #[error("{what}: {size} is more than the {bound} that were planned; raise {key}")]
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
    Backend(#[from] crate::node::backend::BackendError),
    /// The node emitted more than it declared while planning.
    #[error("port `{port}` was given more than the {bound} messages a call it declared")]
    EmitsBound {
        /// The output port.
        port: String,
        /// The declared bound.
        bound: usize,
    },
    /// An output with `when_full: fail` found its edge full.
    #[error("edge `{edge}` is full and its policy is `fail`")]
    EdgeFull {
        /// The edge.
        edge: String,
    },
    /// `set` of a name the node does not have.
    #[error("no setting `{name}`")]
    UnknownSetting {
        /// The name.
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
            FileError::Outside(why) | FileError::Irregular(why) => NodeError::input("path", why),
        }
    }
}
