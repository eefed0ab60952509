//! `--report FILE`: a page about a run. `.ci/lanes/browser/report` opens such pages in a browser.

use crate::program::Folder;
use serde_json::Value;
use std::fs;

const GRAPH: &str = "
version: 1  # </script><script>alert(1)</script>
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 1kHz, count: 400 } }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 1 }, core: 1, on_error: skip, fault: { error_every: 50 } }
  out: { kind: 'null', from: slow }
paths: [{ from: cam, to: out, deadline: 1s, on_miss: count }]
";

fn data(page: &str) -> Value {
    let begin = "<script type=\"application/json\" id=\"data\">";
    let text = &page[page.find(begin).unwrap() + begin.len()..];
    serde_json::from_str(&text[..text.find("</script>").unwrap()]).unwrap()
}

#[test]
fn a_page_has_the_whole_run_in_one_file() {
    let folder = Folder::with("page", GRAPH);
    folder.run("graph.yaml -q --report out/page.html").expect(0, "", "");
    let page = fs::read_to_string(folder.0.join("out/page.html")).unwrap();
    // It asks no server, and nothing of the run is code.
    assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("href=\"http"), "{}", page.len());
    assert!(page.contains("default-src 'none'") && page.matches("<script").count() == 2 && page.len() < 200_000);
    let data = data(&page);
    assert!(data["graph"].as_str().unwrap().contains("<script>alert(1)"));
    let sum = |field: &str| -> u64 {
        let points = data["history"]["latencies"]["cam->out.e2e"].as_array().unwrap();
        points.iter().map(|point| point[field.parse::<usize>().unwrap()].as_u64().unwrap()).sum()
    };
    assert_eq!(Some(sum("4")), data["summary"]["paths"][0]["count"].as_u64());
    let nodes = data["outline"]["nodes"].as_array().unwrap();
    assert_eq!(nodes.iter().map(|node| node["layer"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    // Failures are events of the page.
    let events = data["history"]["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["kind"] == "failed" && event["count"].as_u64() > Some(1)), "{events:?}");
    // Of a chain, the means of the terms are that of the path.
    let route = &data["routes"][0];
    let terms: f64 = route["terms"].as_array().unwrap().iter().map(|term| term[2].as_f64().unwrap()).sum();
    let mean = route["mean"].as_f64().unwrap();
    assert!((terms - mean).abs() < 0.5 * mean, "{route}");
    let curve = data["curves"]["cam->out.e2e"].as_array().unwrap();
    assert!(curve.len() > 5 && curve.is_sorted_by_key(|point| point[1].as_u64()), "{curve:?}");
}

#[test]
fn a_page_compares_two_runs() {
    let folder = Folder::with("pages", GRAPH);
    folder.run("graph.yaml -q --report a.html").expect(0, "", "");
    for name in ["b.html", "c.html"] {
        // A comparison with a comparison has two runs too.
        let base = if name == "b.html" { "a.html" } else { "b.html" };
        folder.run(&format!("graph.yaml -q --report {name} --report-base {base}")).expect(0, "", "");
        let page = |name: &str| data(&fs::read_to_string(folder.0.join(name)).unwrap());
        let (new, old) = (page(name), page(base));
        assert_eq!(new["base"]["run"]["run"], old["run"]["run"]);
        assert_eq!(new["base"]["base"], Value::Null);
    }
    fs::write(folder.0.join("no.html"), "<script type=\"application/json\" id=\"data\">{}</script>").unwrap();
    for (base, why) in [("no.html", "expected a page written by `--report`"), ("missing.html", "No such file")] {
        folder.run(&format!("graph.yaml --report d.html --report-base {base}")).expect(2, "", why);
        assert!(!folder.0.join("d.html").exists());
    }
    // What the graph reads is not overwritten.
    folder.run("graph.yaml --report graph.yaml").expect(2, "", "which the graph reads");
    assert_eq!(fs::read_to_string(folder.0.join("graph.yaml")).unwrap(), GRAPH);
}

/// The picture waits 80 ms for the position that belongs to it.
#[test]
fn the_wait_of_a_joins_earlier_message_is_part_of_its_path() {
    let folder = Folder::with(
        "page-of-a-join",
        "version: 1\nnodes:\n  gps: { kind: synthetic, config: { pattern: noise, shape: [3], dtype: f32, rate: 10Hz, count: 40 } }\n  \
         late: { kind: delay, config: { by: 80ms }, from: gps }\n  \
         cam: { kind: synthetic, config: { pattern: noise, shape: [4], dtype: f32, rate: 10Hz, count: 40 } }\n  \
         both: { kind: concat, inputs: { image: cam, state: late }, join: { policy: by_time, anchor: image, within: 10ms, patience: 16 } }\n  \
         out: { kind: 'null', from: both }\n",
    );
    folder.run("graph.yaml -q --simulated --report page.html").expect(0, "", "");
    let data = data(&fs::read_to_string(folder.0.join("page.html")).unwrap());
    for route in data["routes"].as_array().unwrap() {
        let terms = route["terms"].as_array().unwrap();
        let sum = |of: Option<&str>| -> f64 {
            let terms = terms.iter().filter(|term| of.is_none_or(|of| term[1] == of));
            terms.map(|term| term[2].as_f64().unwrap()).sum()
        };
        let mean = route["mean"].as_f64().unwrap();
        // The script shows terms that add up to more in proportion.
        assert!(sum(None) >= 0.99 * mean && sum(Some("wait")) >= 0.99 * mean, "{route}");
        // The picture waits in the join, the position in the node before it.
        let waits = terms.iter().find(|term| term[1] == "wait").and_then(|term| term[0].as_u64()).unwrap() as usize;
        let expected = if route["from"] == "cam" { "both" } else { "late" };
        assert_eq!(data["outline"]["nodes"][waits]["name"], expected, "{route}");
    }
}
