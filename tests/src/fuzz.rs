//! The harness of all attacks: cases from seeds, limits on the time and the memory of each, and
//! functions that damage bytes.
//!
//! `LIMEN_FUZZ=1000` runs a thousand times as many cases, `LIMEN_FUZZ_FIRST=7` begins with another
//! seed (`.ci/fuzz` sets both). A failure names its seed.

pub mod files;
pub mod models;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A case fails that takes longer, and more CPU time: beside other load it waits for a CPU.
const LONGEST: Duration = Duration::from_secs(20);
/// A case that takes this long hangs, and ends the process.
const HUNG: Duration = Duration::from_secs(300);
/// A case fails if it, or a process that it starts, takes more memory, in bytes.
const LARGEST: u64 = 1 << 30;

/// Returns the folder of the repository.
///
/// # Panics
/// When the folder does not exist.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the project's folder")
}

/// Returns the files below a folder with one of these extensions, sorted.
///
/// # Panics
/// When the folder cannot be read.
pub fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, ends));
        } else if path.extension().is_some_and(|end| ends.iter().any(|wanted| end == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The processes whose memory is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// This process, which other suites may share.
    Here,
    /// The largest child process.
    Children,
}

impl Memory {
    /// Begins a measurement; returns the bytes in use already.
    fn begin(self) -> u64 {
        match self {
            Memory::Here => {
                // Resets the kernel's peak; if that fails, the figure is the peak of the whole
                // process.
                #[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
                let _ = std::fs::write("/proc/self/clear_refs", "5");
                status("VmRSS:")
            }
            Memory::Children => peak_of_children(),
        }
    }

    /// The peak since then, in bytes.
    fn end(self, before: u64) -> u64 {
        match self {
            Memory::Here => status("VmHWM:").saturating_sub(before),
            // The kernel keeps only the largest of all children: a smaller one cannot be measured.
            Memory::Children => Some(peak_of_children()).filter(|most| *most > before).unwrap_or(0),
        }
    }
}

/// The peak memory of the largest child process that has ended, in bytes.
fn peak_of_children() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss().unsigned_abs() * 1024)
}

/// The CPU time of this process and of its children that have ended.
fn cpu_time() -> Duration {
    let times = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| {
        getrusage(who).map_or(0, |usage| (usage.user_time() + usage.system_time()).num_microseconds().unsigned_abs())
    });
    Duration::from_micros(times.into_iter().sum())
}

/// A size from `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let text = limen::files::system_text("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Starts a watchdog that ends the process when a case hangs, with its name and seed. The channel
/// takes the begin (`Some`) and the end (`None`) of each case.
fn watch(name: &str) -> Sender<Option<u64>> {
    let (tell, told) = channel();
    let name = name.to_string();
    std::thread::spawn(move || {
        let mut case = None;
        loop {
            case = match case {
                None => match told.recv() {
                    Ok(next) => next,
                    Err(_) => return,
                },
                Some(seed) => match told.recv_timeout(HUNG) {
                    Ok(next) => next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        // Not by `eprintln!`: the test harness captures that, and loses it when the
                        // process exits.
                        let _ = writeln!(std::io::stderr(), "{name}: seed {seed} hangs: no end after {HUNG:?}");
                        std::process::exit(101);
                    }
                },
            };
        }
    });
    tell
}

/// Runs a case for every seed. A case returns whether its input was accepted. It fails if it
/// returns an error, panics, takes longer than 20 s and as much CPU time, or more than 1 GiB.
///
/// # Panics
/// When a case fails, with the seeds of all failures.
pub fn attack(name: &str, cases: u64, case: impl FnMut(u64) -> Result<bool, String>) {
    watched(name, cases, Memory::Here, case);
}

/// As [`attack`], for cases that start processes: measures their memory.
///
/// # Panics
/// As [`attack`].
pub fn attack_in_children(name: &str, cases: u64, case: impl FnMut(u64) -> Result<bool, String>) {
    watched(name, cases, Memory::Children, case);
}

