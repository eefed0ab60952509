//! How text is set: tables and paragraphs for a terminal, what a terminal must not obey, numbers.

pub(crate) mod escape;
pub(crate) mod number;
pub(crate) mod paragraph;
pub(crate) mod reasons;
pub(crate) mod table;
