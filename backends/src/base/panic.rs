//! Panics of foreign code, as sentences.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code and turns its panic into a sentence.
///
/// What the code was working on is dropped or never looked at again after a panic, so nothing half-changed is seen.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("it panicked: {}", text.unwrap_or("without a message"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_sentences() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| panic!("at {}", 7)), Err::<(), _>("it panicked: at 7".into()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("it panicked: without a message".into()));
    }
}
