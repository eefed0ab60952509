//! A value from outside the file, which is what its reader expects: text, a number, nothing.

use super::{Tree, Value};
use std::sync::{Arc, OnceLock};

/// A value substituted from outside the file.
#[derive(Clone, Debug)]
pub(crate) struct Substituted {
    /// The value.
    text: String,
    /// How the file writes it, if the value is secret.
    written: Option<String>,
    /// How it was read, by any of its clones.
    read: Arc<Reads>,
}

/// How a value was read; each is set at the first read of its kind.
#[derive(Debug, Default)]
struct Reads {
    text: OnceLock<()>,
    value: OnceLock<()>,
}

impl Substituted {
    pub(crate) fn new(text: String, written: Option<String>) -> Self {
        Substituted { text, written, read: Arc::default() }
    }

    /// The characters, without recording a read.
    pub(crate) fn characters(&self) -> &str {
        &self.text
    }

    /// How the file writes it, if the value is secret.
    pub(crate) fn written(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// Reads it as text.
    pub(crate) fn text(&self) -> &str {
        let _ = self.read.text.set(());
        &self.text
    }

    /// Reads it as a plain scalar of the same text.
    pub(super) fn value(&self) -> Value {
        let _ = self.read.value.set(());
        self.plain()
    }

    /// Reads it as nothing, if a plain scalar of the same text would be null; else it stays unread.
    pub(super) fn null(&self) -> Option<()> {
        (self.plain() == Value::Null).then(|| {
            let _ = self.read.value.set(());
        })
    }

    pub(super) fn plain(&self) -> Value {
        // A structure, a comment or malformed YAML counts as text: a substituted value cannot add
        // structure to the file.
        match Tree::parse(&self.text, "").map(|tree| tree.value) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_)))
                if !self.text.contains(['#', '}']) =>
            {
                value
            }
            _ => Value::Text(self.text.clone()),
        }
    }

    /// How it was read, or the only way in which it can be read; `None` if it is still ambiguous.
    pub(super) fn settled(&self) -> Option<Value> {
        match (self.read.text.get(), self.read.value.get(), self.plain()) {
            (_, _, text @ Value::Text(_)) => Some(text),
            (Some(()), None, _) => Some(Value::Text(self.text.clone())),
            (None, Some(()), value) => Some(value),
            _ => None,
        }
    }
}

impl PartialEq for Substituted {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.written == other.written
    }
}
