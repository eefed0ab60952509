//! Resolves `include:`: other files of the graph's folder, overridden by the graph's own keys.

use super::variable::Variables;
use super::{Budget, Layers, OVERLAY, SourceFile, check_keys, merge};
use crate::base::document::{Tree, Value};
use crate::base::error::{Place, Problem, Problems};
use crate::host::files::{FileError, InputFile};
use crate::host::folders::Folders;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Larger files are refused.
const MAX_BYTES: u64 = 4 << 20;
/// Maps whose entries must be unique across files.
const UNIQUE: [&str; 3] = ["nodes", "subgraphs", "profiles"];
/// The maximum number of files of one graph.
const MAX_FILES: usize = 64;

/// Reads a file that is part of a graph. With `folders`, only from within them.
pub(super) fn read(path: &Path, file: &str, folders: Option<&Folders>) -> Result<(String, InputFile), Problem> {
    let place = Place { file: file.into(), line: 0, column: 0 };
    let fail = |message: String, help: String| Problem::new("E0100", place.clone(), message).help(help);
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::InvalidInput => {
            let found = if path.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
            fail(format!("expected a regular file, found {found}"), "write the path of a graph file".into())
        }
        _ => fail(format!("the file cannot be read: {error}"), "write the path of a readable file".into()),
    };
    let opened = match folders {
        None => InputFile::open(path).map_err(unreadable),
        Some(folders) => folders.open_joined(path, file).map_err(|error| match error {
            FileError::Outside(message) => fail(message, "move the file below the graph's folder".into()),
            error => unreadable(error.into()),
        }),
    };
    let mut opened = opened?;
    if opened.size() > MAX_BYTES {
        let message = format!("the file must be at most {MAX_BYTES} bytes, got {}", opened.size());
        return Err(Problem {
            code: "E0101",
            ..fail(message, "move parts to other files: `include: [part.yaml]`".into())
        });
    }
    let bytes = opened.read_whole(MAX_BYTES).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        fail(format!("expected UTF-8, found other bytes in line {line}"), "save the file as UTF-8".into())
    })?;
    Ok((text, opened))
}

/// Merges a graph over its included files, and keeps each as it is written if `kept` is given.
pub(super) fn include(
    tree: &mut Tree,
    real: Option<PathBuf>,
    folders: &Folders,
    layers: &Layers,
    problems: &mut Problems,
    kept: Option<&mut Vec<SourceFile>>,
) {
    let open = real.into_iter().collect();
    let budget = Budget(Cell::new(Budget::ALL));
    let mut reading =
        IncludeReader { folders, variables: Variables::new(layers, &budget), open, files: 1, problems, kept };
    reading.include(tree, &folders.graph);
}

struct IncludeReader<'a, 'p> {
    folders: &'a Folders,
    variables: Variables<'a>,
    /// The files being read, outermost first.
    open: Vec<PathBuf>,
    files: usize,
    problems: &'p mut Problems,
    kept: Option<&'p mut Vec<SourceFile>>,
}

impl IncludeReader<'_, '_> {
    fn problem(&mut self, place: &Place, message: String, help: &str) {
        self.problems.push(Problem::new("E0148", place.clone(), message).help(help));
    }

    fn include(&mut self, tree: &mut Tree, folder: &Path) {
        let Some(list) = tree.take("include") else { return };
        let items = match list.value {
            Value::List(items) => items,
            Value::Text(_) => vec![list],
            other => {
                let message = format!("`include` must be a list of files, got {}", other.describe());
                self.problems
                    .push(Problem::new("E0105", list.place.clone(), message).help("write `include: [cameras.yaml]`"));
                return;
            }
        };
        let mut below = Tree { place: tree.place.clone(), value: Value::Map(Vec::new()) };
        for item in items {
            if let Some(included) = self.file(&item, folder) {
                self.combine(&mut below, included);
            }
        }
        // The file's own keys are merged last and win.
        let own = std::mem::replace(&mut tree.value, Value::Null);
        self.combine(&mut below, Tree { place: tree.place.clone(), value: own });
        tree.value = below.value;
    }

