//! The kinds that run models, `infer`, `linear` and `mlp`, and those that copy their messages to and from devices.

mod copy;
mod infer;
mod layer;
mod layers;

pub use copy::{CopyConfig, ToDeviceKind, ToHostKind};
pub use infer::InferKind;
pub use layer::{Activation, LayerConfig};
pub use layers::{LayersNode, MlpConfig, PlannedLayers};
