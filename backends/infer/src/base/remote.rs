//! URLs where a file is expected.

/// Refuses URLs: files are read from disk only.
///
/// # Errors
/// If it is one.
pub fn refuse_remote(file: &str) -> Result<(), String> {
    let schemes = ["http://", "https://", "s3://", "gs://", "hf://"];
    match schemes.iter().find(|scheme| file.starts_with(**scheme)) {
        Some(scheme) => Err(format!(
            "`{file}`: nothing is fetched over `{scheme}`, so that a run needs no network and can be repeated; fetch it \
             first, and give its checksum in `sha256`"
        )),
        None => Ok(()),
    }
}
