//! Checksums of files.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares a file's SHA-256 with the expected one.
pub(crate) fn check_sum(found: &str, expected: &str) -> Result<(), String> {
    if expected.eq_ignore_ascii_case(found) { Ok(()) } else { Err(format!("has the SHA-256 {found}, not {expected}")) }
}
