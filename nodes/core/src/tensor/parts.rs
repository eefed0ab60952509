//! Parts: what becomes of a message that is split, and has nothing to split.

use schemars::JsonSchema;
use serde::Deserialize;

/// What to do with a message that has no parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Empty {
    /// Send nothing.
    #[default]
    Drop,
    /// Send one message of zeros as part 0 of 0. `gather` converts this message to an empty
    /// message.
    Send,
}
