//! `--metrics`: what a scraper of Prometheus gets, and what clients that misbehave get.
//! `.ci/lanes/formats/metrics` reads it with Prometheus's own parser.

use crate::program::Folder;
use limen_run::{MetricsServer, RunMetrics};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const GRAPH: &str = "
version: 1
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 1kHz, count: 300 }, core: 0 }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 1 }, core: 1, on_error: skip, fault: { delay: 5ms, error_every: 20 } }
  out: { kind: 'null', from: slow }
paths: [{ from: cam, to: out, deadline: 1ms }]
";

/// Sends bytes and returns what comes back until the server closes.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // A server may close before everything is sent.
    let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Serves `text` until a client is done, and returns what it got.
fn served<T: Send + 'static>(
    server: &mut MetricsServer,
    text: &str,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let address = server.address();
    let client = thread::spawn(move || client(address));
    while !client.is_finished() {
        server.poll(|| text.into());
        thread::yield_now();
    }
    client.join().unwrap()
}

/// The samples of a page, by name and labels.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

#[test]
fn only_a_scrape_gets_the_page() {
    let mut server = MetricsServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 20_000], b"\r\n\r\n".to_vec()].concat();
    let endless = vec![b'a'; 1 << 20];
    let page = "x 1\n".repeat(500_000);
    for (request, expected) in [
        (&b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], "HTTP/1.1 200 OK\r\n"),
        (b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"GET /metrics HTTP/1.1\r\nHost: other.example\r\n\r\n", "HTTP/1.1 403 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /metrics HTTP/2\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /metrics HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", "HTTP/1.1 403 "),
        (b"\r\n\r\n", ""),
        (&long, "HTTP/1.1 431 "),
        (&endless, "HTTP/1.1 431 "),
        (b"GET /metr", ""),
        (b"", ""),
    ] {
        let request = request.to_vec();
        let shown = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        let answer = served(&mut server, &page, move |address| ask(address, &request));
        assert!(answer.starts_with(expected), "{shown:?}: {:?}", answer.get(..60));
        assert!(!expected.is_empty() || answer.is_empty(), "{shown:?}: {answer:?}");
        if expected.contains("200") {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", page.len())) && body == page, "{head}");
        }
    }
}

#[test]
fn counters_only_grow_and_end_at_those_of_the_report() {
    let registry = limen_run::registry();
    let spec = limen::Spec::from_text(GRAPH, "graph.yaml").unwrap();
    let plan = limen::Plan::new(spec, &registry).unwrap();
    let mut metrics = RunMetrics::new(&plan);
    let mut running = plan.wire().unwrap().start().unwrap();
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    let mut look = |running: &limen::Running| {
        metrics.look(&running.edge_stats());
        metrics.look_at_paths(&running.path_stats());
        metrics.add_intervals(&running.intervals());
        let page = metrics.text(&running.stats());
        let now = samples(&page);
        for (name, value) in &before {
            let is_counter =
                ["_total", "_count", "_sum"].iter().any(|end| name.split('{').next().unwrap().ends_with(end));
            assert!(!is_counter || now.get(name) >= Some(value), "{name}: {value}\n{page}");
        }
        before = now.clone();
        (now, page)
    };
    while !running.wait_for(Duration::from_millis(20)) {
        look(&running);
    }
    let (last, page) = look(&running);
    let report = running.wait();
    for node in &report.nodes {
        let labels = format!("{{node=\"{}\",kind=\"{}\"}}", node.name, node.kind);
        let of = |name: &str| last.get(&format!("{name}{labels}")).copied();
        assert_eq!(of("limen_node_calls_total"), Some((node.done + node.failed) as f64), "{page}");
        assert_eq!(of("limen_node_failed_total"), Some(node.failed as f64), "{page}");
    }
    for edge in &report.edges {
        let labels = format!("{{from=\"{}\",to=\"{}\"}}", edge.from, edge.to);
        let of = |name: &str| last.get(&format!("{name}{labels}")).copied();
        assert_eq!(of("limen_edge_messages_total"), Some(edge.sent as f64), "{page}");
        assert_eq!(of("limen_edge_lost_total"), Some(edge.lost_total() as f64), "{page}");
        assert_eq!(of("limen_edge_capacity"), Some(edge.capacity as f64), "{page}");
        assert_eq!((of("limen_edge_depth"), of("limen_edge_fill")), (Some(0.0), Some(0.0)), "{page}");
    }
    assert!(report.edges[0].lost_total() > 0 && report.nodes[1].failed > 0, "{page}");
    let judged = &report.deadlines[0];
    for (name, value) in [("judged", judged.judged), ("missed", judged.missed)] {
        let sample = format!("limen_path_{name}_total{{from=\"cam\",to=\"out\"}}");
        assert_eq!(last.get(&sample), Some(&(value as f64)), "{page}");
    }
    // Every call takes five times as long as the deadline.
    assert!(judged.missed > 0 && judged.missed == judged.judged, "{judged:?}");
    let counted = last.get("limen_path_latency_seconds_count{from=\"cam\",to=\"out\"}").copied().unwrap_or_default();
    let (_, _, recorded) = report.paths().next().unwrap();
    assert!(counted <= recorded.histogram.len() as f64, "{page}");
}

