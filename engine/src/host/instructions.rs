//! The processor's instructions that the language does not offer.

/// Reads the time stamp counter; 0 where there is none.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "reading the counter has no requirement, the function is only not marked safe")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it accesses nothing but registers. If
    // the process has disabled it for itself (`PR_SET_TSC`), the kernel ends the process by a
    // signal.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the time stamp counter; 0 where there is none.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    0
}

/// Starts to load a cache line, without waiting for it. Any address may be given.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code, reason = "prefetching has no requirement, the function is only not marked safe")]
#[inline]
pub(crate) fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has the instruction. It is a hint: it reads no value, and does
    // not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) }
}

/// Starts to load a cache line, without waiting for it. Any address may be given.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[allow(unsafe_code, reason = "the instruction has no function")]
#[inline]
pub(crate) fn prefetch(address: usize) {
    // SAFETY: the instruction is a hint: it reads no value, changes no register, and does not
    // fault, whatever the address.
    unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}

/// Does nothing where the instruction is not known.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn prefetch(_: usize) {}
