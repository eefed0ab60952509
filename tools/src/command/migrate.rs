//! `limen-run migrate`: gives deprecated keys in graph files their new names, and changes nothing
//! else in the files.

use crate::report::exit_code::FAILED;
use crate::text::edit::{Edit, Lines, apply};
use crate::text::escape::one_line;
use crate::text::number::count;
use limen::files::NamedOutput;
use limen::{Deprecation, Layers, Registry, SourceFile};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The edits of one file, by the byte at which they begin.
type Edits = BTreeMap<usize, Edit>;

/// Renames the deprecated keys of graphs and of the files that they include, or only shows what
/// would change. Returns a text about it, and the exit code: [`FAILED`] if deprecated keys are left
/// in the files.
///
/// # Errors
/// Why a graph cannot be read, or a file cannot be written. No file changes unless every graph can
/// be read.
pub(crate) fn migrate(
    graphs: &[PathBuf],
    layers: &Layers,
    write: bool,
    registry: &Registry,
) -> Result<(String, u8), String> {
    let read = |path: &PathBuf| layers.source_files(path).map_err(|problems| problems.to_string());
    let graphs: Vec<Vec<SourceFile>> = graphs.iter().map(read).collect::<Result<_, _>>()?;
    // A file may belong to several graphs.
    let mut edits: HashMap<&Path, Edits> = HashMap::new();
    for files in &graphs {
        let found = registry.deprecated_keys(files);
        for file in files {
            let lines = Lines::new(file.text());
            let here = found.iter().filter(|found| *found.place.file == *file.file());
            let renames = here.filter_map(|found| rename(file.text(), &lines, found));
            edits.entry(file.real()).or_default().extend(renames.map(|edit| (edit.span.start, edit)));
        }
    }
    let (mut changes, mut left, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for files in &graphs {
        let edited = |file: &SourceFile| {
            let edits: Vec<Edit> = edits[file.real()].values().cloned().collect();
            let failed = |why: String| format!("{}: {why}", one_line(file.file()));
            let text = apply(file.text(), &edits).map_err(|error| failed(error.to_string()))?;
            file.with_text(text).map_err(|problem| failed(problem.to_string()))
        };
        let migrated: Vec<SourceFile> = files.iter().map(edited).collect::<Result<_, String>>()?;
        left.extend(registry.deprecated_keys(&migrated).into_iter().filter(|found| seen.insert(found.to_string())));
        changes.extend(files.iter().zip(migrated).filter(|(file, new)| file.text() != new.text()));
    }
    let mut done = HashSet::new();
    changes.retain(|(file, _)| done.insert(file.real()));
    let mut text = String::new();
    for (file, new) in &changes {
        if write {
            let failed = |error: io::Error| format!("limen-run: {} cannot be written: {error}", one_line(file.file()));
            replace(file.real(), new.text()).map_err(failed)?;
            let _ = writeln!(text, "{}: renamed {}", one_line(file.file()), count(edits[file.real()].len(), "key"));
        } else {
            show_change(&mut text, file, new.text());
        }
    }
    for found in &left {
        let _ = writeln!(text, "change by hand: {}", one_line(&found.to_string()));
    }
    if changes.is_empty() && left.is_empty() {
        let files: HashSet<&Path> = graphs.iter().flatten().map(SourceFile::real).collect();
        let _ = writeln!(text, "no deprecated keys in {}", count(files.len(), "file"));
    }
    let is_done = left.is_empty() && (write || changes.is_empty());
    Ok((text, if is_done { 0 } else { FAILED }))
}

/// Returns the edit of a deprecated key, which may be in quotes. `None` for a key whose text is not
/// its name, such as one behind an alias.
fn rename(text: &str, lines: &Lines<'_>, found: &Deprecation) -> Option<Edit> {
    let at = lines.offset(found.place.line, found.place.column)?;
    let start = if text[at..].starts_with(['"', '\'']) { at + 1 } else { at };
    let span = start..start + found.old.len();
    let is_name = text.get(span.clone()) == Some(found.old);
    is_name.then(|| Edit { span, expected: found.old.into(), text: found.new.into() })
}

/// Shows the lines of a file that change, as `diff -U0` does.
fn show_change(text: &mut String, file: &SourceFile, new: &str) {
    let name = one_line(file.file());
    let _ = writeln!(text, "--- {name}\n+++ {name}");
    for (number, (old, new)) in (1..).zip(file.text().lines().zip(new.lines())).filter(|(_, (old, new))| old != new) {
        let _ = writeln!(text, "@@ -{number} +{number} @@\n-{}\n+{}", one_line(old), one_line(new));
    }
}

/// Replaces a file once its new text is written. Its permissions stay.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let permissions = fs::metadata(path)?.permissions();
    let (mut file, part) = NamedOutput::begin(path)?.into_parts();
    let written = file.set_permissions(permissions).and_then(|()| file.write_all(text.as_bytes()));
    match (written, part) {
        (Ok(()), Some(part)) => part.finish(),
        (Err(error), Some(part)) => {
            part.discard();
            Err(error)
        }
        (written, None) => written,
    }
}
