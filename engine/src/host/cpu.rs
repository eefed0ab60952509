//! Settings of a thread in the kernel: pinning, a real-time policy, locked memory. Every setting is
//! read back; refusals are reported.

use crate::base::policy::RealTime;
use crate::base::policy::RtPolicy;
use crate::base::policy::Wait;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ScheduleParams, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy_param,
};

/// Where and how a worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPlace {
    /// The kernel's number of the CPU; `None` for a helper, which may run on any CPU of the run.
    pub(crate) cpu: Option<usize>,
    /// The CPUs of the run.
    pub(crate) allowed: Vec<usize>,
    pub(crate) wait: Wait,
    pub(crate) real_time: Option<RealTime>,
}

/// The placement of a worker, as read back from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Pinned {
    /// CPUs the thread may run on.
    #[serde(rename = "cpus")]
    pub got: Vec<usize>,
    /// The real-time policy of the thread; `None` if it has none.
    pub real_time: Option<RealTime>,
    /// Why this differs from the request.
    pub refused: Option<String>,
}

/// Drops a real-time policy that the calling thread may have inherited.
pub(crate) fn drop_real_time() {
    let policy = ThreadSchedulePolicy::Normal(thread_priority::NormalThreadSchedulePolicy::Other);
    let lowest = ThreadPriority::Crossplatform(ThreadPriorityValue::MIN);
    // Dropping needs no permission; if it fails, the thread is no worse off than before.
    let _ = set_thread_priority_and_policy(thread_native_id(), lowest, policy);
}

/// Lets the calling thread run on every CPU that its process may use, under the ordinary policy:
/// for the main thread of a program that a worker has started, which inherits the worker's core and
/// priority.
pub fn leave_placement() {
    drop_real_time();
    let mut all = nix::sched::CpuSet::new();
    // The kernel leaves out those that the process may not use.
    (0..nix::sched::CpuSet::count()).for_each(|cpu| _ = all.set(cpu));
    let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &all);
}

/// Returns the CPUs the calling thread may run on.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    match nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) {
        Ok(set) => (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
        Err(_) => vec![0],
    }
}

/// Applies a placement to the calling thread, and reads back the result.
pub(crate) fn apply(place: &ThreadPlace) -> Pinned {
    // 1 ns: the default timer slack of 50 µs would add to the latency of every paced source.
    let _ = nix::sys::prctl::set_timerslack(1);
    let (got, unpinned) = pin(place);
    let asked = place.real_time.map(request_real_time);
    let real_time = read_back();
    let not_real_time = place.real_time.filter(|asked| real_time != Some(*asked)).map(|rt| {
        let why = match asked {
            Some(Err(why)) => why,
            _ => "the kernel did not apply the policy".to_string(),
        };
        format!(
            "real time ({rt}) failed: {why}. Allow real time with `ulimit -r {}`, CAP_SYS_NICE or LimitRTPRIO",
            rt.priority
        )
    });
    let refused: Vec<String> = unpinned.into_iter().chain(not_real_time).collect();
    Pinned { got, real_time, refused: (!refused.is_empty()).then(|| refused.join("; ")) }
}

#[allow(clippy::disallowed_methods, reason = "the one place, with a checked number")]
fn pin(place: &ThreadPlace) -> (Vec<usize>, Option<String>) {
    let asked: Vec<usize> = place.cpu.map_or_else(|| place.allowed.clone(), |cpu| vec![cpu]);
    let refused = match place.cpu {
        // Planning refused every id that is not allowed; `core_affinity` aborts on some of them.
        Some(id) => {
            (!core_affinity::set_for_current(core_affinity::CoreId { id })).then(|| "the kernel refused".to_string())
        }
        None => {
            let mut set = nix::sched::CpuSet::new();
            // The kernel returned these numbers, so none is out of range.
            asked.iter().for_each(|cpu| set.set(*cpu).unwrap_or(()));
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).err().map(|e| e.to_string())
        }
    };
    let got = allowed_cpus();
    let refused = refused.or_else(|| (got != asked).then(|| "the kernel did not apply the CPUs".to_string()));
    let refused = refused.map(|why| format!("pinning to CPU {asked:?} failed: {why} (runs on {got:?})"));
    (got, refused)
}

fn request_real_time(real_time: RealTime) -> Result<(), String> {
    let policy = match real_time.policy {
        RtPolicy::Fifo => RealtimeThreadSchedulePolicy::Fifo,
        RtPolicy::Rr => RealtimeThreadSchedulePolicy::RoundRobin,
    };
    let priority = ThreadPriorityValue::try_from(real_time.priority)?;
    let policy = ThreadSchedulePolicy::Realtime(policy);
    match set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(priority), policy) {
        Ok(()) => Ok(()),
        Err(thread_priority::Error::OS(code)) => Err(nix::errno::Errno::from_raw(code).desc().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn read_back() -> Option<RealTime> {
    let (policy, ScheduleParams { sched_priority }) = thread_schedule_policy_param(thread_native_id()).ok()?;
    let policy = match policy {
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo) => RtPolicy::Fifo,
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin) => RtPolicy::Rr,
        _ => return None,
    };
    Some(RealTime { policy, priority: u8::try_from(sched_priority).ok()? })
}

/// The kernel's number of the capability to lock memory without limit.
const CAP_IPC_LOCK: u32 = 14;
/// Address space of a thread: its stack and the allocator's arena.
const THREAD_BYTES: u64 = 72 << 20;

/// Locks all present and future memory of the process in RAM; `planned` bytes and `threads` threads
/// are still to come.
///
/// # Errors
/// Why it failed, and what allows it.
pub(crate) fn lock_memory(planned: usize, threads: usize) -> Result<(), String> {
    use nix::sys::mman::{MlockAllFlags, mlockall};
    use nix::sys::resource::{Resource, getrlimit};
    let allow = "Allow locked memory with `ulimit -l unlimited`, CAP_IPC_LOCK or LimitMEMLOCK";
    let status = crate::host::files::system_text("/proc/self/status").unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let kib = |text: &str| text.trim_end_matches("kB").trim().parse::<u64>().ok();
    let effective = line("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((u64::MAX, u64::MAX));
    // Checked now: once memory is locked, every allocation beyond the limit fails.
    let need = line("VmSize:").and_then(kib).unwrap_or(0) * 1024 + planned as u64 + threads as u64 * THREAD_BYTES;
    if effective >> CAP_IPC_LOCK & 1 == 0 && limit < need {
        let show = crate::base::unit::show_bytes;
        return Err(format!(
            "locking memory failed: the limit must be at least {}, got {}. {allow}",
            show(need),
            show(limit)
        ));
    }
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| format!("locking memory failed: {}. {allow}", error.desc()))?;
    let status = crate::host::files::system_text("/proc/self/status").unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = locked.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    if kib == Some(0) {
        Err(format!("locking memory failed: the kernel reports no locked memory. {allow}"))
    } else {
        Ok(())
    }
}
