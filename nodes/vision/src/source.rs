//! Sources: nodes that create messages.

pub mod image_files;
pub mod y4m;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.source::<image_files::ImageFiles>("image_files").source::<y4m::Y4m>("y4m")
}