fn watched(name: &str, cases: u64, memory: Memory, mut case: impl FnMut(u64) -> Result<bool, String>) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        // Hides panics of node code, which are part of the test, but not those of the suites' own
        // asserts.
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|place| place.file().contains("fuzz")) {
                usual(info);
            }
        }));
    });
    let (first, cases) = (number("LIMEN_FUZZ_FIRST").unwrap_or(0), cases * number("LIMEN_FUZZ").unwrap_or(1));
    let (mut fine, mut longest, mut largest) = (0, (Duration::ZERO, first), (0, first));
    let mut wrong = Vec::new();
    let watch = watch(name);
    for seed in first..first.saturating_add(cases) {
        let _ = watch.send(Some(seed));
        let (before, begin, cpu) = (memory.begin(), Instant::now(), cpu_time());
        let found = catch_unwind(AssertUnwindSafe(|| case(seed)));
        let (took, taken) = (begin.elapsed(), memory.end(before));
        let _ = watch.send(None);
        if took > longest.0 {
            longest = (took, seed);
        }
        if taken > largest.0 {
            largest = (taken, seed);
        }
        match found {
            Ok(Ok(is_fine)) => fine += u64::from(is_fine),
            Ok(Err(why)) => wrong.push(format!("seed {seed}: {why}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
                wrong.push(format!("seed {seed}: it panicked: {text}"));
            }
        }
        let computed = cpu_time().saturating_sub(cpu);
        if took.min(computed) > LONGEST {
            wrong.push(format!("seed {seed}: it took {took:?}, and {computed:?} of CPU time"));
        }
        if taken > LARGEST {
            wrong.push(format!("seed {seed}: it took {} MiB", taken >> 20));
        }
        if wrong.len() > 20 {
            break;
        }
    }
    // `.ci/fuzz` adds these lines up.
    println!(
        "{name}: {cases} cases, {fine} accepted, longest {:.3} s (seed {}), largest {} MiB (seed {})",
        longest.0.as_secs_f64(),
        longest.1,
        largest.0.div_ceil(1 << 20),
        largest.1
    );
    assert!(fine > 0, "{name}: no case was accepted, so the test proves nothing");
    assert!(wrong.is_empty(), "{name}, with LIMEN_FUZZ_FIRST={first}:\n{}", wrong.join("\n"));
}

/// Picks one element.
pub fn pick<'a, T>(rng: &mut fastrand::Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

/// Damages bytes: flips and overwrites; or truncates, removes, repeats and inserts too.
pub fn damage(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    if rng.bool() { overwrite(rng, bytes) } else { rearrange(rng, bytes) }
}

/// Overwrites some bytes. The others stay where headers say that they are, so a reader gets
/// further.
fn overwrite(rng: &mut fastrand::Rng, bytes: &mut [u8]) {
    for _ in 0..=rng.usize(..4) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        // Headers are at the beginning.
        let at = if rng.bool() { rng.usize(..=last) } else { rng.usize(..=last.min(255)) };
        bytes[at] = match rng.u8(..3) {
            0 => bytes[at] ^ 1 << rng.u8(..8),
            1 => rng.u8(b'0'..=b'9'),
            _ => rng.u8(..),
        };
    }
}

fn rearrange(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.usize(..4) {
        let length = bytes.len();
        let at = rng.usize(..=length.saturating_sub(1));
        let some = rng.usize(..=(length - at.min(length)).min(64));
        match rng.u8(..8) {
            0 if length > 0 => bytes[at] ^= 1 << rng.u8(..8),
            1 if length > 0 => bytes[at] = *pick(rng, &[0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b',']),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + some)),
            4 => {
                let again = bytes[at..at + some].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, again);
            }
            5 if length >= at + 8 => {
                // A wrong length.
                let lie: u64 = *pick(rng, &[0, 1, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX]);
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes()[..4]);
            }
            6 => bytes.extend((0..some).map(|_| rng.u8(..))),
            _ => bytes.splice(at..at, (0..some.min(8)).map(|_| rng.u8(..)).collect::<Vec<_>>()).for_each(drop),
        }
    }
}
