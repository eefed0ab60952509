//! The reference pages of `docs/` say what the program and its tests say. `LIMEN_BLESS=1` rewrites
//! the generated pages.

use limen_tests::recorded::assert_recorded;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn check(page: &str, text: &str) {
    assert_recorded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page), text);
}

/// The page is the program's own table: it is read to the last word.
#[test]
fn codes() {
    let mut text = String::from("# Error codes\n\n`limen-run explain CODE` prints a section of this page.\n");
    for code in limen_run::codes() {
        let _ = write!(text, "\n## {}: {}\n\n{}\n\n*What to do:* {}\n", code.code, code.title, code.cause, code.remedy);
        if let Some(example) = code.example {
            let _ = write!(text, "\n```yaml\n{}\n```\n", example.trim_end());
        }
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/codes.md")).unwrap();
    assert_eq!(page.matches("\n## ").count(), limen_run::codes().len(), "a section of docs/codes.md cannot be read");
    check("codes.md", &text);
}

/// The page is that of a program with the default features; what `wgpu` adds is on the page about
/// GPUs.
#[cfg(not(feature = "wgpu"))]
#[test]
fn kinds() {
    let registry = limen_run::registry();
    let mut text = String::from("# Kinds of node\n\nThe output of `limen-run explain KIND`.\n");
    let mut names: Vec<&str> = registry.kinds().map(|kind| kind.name.as_str()).collect();
    names.dedup();
    for name in names {
        let about = limen_run::explain(name, &registry).unwrap();
        let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", about.trim_end());
    }
    check("kinds.md", &text);
}

#[test]
fn command_line() {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_limen-run")).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut text = String::from("# The command line\n");
    let all = help(&["-h"]);
    // Lines with more indentation continue the verb above.
    let verbs = |help: &str| -> Vec<String> {
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let first = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        first.filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
    };
    let run = help(&["run", "-h"]);
    for verb in std::iter::once(String::new()).chain(verbs(&all)) {
        let verb = verb.as_str();
        let short = help(&[verb, "-h"]);
        let about = match verb {
            "" => help(&["--help"]),
            // For a verb with the options of `run`, only its own options are printed.
            _ if verb != "run" && short.contains("--profile") => {
                let mut own: Vec<&str> =
                    short.lines().filter(|line| line.is_empty() || !run.lines().any(|o| o == *line)).collect();
                own.retain(|line| !line.trim_start().starts_with("-h, --help"));
                own.dedup_by(|line, before| line.is_empty() && before.is_empty());
                format!("{}\n\nThe other options are those of `run`.", own.join("\n").trim_end())
            }
            verb => help(&[verb, "--help"]),
        };
        let _ = write!(text, "\n## limen-run {verb}\n\n```text\n{}\n```\n", about.trim_end());
        let inner = if verb.is_empty() { Vec::new() } else { verbs(&short) };
        for inner in inner.iter().filter(|inner| *inner != "help") {
            let about = help(&[verb, inner, "--help"]);
            let _ = write!(text, "\n### limen-run {verb} {inner}\n\n```text\n{}\n```\n", about.trim_end());
        }
    }
    check("command-line.md", &text.replace("## limen-run \n", "## limen-run\n"));
}

/// Graphs and parts of graphs in the book, each with its page; not those that are wrong on purpose.
fn graphs_in_the_book() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut graphs = Vec::new();
    for path in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        let page = path.file_name().unwrap().to_string_lossy().into_owned();
        if !page.ends_with(".md") || matches!(page.as_str(), "codes.md" | "wrong-graphs.md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        // Programs without that cargo feature have neither.
        let needs = |block: &&str| ["kind: kernel", "device: wgpu"].iter().any(|part| block.contains(part));
        let blocks = blocks.filter(|block| cfg!(feature = "wgpu") || !needs(block));
        graphs.extend(blocks.map(|block| (page.clone(), block.to_string())));
    }
    graphs
}

/// The problems of a graph, a line each; empty for a valid one.
fn problems(text: &str, page: &str) -> String {
    let planned = limen::Spec::from_text(text, page).and_then(|spec| limen::Plan::new(spec, &limen_run::registry()));
    planned.err().map_or_else(String::new, |problems| problems.to_string())
}

