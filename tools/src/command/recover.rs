//! `limen-run recover`: a readable file from a recording that was not finished.

use crate::text::escape::one_line;
use limen::files::{InputFile, Target, names_folder};
use limen_recording::repair::{Repair, inspect, repair};
use std::io;
use std::path::{Path, PathBuf};

/// `drive-recovered.mcap` for `drive.mcap`.
fn recovered(file: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_os_string();
    name.push("-recovered");
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// Says what cannot be read of a file.
fn unreadable(found: &Repair) -> String {
    match &found.unreadable.first {
        Some((at, why)) if found.unreadable.bytes == 0 => format!("byte {at}: {}", one_line(why)),
        Some((at, why)) => {
            let (bytes, places) = (found.unreadable.bytes, found.unreadable.places);
            format!("{bytes} bytes cannot be read (places: {places}, first at byte {at}: {})", one_line(why))
        }
        None => "the index is missing".into(),
    }
}

/// Writes the intact messages of a recording into a new file and says what it did; writes nothing
/// if the recording is complete.
///
/// # Errors
/// As text: what cannot be read or written, or that there is nothing to recover.
pub(crate) fn recover(file: &Path, out: Option<&Path>) -> Result<String, String> {
    let text = |error: io::Error| one_line(&error.to_string()).to_string();
    let found = inspect(InputFile::open(file).map_err(text)?).map_err(text)?;
    let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let count =
        |found: &Repair| format!("{} of {}", plural(found.messages, "message"), plural(found.topics as u64, "topic"));
    let name = one_line(&file.to_string_lossy()).to_string();
    if found.unreadable.places == 0 && !found.unreadable.is_cut {
        return Ok(format!("{name} is complete: {}\n", count(&found)));
    }
    if found.messages == 0 {
        return Err(format!("no message can be recovered: {}", unreadable(&found)));
    }
    let to = out.map_or_else(|| recovered(file), Path::to_path_buf);
    let shown = one_line(&to.to_string_lossy()).to_string();
    let Some(new) = to.file_name().filter(|_| !names_folder(&to.to_string_lossy())) else {
        return Err(format!("expected the path of a file, found `{shown}`"));
    };
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if to.symlink_metadata().is_ok() {
        return Err(format!("`{shown}` already exists: name another file with `--out FILE`"));
    }
    let target = Target::beneath(folder, new).map_err(|error| format!("{shown}: {}", text(error)))?;
    let done =
        repair(InputFile::open(file).map_err(text)?, target).map_err(|error| format!("{shown}: {}", text(error)))?;
    let mut said = format!("{shown}: {}, read back\n{name}: {}\n", count(&done), unreadable(&done));
    if done.attachments > 0 {
        said.push_str(&format!("{} not copied\n", plural(done.attachments, "attachment")));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_file_lies_beside_the_old_one() {
        for (file, expected) in [("a/drive.mcap", "a/drive-recovered.mcap"), ("drive", "drive-recovered")] {
            assert_eq!(recovered(Path::new(file)), Path::new(expected));
        }
    }
}
