//! Throughput and latency of the chain with every placement, and the raw baseline in the same run:
//! medians over interleaved repetitions with their spread, telemetry on and off.
//!
//! `cargo bench -p limen-benches --bench chain [-- quick | long]`. `long` runs its latency rows for
//! two minutes in total (one at 1 kHz), so that those at 10 kHz have a million messages. Figures
//! are messages per second at the sink, and ns from just before the send to just after the receipt.
//! The machine should be idle; disturbances show in the spread.

use limen::policy::Telemetry;
use limen_benches::{Chain, baseline, host, median};
use std::collections::BTreeMap;

/// Figures of all repetitions, by row and column.
type Table = BTreeMap<(usize, usize), Vec<f64>>;

const KS: [usize; 4] = [1, 2, 4, 8];

fn throughput(reps: usize, seconds: f64) {
    type Row = (&'static str, fn(Chain) -> Chain);
    // Edges of one message, so that every message moves alone.
    const SINGLE: Chain = Chain { bytes: Some(64), capacity: Some(1), ..Chain::DEFAULT };
    let rows: [Row; 17] = [
        ("64 B by value, one core", |c| c),
        ("64 B by value, one core, telemetry off", |c| Chain { telemetry: Telemetry::Off, ..c }),
        ("64 B by value, one core, telemetry full", |c| Chain { telemetry: Telemetry::Full, ..c }),
        ("64 B by handle, one core", |c| Chain { bytes: Some(64), ..c }),
        ("64 B by handle, one core, telemetry off", |c| Chain { bytes: Some(64), telemetry: Telemetry::Off, ..c }),
        ("64 B by handle, one core, single messages", |c| Chain { k: c.k, seconds: c.seconds, ..SINGLE }),
        ("64 B by handle, one core, single messages, telemetry off", |c| Chain {
            k: c.k,
            seconds: c.seconds,
            telemetry: Telemetry::Off,
            ..SINGLE
        }),
        ("64 B by handle, one core, single messages, telemetry full", |c| Chain {
            k: c.k,
            seconds: c.seconds,
            telemetry: Telemetry::Full,
            ..SINGLE
        }),
        ("4 KiB by handle, one core", |c| Chain { bytes: Some(4096), ..c }),
        ("1 MiB by handle, one core", |c| Chain { bytes: Some(1 << 20), capacity: Some(16), ..c }),
        ("64 B by value, two cores, awake", |c| Chain { cores: 2, wait: "spin", ..c }),
        ("64 B by handle, two cores, awake", |c| Chain { bytes: Some(64), cores: 2, wait: "spin", ..c }),
        ("64 B by handle, two cores, awake, telemetry off", |c| Chain {
            bytes: Some(64),
            cores: 2,
            wait: "spin",
            telemetry: Telemetry::Off,
            ..c
        }),
        ("64 B by handle, two cores, adaptive", |c| Chain { bytes: Some(64), cores: 2, ..c }),
        ("64 B by handle, two cores, asleep", |c| Chain { bytes: Some(64), cores: 2, wait: "park", ..c }),
        ("4 KiB by handle, two cores, awake", |c| Chain { bytes: Some(4096), cores: 2, wait: "spin", ..c }),
        ("1 MiB by handle, two cores, awake", |c| Chain {
            bytes: Some(1 << 20),
            capacity: Some(16),
            cores: 2,
            wait: "spin",
            ..c
        }),
    ];
    let (mut figures, mut baselines): (Table, Table) = Default::default();
    for _ in 0..reps {
        for (column, k) in KS.into_iter().enumerate() {
            baselines.entry((0, column)).or_default().push(baseline::calls(k, seconds));
            for (row, (_, make)) in rows.iter().enumerate() {
                let chain = make(Chain { k, seconds, ..Chain::default() });
                figures.entry((row, column)).or_default().push(chain.run().rate);
            }
        }
        baselines.entry((1, 0)).or_default().push(baseline::ring::<baseline::Bare>(seconds));
        baselines.entry((2, 0)).or_default().push(baseline::ring::<[u64; 2]>(seconds));
    }
    println!("\nSaturated throughput, M messages/s (worst max/min in brackets)\n");
    println!("{:<44} {:>14} {:>14} {:>14} {:>14}", "", "K=1", "K=2", "K=4", "K=8");
    let mut calls = [0.0; 4];
    print!("{:<44}", "baseline: a dynamic call a node, one thread");
    for (column, base) in calls.iter_mut().enumerate() {
        let (middle, spread) = median(baselines.remove(&(0, column)).unwrap_or_default());
        *base = middle;
        print!(" {:>8.1} ({spread:.1})", middle / 1e6);
    }
    println!();
    let mut ns = BTreeMap::new();
    for (row, (name, _)) in rows.iter().enumerate() {
        print!("{name:<44}");
        for (column, k) in KS.iter().enumerate() {
            let (middle, spread) = median(figures.remove(&(row, column)).unwrap_or_default());
            ns.insert((row, *k), 1e9 / middle);
            print!(" {:>8.1} ({spread:.1})", middle / 1e6);
        }
        println!();
    }
    for (row, name) in
        [(1, "baseline: one bare rtrb hop, 64 B, chunks of 64"), (2, "baseline: one bare rtrb hop, 16 B, chunks of 64")]
    {
        let (middle, spread) = median(baselines.remove(&(row, 0)).unwrap_or_default());
        println!("{name:<44} {:>8.1} ({spread:.1})", middle / 1e6);
    }
    println!("\nNs a node, from K=1 to K=8; ratio to the baseline's dynamic call\n");
    let call = (1e9 / calls[3] - 1e9 / calls[0]) / 7.0;
    println!("{:<44} {call:>8.2}", "baseline: a dynamic call");
    for (row, (name, _)) in rows.iter().enumerate() {
        let node = (ns[&(row, 8)] - ns[&(row, 1)]) / 7.0;
        println!("{name:<44} {node:>8.2}   {:.2}x", node / call);
    }
}

fn latency(reps: usize, seconds: f64) {
    type Row = (&'static str, f64, fn(Chain) -> Chain);
    let rows: [Row; 7] = [
        ("one core, asleep, 10 kHz", 10_000.0, |c| c),
        ("one core, asleep, 10 kHz, by value", 10_000.0, |c| Chain { bytes: None, ..c }),
        ("one core, asleep, 10 kHz, telemetry off", 10_000.0, |c| Chain { telemetry: Telemetry::Off, ..c }),
        ("two cores, awake, 10 kHz", 10_000.0, |c| Chain { cores: 2, wait: "spin", ..c }),
        ("two cores, adaptive, 10 kHz", 10_000.0, |c| Chain { cores: 2, ..c }),
        ("two cores, asleep, 1 kHz", 1_000.0, |c| Chain { cores: 2, wait: "park", ..c }),
        ("two cores, adaptive, 1 kHz", 1_000.0, |c| Chain { cores: 2, ..c }),
    ];
    println!(
        "\nLatency of 64 B, by handle unless said, µs: medians over {reps} interleaved repetitions, the worst max/min of"
    );
    println!("p50 in brackets; samples in all; CPU % of a core\n");
    println!(
        "{:<40} {:>2} {:>14} {:>8} {:>8} {:>9} {:>8} {:>5}",
        "", "K", "p50", "p99", "p99.9", "max", "samples", "CPU"
    );
    for (name, rate, make) in rows {
        let seconds = if rate < 10_000.0 && seconds > 20.0 { seconds / 2.0 } else { seconds };
        let mut found = [1, 8].map(|k| (k, [const { Vec::new() }; 4], Vec::new(), 0));
        for _ in 0..reps {
            for (k, quantiles, cpu, samples) in &mut found {
                let figures = make(Chain { k: *k, rate, bytes: Some(64), seconds, ..Chain::default() }).run();
                for (to, ns) in quantiles.iter_mut().zip(figures.latency.unwrap_or_default()) {
                    to.push(ns / 1e3);
                }
                cpu.push(figures.cpu * 100.0);
                *samples += figures.n * 9 / 10;
            }
        }
        for (k, quantiles, cpu, samples) in found {
            let [(p50, spread), (p99, _), (p999, _), (max, _)] = quantiles.map(median);
            let cpu = median(cpu).0;
            println!(
                "{name:<40} {k:>2} {p50:>8.2} ({spread:.1}) {p99:>8.2} {p999:>8.1} {max:>9.0} {samples:>8} {cpu:>4.0}%"
            );
        }
    }
    let mut times = baseline::ring_latency(if seconds < 0.2 { 10_000 } else { 1_000_000 });
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    println!(
        "baseline: one bare rtrb hop, both threads spinning: p50 {} ns, p99 {} ns, p99.9 {} ns",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

/// More nodes than cores with each `wait`: shows how far the default is behind the best.
fn crowded(reps: usize, seconds: f64) {
    const WAITS: [&str; 3] = ["adaptive", "spin", "park"];
    println!("\nMore nodes than cores, 64 B by handle, M messages/s\n");
    println!(
        "{:<12} {:>9} {:>16} {:>16} {:>16} {:>17}",
        "", "one core", "two, adaptive", "two, spin", "two, park", "adaptive / best"
    );
    for k in [8, 32, 128] {
        let (mut one, mut two) = (Vec::new(), [const { Vec::new() }; 3]);
        for _ in 0..reps {
            one.push(Chain { k, bytes: Some(64), seconds, ..Chain::default() }.run().rate / 1e6);
            for (wait, to) in WAITS.into_iter().zip(&mut two) {
                to.push(Chain { k, bytes: Some(64), cores: 2, wait, seconds, ..Chain::default() }.run().rate / 1e6);
            }
        }
        let two = two.map(median);
        let best = two.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let cells: String = two.iter().map(|(rate, spread)| format!(" {rate:>10.2} ({spread:.1})")).collect();
        println!("{:<12} {:>9.2}{cells} {:>17.2}", format!("{k} nodes"), median(one).0, two[0].0 / best);
    }
}

fn main() {
    // `cargo test --benches` only checks that it runs.
    let quick = std::env::args().any(|a| a == "quick" || a == "--test");
    let long = std::env::args().any(|a| a == "long");
    let (reps, seconds) = if quick { (1, 0.05) } else { (5, 0.4) };
    let (paced_reps, paced) = match (quick, long) {
        (true, _) => (1, 0.1),
        (false, false) => (3, 2.0),
        (false, true) => (5, 22.4),
    };
    println!("{}; {reps} repetitions of {seconds} s", host());
    throughput(reps, seconds);
    crowded(reps, seconds);
    latency(paced_reps, paced);
}
