//! The schema of a graph file, as far as its maps are read as types: the types are what both the
//! file and its schema are read from.

use crate::base::policy::{EdgePolicy, FaultSpec, JoinSpec, RestartSpec};
use crate::file::spec::{CoreSpec, RunSpec, WrittenPath};
use schemars::{Schema, schema_for};

/// The names of nodes, as a pattern: a node of a subgraph has dots in its name.
pub const NODE: &str = r"^[a-z][a-z0-9_-]{0,63}(\.[a-z][a-z0-9_-]{0,63})*$";

/// Returns the schema of each map, as `schemars` derives it. That of a connection lacks `from`,
/// that of `run` lacks `record`.
pub fn maps() -> [(&'static str, Schema); 7] {
    [
        ("connection", schema_for!(EdgePolicy)),
        ("restart", schema_for!(RestartSpec)),
        ("join", schema_for!(JoinSpec)),
        ("fault", schema_for!(FaultSpec)),
        ("path", schema_for!(WrittenPath)),
        ("core", schema_for!(CoreSpec)),
        ("run", schema_for!(RunSpec)),
    ]
}
