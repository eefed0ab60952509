//! `--monitor`: a run is watched, changed and stopped through its socket, and no client disturbs
//! it.

use crate::program::{Folder, Ran, signal, signal_until_it_ends};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here lasts so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One source that ends at once, and one that does not end.
const TWO: &str = "
version: 1
graph: two
nodes:
  ends: { kind: synthetic, config: { pattern: counter, count: 2000 } }
  counted: { kind: 'null', from: ends }
  goes_on: { kind: synthetic, config: { pattern: counter, rate: 200Hz } }
  passing: { kind: 'null', from: { from: goes_on, capacity: 7 } }
";

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A command whose sockets are in its own folder.
fn command(folder: &Folder, words: &str) -> Command {
    let mut command = folder.command(words);
    command.env("XDG_RUNTIME_DIR", &folder.0);
    command
}

/// A run with a monitor.
pub(crate) struct Watched {
    child: Child,
    socket: PathBuf,
    err: BufReader<std::process::ChildStderr>,
}

impl Watched {
    pub(crate) fn begin(folder: &Folder, words: &str) -> Self {
        let mut child = command(folder, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let socket = loop {
            let mut line = String::new();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "no socket was named");
            if let Some((_, path)) = line.split_once("can watch at ") {
                break path.trim_end().into();
            }
        };
        Watched { child, socket, err }
    }

    pub(crate) fn client(&self) -> Client {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    pub(crate) fn end(mut self) -> Ran {
        let mut rest = String::new();
        self.err.read_to_string(&mut rest).unwrap();
        let mut ran = Ran::from(self.child.wait_with_output().unwrap());
        ran.err = rest;
        ran
    }
}

/// A plain client.
pub(crate) struct Client(BufReader<UnixStream>);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The next answer; `None` if the connection was closed.
    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        // A socket that is closed with unread bytes is reset.
        self.0.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["version"], 1, "{answer}");
        Some(answer)
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.answer().unwrap()
    }

    #[track_caller]
    fn refuses(&mut self, line: &[u8], expected: &str) {
        self.send(line);
        let answer = self.answer().unwrap();
        assert_eq!(answer["ok"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(expected), "{answer}");
    }

    fn stats(&mut self) -> Value {
        self.ask(&json!({ "ask": "stats" }))["stats"].take()
    }

    /// The first statistics that are as expected.
    #[track_caller]
    pub(crate) fn stats_with(&mut self, is_there: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let stats = self.stats();
            if is_there(&stats) {
                return stats;
            }
            assert!(Instant::now() < end, "{stats:#}");
        }
    }
}

fn named<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

fn done(stats: &Value, node: &str) -> u64 {
    named(&stats["nodes"], "name", node)["done"].as_u64().unwrap()
}

#[test]
fn what_a_monitor_sees_is_what_the_report_has() {
    let folder = Folder::with("monitor-stats", TWO);
    let run = Watched::begin(&folder, "graph.yaml --monitor --json --telemetry full");
    assert_eq!(run.socket, folder.0.join(format!("limen/two-{}.sock", run.child.id())));
    assert_eq!((mode(&folder.0.join("limen")), mode(&run.socket)), (0o700, 0o600));
    let mut client = run.client();
    let stats = client.stats_with(|stats| {
        done(stats, "counted") == 2000 && stats["paths"].as_array().unwrap().len() == 2 && done(stats, "passing") > 0
    });
    assert_eq!((&stats["graph"], &stats["state"]), (&json!("two"), &json!("running")));
    assert_eq!(stats["pid"].as_u64(), Some(u64::from(run.child.id())));
    let node = named(&stats["nodes"], "name", "passing");
    assert_eq!((&node["kind"], &node["role"], &node["failed"]), (&json!("null"), &json!("sink"), &json!(0)));
    let edge = named(&stats["edges"], "to", "passing/in");
    assert_eq!((&edge["from"], &edge["capacity"], &edge["lost"]), (&json!("goes_on/value"), &json!(7), &json!(0)));
    let workers = stats["workers"].as_array().unwrap();
    let on = workers.iter().flat_map(|worker| worker["nodes"].as_array().unwrap()).count();
    assert_eq!(on, 4, "{workers:?}");
    // The branch that has ended is as in the report; the other only grows.
    assert_eq!(client.ask(&json!({ "ask": "stop" })), json!({ "version": 1, "ok": true }));
    let socket = run.socket.clone();
    let report = run.end().expect(0, "", "").json();
    assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("stopped"), &json!(0)));
    for name in ["ends", "counted"] {
        let (seen, reported) = (named(&stats["nodes"], "name", name), named(&report["nodes"], "name", name));
        for key in ["taken", "done", "failed", "kind", "worker"] {
            assert_eq!(seen[key], reported[key], "{name} {key}");
        }
    }
    let (seen, reported) = (named(&stats["edges"], "to", "counted/in"), named(&report["edges"], "to", "counted/in"));
    assert_eq!((&seen["sent"], &seen["depth"]), (&reported["sent"], &reported["left"]));
    assert!(done(&stats, "passing") <= done(&report, "passing"));
    assert!(!socket.exists());
}

