//! What a case costs in CPU time and memory, and whether that grows with its size.
//!
//! A test runs one case and prints its cost. Another one starts it in a process of its own for each
//! size, so that an abort fails one case, and so that no other test counts.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::{Command, Stdio};

const CASE: &str = "LIMEN_GROWTH_CASE";

/// CPU time in ms, and the peak of memory in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// CPU time, ms.
    pub time: i64,
    /// The peak of memory, KiB.
    pub memory: i64,
}

impl Cost {
    /// The cost of this process so far.
    pub fn of_process() -> Cost {
        // `ru_maxrss` begins with the peak of the process that started this one.
        #[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        Cost { memory: peak.unwrap(), ..Cost::of(UsageWho::RUSAGE_SELF) }
    }

    /// The cost of the processes that this one has started and waited for: of the one that needed
    /// most memory.
    pub fn of_children() -> Cost {
        Cost::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> Cost {
        let usage = getrusage(who).unwrap();
        Cost { time: (usage.user_time() + usage.system_time()).num_milliseconds(), memory: usage.max_rss() }
    }

    /// Prints it for [`check_growth`].
    pub fn print(self) {
        println!("\ncost {} {}", self.time, self.memory);
    }
}

/// The case that a test was started with.
pub fn case() -> String {
    std::env::var(CASE).expect("`check_growth` starts this test")
}

/// Runs a test in a process of its own with a case.
fn cost(test: &str, case: &str) -> Result<Cost, String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(CASE, case)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let numbers = said.lines().find_map(|line| line.strip_prefix("cost ")?.split_once(' '));
    let found =
        numbers.and_then(|(time, memory)| Some(Cost { time: time.parse().ok()?, memory: memory.parse().ok()? }));
    found.ok_or_else(|| {
        let why: String = String::from_utf8_lossy(&child.stderr).lines().take(3).collect::<Vec<_>>().join("; ");
        format!("{}, {why}", child.status)
    })
}

/// Checks that a large case costs no more than `limit` allows by the cost of the small one, in one
/// of three tries: other load disturbs caches. `test` prints the cost of its [`case`].
///
/// # Errors
/// The costs of the last try, or how the process ended.
pub fn check_growth(test: &str, [small, large]: [&str; 2], limit: impl Fn(Cost) -> Cost) -> Result<(), String> {
    let mut worst = String::new();
    for _ in 0..3 {
        let (few, many) = (cost(test, small)?, cost(test, large)?);
        let most = limit(few);
        if many.time <= most.time && many.memory <= most.memory {
            return Ok(());
        }
        worst = [few, many].map(|cost| format!("{} ms and {} KiB", cost.time, cost.memory)).join(", then ");
    }
    Err(worst)
}
