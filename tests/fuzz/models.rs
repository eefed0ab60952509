//! Damaged and random models: the parser that runs before any runtime reads or refuses them. H4.
//!
//! `tools/tests/fuzz` gives them to the runtimes, in a process that may die.

use limen_infer::onnx::Artifact;
use limen_tests::fuzz::models::made_up;
use limen_tests::fuzz::{attack, damage, files, pick, root};
use std::path::Path;

fn parses(bytes: Vec<u8>) -> bool {
    Artifact::parse(Path::new("/nowhere/model.onnx"), bytes).map_err(|error| error.to_string()).is_ok()
}

/// Attack (models): damaged shipped models, and models of random operators; expected: parsed, or
/// refused before a runtime loads them
#[test]
fn damaged_models_are_parsed_or_refused() {
    let mut shipped: Vec<Vec<u8>> =
        files(&root().join("graphs"), &["onnx"]).into_iter().map(|path| std::fs::read(path).unwrap()).collect();
    shipped.retain(|bytes| bytes.len() < 1 << 20);
    assert!(!shipped.is_empty());
    attack("models", 1000, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = if rng.bool() { made_up(&mut rng) } else { pick(&mut rng, &shipped).clone() };
        if rng.u8(..3) > 0 {
            damage(&mut rng, &mut bytes);
        }
        Ok(parses(bytes))
    });
}
