//! What is wrong with a model.

use limen::backend::BackendError;

/// Problems of one model that are told; the others are counted.
const MOST_WRONG: usize = 16;

/// What is wrong with a model: the first of it in words, the rest as a number.
#[derive(Default)]
pub(super) struct Wrong {
    told: Vec<String>,
    more: usize,
}

impl Wrong {
    pub(super) fn push(&mut self, why: impl FnOnce() -> String) {
        if self.told.len() < MOST_WRONG {
            self.told.push(why());
        } else {
            self.more += 1;
        }
    }

    /// # Errors
    /// Everything that is wrong.
    pub(super) fn into_result(mut self) -> Result<(), BackendError> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        if self.told.is_empty() { Ok(()) } else { Err(BackendError::Model(self.told.join("; "))) }
    }
}
