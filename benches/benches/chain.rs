//! The chain on every placement, beside the raw floor, in one run: throughput and latency, medians over interleaved
//! repetitions with their spread, telemetry on and off.
//!
//! `cargo bench -p limen-benches --bench chain [-- quick]`. Figures are messages per second at the sink, and ns from just
//! before the send to just after the receipt. The machine should be idle; what disturbs it shows in the spread.

use limen::Telemetry;
use limen_benches::{Chain, floor, host, median};
use std::collections::BTreeMap;

/// Figures by row and column, gathered over the repetitions.
type Table = BTreeMap<(usize, usize), Vec<f64>>;

const KS: [usize; 4] = [1, 2, 4, 8];

fn throughput(reps: usize, seconds: f64) {
    type Row = (&'static str, fn(Chain) -> Chain);
    let rows: [Row; 10] = [
        ("64 B by value, one core", |c| c),
        ("64 B by value, one core, telemetry off", |c| Chain { telemetry: Telemetry::Off, ..c }),
        ("64 B by value, one core, telemetry full", |c| Chain { telemetry: Telemetry::Full, ..c }),
        ("64 B by handle, one core", |c| Chain { bytes: Some(64), ..c }),
        ("64 B by handle, one core, telemetry off", |c| Chain { bytes: Some(64), telemetry: Telemetry::Off, ..c }),
        ("4 KiB by handle, one core", |c| Chain { bytes: Some(4096), ..c }),
        ("1 MiB by handle, one core", |c| Chain { bytes: Some(1 << 20), capacity: Some(16), ..c }),
        ("64 B by value, two cores, awake", |c| Chain { cores: 2, wait: "spin", ..c }),
        ("64 B by handle, two cores, awake", |c| Chain { bytes: Some(64), cores: 2, wait: "spin", ..c }),
        ("64 B by handle, two cores, adaptive", |c| Chain { bytes: Some(64), cores: 2, ..c }),
    ];
    let (mut figures, mut floors): (Table, Table) = Default::default();
    for _ in 0..reps {
        for (column, k) in KS.into_iter().enumerate() {
            floors.entry((0, column)).or_default().push(floor::calls(k, seconds));
            for (row, (_, make)) in rows.iter().enumerate() {
                let chain = make(Chain { k, seconds, ..Chain::default() });
                figures.entry((row, column)).or_default().push(chain.run().rate);
            }
        }
        floors.entry((1, 0)).or_default().push(floor::ring::<floor::Bare>(seconds));
        floors.entry((2, 0)).or_default().push(floor::ring::<[u64; 2]>(seconds));
    }
    println!("\nSaturated throughput, M messages/s (worst max/min in brackets)\n");
    println!("{:<44} {:>14} {:>14} {:>14} {:>14}", "", "K=1", "K=2", "K=4", "K=8");
    let mut calls = [0.0; 4];
    print!("{:<44}", "floor: a dynamic call a node, one thread");
    for (column, base) in calls.iter_mut().enumerate() {
        let (middle, spread) = median(floors.remove(&(0, column)).unwrap_or_default());
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
        [(1, "floor: one bare rtrb hop, 64 B, chunks of 64"), (2, "floor: one bare rtrb hop, 16 B, chunks of 64")]
    {
        let (middle, spread) = median(floors.remove(&(row, 0)).unwrap_or_default());
        println!("{name:<44} {:>8.1} ({spread:.1})", middle / 1e6);
    }
    println!("\nNs a node, from K=1 to K=8; ratio to the floor's dynamic call\n");
    let call = (1e9 / calls[3] - 1e9 / calls[0]) / 7.0;
    println!("{:<44} {call:>8.2}", "floor: a dynamic call");
    for (row, (name, _)) in rows.iter().enumerate() {
        let node = (ns[&(row, 8)] - ns[&(row, 1)]) / 7.0;
        println!("{name:<44} {node:>8.2}   {:.2}x", node / call);
    }
}

fn latency(reps: usize, seconds: f64) {
    type Row = (&'static str, f64, fn(Chain) -> Chain);
    let rows: [Row; 6] = [
        ("one core, asleep, 10 kHz", 10_000.0, |c| c),
        ("one core, asleep, 10 kHz, telemetry off", 10_000.0, |c| Chain { telemetry: Telemetry::Off, ..c }),
        ("two cores, awake, 10 kHz", 10_000.0, |c| Chain { cores: 2, wait: "spin", ..c }),
        ("two cores, adaptive, 10 kHz", 10_000.0, |c| Chain { cores: 2, ..c }),
        ("two cores, asleep, 1 kHz", 1_000.0, |c| Chain { cores: 2, wait: "park", ..c }),
        ("two cores, adaptive, 1 kHz", 1_000.0, |c| Chain { cores: 2, ..c }),
    ];
    println!("\nLatency of 64 B by handle, p50 / p99 in µs; CPU % of a core at K=8\n");
    println!("{:<44} {:>16} {:>16} {:>8}", "", "K=1", "K=8", "CPU");
    for (name, rate, make) in rows {
        let (mut line, mut cpu) = (String::new(), 0.0);
        for k in [1, 8] {
            let (mut p50, mut p99) = (Vec::new(), Vec::new());
            for _ in 0..reps {
                let figures = make(Chain { k, rate, bytes: Some(64), seconds, ..Chain::default() }).run();
                if let Some([a, b, ..]) = figures.latency {
                    p50.push(a / 1e3);
                    p99.push(b / 1e3);
                }
                cpu = figures.cpu * 100.0;
            }
            line += &format!(" {:>7.2} / {:>6.2}", median(p50).0, median(p99).0);
        }
        println!("{name:<44}{line} {cpu:>7.0}%");
    }
    let mut times = floor::ring_latency(if seconds < 0.2 { 10_000 } else { 1_000_000 });
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    println!(
        "floor: one bare rtrb hop, both threads spinning: p50 {} ns, p99 {} ns, p99.9 {} ns",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

/// More nodes than cores, with the engine's defaults: nothing collapses.
fn crowded(seconds: f64) {
    println!("\nMore nodes than cores, 64 B by handle, M messages/s\n");
    for k in [8, 32, 128] {
        let one = Chain { k, bytes: Some(64), seconds, ..Chain::default() }.run().rate;
        let two = Chain { k, bytes: Some(64), cores: 2, seconds, ..Chain::default() }.run().rate;
        println!(
            "{k:>4} nodes: one core {:.2}, two cores {:.2}, worse/better {:.2}",
            one / 1e6,
            two / 1e6,
            one.min(two) / one.max(two)
        );
    }
}

fn main() {
    // `cargo test --benches` asks only that it runs.
    let quick = std::env::args().any(|a| a == "quick" || a == "--test");
    let (reps, seconds, paced) = if quick { (1, 0.05, 0.1) } else { (5, 0.4, 2.0) };
    println!("{}; {reps} repetitions of {seconds} s", host());
    throughput(reps, seconds);
    latency(if quick { 1 } else { 3 }, paced);
    crowded(seconds);
}
