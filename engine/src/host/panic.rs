//! What is said of a panic of node code.

use crate::base::error::Escaped;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether a panic of this thread is caught by who says what came of it.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of others, such as a decoder's, whose panic is told by who called this: [`panic_hook`] says nothing of it.
///
/// # Errors
/// What the code panicked with.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result
}

/// A panic hook that notes where a node panicked, so that the report can say so, and keeps the thread's usual output
/// quiet, on the engine's threads and within [`catch_panic`]. The engine installs none by itself; `limen-run` installs this one:
///
/// ```
/// std::panic::set_hook(Box::new(limen::panic_hook));
/// # let _ = std::panic::take_hook();
/// ```
pub fn panic_hook(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}:{}", l.file(), l.line(), l.column()));
    PANIC.with_borrow_mut(|slot| *slot = place);
    let is_told = IS_CAUGHT.get() || std::thread::current().name().is_some_and(|name| name.starts_with("limen-"));
    if !is_told {
        eprintln!("{}", Escaped(&info.to_string()));
    }
}

/// A panic's text and, where [`panic_hook`] is installed, its place.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".into());
    match PANIC.with_borrow_mut(Option::take) {
        Some(place) => format!("panicked at {place}: {text}"),
        None => format!("panicked: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hook is the process's, so this is what it goes by, and not what it prints.
    #[test]
    fn a_panic_that_is_caught_is_told_once() {
        assert!(!IS_CAUGHT.get());
        let found = catch_panic(|| {
            assert!(IS_CAUGHT.get());
            let inner = catch_panic(|| panic!("inner"));
            assert!(inner.is_err() && IS_CAUGHT.get());
            panic!("outer");
        });
        let text = panic_text(&*found.unwrap_err());
        assert!(text.ends_with("outer") && !IS_CAUGHT.get(), "{text}");
        assert!(catch_panic(|| 3).is_ok_and(|n| n == 3));
    }
}
