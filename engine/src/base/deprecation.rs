//! A key under an old name, with its place, so that a tool can rename it.

use super::error::Place;
use std::fmt;

/// A key in a graph file under its deprecated name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deprecation {
    /// Where the key begins.
    pub place: Place,
    /// The name in the file.
    pub old: &'static str,
    /// The name to write instead.
    pub new: &'static str,
}

impl fmt::Display for Deprecation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deprecation { place, old, new } = self;
        write!(f, "`{old}`, a deprecated name of `{new}`: write `{new}` ({place})")
    }
}
