//! What a thread asks of the kernel: a CPU of its own, a real-time policy, memory that stays in RAM. Everything that is asked
//! for is read back; what was refused is said.

use crate::base::policy::RealTime;
use crate::base::policy::RtPolicy;
use crate::base::policy::Wait;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ScheduleParams, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy_param,
};

/// Where and how a worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The kernel's number of the CPU; `None` for a helper, which runs wherever the run's CPUs allow.
    pub(crate) cpu: Option<usize>,
    /// The CPUs of the run.
    pub(crate) allowed: Vec<usize>,
    pub(crate) wait: Wait,
    pub(crate) may_spin: bool,
    pub(crate) real_time: Option<RealTime>,
}

/// What a worker found when it had asked the kernel for its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// CPUs the thread may run on, read back from the kernel.
    pub got: Vec<usize>,
    /// The real-time policy it runs by, read back from the kernel; none where it runs as any other thread.
    pub real_time: Option<RealTime>,
    /// Why that is not what was asked for.
    pub refused: Option<String>,
}

/// Has the calling thread run as any other does: one that a real-time thread starts begins as one.
pub(crate) fn be_ordinary() {
    let policy = ThreadSchedulePolicy::Normal(thread_priority::NormalThreadSchedulePolicy::Other);
    let lowest = ThreadPriority::Crossplatform(ThreadPriorityValue::MIN);
    // Nothing is asked for that could be refused; what is not given up is no worse than before.
    let _ = set_thread_priority_and_policy(thread_native_id(), lowest, policy);
}

/// The CPUs the calling thread may run on.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    match nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) {
        Ok(set) => (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
        Err(_) => vec![0],
    }
}

/// Puts the calling thread where it belongs, and reads back what came of it.
pub(crate) fn take(place: &Place) -> Pinned {
    // 1 ns: a timer that is 50 µs late, as by default, would be 50 µs of every paced source's latency.
    let _ = nix::sys::prctl::set_timerslack(1);
    let (got, unpinned) = pin(place);
    let asked = place.real_time.map(ask);
    let real_time = read_back();
    let unruly = place.real_time.filter(|asked| real_time != Some(*asked)).map(|rt| {
        let why = match asked {
            Some(Err(why)) => why,
            _ => "the kernel did not keep it".to_string(),
        };
        format!(
            "real time ({rt}): {why}; allow it with `ulimit -r {}`, CAP_SYS_NICE, or LimitRTPRIO of the service",
            rt.priority
        )
    });
    let refused: Vec<String> = unpinned.into_iter().chain(unruly).collect();
    Pinned { got, real_time, refused: (!refused.is_empty()).then(|| refused.join("; ")) }
}

#[allow(clippy::disallowed_methods, reason = "the one place, with a checked number")]
fn pin(place: &Place) -> (Vec<usize>, Option<String>) {
    let asked: Vec<usize> = place.cpu.map_or_else(|| place.allowed.clone(), |cpu| vec![cpu]);
    let refused = match place.cpu {
        // Planning refused every id that is not allowed: core_affinity aborts on some of them.
        Some(id) => (!core_affinity::set_for_current(core_affinity::CoreId { id })).then(|| "refused".to_string()),
        None => {
            let mut set = nix::sched::CpuSet::new();
            // The kernel gave these numbers, so none is out of range.
            asked.iter().for_each(|cpu| set.set(*cpu).unwrap_or(()));
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).err().map(|e| e.to_string())
        }
    };
    let got = allowed_cpus();
    let refused = refused.or_else(|| (got != asked).then(|| "the kernel did not keep it".to_string()));
    let refused = refused.map(|why| format!("pinning to CPU {asked:?}: {why}; runs on {got:?}"));
    (got, refused)
}

fn ask(real_time: RealTime) -> Result<(), String> {
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

/// The kernel's number of the capability that memory may be locked without limit.
const CAP_IPC_LOCK: u32 = 14;
/// What a thread may take for its stack and what the allocator sets aside for it.
const THREAD_BYTES: u64 = 72 << 20;

/// Keeps all memory of the process in RAM, now and from now on; `planned` bytes and so many threads are still to come.
///
/// # Errors
/// Why it cannot be, and what allows it.
pub(crate) fn lock_memory(planned: usize, threads: usize) -> Result<(), String> {
    use nix::sys::mman::{MlockAllFlags, mlockall};
    use nix::sys::resource::{Resource, getrlimit};
    let allow = "allow it with `ulimit -l unlimited`, CAP_IPC_LOCK, or LimitMEMLOCK of the service";
    let status = crate::host::files::system_text("/proc/self/status").unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let kib = |text: &str| text.trim_end_matches("kB").trim().parse::<u64>().ok();
    let effective = line("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((u64::MAX, u64::MAX));
    // Found out now: beyond the limit every allocation fails once this is on.
    let need = line("VmSize:").and_then(kib).unwrap_or(0) * 1024 + planned as u64 + threads as u64 * THREAD_BYTES;
    if effective >> CAP_IPC_LOCK & 1 == 0 && limit < need {
        let show = crate::base::unit::show_bytes;
        return Err(format!("locking memory: the run needs {}, the limit is {}; {allow}", show(need), show(limit)));
    }
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| format!("locking memory: {}; {allow}", error.desc()))?;
    let status = crate::host::files::system_text("/proc/self/status").unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = locked.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    if kib == Some(0) { Err(format!("locking memory: the kernel says that none is; {allow}")) } else { Ok(()) }
}
