//! Catches panics of node code and formats them for reports.

use crate::base::error::Escaped;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether a caller on this thread catches panics and reports them.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs foreign code, such as a decoder's, whose panics the caller reports; [`panic_hook`] prints
/// nothing for them.
///
/// # Errors
/// The panic's payload.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result
}

/// Leaves it to the callers on this thread to report its panics, until it ends.
pub(crate) fn report_by_caller() {
    IS_CAUGHT.set(true);
}

/// A panic hook that records where a node panicked, so that the report can include it. It prints
/// nothing on the engine's threads and within [`catch_panic`]. The engine installs no hook;
/// `limen-run` installs this one:
///
/// ```
/// std::panic::set_hook(Box::new(limen::panic_hook));
/// # let _ = std::panic::take_hook();
/// ```
pub fn panic_hook(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}:{}", l.file(), l.line(), l.column()));
    PANIC.with_borrow_mut(|slot| *slot = place);
    let is_reported = IS_CAUGHT.get() || std::thread::current().name().is_some_and(|name| name.starts_with("limen-"));
    if !is_reported {
        eprintln!("{}", Escaped(&info.to_string()));
    }
}

/// Returns a panic's message and, if [`panic_hook`] is installed, its place.
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

    /// Promise (output): A caught panic is reported once, where it is caught.
    ///
    /// The hook is global to the process, so this tests the flag that it reads.
    #[test]
    fn nested_catches_restore_the_flag_of_the_hook() {
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
