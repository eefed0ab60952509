//! Workers, the stages they run, and the state all workers of a run share.

pub(crate) mod device_idler;
pub(crate) mod endpoint;
pub mod infer;
pub(crate) mod mailbox;
pub(crate) mod outlier;
pub(crate) mod planned;
pub(crate) mod scheduler;
pub(crate) mod shared;
pub(crate) mod stage;
pub(crate) mod worker;
pub(crate) mod worker_event;