#[test]
fn a_setting_is_changed_while_the_graph_runs() {
    let folder = Folder::with("monitor-set", "");
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/policies/throttle.yaml");
    let words = format!("{} --monitor --json --set nodes.sensor.config.count=1000000", graph.display());
    let run = Watched::begin(&folder, &words);
    let mut client = run.client();
    let before = client.stats_with(|stats| done(stats, "sensor") >= 30);
    assert!(done(&before, "end") * 5 < done(&before, "sensor"), "{before:#}");
    let setting = &named(&before["nodes"], "name", "throttle")["settings"][0];
    assert_eq!(setting["name"], "rate");
    for (node, name, value, expected) in [
        ("throtle", "rate", 1.0, "unknown node `throtle`: "),
        ("throttle", "speed", 1.0, "unknown setting `speed` of `throttle`: "),
        ("throttle", "rate", -1.0, "`rate` of `throttle` must be "),
    ] {
        let line = json!({ "ask": "set", "node": node, "name": name, "value": value });
        client.refuses(format!("{line}\n").as_bytes(), expected);
    }
    let set = client.ask(&json!({ "ask": "set", "node": "throttle", "name": "rate", "value": 1e6 }));
    assert_eq!(set, json!({ "version": 1, "ok": true }));
    // From now on nearly everything passes.
    let then = client.stats();
    client.stats_with(|stats| {
        let (sent, passed) = (done(stats, "sensor") - done(&then, "sensor"), done(stats, "end") - done(&then, "end"));
        sent >= 30 && passed * 10 >= sent * 8
    });
    client.ask(&json!({ "ask": "stop" }));
    run.end().expect(0, "\"outcome\": \"stopped\"", "");
}

