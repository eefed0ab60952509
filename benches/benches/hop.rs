//! The cost of one hop from one node to the next, within a core and to another core, by payload,
//! and of a bare rtrb ring in the same run.
//!
//! `cargo bench -p limen-benches --bench hop [-- quick]`.

use limen::policy::Telemetry;
use limen_benches::{Chain, baseline, host, median};

fn main() {
    let quick = std::env::args().any(|a| a == "quick" || a == "--test");
    let (reps, seconds) = if quick { (1, 0.05) } else { (5, 0.4) };
    println!("{}; {reps} repetitions of {seconds} s; M messages/s, medians\n", host());
    let forms: [(&str, Option<usize>); 4] = [
        ("64 B by value", None),
        ("64 B by handle", Some(64)),
        ("4 KiB by handle", Some(4096)),
        ("1 MiB by handle", Some(1 << 20)),
    ];
    let mut rings = (Vec::new(), Vec::new());
    let mut rows = vec![[const { Vec::new() }; 4]; forms.len()];
    for _ in 0..reps {
        rings.0.push(baseline::ring::<baseline::Bare>(seconds));
        rings.1.push(baseline::ring::<[u64; 2]>(seconds));
        for ((_, bytes), row) in forms.iter().zip(&mut rows) {
            // With a megabyte per slot, sixteen slots are enough, and fit into any machine.
            let capacity = bytes.filter(|b| *b >= 1 << 20).map(|_| 16);
            let base = Chain { k: 0, bytes: *bytes, capacity, seconds, ..Chain::default() };
            let variants = [
                base.clone(),
                Chain { telemetry: Telemetry::Off, ..base.clone() },
                Chain { cores: 2, wait: "spin", ..base.clone() },
                Chain { cores: 2, ..base.clone() },
            ];
            for (variant, figures) in variants.into_iter().zip(row.iter_mut()) {
                figures.push(variant.run().rate);
            }
        }
    }
    let (value, handle) = (median(rings.0).0, median(rings.1).0);
    println!("bare rtrb, chunks of 64, two cores: 64 B {:.1}, 16 B {:.1}\n", value / 1e6, handle / 1e6);
    println!(
        "{:<18} {:>10} {:>14} {:>14} {:>22} {:>18}",
        "", "one core", "telemetry off", "two, awake", "of bare rtrb", "two, adaptive"
    );
    for ((name, bytes), row) in forms.iter().zip(rows) {
        let [one, off, spin, adaptive] = row.map(|figures| median(figures).0);
        let bare = if bytes.is_some() { handle } else { value };
        println!(
            "{name:<18} {:>10.1} {:>14.1} {:>14.1} {:>21.2}x {:>18.1}",
            one / 1e6,
            off / 1e6,
            spin / 1e6,
            spin / bare,
            adaptive / 1e6
        );
    }
}
