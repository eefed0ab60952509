//! The errors of a model.

use limen::backend::BackendError;

/// The most errors of a model that are reported; further ones are counted.
const MAX_ERRORS: usize = 16;

/// The errors of a model: the first as messages, the rest as a number.
#[derive(Default)]
pub(super) struct ModelProblems {
    messages: Vec<String>,
    more: usize,
}

impl ModelProblems {
    pub(super) fn push(&mut self, why: impl FnOnce() -> String) {
        if self.messages.len() < MAX_ERRORS {
            self.messages.push(why());
        } else {
            self.more += 1;
        }
    }

    /// # Errors
    /// All errors, if there are any.
    pub(super) fn into_result(mut self) -> Result<(), BackendError> {
        if self.more > 0 {
            self.messages.push(format!("and {} more", self.more));
        }
        if self.messages.is_empty() { Ok(()) } else { Err(BackendError::Model(self.messages.join("; "))) }
    }
}
