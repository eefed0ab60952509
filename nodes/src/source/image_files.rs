//! Images from files, in the order of their names.

use crate::file::image_file::{self, Found, Size};
use crate::pace::Pace;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen::{Folders, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Longest file name in bytes on Linux.
const MAX_NAME: usize = 255;

/// Reads image files in the order of their paths and sends their pixels, names and labels.
///
/// Outputs: `image` `u8[height,width,channels]`, `name` `u8[≤255]`, and, if `label` is set, `label` `i32[]`. All files must have
/// the size and the channels (1 grey, 3 RGB, 4 RGBA) of the first. A file that cannot be decoded fails one call; with
/// `on_error: skip` the next file follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// A glob pattern of PNG and JPEG files, relative to the graph's folder: `data/*.png`, `data/**/*.jpg`.
    pub path: String,
    /// Images per second, such as `30Hz`: image `n` is due `n` periods after the first, and a late one keeps its due time as
    /// origin. By default images are sent as fast as the graph takes them.
    pub rate: Option<Rate>,
    /// How many times to read the files; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Where the label of a file comes from; `none` by default.
    #[serde(default)]
    pub label: Label,
}

fn one() -> u32 {
    1
}

/// Where the label of an image file comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// No labels.
    #[default]
    None,
    /// The number after the last `-` or `_` of the file name: 7 for `0001-7.png`.
    Stem,
    /// The name of the file's folder, a number: 7 for `7/0001.png`.
    Folder,
}

impl Label {
    /// Returns the label of a file; `None` if its path has none.
    fn of(self, path: &Path) -> Option<i32> {
        let text = match self {
            Label::None => return Some(0),
            Label::Stem => path.file_stem()?.to_str()?.rsplit_once(['-', '_'])?.1,
            Label::Folder => path.parent()?.file_name()?.to_str()?,
        };
        text.parse().ok()
    }
}

/// The node.
#[derive(Debug)]
pub struct ImageFiles {
    files: Vec<Found>,
    labels: Vec<i32>,
    size: Size,
    pace: Pace,
    /// Images still to send, over all passes.
    left: u64,
    at: usize,
    bytes: Vec<u8>,
}

impl Node for ImageFiles {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "0 passes send nothing").help("write 1 or more");
        }
        if config.label == Label::None && given.outputs().any(|port| port == "label") {
            let message = "the output `label` is connected, but the config has `label: none`";
            errors.at("label", message).help("write `label: stem` (0001-7.png) or `label: folder` (7/0001.png)");
        }
        let mut size = None;
        match find(&config.path, cx.folders) {
            Err(message) => {
                errors.at("path", message).help("write a file or a pattern below the graph file's folder, such as `data/*.png`, or allow another folder with `--allow-path DIR`");
            }
            Ok(files) => {
                match image_file::size_of_file(&files[0]) {
                    Ok(found) => size = Some((found, files.len())),
                    Err(error) => {
                        errors
                            .at("path", format!("the first file, which sets the size of all, cannot be used: {error}"))
                            .help("replace or remove that file");
                    }
                }
                let unlabelled: Vec<_> = files.iter().filter(|f| config.label.of(&f.path).is_none()).collect();
                if let Some(first) = unlabelled.first() {
                    let what = if config.label == Label::Stem { "name" } else { "folder's name" };
                    let (all, none) = (files.len(), unlabelled.len());
                    let message = format!(
                        "{none} of {all} files have no label in their {what}, first `{}`",
                        first.path.display()
                    );
                    errors
                        .at("label", message)
                        .help("name them as in `0001-7.png` or `7/0001.png`, or write `label: none`");
                }
            }
        }
        let Some((size, files)) = size else { return errors.into_result(Ports::new()) };
        let ports = Ports::new()
            .output("image", PortSpec::image(size.height, size.width, size.channels))
            .output("name", PortSpec::new(DType::U8, [Dim::AtMost(MAX_NAME)]).with_content(Content::Text))
            .output("label", PortSpec::fixed(DType::I32, []))
            .cost(Cost::Heavy)
            .rate(config.rate)
            .total(files as u64 * u64::from(config.repeat));
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let files = find(&config.path, cx.folders()).map_err(|why| NodeError::input(&*config.path, why))?;
        let size = image_file::size_of_file(&files[0])?;
        let labels = files.iter().map(|f| config.label.of(&f.path).unwrap_or_default()).collect();
        let left = files.len() as u64 * u64::from(config.repeat);
        Ok(ImageFiles { files, labels, size, pace: Pace::new(config.rate), left, at: 0, bytes: Vec::new() })
    }
}

impl Source for ImageFiles {
    type Out = (Tensor, Tensor, Tensor);

