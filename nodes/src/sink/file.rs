//! Files that sinks write: where they may be, what becomes of an older one, and that they are never half of anything.

use limen::{Claim, Folders, NodeError, PlanErrors, Planning, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exists {
    /// It is replaced when the run has ended; until then it stays as it is.
    #[default]
    Replace,
    /// What is written is added to it.
    Append,
    /// The graph is refused.
    Fail,
}

/// Large enough that writing seldom waits, small enough not to matter.
const BUFFER: usize = 64 << 10;

/// Checks while planning that a file can be written, and claims it.
pub(crate) fn plan(path: &str, exists: Exists, cx: &Planning<'_>, ports: Ports, errors: &mut PlanErrors) -> Ports {
    let target = match cx.folders.output(path) {
        Ok(target) => target,
        Err(message) => {
            errors.at("path", message).help("write a path below the graph file's folder, use `--out DIR`, or allow another folder with `--allow-path DIR`");
            return ports;
        }
    };
    if target.file_name().is_none() {
        errors.at("path", format!("`{path}` names no file")).help("write a path such as `out/result.csv`");
        return ports;
    }
    match fs::metadata(&target) {
        Ok(found) if !found.is_file() => {
            let what = if found.is_dir() { "a folder" } else { "not a regular file" };
            errors.at("path", format!("`{path}` is {what}, and a file is to be written")).help("write another path");
        }
        Ok(_) if exists == Exists::Fail => {
            let help = "remove it, or write `exists: replace` or `exists: append`";
            errors.at("path", format!("`{path}` is there already, and `exists` is `fail`")).help(help);
        }
        _ => {}
    }
    // A folder given on the command line may be made after planning.
    let above = target.parent().and_then(Path::parent);
    if let (None, Some(above)) = (&cx.folders.out, above.filter(|a| !a.as_os_str().is_empty() && !a.is_dir())) {
        let message = format!("there is no folder `{}`; only the last folder of a path is made", above.display());
        errors.at("path", message).help("make it, or write to a folder beside the graph");
    }
    ports.claim(Claim::File(real(&target))).blocking()
}

/// The same path for the same file, however it is written, as far as folders exist.
fn real(target: &Path) -> PathBuf {
    let folder = target.parent().and_then(|folder| fs::canonicalize(folder).ok());
    let in_folder = || Some(folder?.join(target.file_name()?));
    let absolute = || std::path::absolute(target).unwrap_or_else(|_| target.to_path_buf());
    fs::canonicalize(target).ok().or_else(in_folder).unwrap_or_else(absolute)
}

/// A file being written. What is written can be seen under its name when it is complete, or at once if it is added to
/// an older one.
#[derive(Debug)]
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    path: PathBuf,
    /// Where it is until it is complete.
    temporary: Option<PathBuf>,
    /// Whether it continues something.
    pub(crate) continues: bool,
}

impl OutputFile {
    /// Opens the file, making the last folder of its path.
    pub(crate) fn open(folders: &Folders, path: &str, exists: Exists) -> Result<Self, NodeError> {
        let path = folders.output(path).map_err(|why| NodeError::input(path, why))?;
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |error| NodeError::file(path, error)
        };
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
            fs::create_dir(folder).or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e) }).map_err(at(folder))?;
        }
        // A link is followed, so that the file it points to is replaced and not the link.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let (file, temporary) = match exists {
            Exists::Replace => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
                (File::create(&temporary).map_err(at(&temporary))?, Some(temporary))
            }
            Exists::Append => (OpenOptions::new().append(true).create(true).open(&path).map_err(at(&path))?, None),
            // Nothing older is there to be spared, and making it anew is what refuses it.
            Exists::Fail => (File::create_new(&path).map_err(at(&path))?, None),
        };
        let continues = temporary.is_none() && file.metadata().is_ok_and(|m| m.len() > 0);
        Ok(OutputFile { writer: BufWriter::with_capacity(BUFFER, file), path, temporary, continues })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), NodeError> {
        self.writer.write_all(bytes).map_err(|e| NodeError::file(&self.path, e))
    }

    pub(crate) fn flush(&mut self) -> Result<(), NodeError> {
        self.writer.flush().map_err(|e| NodeError::file(&self.path, e))
    }

    /// Writes what is buffered and gives the file its name.
    pub(crate) fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()?;
        if let Some(temporary) = self.temporary.take() {
            fs::rename(&temporary, &self.path).map_err(|e| NodeError::file(&self.path, e))?;
        }
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // The run was cut short: what there is may still be of use, and there is nobody left to tell of an error.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(graph: &Path) -> Folders {
        Folders { graph: graph.into(), ..Folders::default() }
    }

    #[test]
    fn an_older_file_stays_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = folder.join("out/a.txt");
        let read = || fs::read_to_string(&path).unwrap_or_default();
        for (old, text, finish) in [("", "one", true), ("one", "two", false)] {
            let mut file = OutputFile::open(&folders(folder), "out/a.txt", Exists::Replace).unwrap();
            file.write(text.as_bytes()).unwrap();
            file.flush().unwrap();
            assert_eq!(read(), old);
            assert!(!file.continues);
            if finish {
                file.finish().unwrap();
                assert_eq!(read(), text);
            }
            drop(file);
            assert_eq!(read(), text, "what there is gets its name even without an end");
        }
        assert_eq!(fs::read_dir(folder.join("out")).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_file_is_continued_or_refused_as_the_config_says() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let open = |exists| OutputFile::open(&folders(folder), "a.txt", exists);
        for (text, continues) in [("one ", false), ("two", true)] {
            let mut file = open(Exists::Append).unwrap();
            assert_eq!(file.continues, continues);
            file.write(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one two");
        assert!(matches!(open(Exists::Fail), Err(error) if matches!(error.kind(), limen::NodeErrorKind::File { .. })));
        assert!(OutputFile::open(&folders(folder), "b.txt", Exists::Fail).is_ok());
        assert!(OutputFile::open(&folders(folder), "no/such/a.txt", Exists::Replace).is_err());
        assert!(OutputFile::open(&folders(folder), "../a.txt", Exists::Replace).is_err());
    }

    #[test]
    fn planning_finds_what_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("there.txt"), "x").unwrap();
        let folders = folders(folder);
        let cx = Planning { node: "n", folders: &folders };
        for (path, exists, expected) in [
            ("new.txt", Exists::Fail, ""),
            ("out/new.txt", Exists::Replace, ""),
            ("there.txt", Exists::Append, ""),
            ("there.txt", Exists::Fail, "is there already"),
            (".", Exists::Replace, "a folder"),
            ("a/b/c.txt", Exists::Replace, "there is no folder"),
            ("../x.txt", Exists::Replace, "--allow-path"),
        ] {
            let mut errors = PlanErrors::default();
            plan(path, exists, &cx, Ports::new(), &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(expected, "", "{path}"),
                Err(errors) => {
                    let text = format!("{errors:?}");
                    assert!(!expected.is_empty() && text.contains(expected), "{path}: {text}");
                }
            }
        }
    }
}
