//! Messages of bytes with numbers in them: the fields, the numbers of a message, rows of text.
//! `csv` reads tables with it, and `limen-codec` has the other formats.

pub mod excerpt;
pub mod field;
pub mod precision;
pub mod record;
pub mod row;

pub use field::{Endian, Field};
