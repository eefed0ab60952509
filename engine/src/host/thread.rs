//! Threads that the engine starts in addition to its workers.

use crate::base::policy::Wait;
use crate::host::cpu::{self, ThreadPlace};
use std::thread::JoinHandle;

/// Starts a thread for calls that a worker does not wait for, on the CPUs of the run.
///
/// # Errors
/// The system's error.
pub(crate) fn spawn_helper(
    name: &str,
    allowed: Vec<usize>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // Linux keeps 15 bytes of a thread's name.
    let name = format!("limen-{name}").chars().take(15).collect();
    let place = ThreadPlace { cpu: None, allowed, wait: Wait::Park, real_time: None };
    std::thread::Builder::new().name(name).spawn(move || {
        // A thread inherits affinity and policy from its parent; failing to leave them makes it slow at worst.
        cpu::drop_real_time();
        let _ = cpu::apply(&place);
        crate::host::files::outlive_size_limit();
        run();
    })
}
