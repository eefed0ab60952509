//! What a finished run is reported as: text for people, one object for programs, gates that judge it, the exit code.

pub(crate) mod exit_code;
pub(crate) mod gate;
#[cfg(test)]
pub(crate) mod made_up;
pub(crate) mod printed;
pub(crate) mod summary;
