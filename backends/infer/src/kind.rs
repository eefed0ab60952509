//! The kinds that run models: `infer`, `linear` and `mlp`.

mod infer;
mod layer;
mod layers;

pub use infer::InferKind;
pub use layer::{Activation, DenseLayer, LayerConfig};
pub use layers::{LayersNode, MlpConfig, PlannedLayers};
