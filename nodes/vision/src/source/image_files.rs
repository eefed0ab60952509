//! Images from files, in the order of their names.

use crate::file::image_file::{self, Encoded, MatchedFile, Size};
use crate::file::image_survey::Survey;
use crate::tensor::colour::{self, Colour};
use crate::tensor::image;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen::{Folders, Tensor, TensorMut};
use limen_nodes_core::pace::Pace;
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Longest file name in bytes on Linux.
const MAX_NAME: usize = 255;

/// Reads image files in the order of their paths and produces their pixels, names and labels.
///
/// The outputs are `image` `u8[height,width,channels]`, `name` `u8[≤255]` and, if `label` is set,
/// `label` `i32[]`. If the images differ in size, `image` is `u8[≤height,≤width,channels]`, with
/// the size of the largest image. `resize` and `letterbox` scale images of different sizes to one
/// size. If the images differ in channels (1 grey, 3 RGB, 4 RGBA), `channels` is required.
///
/// limen reads the sizes during planning. If a file cannot be decoded or no longer has the planned
/// size, one call fails. With `on_error: skip`, the node continues with the next file. Unlike
/// `cv2.imread`, the node does not apply the orientation tag of a JPEG file. A photograph from a
/// rotated camera stays rotated.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ImageFilesConfig {
    /// Glob pattern of PNG and JPEG files, relative to the graph's folder: `data/*.png`,
    /// `data/**/*.jpg`. A pattern matches hidden files only if the file name in the pattern starts
    /// with a dot.
    pub path: String,
    /// Images per second, such as `30Hz`. The scheduled time of image `n` is `n` periods after the
    /// first image. The origin of an image is the image's scheduled time, even if the image is
    /// late. By default, the node sends images as fast as the graph accepts images.
    pub rate: Option<Rate>,
    /// Number of passes over the files. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Part of the path from which the node reads the label. Default: `none`.
    #[serde(default)]
    pub label: LabelSource,
    /// Channels of the output: 1 (grey), 3 (RGB) or 4 (RGBA). The node converts all images to the
    /// same number of channels. By default, images keep their channels, which must be the same for
    /// all files. Only `channels: 4` preserves the opacity of grey images.
    pub channels: Option<usize>,
}

fn one() -> u32 {
    1
}

/// Part of the path that is the label of an image file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LabelSource {
    /// No labels.
    #[default]
    None,
    /// The number after the last `-` or `_` of the file name: 7 for `0001-7.png`.
    Stem,
    /// The name of the file's folder, which must be a number: 7 for `7/0001.png`.
    Folder,
}

impl LabelSource {
    /// Returns the label of a file; `None` if its path has none.
    fn of(self, path: &Path) -> Option<i32> {
        let text = match self {
            LabelSource::None => return Some(0),
            LabelSource::Stem => path.file_stem()?.to_str()?.rsplit_once(['-', '_'])?.1,
            LabelSource::Folder => path.parent()?.file_name()?.to_str()?,
        };
        text.parse().ok()
    }
}

/// Runs `kind: image_files`; [`ImageFilesConfig`] says what it does.
#[derive(Debug)]
pub struct ImageFiles {
    files: Vec<MatchedFile>,
    labels: Vec<i32>,
    bounds: Bounds,
    /// What all images are converted to, if they are.
    convert: Option<Colour>,
    pace: Pace,
    /// Images still to send, over all passes.
    left: u64,
    at: usize,
    bytes: Vec<u8>,
    /// The pixels of an image before they are converted.
    pixels: Vec<u8>,
}

/// The images that the output takes.
#[derive(Clone, Debug)]
struct Bounds {
    height: Dim,
    width: Dim,
    channels: usize,
}

impl Bounds {
    fn of(spec: &PortSpec) -> Option<Self> {
        match &spec.shape[..] {
            [height, width, Dim::Fixed(channels)] => {
                Some(Bounds { height: height.clone(), width: width.clone(), channels: *channels })
            }
            _ => None,
        }
    }

    fn spec(&self) -> PortSpec {
        image::spec([self.height.clone(), self.width.clone(), Dim::Fixed(self.channels)])
    }

    /// Returns the largest image of any channels.
    fn largest(&self) -> Size {
        let [height, width] = [&self.height, &self.width].map(|dim| dim.max().unwrap_or(0));
        Size { height, width, channels: 4 }
    }

