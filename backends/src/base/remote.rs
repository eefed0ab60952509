//! Addresses of other machines, where a file is asked for.

/// Refuses what is not a file, by name.
pub(crate) fn remote(file: &str) -> Result<(), String> {
    let schemes = ["http://", "https://", "s3://", "gs://", "hf://"];
    match schemes.iter().find(|scheme| file.starts_with(**scheme)) {
        Some(scheme) => Err(format!(
            "`{file}`: nothing is fetched over `{scheme}`, so that a run needs no network and can be repeated; fetch it \
             first, and say what it must be with `sha256`"
        )),
        None => Ok(()),
    }
}