#[test]
fn losses_inside_nodes_lost_devices_and_starving_joins_are_metrics() {
    let spec = limen::Spec::from_text(GRAPH, "graph.yaml").unwrap();
    let mut metrics = RunMetrics::new(&limen::Plan::new(spec, &limen_run::registry()).unwrap());
    let mut edge = limen::run::EdgeStats::default();
    (edge.from, edge.to, edge.starves) = ("gps/out".into(), "fuse/gps".into(), Some(Duration::from_millis(2500)));
    metrics.look(&[edge, limen::run::EdgeStats::default()]);
    let mut node = limen::run::NodeStats::default();
    (node.node, node.connected, node.disconnects) = ("imu".into(), Some(false), 2);
    node.stale = Some(true);
    node.lost.extend([("malformed".into(), 3), ("too_large".into(), 0)]);
    node.discarded.insert("other".into(), 7);
    let page = metrics.text(&[node, limen::run::NodeStats::default()]);
    let samples = samples(&page);
    for (name, expected) in [
        ("limen_node_lost_total{node=\"imu\",reason=\"malformed\"}", Some(&3.0)),
        ("limen_node_lost_total{node=\"imu\",reason=\"too_large\"}", Some(&0.0)),
        ("limen_node_discarded_total{node=\"imu\",reason=\"other\"}", Some(&7.0)),
        // The deprecated name, until 0.2.
        ("limen_node_thinned_total{node=\"imu\",reason=\"other\"}", Some(&7.0)),
        ("limen_node_disconnects_total{node=\"imu\"}", Some(&2.0)),
        ("limen_node_connected{node=\"imu\"}", Some(&0.0)),
        ("limen_edge_starves_seconds{from=\"gps/out\",to=\"fuse/gps\"}", Some(&2.5)),
        ("limen_edge_starves_seconds{from=\"\",to=\"\"}", Some(&0.0)),
        ("limen_node_stale{node=\"imu\"}", Some(&1.0)),
        // It needs none.
        ("limen_node_connected{node=\"\"}", None),
        ("limen_node_stale{node=\"\"}", None),
    ] {
        assert_eq!(samples.get(name), expected, "{page}");
    }
    let help = "# HELP limen_edge_fill Deprecated, use limen_edge_depth.\n# TYPE limen_edge_fill gauge\n";
    assert!(page.contains(help), "{page}");
}

#[test]
fn a_run_is_scraped_while_it_runs() {
    let folder = Folder::with("metrics", &GRAPH.replace(", count: 300", ""));
    let mut child = folder.command("graph.yaml -q --metrics 0").stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let address = said.find_map(|line| {
        let (_, rest) = line.split_once("metrics at http://")?;
        rest.strip_suffix("/metrics")?.parse::<SocketAddr>().ok()
    });
    let address = address.expect("it says where");
    let rest = thread::spawn(move || said.for_each(drop));
    let name = "limen_node_calls_total{node=\"cam\",kind=\"synthetic\"}";
    let scrape = || {
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        samples(page)
    };
    let first = scrape()[name];
    while scrape()[name] <= first {}
    child.kill().unwrap();
    child.wait().unwrap();
    rest.join().unwrap();
}

#[test]
fn other_machines_are_kept_out() {
    let folder = Folder::with("public", GRAPH);
    folder.run("graph.yaml --metrics 0.0.0.0:0").expect(2, "", "other machines could reach this address");
    folder.run("graph.yaml --metrics 127.0.0.1:0").expect(0, "", "metrics at http://127.0.0.1:");
    folder.run("graph.yaml --metrics [::ffff:8.8.8.8]:1 --allow-public").expect(
        2,
        "",
        "--metrics [::ffff:8.8.8.8]:1: ",
    );
}