    /// Checks an image against what was planned; its channels count if they are not converted.
    fn check(&self, size: Size, converted: bool) -> Result<(), String> {
        let fits = |dim: &Dim, length: usize| match dim {
            Dim::Fixed(n) => length == *n,
            dim => dim.max().is_some_and(|most| length <= most),
        };
        if fits(&self.height, size.height)
            && fits(&self.width, size.width)
            && (converted || size.channels == self.channels)
        {
            return Ok(());
        }
        Err(format!("the file changed after planning: expected {}, found {size}: restart the graph", self.spec()))
    }
}

impl Node for ImageFiles {
    type Config = ImageFilesConfig;

    fn ports(config: &ImageFilesConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        if config.label == LabelSource::None && given.outputs().any(|port| port == "label") {
            let message = "`label` must be `stem` or `folder` for the connected output `label`, got `none`";
            errors.at("label", message).help("write `label: stem` (0001-7.png) or `label: folder` (7/0001.png)");
        }
        if config.channels.is_some_and(|channels| Colour::of_file(channels).is_none()) {
            let message = format!("`channels` must be 1, 3 or 4, got {}", config.channels.unwrap_or(0));
            errors.at("channels", message).help("write 1 for grey, 3 for RGB or 4 for RGBA, or remove `channels`");
        }
        let files = match find(&config.path, cx.folders) {
            Ok(files) => files,
            Err(message) => {
                errors
                    .at("path", message)
                    .help("write a file or a pattern below the graph file's folder, such as `data/*.png`");
                return errors.into_result(Ports::new());
            }
        };
        let unlabelled: Vec<_> = files.iter().filter(|f| config.label.of(&f.path).is_none()).collect();
        if let Some(first) = unlabelled.first() {
            let what = if config.label == LabelSource::Stem { "file" } else { "folder" };
            let (all, none) = (files.len(), unlabelled.len());
            let message = format!(
                "expected a label in the name of each {what}, found none for {none} of {all} files (first `{}`)",
                first.path.display()
            );
            errors
                .at("label", message)
                .help("rename the files, as in `0001-7.png` or `7/0001.png`, or write `label: none`");
        }
        let survey = Survey::of(&files);
        if let Some(why) = survey.why.as_ref().filter(|_| survey.sizes.is_empty()) {
            errors
                .at("path", format!("none of the files can be read (first error: {why})"))
                .help("write a `path` that matches PNG or JPEG files");
            return errors.into_result(Ports::new());
        }
        let channels = config.channels.map_or_else(|| survey.channels(&files), Ok).unwrap_or_else(|message| {
            errors.at("path", message).help(
                "write `channels: 3` to convert all images to RGB, or `channels: 1` to convert all images to grey",
            );
            0
        });
        let (height, width) = (survey.dim(|size| size.height), survey.dim(|size| size.width));
        let bounds = Bounds { height, width, channels };
        let mut ports = Ports::new()
            .output("image", bounds.spec())
            .output("name", PortSpec::new(DType::U8, [Dim::AtMost(MAX_NAME)]).with_content(Content::Text))
            .output("label", PortSpec::fixed(DType::I32, []))
            .cost(Cost::Heavy)
            .total(files.len() as u64 * u64::from(config.repeat));
        ports = Pace::declare(config.rate, ports);
        if config.channels.is_some() {
            ports = ports.memory(bounds.largest().bytes());
        }
        if let Some(why) = survey.why {
            ports = ports.note(format!(
                "{} of {} files cannot be read (first error: {why}): write `on_error: skip` or a narrower `path`",
                survey.unreadable,
                files.len()
            ));
        }
        errors.into_result(ports)
    }

    fn build(config: ImageFilesConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let files = find(&config.path, cx.folders()).map_err(|why| NodeError::input(&*config.path, why))?;
        let spec = cx.outputs().first().and_then(|(_, spec)| spec.as_ref());
        let Some(bounds) = spec.and_then(Bounds::of) else {
            return Err(NodeError::input(&*config.path, "the size of the images is unknown during planning"));
        };
        let labels = files.iter().map(|f| config.label.of(&f.path).unwrap_or_default()).collect();
        let left = files.len() as u64 * u64::from(config.repeat);
        let convert = config.channels.and_then(Colour::of_file);
        let pixels = Vec::with_capacity(if convert.is_some() { bounds.largest().bytes() } else { 0 });
        let pace = Pace::new(config.rate);
        Ok(ImageFiles { files, labels, bounds, convert, pace, left, at: 0, bytes: Vec::new(), pixels })
    }
}

