//! Panics of third-party code as error messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs third-party code and turns its panic into an error message.
///
/// After a panic, callers drop what the code was working on or never look at it again, so nothing
/// half-changed is seen.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("the code panicked: {}", text.unwrap_or("without a message"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_messages() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| panic!("at {}", 7)), Err::<(), _>("the code panicked: at 7".into()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("the code panicked: without a message".into()));
    }
}
