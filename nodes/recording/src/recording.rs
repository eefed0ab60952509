//! Recordings: MCAP files, repaired and read with the crate `mcap`, and the messages in them.
//!
//! Each recorded edge is a topic. Images, point clouds, boxes, poses and places are messages of
//! Foxglove's schemas, everything else of `limen.*` schemas, which every reader decodes by the
//! descriptors in the file. With ROS 2's schemas, messages are in CDR. `topic` reads all of these
//! back as tensors, and those of bags that ROS 2 recorded.

pub(crate) mod cdr;
pub(crate) mod decoded;
pub(crate) mod index;
pub(crate) mod inputs;
pub(crate) mod mcap_file;
pub(crate) mod meaning;
pub(crate) mod proto;
pub mod reader;
mod record;
pub(crate) mod recorded_clock;
pub mod repair;
pub(crate) mod ros;
pub(crate) mod schema;
pub(crate) mod survey;
#[cfg(test)]
mod tests;
pub(crate) mod topic;
mod unpack;
pub(crate) mod writer;

/// The key of a channel's metadata that holds the element type of a tensor.
pub(crate) const DTYPE: &str = "limen.dtype";
/// The key of a channel's metadata that holds the dims of a tensor: `2,≤100,6`.
pub(crate) const SHAPE: &str = "limen.shape";
/// The keys of a channel's metadata that hold the names and the units of a tensor's numbers:
/// `ax,ay,az` and `m/s²,m/s²,m/s²`.
pub(crate) const NAMES: &str = "limen.names";
pub(crate) const UNITS: &str = "limen.units";
/// Where a quaternion begins, or `unknown` if its place or that of another angle is not known.
pub(crate) const ORIENTATION: &str = "limen.orientation";
/// The key of a channel's metadata that holds the content of a tensor of bytes.
pub(crate) const CONTENT: &str = "limen.content";