#[test]
fn no_client_disturbs_the_run_or_another_client() {
    let folder = Folder::with("monitor-clients", TWO);
    let run = Watched::begin(&folder, "graph.yaml --monitor --json");
    let mut first = run.client();
    let expected = r#"expected {"ask":"stats"}"#;
    for line in
        [&b"stats\n"[..], b"{}\n", b"{\"ask\":\"sto\"}\n", b"\xff\xfe\x00\n", b"\x1b[2J\n", b"[[[[[[[[\n", b"1e999\n"]
    {
        first.refuses(line, expected);
    }
    // Blank lines ask for nothing, and requests may arrive in pieces or together.
    first.send(b"\n \n{\"ask\":");
    first.send(b"\"stats\"}\n{\"ask\":\"stats\"}\nx\n");
    assert_eq!(first.answer().unwrap()["ok"], true);
    assert_eq!(first.answer().unwrap()["ok"], true);
    assert_eq!(first.answer().unwrap()["ok"], false);
    let mut long = run.client();
    long.refuses(&b" ".repeat((64 << 10) + 1), "a line must be at most 65536 bytes");
    assert_eq!(long.answer(), None);
    // A client that closes in the middle of a line, and one that closes its side after a request.
    let mut half = run.client();
    half.send(b"{\"ask\":\"st");
    drop(half);
    let mut last = run.client();
    last.send(b"{\"ask\":\"stats\"}");
    last.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(last.answer().unwrap()["ok"], true);
    assert_eq!(last.answer(), None);
    // One that asks without ever reading, until nothing more is taken from it.
    let deaf = run.client();
    deaf.0.get_ref().set_nonblocking(true).unwrap();
    while deaf.0.get_ref().write(&b"{\"ask\":\"stats\"}\n".repeat(100)).is_ok() {}
    assert_eq!(first.stats()["graph"], "two");
    // Silent clients, and those that send half a line, keep nobody out.
    for sent in [&b""[..], b"{\"ask\""] {
        let mut silent: Vec<Client> = (0..64).map(|_| run.client()).collect();
        silent.iter_mut().for_each(|client| client.send(sent));
        assert_eq!(run.client().stats()["graph"], "two");
        assert_eq!(first.stats()["graph"], "two");
    }
    assert_eq!(run.client().ask(&json!({ "ask": "stop" }))["ok"], true);
    let report = run.end().expect(0, "", "").json();
    assert_eq!((&report["outcome"], &report["bugs"]), (&json!("stopped"), &json!([])));
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let text = TWO.replace("pattern: counter, rate: 200Hz", "pattern: counter, count: 3") + "run: { monitor: true }\n";
    let folder = Folder::with("monitor-folder", &text);
    let sockets = folder.0.join("limen");
    let is_root = fs::metadata("/proc/self").is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0);
    let refused: [(&str, &dyn Fn()); 4] = [
        ("is open to other users (mode 755): run `chmod 700 ", &|| {
            fs::create_dir(&sockets).unwrap();
            fs::set_permissions(&sockets, Permissions::from_mode(0o755)).unwrap();
        }),
        ("is open to other users (mode 1777): run `chmod 700 ", &|| {
            fs::create_dir(&sockets).unwrap();
            fs::set_permissions(&sockets, Permissions::from_mode(0o1777)).unwrap();
        }),
        ("is not a folder: remove the file", &|| symlink("/tmp", &sockets).unwrap()),
        ("belongs to user 7, not to user 0: remove the folder, or set XDG_RUNTIME_DIR", &|| {
            fs::create_dir(&sockets).unwrap();
            fs::set_permissions(&sockets, Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&sockets, Some(7), None).unwrap();
        }),
    ];
    for (expected, make) in refused {
        // Only root can give a folder away.
        if expected.starts_with("belongs") && !is_root {
            continue;
        }
        make();
        let run = |words| Ran::from(command(&folder, words).output().unwrap());
        let ran = run("graph.yaml --monitor");
        assert!(ran.expect(2, "", expected).err.contains("; nothing has run\n"), "{}", ran.err);
        // The graph's own wish is not worth more than the run.
        let ran = run("graph.yaml");
        ran.expect(0, "finished", expected).expect(0, "", "`run: { monitor: true }`: ");
        assert!(ran.err.contains("; the run continues without a monitor\n"), "{}", ran.err);
        fs::remove_dir(&sockets).or_else(|_| fs::remove_file(&sockets)).unwrap();
    }
    let ran = Ran::from(command(&folder, "graph.yaml").output().unwrap());
    ran.expect(0, "finished", "`limen-top` can watch at ");
    assert_eq!((mode(&sockets), fs::read_dir(&sockets).unwrap().count()), (0o700, 0));
}

#[test]
fn sockets_of_dead_processes_are_removed_and_no_others() {
    let folder = Folder::with("monitor-stale", TWO);
    let sockets = folder.0.join("limen");
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, Permissions::from_mode(0o700)).unwrap();
    let path = |name: String| sockets.join(name);
    // A process that has certainly ended.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (stale, lives) = (path(format!("a-{}.sock", ended.id())), path(format!("a-{}.sock", std::process::id())));
    let (serves, other) = (path(format!("b-{}.sock", ended.id())), path("notes.txt".into()));
    drop((UnixListener::bind(&stale).unwrap(), UnixListener::bind(&lives).unwrap()));
    let _listener = UnixListener::bind(&serves).unwrap();
    fs::write(&other, "mine").unwrap();
    // The second signal ends the process at once, but not without its socket.
    let slow = "latency: 30s";
    let graph = format!(
        "version: 1\nnodes:\n  numbers: {{ kind: synthetic, config: {{ pattern: counter, dtype: f32, shape: [1] }} }}\n  \
         slow: {{ kind: infer, from: numbers, config: {{ backend: mock, mock: {{ inputs: {{ x: 'f32[1]' }}, \
         outputs: {{ y: 'f32[1]' }}, {slow} }} }} }}\n  end: {{ kind: 'null', from: slow }}\n"
    );
    fs::write(folder.0.join("slow.yaml"), graph).unwrap();
    let mut run = Watched::begin(&folder, "slow.yaml --monitor");
    assert!(!stale.exists() && lives.exists() && serves.exists() && other.exists());
    assert!(run.socket.exists());
    run.client().stats();
    signal(&run.child, "INT");
    let mut line = String::new();
    while !line.contains("stopping") {
        line.clear();
        assert_ne!(run.err.read_line(&mut line).unwrap(), 0);
    }
    assert_eq!(run.client().stats()["state"], "stopping");
    signal_until_it_ends(&mut run.child, "INT");
    let socket = run.socket.clone();
    assert_eq!(run.end().code, Some(130));
    assert!(!socket.exists());
}
