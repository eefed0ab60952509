//! Attacks with damaged graphs, models, files and streams, from seeds; every test run does a few.
//!
//! `LIMEN_FUZZ=1000` runs a thousand times as many cases, `LIMEN_FUZZ_FIRST=7` begins with another
//! seed (`.ci/fuzz` sets both). A failure names its seed; graphs that once failed are in `cases/`
//! and run every time.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod data;
mod graphs;
mod models;
mod runs;
mod starts;
mod streams;
