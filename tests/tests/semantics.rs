//! Every sentence of `docs/semantics.md` names a test that exists.

use std::path::Path;

#[test]
fn every_sentence_names_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/semantics.md")).unwrap();
    let mut sentences = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("- ")) {
        sentences += 1;
        let names: Vec<(&str, &str)> = line.split('`').filter_map(|part| part.split_once("::")).collect();
        assert!(!names.is_empty(), "no test: {line}");
        for (file, test) in names {
            let places = [
                "tests/tests",
                "tests/fuzz",
                "engine/src",
                "engine/src/edge",
                "engine/src/stage",
                "nodes/src/source",
                "nodes/src/sink",
                "nodes/tests",
                "tools/tests",
                "backends/src",
            ]
            .map(|folder| root.join(folder).join(file));
            let found = places.iter().any(|place| {
                let text = std::fs::read_to_string(place.with_extension("rs")).unwrap_or_default();
                text.contains(&format!("#[test]\nfn {test}()")) || text.contains(&format!("#[test]\n    fn {test}()"))
            });
            assert!(found, "{file}::{test} does not exist: {line}");
        }
    }
    assert!(sentences > 40, "{sentences} sentences");
}
