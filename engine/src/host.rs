//! The machine: time, threads and their settings in the kernel, atomics, files, panics.

pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod cpu_throttle;
pub(crate) mod descriptors;
pub mod files;
pub(crate) mod folders;
pub(crate) mod footprint;
pub(crate) mod instructions;
pub(crate) mod panic;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod usage;
pub(crate) mod wait;
