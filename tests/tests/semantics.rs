//! Every number of `docs/reliability.md` names a test that exists, or gives a reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Folders with tests, at any depth.
const PLACES: &[&str] =
    &["tests/tests", "tests/fuzz", "engine/src", "nodes", "tools", "backends/infer/src", "backends/gpu/src"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files.into_iter().filter(is_source).chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// The contents of the files that match a name such as `streams/network`.
fn texts(file: &str) -> Vec<String> {
    static SOURCES: LazyLock<Vec<PathBuf>> =
        LazyLock::new(|| PLACES.iter().flat_map(|place| sources(&root().join(place))).collect());
    let named = SOURCES.iter().filter(|source| source.ends_with(format!("{file}.rs")));
    named.filter_map(|source| std::fs::read_to_string(source).ok()).collect()
}

/// The tests that a line of a page names.
fn named(line: &str) -> Vec<(&str, &str)> {
    line.split('`').filter_map(|part| part.split_once("::")).collect()
}

/// The numbers in a cell such as `D2, D3, D6` or `X1 to X4, X6`.
fn numbers(cell: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    for part in cell.split(", ") {
        match part.split_once(" to ") {
            None => numbers.push(part.to_string()),
            Some((first, last)) => {
                let (letter, number) = first.split_at(1);
                let range = number.parse::<u32>().unwrap()..=last[1..].parse().unwrap();
                numbers.extend(range.map(|n| format!("{letter}{n}")));
            }
        }
    }
    numbers
}

#[test]
fn every_number_has_its_test_or_a_reason() {
    let page = std::fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    let mut known = BTreeSet::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
        let [cell, _, held] = row.split(" | ").collect::<Vec<_>>()[..] else { continue };
        let is_number = |part: &str| part.len() <= 3 && part.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if !cell.split([',', ' ']).next().is_some_and(is_number) {
            continue;
        }
        for number in numbers(cell) {
            assert!(held.len() > 20, "no test and no reason: {row}");
            for (file, test) in named(held) {
                let is_so = |text: &String| {
                    text.contains(&format!("fn {test}"))
                        && (!held.starts_with('`')
                            || ["[", ", "].iter().any(|before| {
                                ["\\]", ", "].iter().any(|after| text.contains(&format!("{before}{number}{after}")))
                            }))
                };
                assert!(texts(file).iter().any(is_so), "{file}::{test} does not exist, or does not name {number}");
            }
            assert!(known.insert(number), "twice: {row}");
        }
    }
    let all = [("L", 9), ("F", 8), ("S", 7), ("K", 6), ("T", 4), ("D", 6), ("H", 6), ("N", 5), ("M", 8), ("X", 6)];
    let all = all.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")));
    let missing: Vec<String> = all.filter(|number| !known.contains(number)).collect();
    assert!(missing.is_empty(), "neither a test nor a reason: {missing:?}");
}
