//! Threads that the engine starts in addition to its workers.

use crate::base::policy::Wait;
use crate::host::cpu::{self, ThreadPlace};
use std::thread::JoinHandle;

/// Makes a thread that a runtime started one of the engine's: it has the name of its worker, and
/// [`panic_hook`](crate::panic_hook) prints nothing on it.
pub(crate) fn adopt(name: &str) {
    // A name that the kernel refuses leaves that of the runtime.
    let _ = std::ffi::CString::new(name).map(|name| nix::sys::prctl::set_name(&name));
    crate::host::panic::report_by_caller();
}

/// Starts a thread for calls that a worker does not wait for, on the CPUs of the run. Returns when
/// the thread has its settings: they allocate memory, which nothing does after the start.
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
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // A thread inherits affinity and policy from its parent; failing to leave them makes it
        // slow at worst.
        cpu::drop_real_time();
        let _ = cpu::apply(&place);
        crate::host::files::outlive_size_limit();
        drop(ready);
        run();
    })?;
    // An error: the sender was dropped.
    let _: Result<(), _> = is_ready.recv();
    Ok(thread)
}
