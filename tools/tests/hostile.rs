//! Wrong graphs with the messages for each: `tests/hostile/NAME.yaml` and `NAME.txt`. The pairs
//! also make a page of the book. `LIMEN_BLESS=1` rewrites texts and page; read them before you
//! commit them.

use limen_tests::recorded::assert_recorded;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn hostile() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hostile").canonicalize().unwrap()
}

/// Exit code and messages of `limen-run check`, without the folder.
fn check(file: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_limen-run"))
        .args(["check", file])
        .current_dir(hostile())
        .env_remove("RATE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty(), "{file} printed something on stdout");
    let folder = format!("{}/", hostile().parent().unwrap().parent().unwrap().display());
    (output.status.code(), String::from_utf8(output.stderr).unwrap().replace(&folder, ""))
}

#[test]
fn each_graph_is_refused_with_the_recorded_message() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(hostile()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    assert!(files.len() >= 20);
    let mut page = String::from(
        "# Wrong graphs\n\nThe output of `limen-run check` for each; `limen-run explain CODE` explains more. No part of a wrong graph is \
         started, and the exit code is 2.\n",
    );
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (code, said) = check(name);
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.contains("help: "), "{name}: no remedy in\n{said}");
        assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{name}: control characters in:\n{said:?}");
        assert_recorded(&path.with_extension("txt"), &said);
        let text = std::fs::read_to_string(&path).unwrap();
        let title = text.lines().next().unwrap().trim_start_matches("# ").trim_end_matches('.');
        let _ =
            write!(page, "\n## {title}\n\n```yaml\n{}\n```\n\n```text\n{}\n```\n", text.trim_end(), said.trim_end());
    }
    assert_recorded(&hostile().join("../../docs/wrong-graphs.md"), &page);
}

#[test]
fn problems_are_printed_as_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_limen-run"))
        .args(["check", "--json", "many.yaml"])
        .current_dir(hostile())
        .output()
        .unwrap();
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = object["problems"].as_array().unwrap();
    assert!(problems.len() >= 8, "{object:#}");
    for problem in problems {
        assert!(problem["code"].as_str().is_some_and(|code| limen_run::codes().iter().any(|c| c.code == code)));
        assert!(problem["line"].as_u64().is_some_and(|line| line > 0), "{problem}");
        assert_eq!(problem["file"], "many.yaml");
    }
}