#[test]
fn whole_graphs_in_the_book_are_right() {
    let graphs = graphs_in_the_book();
    let whole: Vec<_> = graphs.iter().filter(|(_, text)| text.contains("version: 1")).collect();
    for (page, text) in &whole {
        assert_eq!(problems(text, page), "", "{text}");
    }
    assert!(whole.len() >= 2, "{}", whole.len());
}

/// Checks kinds, keys and values, but not the nodes it connects to and the files it names, which
/// are elsewhere.
#[test]
fn parts_of_graphs_in_the_book_are_right() {
    let nodes = "nodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  z: { kind: \"null\", from: a }\n";
    let graphs = graphs_in_the_book();
    let parts: Vec<_> = graphs.iter().filter(|(_, text)| !text.contains("version: 1")).collect();
    for (page, part) in &parts {
        let lines = || part.lines().filter(|line| !line.trim().is_empty());
        let indent = lines().map(|line| line.len() - line.trim_start().len()).min().unwrap();
        let part = |by: &str| lines().map(|line| format!("{by}{}\n", &line[indent..])).collect::<String>();
        let keys = ["defaults", "cores", "run", "paths", "profiles", "include"];
        let whole = if keys.iter().any(|key| part("").starts_with(&format!("{key}:"))) {
            format!("version: 1\n{}{nodes}", part(""))
        } else {
            format!("version: 1\n{nodes}{}", part("  "))
        };
        let elsewhere = ["E0113", "E0120", "E0125", "E0130"];
        for line in problems(&whole, page).lines().filter(|line| line.contains("error[")) {
            assert!(elsewhere.iter().any(|code| line.contains(code)), "{line}\n{whole}");
        }
    }
    assert!(parts.len() >= 5, "{}", parts.len());
}

/// A block below `<!-- tools/examples/own_node.rs -->` has the content of that file.
#[test]
fn files_in_the_book_are_the_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = 0;
    for page in std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(text) = std::fs::read_to_string(&page) else { continue };
        let mut parts = text.split("<!-- ");
        let mut shown = String::from(parts.next().unwrap_or_default());
        for part in parts {
            // Other marks name no file.
            let file = part.split_once(" -->\n```").filter(|(file, _)| !file.starts_with("not run: "));
            let Some((file, rest)) = file else {
                let _ = write!(shown, "<!-- {part}");
                continue;
            };
            let (language, rest) = rest.split_once('\n').unwrap();
            let below = rest.split_once("```\n").unwrap().1;
            let content = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            let _ = write!(shown, "<!-- {file} -->\n```{language}\n{}\n```\n{below}", content.trim_end());
            found += 1;
        }
        // Other tests rewrite other pages at the same time.
        if shown != text {
            check(&page.file_name().unwrap().to_string_lossy(), &shown);
        }
    }
    assert_eq!(found, 3);
}

/// docs/own-node.md lists the kinds of each feature, and every example.
#[test]
fn features_and_examples_are_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/own-node.md")).unwrap();
    let features = [
        ("codec", limen_codec::register(limen::Registry::new())),
        ("devices", limen_devices::register(limen::Registry::new())),
        ("gpu", limen_gpu::register(limen::Registry::new())),
        ("recording", limen_recording::register(limen::Registry::new())),
        ("signal", limen_signal::register(limen::Registry::new())),
        ("vision", limen_vision::register(limen::Registry::new())),
    ];
    for (feature, registry) in features {
        let mut kinds: Vec<_> = registry.kinds().map(|kind| kind.name.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let row = format!("| `{feature}` | `{}` |\n", kinds.join("`, `"));
        assert!(page.contains(&row), "docs/own-node.md lacks: {row}");
    }
    for file in std::fs::read_dir(root.join("tools/examples")).unwrap() {
        let row = format!("| `{}` |", file.unwrap().path().file_stem().unwrap().to_string_lossy());
        assert!(page.contains(&row), "docs/own-node.md lacks: {row}");
    }
}

