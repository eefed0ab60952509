//! The attack stays: graphs, models and files that are damaged on purpose, from seeds, a little of it in every test run.
//!
//! `LIMEN_FUZZ=1000` does a thousand times as much, `LIMEN_FUZZ_FIRST=7` begins with another seed (`.ci/fuzz` does both, for hours).
//! A failure names its seed; what was found once lies in `cases/` and is tried every time.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod data;
mod graphs;
mod models;
mod runs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

/// The project's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Files of these names below a folder, in order.
fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
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

/// What came of many cases.
struct Tally {
    /// What was not refused.
    fine: u64,
    longest: (Duration, u64),
    wrong: Vec<String>,
}

/// Tries a case for every seed; one answers whether it was accepted. What panics, takes longer than 20 s or answers with an error is
/// wrong.
fn attack(name: &str, cases: u64, mut case: impl FnMut(u64) -> Result<bool, String>) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        // What node code is made to panic with says nothing; what this file's own asserts say does.
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|place| place.file().contains("fuzz/")) {
                usual(info);
            }
        }));
    });
    let (first, cases) = (number("LIMEN_FUZZ_FIRST").unwrap_or(0), cases * number("LIMEN_FUZZ").unwrap_or(1));
    let mut tally = Tally { fine: 0, longest: (Duration::ZERO, 0), wrong: Vec::new() };
    for seed in first..first.saturating_add(cases) {
        let begin = Instant::now();
        let found = catch_unwind(AssertUnwindSafe(|| case(seed)));
        let took = begin.elapsed();
        tally.longest = tally.longest.max((took, seed));
        match found {
            Ok(Ok(is_fine)) => tally.fine += u64::from(is_fine),
            Ok(Err(why)) => tally.wrong.push(format!("seed {seed}: {why}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
                tally.wrong.push(format!("seed {seed}: it panicked: {text}"));
            }
        }
        if took > Duration::from_secs(20) {
            tally.wrong.push(format!("seed {seed}: it took {took:?}"));
        }
        if tally.wrong.len() > 20 {
            break;
        }
    }
    let (longest, seed) = tally.longest;
    println!("{name}: {cases} cases, {} accepted, the longest took {longest:?} (seed {seed})", tally.fine);
    assert!(tally.wrong.is_empty(), "{name}, from LIMEN_FUZZ_FIRST={first} on:\n{}", tally.wrong.join("\n"));
}

/// One of several.
fn pick<'a, T>(rng: &mut fastrand::Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

/// Damages bytes as transfers, disks and people do.
fn damage(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
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
                // A length that is not so.
                let lie: u64 = *pick(rng, &[0, 1, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX]);
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes()[..4]);
            }
            6 => bytes.extend((0..some).map(|_| rng.u8(..))),
            _ => bytes.splice(at..at, (0..some.min(8)).map(|_| rng.u8(..)).collect::<Vec<_>>()).for_each(drop),
        }
    }
}
