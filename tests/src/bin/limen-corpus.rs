//! Writes the valid files of `limen_tests::fuzz::files` as inputs of the coverage-guided targets:
//! `limen-corpus FOLDER`.

use limen_tests::fuzz::files::{readers, weights};
use std::path::Path;

/// Writes an input for each content, which begins with the number that selects it.
#[expect(clippy::disallowed_methods, reason = "it makes its own files")]
fn write(folder: &Path, contents: impl Iterator<Item = Vec<u8>>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (at, content) in contents.enumerate() {
        std::fs::write(folder.join(format!("valid-{at}")), [&[at as u8], &content[..]].concat())?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: limen-corpus FOLDER");
        std::process::exit(2);
    };
    let folder = Path::new(&folder);
    write(&folder.join("readers"), readers().into_iter().map(|reader| reader.content))?;
    write(&folder.join("weights"), weights().into_iter().map(|weights| weights.content))
}
