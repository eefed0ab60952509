//! The attack stays: graphs, models and files that are damaged on purpose, from seeds, a little of it in every test run.
//!
//! `LIMEN_FUZZ=1000` does a thousand times as much, `LIMEN_FUZZ_FIRST=7` begins with another seed (`.ci/fuzz` does both, for hours).
//! A failure names its seed; what was found once lies in `cases/` and is tried every time.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod data;
mod graphs;
mod models;
mod runs;
mod streams;
