//! What a graph file says: one flat tree of what was laid over it, and its structure. A graph that a program builds is one, too.

pub(crate) mod builder;
pub(crate) mod layers;
pub(crate) mod spec;
