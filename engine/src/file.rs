//! What a graph file says: the flat tree after all layers, and its structure. Graphs built by a
//! program take the same way.

pub(crate) mod builder;
pub(crate) mod layers;
mod record;
pub mod schema;
pub(crate) mod spec;
