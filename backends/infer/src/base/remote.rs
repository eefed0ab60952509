//! URLs where a file is expected.

/// Refuses URLs: files are read from disk only.
///
/// # Errors
/// If it is one.
pub fn refuse_remote(file: &str) -> Result<(), String> {
    let schemes = ["http://", "https://", "s3://", "gs://", "hf://"];
    match schemes.iter().any(|scheme| file.starts_with(*scheme)) {
        true => Err(format!("expected a local path, found `{file}`: download the file and write its path")),
        false => Ok(()),
    }
}
