//! The files of a graph as they are written, for tools that change them.

use super::include::{include, read};
use super::{Layers, OVERLAY, check_keys};
use crate::base::document::Tree;
use crate::base::error::{Problem, Problems};
use crate::host::folders::Folders;
use std::path::{Path, PathBuf};

/// One file of a graph: the graph itself, a file that it includes, or an overlay.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub(super) file: String,
    pub(super) real: PathBuf,
    pub(super) text: String,
    pub(crate) tree: Tree,
}

impl SourceFile {
    /// Returns its name in messages and in places.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns its path without links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file with another text.
    ///
    /// # Errors
    /// Why the text is not YAML.
    pub fn with_text(&self, text: String) -> Result<SourceFile, Problem> {
        let tree = Tree::parse(&text, &self.file)?;
        Ok(SourceFile { file: self.file.clone(), real: self.real.clone(), text, tree })
    }

    /// Adds a file unless it is there under another name.
    pub(super) fn keep(files: &mut Vec<SourceFile>, file: SourceFile) {
        if !files.iter().any(|there| there.real == file.real) {
            files.push(file);
        }
    }
}

impl Layers {
    /// Reads the graph file at `path`, the files that it includes, and the overlays, each once.
    /// Only folders that the graph may read are searched for included files.
    ///
    /// # Errors
    /// Every file that cannot be read, or is not a graph.
    pub fn source_files(&self, path: &Path) -> Result<Vec<SourceFile>, Problems> {
        let mut problems = Problems::default();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folders = Folders { graph: folder.to_path_buf(), allowed: self.allowed.clone(), ..Folders::default() };
        let mut files = Vec::new();
        for path in std::iter::once(path).chain(self.overlays.iter().map(PathBuf::as_path)) {
            let file = path.display().to_string();
            let parsed = read(path, &file, None).and_then(|(text, opened)| {
                let tree = Tree::parse(&text, &file)?;
                Ok(SourceFile { file, real: opened.real().to_path_buf(), text, tree })
            });
            match parsed {
                Ok(parsed) => SourceFile::keep(&mut files, parsed),
                Err(problem) => problems.push(problem),
            }
        }
        // An overlay includes nothing.
        if let Some(graph) = files.first().filter(|_| problems.is_empty()) {
            let (mut tree, real) = (graph.tree.clone(), graph.real.clone());
            let known: Vec<&str> = OVERLAY.into_iter().chain(["include", "profiles"]).collect();
            check_keys(&tree, "a graph", &known, &mut problems);
            include(&mut tree, Some(real), &folders, self, &mut problems, Some(&mut files));
        }
        problems.into_result(files)
    }
}
