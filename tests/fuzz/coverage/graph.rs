//! Graph files: parsing and planning.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let plan = limen::Spec::from_text(text, "graph.yaml").and_then(|mut spec| {
        spec.folders.graph = common::folder().to_path_buf();
        limen::Plan::new(spec, &limen_tests::registry())
    });
    if let Err(problems) = plan {
        assert!(!problems.to_string().is_empty());
    }
});