impl ImageFiles {
    /// Reads a file into a loaned tensor.
    fn image(
        &mut self,
        at: usize,
        loan: impl FnOnce() -> Result<TensorMut, NodeError>,
    ) -> Result<TensorMut, NodeError> {
        let found = &self.files[at];
        image_file::read(found, self.bounds.largest(), &mut self.bytes)?;
        let bad = |why: String| NodeError::input(found.path.display().to_string(), why);
        let encoded = Encoded::new(&self.bytes).map_err(bad)?;
        let encoded = if self.convert == Some(Colour::Rgba) { encoded.with_opacity() } else { encoded };
        let size = encoded.size();
        self.bounds.check(size, self.convert.is_some()).map_err(bad)?;
        let mut image = loan()?;
        shape::set_shape(&mut image, &[size.height, size.width, self.bounds.channels])?;
        match (Colour::of_file(size.channels), self.convert) {
            (Some(from), Some(to)) if from != to => {
                self.pixels.resize(size.bytes(), 0);
                encoded.decode(&mut self.pixels).map_err(bad)?;
                colour::convert(from, to, &self.pixels, image.bytes_mut());
            }
            _ => encoded.decode(image.bytes_mut()).map_err(bad)?,
        }
        Ok(image)
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
        if out.0.is_connected() {
            let image = self.image(at, || out.0.loan(&header))?;
            out.0.send(image);
        }
        if out.1.is_connected() {
            let name = self.files[at].path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
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

/// Returns the files that match a pattern, sorted by path. It is an error if there are none, or if
/// the graph may not read one.
fn find(pattern: &str, folders: &Folders) -> Result<Vec<MatchedFile>, String> {
    folders.input(pattern)?;
    // The graph's folder is escaped: its name may contain brackets.
    let graph = folders.graph.to_str().ok_or("the name of the graph's folder must be UTF-8: rename the folder")?;
    let full = PathBuf::from(glob::Pattern::escape(graph)).join(pattern);
    let full = full.to_str().unwrap_or(pattern);
    let matches = glob::glob(full)
        .map_err(|e| format!("`{pattern}` is not a valid pattern: {} at character {}", e.msg, e.pos))?;
    // As in a shell, `*` finds no hidden file, such as those of macOS beside each file of a copy.
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let takes_hidden = is_hidden(Path::new(pattern));
    let mut files = Vec::new();
    for path in matches {
        let path = path.map_err(|e| e.to_string())?;
        if path.is_file() && (takes_hidden || !is_hidden(&path)) {
            let name = path.to_str().ok_or_else(|| format!("the name of `{}` must be UTF-8", path.display()))?;
            // `admit_input` resolves relative paths from the graph's folder, which the match
            // already includes.
            let absolute = std::path::absolute(name).map_err(|e| e.to_string())?;
            let real = folders.admit_input(absolute.to_str().unwrap_or(name)).map_err(|e| e.to_string())?;
            files.push(MatchedFile { path: absolute, real });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    if files.is_empty() {
        let hint = if folders.graph.join(pattern).is_dir() {
            "; the path is a folder: append `/*.png`"
        } else if pattern.contains('{') {
            "; `{` has no special meaning: write `*` to match several endings"
        } else {
            ""
        };
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
            (LabelSource::None, "x.png", Some(0)),
            (LabelSource::Stem, "data/0001-7.png", Some(7)),
            (LabelSource::Stem, "data/a_b-c_12.png", Some(12)),
            (LabelSource::Stem, "data/a--5.png", Some(5)),
            (LabelSource::Stem, "data/7.png", None),
            (LabelSource::Stem, "data/0001-seven.png", None),
            (LabelSource::Stem, "data/0001-.png", None),
            (LabelSource::Stem, "data/0001-99999999999.png", None),
            (LabelSource::Folder, "data/3/0001.png", Some(3)),
            (LabelSource::Folder, "data/cats/0001.png", None),
            (LabelSource::Folder, "0001.png", None),
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
        for name in ["graph/data/b.png", "graph/data/a.png", "graph/data/._a.png", "graph/data/note.txt", "outside.png"]
        {
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
        assert_eq!(names("data/.*.png").unwrap(), ["._a.png"]);
        for (pattern, expected) in [
            ("data/*.jpg", "no file matches"),
            ("data", "the path is a folder"),
            ("data/*.{png,jpg}", "`{` has no special meaning"),
            ("../*.png", "--allow-path"),
            ("data/***", "not a valid pattern"),
        ] {
            let error = names(pattern).unwrap_err();
            assert!(error.contains(expected), "{pattern}: {error}");
        }
    }
}
