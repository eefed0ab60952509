//! Planning a node that runs a model: its config, the choice of a runtime, and the checks made with
//! that runtime.

mod backend_name;
mod candidate;
mod choose;
mod compare;
mod config;
mod config_check;
mod constant;
mod dispatch;
mod infer_plan;
mod inputs;
mod load;
mod model_file;
mod onnx_plan;
mod order;
mod provider;
mod registered;
mod runtimes;
mod verdict;

pub(crate) use backend_name::{AUTO, MOCK};
pub(crate) use candidate::Candidate;
pub(crate) use choose::choose;
pub(crate) use config::RecordedModel;
pub use config::{
    BatchDim, Guard, InferConfig, Load, MaxConfig, Require, RequireMemory, ShadowConfig, StateConfig, VerifyConfig,
};
pub use constant::ConstantConfig;
pub use dispatch::Dispatch;
pub(crate) use infer_plan::{check_node, infer_plan};
#[cfg(test)]
pub(crate) use inputs::all_connected;
pub(crate) use model_file::read_model;
pub(crate) use onnx_plan::COMPILED;
pub use provider::OrtDevice;
pub use runtimes::{RegisterRuntime, Runtimes};
