//! `limen-run new NAME`: a graph to begin with.

use std::io;
use std::path::{Path, PathBuf};

/// A graph that runs as it stands, with what can be changed beside it.
const STARTER: &str = r#"# What goes in, what is done to it, where it ends. `limen-run kinds` lists the kinds of node,
# `limen-run explain KIND` the config of one; `limen-run FILE --plan` shows what this file means on your machine.
version: 1
graph: NAME
nodes:
  camera:                       # a generated picture, 30 times a second; `image_files` reads real ones
    kind: synthetic
    config: { pattern: ramp, width: 320, height: 240, rate: 30Hz, count: 90 }
  small:
    kind: resize
    config: { width: 64, height: 64 }
    from: { from: camera/image, when_full: latest }   # a fresh frame rather than every frame
  pixels:
    kind: to_tensor
    config: { dtype: f32, layout: chw, range: [0, 1] }
    from: small
  # digit:                      # a model of your own, in ONNX
  #   kind: infer
  #   config: { model: model.onnx, backend: rten }
  #   from: pixels
  brightest:                    # where the brightest pixel is
    kind: argmax
    from: pixels
  table:
    kind: csv
    config: { path: out/table.csv }
    inputs: { at: brightest/index, value: brightest/value }
  screen:
    kind: console
    config: { every: 30 }
    inputs: { at: brightest/index, value: brightest/value }
paths:
  - { from: camera, to: table, deadline: 20ms }
"#;

/// Writes a graph to begin with into a new folder of that name, and says where.
///
/// # Errors
/// When the folder exists already, or cannot be made.
pub fn begin(folder: &Path) -> io::Result<PathBuf> {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_lowercase()) { name } else { format!("graph-{name}") };
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::create_dir(folder)?;
    let path = folder.join("graph.yaml");
    std::fs::write(&path, STARTER.replace("NAME", name.trim_end_matches('-')))?;
    Ok(path)
}
