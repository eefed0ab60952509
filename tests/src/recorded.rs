//! Results that are kept in files beside the tests.

use std::path::Path;

/// Returns whether a file holds this text. With `LIMEN_BLESS=1` the text is written to the file
/// first; read it before you commit it.
///
/// # Panics
/// When the file cannot be written.
#[expect(clippy::disallowed_methods, reason = "the files belong to the tests")]
pub fn is_recorded(path: &Path, text: &str) -> bool {
    if std::env::var_os("LIMEN_BLESS").is_some() {
        std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    std::fs::read_to_string(path).is_ok_and(|written| written == text)
}

/// Checks that a file holds this text, as [`is_recorded`].
///
/// # Panics
/// When the text differs, or cannot be written.
#[track_caller]
pub fn assert_recorded(path: &Path, text: &str) {
    assert!(
        is_recorded(path, text),
        "{} differs from the text now; LIMEN_BLESS=1 rewrites it:\n{text}",
        path.display()
    );
}
