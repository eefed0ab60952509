//! Text formatting: tables and paragraphs for a terminal, escaping of control characters, numbers.

pub(crate) mod edit;
pub(crate) mod escape;
pub(crate) mod number;
pub(crate) mod paragraph;
pub(crate) mod reasons;
pub(crate) mod table;
