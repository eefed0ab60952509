//! Reports of a finished run: printed text, one JSON object, gates, the exit code.

pub(crate) mod condition;
pub(crate) mod exit_code;
pub(crate) mod gate;
pub(crate) mod index;
pub(crate) mod printed;
pub(crate) mod summary;
#[cfg(test)]
pub(crate) mod test_report;
