//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its
//! output is `out`.

pub mod decode;
pub mod encode;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.transform::<decode::Decode>("decode").transform::<encode::Encode>("encode")
}