/// What the doc comment of a test states: a paragraph that begins with `MARK (SUBJECT): ` and ends
/// at an empty line.
struct Statement {
    subject: String,
    text: String,
    /// The test as a link from a page of `docs/` to its file.
    test: String,
}

/// Every Rust file below a folder, in alphabetical order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true if path.ends_with("target") => Vec::new(),
        true => sources(&path),
        false => vec![path],
    };
    paths.into_iter().flat_map(below).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// All statements with this mark. Fails for a statement that is not in the doc comment of a test.
fn statements(mark: &str) -> Vec<Statement> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let begin = format!("/// {mark} (");
    let mut found = Vec::new();
    for path in ["backends", "engine", "nodes", "tests", "tools"].iter().flat_map(|folder| sources(&root.join(folder)))
    {
        let source = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(&root).unwrap().display();
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate() {
            let Some((subject, text)) = line.strip_prefix(&begin).and_then(|rest| rest.split_once("): ")) else {
                continue;
            };
            let below = &lines[n + 1..];
            let more = below.iter().map_while(|line| line.strip_prefix("/// "));
            let text: Vec<&str> = std::iter::once(text).chain(more).collect();
            let end = below.iter().position(|line| line.starts_with("fn ")).unwrap_or_default();
            let is_test =
                below[..end].contains(&"#[test]") && below[..end].iter().all(|line| line.starts_with(['/', '#']));
            assert!(is_test, "{file}:{}: not the doc comment of a test", n + 1);
            let name = below[end].trim_start_matches("fn ").split('(').next().unwrap_or_default();
            let test = format!("[`{name}`](../{file})");
            found.push(Statement { subject: subject.to_string(), text: text.join(" "), test });
        }
    }
    found
}

/// The page lists the promises of all tests by theme.
#[test]
fn semantics() {
    let themes = "edges, losses, messages, memory, calls, failures, loops, events, files, scheduling, stops, joins, \
                  filters and groups, handles, connections, descriptors, fail-safe, models, batches, time, measurements, output, \
                  simulation, checking";
    let themes: Vec<&str> = themes.split(", ").collect();
    let promises = statements("Promise");
    // A deleted comment would only shorten the page.
    assert!(promises.len() >= 330, "{} promises", promises.len());
    let mut text = String::from(
        "# Semantics\n\nThis page lists what limen promises, each with a test that fails if limen breaks the promise.\n\
         [Policies](policies.md) explains the terms. Doc comments of the tests state the promises:\n\
         `LIMEN_BLESS=1 cargo test -p limen-tools --test all reference_pages` writes this page.\n",
    );
    for theme in &themes {
        let title = format!("{}{}", theme[..1].to_uppercase(), &theme[1..]);
        let _ = write!(text, "\n## {title}\n\n| Promise | Test |\n|---|---|\n");
        for Statement { text: promise, test, .. } in promises.iter().filter(|promise| promise.subject == *theme) {
            let _ = writeln!(text, "| {promise} | {test} |");
        }
    }
    check("semantics.md", &text);
    let unknown = promises.iter().find(|promise| !themes.contains(&promise.subject.as_str()));
    assert!(unknown.is_none(), "unknown theme: {:?}", unknown.map(|promise| &promise.test));
}

/// The table of attacks is written from the doc comments of tests, the rest of the page by hand.
#[test]
fn reliability() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reliability.md")).unwrap();
    let (head, rest) = page.split_once("\n| Attack | Input | Expected | Test |\n").unwrap();
    let (_, tail) = rest.split_once("\n\n").unwrap();
    let mut table = String::from("\n| Attack | Input | Expected | Test |\n|---|---|---|---|\n");
    let attacks = statements("Attack");
    assert!(attacks.len() >= 20, "{} attacks", attacks.len());
    for Statement { subject, text, test } in attacks {
        let (input, expected) = text.split_once("; expected: ").unwrap_or_else(|| panic!("{test}: {text}"));
        let _ = writeln!(table, "| {subject} | {input} | {expected} | {test} |");
    }
    check("reliability.md", &format!("{head}{table}\n{tail}"));
}
