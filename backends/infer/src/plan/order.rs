//! The order in which `backend: auto` tries runtimes.

use super::candidate::Candidate;
use super::registered::CPU;
use super::verdict::RuntimeVerdict;
use crate::cache::{Calibration, Measured, MeasuredTime};
use limen::unit::show_ns;

/// Returns the measured time of a runtime, ns per item. Without a measurement of its name, no
/// library or driver is looked for.
pub(super) fn measured(candidate: &Candidate<'_>, table: &Calibration, of: &Measured) -> Option<u64> {
    match table.has(of, candidate.name).then(|| table.get(of, candidate.name, &candidate.version())) {
        Some(Some(MeasuredTime::Ns(ns))) => Some(*ns),
        _ => None,
    }
}

/// Sorts the backends by measured time, the fastest first; those without a measurement come last,
/// in their default order. Returns a line that explains the order.
pub(crate) fn order(verdicts: &mut [(Candidate<'_>, RuntimeVerdict)], table: &Calibration, of: &Measured) -> String {
    let measured = |candidate: &Candidate<'_>| measured(candidate, table, of);
    verdicts.sort_by_cached_key(|(candidate, _)| measured(candidate).unwrap_or(u64::MAX));
    let known = verdicts.iter().filter_map(|(candidate, _)| Some((candidate.name, measured(candidate)?)));
    let known: Vec<String> = known.map(|(name, ns)| format!("`{name}` {}", show_ns(ns))).collect();
    if known.is_empty() {
        let on_cpu = verdicts.iter().filter(|(candidate, _)| candidate.computes_on == CPU);
        let names: Vec<&str> = on_cpu.map(|(candidate, _)| candidate.name).collect();
        return format!("`auto` tries {} in its default order: nothing was measured", names.join(", "));
    }
    format!("`auto` tries the fastest first: {} per item", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BackendOptions;
    use crate::cache::Measurement;
    use crate::plan::Runtimes;
    use limen::node::Connected;

    fn verdicts(options: &BackendOptions) -> Vec<(Candidate<'_>, RuntimeVerdict)> {
        let config = serde_json::from_value(serde_json::json!({ "backend": "rten" })).unwrap();
        let all = Runtimes::default().candidates(&config, options);
        all.into_iter().map(|candidate| (candidate, RuntimeVerdict::Fits)).collect()
    }

    /// Results in the cache are named for these versions.
    #[test]
    fn the_versions_of_runtimes_are_those_that_are_built_in() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        let options = BackendOptions::default();
        let all = verdicts(&options).into_iter().map(|(candidate, _)| candidate);
        for candidate in all.filter(|candidate| candidate.built.is_some() && candidate.name != "ort") {
            let version = candidate.version();
            let (name, number) = version.split_once(' ').unwrap();
            let package = if name == "tract" { "tract-onnx" } else { name };
            let locked = format!("name = \"{package}\"\nversion = \"{number}\"\n");
            assert!(lock.contains(&locked), "{version} is not the version in Cargo.lock");
        }
    }

    #[test]
    fn auto_takes_the_fastest_that_was_measured() {
        let options = BackendOptions::default();
        let of = Measured::new("model", &Connected::default(), 1, 1, "");
        let runtimes = Runtimes::default();
        let version = |name: &str| runtimes.get(name).unwrap().candidate(&options).version();
        for (measured, order_of, said) in [
            (&[][..], ["ort", "rten", "tract"], "ort, rten, tract in its default order: nothing was measured"),
            (&[("tract", 20)], ["tract", "ort", "rten"], "the fastest first: `tract` 20 ns per item"),
            (
                &[("ort", 30), ("rten", 10), ("tract", 20)],
                ["rten", "tract", "ort"],
                "the fastest first: `rten` 10 ns, `tract` 20 ns, `ort` 30 ns per item",
            ),
        ] {
            let mut table = Calibration::default();
            measured.iter().for_each(|(name, ns)| table.set(&of, name, &version(name), Measurement::Times([*ns, *ns])));
            let mut verdicts = verdicts(&options);
            let line = order(&mut verdicts, &table, &of);
            let names: Vec<_> = verdicts.iter().map(|(candidate, _)| candidate.name).collect();
            assert_eq!((&names[..], line), (&order_of[..], format!("`auto` tries {said}")));
        }
    }
}
