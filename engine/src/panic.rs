//! What is said of a panic of node code.

use std::cell::RefCell;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic hook that notes where a node panicked, so that the report can say so, and keeps the thread's usual output
/// quiet. The engine installs none by itself; `limen-run` installs this one:
///
/// ```
/// std::panic::set_hook(Box::new(limen::panic_hook));
/// # let _ = std::panic::take_hook();
/// ```
pub fn panic_hook(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}:{}", l.file(), l.line(), l.column()));
    PANIC.with_borrow_mut(|slot| *slot = place);
    if std::thread::current().name().is_none_or(|name| !name.starts_with("limen-")) {
        eprintln!("{info}");
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
