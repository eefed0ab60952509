//! `--dot`, `--svg` and `--mermaid`: pictures of plans and of runs. `.ci/lanes/browser/report`
//! draws them with the programs that they are for.

use crate::program::Folder;
use std::fs;

const GRAPH: &str = "
version: 1
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 1kHz, count: 300 }, core: 0 }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 1 }, core: 1, on_error: skip, fault: { delay: 5ms, error_every: 40 } }
  out: { kind: 'null', from: slow }
";
const FILES: &str = "--dot g.dot --svg g.svg --mermaid g.mmd";

#[test]
fn pictures_of_a_run_show_loads_and_losses() {
    let folder = Folder::with("pictures", GRAPH);
    // A file's name is free where that of a node is not.
    fs::write(folder.0.join("a<b>&amp;\"c\"].yaml"), GRAPH).unwrap();
    folder.run(&format!("a<b>&amp;\"c\"].yaml --json {FILES}")).expect(0, "", "picture in g.svg");
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    for (name, parts) in [
        (
            "g.dot",
            ["\"cam\" -> \"slow\" [label=", "300 sent", "full_oldest\"", "style=\"bold,dashed\", color=\"#c62828\""],
        ),
        ("g.svg", ["class=\"edge lossy lost\"", "class=\"heat failed\"", "full_oldest</text>", "CPU "]),
        ("g.mmd", ["-.->|\"300 sent<br>", "full_oldest\"|", "linkStyle 0 stroke", "subgraph t0[\""]),
    ] {
        let text = read(name);
        for part in parts.into_iter().chain([" busy", "failed", "finished after"]) {
            assert!(text.contains(part) || text.contains(&part.replace('%', "#37;")), "{part} in {name}:\n{text}");
        }
    }
    let svg = read("g.svg");
    assert!(svg.contains("<title>a&lt;b&gt;&amp;amp;&quot;c&quot;]: finished"), "{svg}");
    assert!(!svg.contains("href") && !svg.contains("@import") && !svg.contains("<script"), "{svg}");
}

#[test]
fn a_plan_has_pictures_too() {
    let folder = Folder::with("plans", GRAPH);
    for verb in ["plan", "check", "dot"] {
        folder.run(&format!("{verb} graph.yaml {FILES}")).expect(0, "", "");
        for name in ["g.dot", "g.svg", "g.mmd"] {
            let path = folder.0.join(name);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("u64[") && !text.contains("finished"), "{verb} {name}:\n{text}");
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_picture_replaces_no_file_of_the_run() {
    let folder = Folder::with("conflicts", GRAPH);
    for (words, why) in [
        ("--svg graph.yaml", "--svg graph.yaml: would overwrite"),
        ("--svg a --dot ./a", "--svg a: would overwrite the file of --dot"),
        ("--report a --mermaid a", "--mermaid a: would overwrite the file of --report"),
        ("--svg .", "--svg .: "),
    ] {
        folder.run(&format!("graph.yaml {words}")).expect(2, "", why);
    }
    assert_eq!(fs::read_to_string(folder.0.join("graph.yaml")).unwrap(), GRAPH);
}