    fn file(&mut self, item: &Tree, folder: &Path) -> Option<Tree> {
        let Some(written) = item.as_text() else {
            let message = format!("an included file must be a path, got {}", item.value.describe());
            self.problems
                .push(Problem::new("E0105", item.place.clone(), message).help("write `include: [cameras.yaml]`"));
            return None;
        };
        let written = self.variables.text(written, &item.place, self.problems)?;
        let path = folder.join(&written);
        self.files += 1;
        if self.files > MAX_FILES {
            if self.files == MAX_FILES + 1 {
                let message = format!("the graph must have at most {MAX_FILES} files, got more");
                self.problem(&item.place, message, "include fewer files");
            }
            return None;
        }
        let file = path.display().to_string();
        let (text, real) = match read(&path, &file, Some(self.folders)) {
            Ok((text, opened)) => (text, opened.real().to_path_buf()),
            Err(problem) => {
                let help = problem.help.unwrap_or_default();
                self.problem(&item.place, format!("`{written}`: {}", problem.message), &help);
                return None;
            }
        };
        if self.open.contains(&real) {
            let help = format!("remove `{written}` from `include`");
            self.problem(&item.place, format!("`{written}` includes itself"), &help);
            return None;
        }
        let mut tree = match Tree::parse(&text, &file) {
            Ok(tree) => tree,
            Err(problem) => {
                self.problems.push(problem);
                return None;
            }
        };
        let known: Vec<&str> = OVERLAY.into_iter().chain(["include", "profiles"]).collect();
        if !check_keys(&tree, "an included file", &known, self.problems) {
            return None;
        }
        if let Some(kept) = &mut self.kept {
            SourceFile::keep(kept, SourceFile { file, real: real.clone(), text, tree: tree.clone() });
        }
        let inner = path.parent().unwrap_or(folder).to_path_buf();
        self.open.push(real);
        self.include(&mut tree, &inner);
        self.open.pop();
        // The name and version of the graph are those of the main file.
        tree.take("graph");
        tree.take("version");
        Some(tree)
    }

    /// Merges a file over another; nodes, subgraphs and profiles must not be defined twice.
    fn combine(&mut self, below: &mut Tree, mut over: Tree) {
        for made in UNIQUE {
            let known = below.get(made).map_or(&[][..], Tree::entries);
            for (key, _) in over.get(made).map_or(&[][..], Tree::entries) {
                if let Some((first, _)) = known.iter().find(|(known, _)| known.name == key.name) {
                    let message = format!("duplicate `{}` in `{made}`, also defined at {}", key.name, first.place);
                    let help = format!("rename one `{0}`, or change `{0}` with an overlay or a profile", key.name);
                    self.problems.push(Problem::new("E0149", key.place.clone(), message).help(help));
                }
            }
        }
        // Paths of all files are kept.
        if let (Some(Tree { value: Value::List(known), .. }), Some(Tree { value: Value::List(own), .. })) =
            (below.get_mut("paths"), over.get_mut("paths"))
        {
            own.splice(0..0, std::mem::take(known));
        }
        merge_included(below, over);
    }
}

/// Adds nodes, subgraphs and profiles; merges everything else.
fn merge_included(below: &mut Tree, over: Tree) {
    let Value::Map(entries) = over.value else { return };
    for (key, value) in entries {
        let known = match below.get_mut(&key.name) {
            Some(known) => known,
            None => {
                if let Value::Map(below) = &mut below.value {
                    below.push((key, value));
                }
                continue;
            }
        };
        match (&mut known.value, value) {
            (Value::Map(known), Tree { value: Value::Map(made), .. }) if UNIQUE.contains(&key.name.as_str()) => {
                known.extend(made);
            }
            (Value::Map(_), value @ Tree { value: Value::Map(_), .. }) => merge::overlay(known, value),
            (_, value) => *known = value,
        }
    }
}
