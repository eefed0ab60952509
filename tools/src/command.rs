//! The command line and its verbs.

pub(crate) mod arguments;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod hist;
mod inspect;
pub(crate) mod kinds;
pub(crate) mod model_starter;
pub(crate) mod option_values;
pub(crate) mod plan;
pub(crate) mod problems;
pub(crate) mod program;
#[cfg(feature = "recording")]
mod recover;
mod run;
pub(crate) mod schema;
mod simulated;
pub(crate) mod starter;
mod trial_run;
mod turns;
mod watch;