    fn next(&mut self, out: &mut Emit<Self::Out>) -> Result<Next, NodeError> {
        if self.left == 0 {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        let header = out.header(origin);
        // Advance before anything can fail, so that a bad file is not retried.
        let at = self.at;
        self.left -= 1;
        self.at = (at + 1) % self.files.len();
        if self.at == 0 {
            out.begin_segment();
        }
        let found = &self.files[at];
        let path = &found.path;
        if out.0.is_connected() {
            image_file::read(found, self.size, &mut self.bytes)?;
            let mut image = out.0.loan(&header)?;
            image_file::decode(&self.bytes, self.size, image.bytes_mut())
                .map_err(|why| NodeError::input(path.display().to_string(), why))?;
            out.0.send(image);
        }
        if out.1.is_connected() {
            let name = path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
            let name = &name[..name.len().min(MAX_NAME)];
            let mut text = out.1.loan(&header)?;
            text.set_len(0, name.len())?;
            text.bytes_mut().copy_from_slice(name);
            out.1.send(text);
        }
        if out.2.is_connected() {
            let mut label = out.2.loan(&header)?;
            label.as_mut_slice::<i32>()?[0] = self.labels[at];
            out.2.send(label);
        }
        Ok(if self.left == 0 { Next::Done } else { self.pace.then(out.now()) })
    }
}

/// Returns the files that match a pattern, sorted by path. It is an error if there are none, or if the graph may not read one.
fn find(pattern: &str, folders: &Folders) -> Result<Vec<Found>, String> {
    folders.input(pattern)?;
    // The graph's folder is escaped: its name may contain brackets.
    let graph = folders.graph.to_str().ok_or("the graph's folder has a name that is not UTF-8; rename it")?;
    let full = PathBuf::from(glob::Pattern::escape(graph)).join(pattern);
    let full = full.to_str().unwrap_or(pattern);
    let matches =
        glob::glob(full).map_err(|e| format!("`{pattern}` is not a pattern: {} at character {}", e.msg, e.pos))?;
    let mut files = Vec::new();
    for path in matches {
        let path = path.map_err(|e| e.to_string())?;
        if path.is_file() {
            let name = path.to_str().ok_or_else(|| format!("`{}` has a name that is not UTF-8", path.display()))?;
            // `admit_input` resolves relative paths from the graph's folder, which the match already includes.
            let absolute = std::path::absolute(name).map_err(|e| e.to_string())?;
            let real = folders.admit_input(absolute.to_str().unwrap_or(name)).map_err(|e| e.to_string())?;
            files.push(Found { path: absolute, real });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    if files.is_empty() {
        let hint = if folders.graph.join(pattern).is_dir() { "; it is a folder: append `/*.png`" } else { "" };
        return Err(format!("no file matches `{pattern}` in `{}`{hint}", folders.graph.display()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_the_name_or_the_folder() {
        for (label, path, expected) in [
            (Label::None, "x.png", Some(0)),
            (Label::Stem, "data/0001-7.png", Some(7)),
            (Label::Stem, "data/a_b-c_12.png", Some(12)),
            (Label::Stem, "data/a--5.png", Some(5)),
            (Label::Stem, "data/7.png", None),
            (Label::Stem, "data/0001-seven.png", None),
            (Label::Stem, "data/0001-.png", None),
            (Label::Stem, "data/0001-99999999999.png", None),
            (Label::Folder, "data/3/0001.png", Some(3)),
            (Label::Folder, "data/cats/0001.png", None),
            (Label::Folder, "0001.png", None),
        ] {
            assert_eq!(label.of(Path::new(path)), expected, "{label:?} {path}");
        }
    }

    #[test]
    fn files_are_sorted_and_only_found_in_the_folder_of_the_graph() {
        let folder = tempfile::tempdir().unwrap();
        // Brackets are special in a pattern, but not in the name of the graph's folder.
        let folder = folder.path().join("[a]");
        std::fs::create_dir_all(folder.join("graph/data")).unwrap();
        for name in ["graph/data/b.png", "graph/data/a.png", "graph/data/note.txt", "outside.png"] {
            std::fs::write(folder.join(name), b"").unwrap();
        }
        let folders = Folders { graph: folder.join("graph"), ..Folders::default() };
        let names = |pattern: &str| {
            let files = find(pattern, &folders)?;
            Ok::<_, String>(
                files.iter().map(|f| f.path.file_name().unwrap().to_str().unwrap().to_string()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(names("data/*.png").unwrap(), ["a.png", "b.png"]);
        assert_eq!(names("data/a.png").unwrap(), ["a.png"]);
        for (pattern, expected) in [
            ("data/*.jpg", "no file matches"),
            ("data", "it is a folder"),
            ("../*.png", "--allow-path"),
            ("data/***", "not a pattern"),
        ] {
            let error = names(pattern).unwrap_err();
            assert!(error.contains(expected), "{pattern}: {error}");
        }
    }
}
