//! Arrays as NumPy `.npy` files.

use crate::file::output_file::{self, Exists, FullDisk, OnFull, OutputFile};
use crate::tensor::shape;
use limen::message::PortSpec;
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes all messages as one array that `numpy.load` reads. The first dim is the number of
/// messages.
///
/// All messages have the same fixed shape. The node rejects `bf16`, because NumPy does not support
/// `bf16`. During the run, the node updates the file header when the input queue is empty, and
/// otherwise twice a second.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct NpySinkConfig {
    /// Path of the file, relative to the graph's folder or to the folder given with `--out`. If the
    /// last folder of the path does not exist, the node creates it.
    pub path: String,
    /// Action if the file already exists: `replace` or `fail`. The node does not support `append`.
    /// Default: `replace`.
    #[serde(default)]
    pub exists: Exists,
    /// Action if the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
}

/// Returns the header of a file with `items` items.
fn header(descriptor: &str, items: u64, shape: &[usize]) -> Vec<u8> {
    limen_npy::header(descriptor, std::iter::once(items).chain(shape.iter().map(|length| *length as u64)))
}

/// Runs `kind: npy`; [`NpySinkConfig`] says what it does.
#[derive(Debug)]
pub struct NpySink {
    file: OutputFile,
    descriptor: String,
    shape: Vec<usize>,
    /// The number of items in the header of the file.
    items_in_header: u64,
}

impl NpySink {
    /// Brings the number of items in the header up to date.
    fn update_header(&mut self) -> Result<(), NodeError> {
        let items = self.file.messages();
        if self.items_in_header != items {
            self.file.overwrite(0, &header(&self.descriptor, items, &self.shape))?;
            self.items_in_header = items;
        }
        Ok(())
    }
}

/// Returns descriptor and shape of the messages, or what is wrong with them and a way out.
fn spec_of(spec: &PortSpec) -> Result<(String, Vec<usize>), (String, String)> {
    let other = "use `kind: jsonl`";
    let Some(descriptor) = limen_npy::descriptor(spec.dtype.name()) else {
        let help = format!("{other}, or add a `cast` node upstream");
        return Err((format!("expected a NumPy type such as f32, found {spec}"), help));
    };
    let Some(shape) = spec.fixed_shape() else {
        let help = format!("{other}{}", shape::how_to_fix(spec));
        return Err((format!("expected one shape for all messages, found {spec}"), help));
    };
    Ok((descriptor, shape))
}

impl Node for NpySink {
    type Config = NpySinkConfig;

    fn ports(config: &NpySinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.exists == Exists::Append {
            errors
                .at("exists", "`exists` must be `replace` or `fail`, got `append`")
                .help("write `exists: replace` or `exists: fail`");
        }
        let mut ports = Ports::new().cost(Cost::Medium);
        ports = match given.single() {
            Some(spec) => {
                if let Err((message, help)) = spec_of(spec) {
                    errors.input("in", message).help(help);
                }
                ports.input("in", spec.clone())
            }
            None => ports.input_any("in"),
        };
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: NpySinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let given = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let given = given.ok_or_else(|| NodeError::input("in", "the shape must be known during planning"))?;
        let (descriptor, shape) = spec_of(given).map_err(|(why, _)| NodeError::input("in", why))?;
        let mut file = OutputFile::open(cx.folders(), &config.path, config.exists, FullDisk::new(config.on_full, cx))?;
        file.push(&header(&descriptor, 0, &shape));
        Ok(NpySink { file, descriptor, shape, items_in_header: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("items", self.file.messages() as f64);
        self.file.metrics(to);
    }
}

impl Sink for NpySink {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        self.file.write(input.body.bytes())?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.file.flush()?;
        self.update_header()
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        let settled = self.file.settle();
        self.update_header()?;
        settled.and(self.file.finish())
    }
}

impl Drop for NpySink {
    fn drop(&mut self) {
        // The run was interrupted: the header counts only the items that were written. An error can
        // no longer be reported.
        let _ = self.file.settle();
        let _ = self.update_header();
    }
}
