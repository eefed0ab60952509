//! Files from servers that answer wrongly, slowly, or from somewhere else.

use super::*;
use limen::{Layers, Options, Plan, Registry};
use limen_infer::internal::sha256;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// An answer of a server; then it closes the connection.
enum Answer {
    Bytes(Vec<u8>),
    /// Nothing, until the client goes.
    Silence,
    /// A head, and then one piece after the other until the client goes, with a pause.
    Endless(String, Vec<u8>, Duration),
}

/// A server on this machine, and the requests that it got.
struct Server {
    host: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers by the number of the request and its head.
    fn new(answer: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (got, answer) = (requests.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (got, answer) = (got.clone(), answer.clone());
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let Some(head) = head_of(&mut stream) else { return };
                    let number = {
                        let mut got = got.lock().unwrap();
                        got.push(head.clone());
                        got.len() - 1
                    };
                    match answer(number, &head) {
                        Answer::Bytes(bytes) => _ = stream.write_all(&bytes),
                        Answer::Silence => _ = stream.read(&mut [0]),
                        Answer::Endless(head, piece, pause) => {
                            let _ = stream.write_all(head.as_bytes());
                            while stream.write_all(&piece).is_ok() {
                                thread::sleep(pause);
                            }
                        }
                    }
                });
            }
        });
        Server { host, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.host)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn head_of(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap().to_lowercase())
}

/// An answer with a body and its length.
fn answer(status: &str, headers: &str, body: &[u8]) -> Answer {
    broken(status, headers, body, body.len())
}

/// An answer that breaks off after some bytes.
fn broken(status: &str, headers: &str, body: &[u8], sent: usize) -> Answer {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    Answer::Bytes([head.as_bytes(), &body[..sent]].concat())
}

/// The first byte that a request asks for.
fn range(head: &str) -> Option<usize> {
    let line = head.lines().find_map(|line| line.strip_prefix("range: bytes="))?;
    line.trim_end_matches('-').parse().ok()
}

/// A folder with a graph and a cache, and how files are fetched.
struct Bench {
    folder: tempfile::TempDir,
    environment: HashMap<&'static str, String>,
    headers: Vec<String>,
    max_bytes: u64,
    max_cache: u64,
    idle: Duration,
    total: Duration,
    is_locked: bool,
    is_update: bool,
}

impl Bench {
    fn new() -> Self {
        let minute = Duration::from_secs(60);
        Bench {
            folder: tempfile::tempdir().unwrap(),
            environment: HashMap::new(),
            headers: Vec::new(),
            max_bytes: 1 << 20,
            max_cache: 1 << 30,
            idle: minute,
            total: minute,
            is_locked: false,
            is_update: false,
        }
    }

    fn graph(&self) -> std::path::PathBuf {
        self.folder.path().join("graph.yaml")
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }

    fn fetch(&self, urls: &[&str]) -> FetchSummary {
        let settings = FetchSettings {
            cache: Some(&self.cache()),
            is_locked: self.is_locked,
            is_update: self.is_update,
            headers: &self.headers,
            max_bytes: self.max_bytes,
            max_cache: self.max_cache,
            idle: self.idle,
            total: self.total,
            pause: Duration::from_millis(1),
            trials: &Trials::default(),
            is_shown: false,
            variable: &|name| self.environment.get(name).cloned(),
        };
        fetch(&self.graph(), urls.iter().map(|url| url.to_string()).collect(), &settings).unwrap()
    }

    /// The content of a fetched file, or why there is none.
    fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let summary = self.fetch(&[url]);
        match summary.errors.get(url) {
            Some(why) => Err(why.clone()),
            None => Ok(self.content(&summary.files[url].sha256)),
        }
    }

    fn content(&self, sum: &str) -> Vec<u8> {
        let content = std::fs::read(self.cache().join("fetched").join(sum)).unwrap();
        assert_eq!(sha256(&content), sum);
        content
    }

    fn lock(&self) -> Lock {
        Lock::read(&Lock::path_for(&self.graph())).unwrap()
    }
}

fn body() -> Vec<u8> {
    (0..1000u32).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn a_file_is_fetched_once_and_pinned() {
    let server = Server::new(|_, _| answer("200 OK", "", &body()));
    let (bench, url) = (Bench::new(), server.url("a/w.npy"));
    let first = bench.fetch(&[&url]);
    assert!(first.files[&url].is_new && first.is_lock_changed && first.errors.is_empty());
    assert_eq!(bench.content(&sha256(&body())), body());
    let lock = bench.lock();
    assert_eq!(lock.files[&url], LockedFile { sha256: sha256(&body()), size: 1000, revision: None });
    let second = bench.fetch(&[&url]);
    assert!(!second.files[&url].is_new && !second.is_lock_changed);
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].contains("accept-encoding: identity"));
    // Changed in the cache: fetched again.
    std::fs::write(bench.cache().join("fetched").join(sha256(&body())), vec![0; 1000]).unwrap();
    assert!(bench.fetch(&[&url]).files[&url].is_new);
    bench.content(&sha256(&body()));
    // Other entries of the lock stay.
    let other = server.url("b.npy");
    bench.fetch(&[&other]);
    assert_eq!(bench.lock().files.keys().collect::<Vec<_>>(), [&url, &other]);
}

#[test]
fn a_download_goes_on_where_it_broke_off() {
    // Each answer has at most 400 bytes.
    let server = Server::new(|_, head| {
        let (body, at) = (body(), range(head).unwrap_or(0));
        let sent = (body.len() - at).min(400);
        match at {
            0 => broken("200 OK", "ETag: \"v1\"\r\n", &body, sent),
            at => {
                assert!(head.contains("if-range: \"v1\""));
                broken("206 Partial Content", &format!("Content-Range: bytes {at}-999/1000\r\n"), &body[at..], sent)
            }
        }
    });
    let bench = Bench::new();
    assert_eq!(bench.get(&server.url("w")), Ok(body()));
    assert_eq!(server.requests().iter().map(|head| range(head)).collect::<Vec<_>>(), [None, Some(400), Some(800)]);
}

#[test]
fn another_process_goes_on_with_a_download() {
    let server = Server::new(|number, head| match (number, range(head)) {
        (0, _) => broken("200 OK", "ETag: \"v1\"\r\n", &body(), 300),
        (1, _) => answer("404 Not Found", "", b""),
        (_, Some(300)) => answer("206 Partial Content", "Content-Range: bytes 300-999/1000\r\n", &body()[300..]),
        other => panic!("{other:?}"),
    });
    let (bench, url) = (Bench::new(), server.url("w"));
    assert_eq!(bench.get(&url), Err("`127.0.0.1` answered 404 Not Found".into()));
    assert!(!Lock::path_for(&bench.graph()).exists());
    assert_eq!(bench.get(&url), Ok(body()));
}

#[test]
fn a_file_that_cannot_be_resumed_begins_again() {
    let newer: Vec<u8> = body().iter().map(|byte| byte ^ 1).collect();
    let begun = |tag: &str| broken("200 OK", tag, &body(), 400);
    for (what, tag, second) in [
        ("no tag", "", None),
        ("a weak tag", "ETag: W/\"v1\"\r\n", None),
        ("another version", "ETag: \"v1\"\r\n", Some(("200 OK", "ETag: \"v2\"\r\n"))),
        ("another range", "ETag: \"v1\"\r\n", Some(("206 Partial Content", "Content-Range: bytes 0-999/1000\r\n"))),
        ("no range", "ETag: \"v1\"\r\n", Some(("206 Partial Content", ""))),
        ("no such range", "ETag: \"v1\"\r\n", Some(("416 Range Not Satisfiable", ""))),
    ] {
        let content = newer.clone();
        let server = Server::new(move |number, head| match (number, range(head), second) {
            (0, None, _) => begun(tag),
            (1, Some(400), Some((status, headers))) => answer(status, headers, &content),
            (_, None, _) => answer("200 OK", "", &content),
            other => panic!("{other:?}"),
        });
        assert_eq!(Bench::new().get(&server.url("w")), Ok(newer.clone()), "{what}");
    }
}

#[test]
fn a_file_that_differs_from_the_lock_is_refused() {
    let server = Server::new(|number, _| answer("200 OK", "", &vec![number as u8; 10 + number / 3]));
    let (mut bench, url) = (Bench::new(), server.url("w"));
    assert_eq!(bench.get(&url), Ok(vec![0; 10]));
    let lock = bench.lock();
    std::fs::remove_dir_all(bench.cache()).unwrap();
    let expected = format!("expected SHA-256 {} as in the lock, found {}", sha256(&[0; 10]), sha256(&[1; 10]));
    assert_eq!(bench.get(&url), Err(expected));
    bench.is_locked = true;
    assert!(bench.get(&url).unwrap_err().starts_with("expected SHA-256"));
    assert_eq!(bench.get(&url), Err("expected 10 B as in the lock, found more".into()));
    assert_eq!(bench.lock(), lock);
    let names = std::fs::read_dir(bench.cache().join("fetched")).unwrap();
    assert!(names.flatten().all(|entry| entry.file_name().to_string_lossy().starts_with('.')));
    let other = server.url("other");
    assert_eq!(bench.get(&other), Err("is not in the lock: run without `--locked` to add the URL".into()));
    (bench.is_locked, bench.is_update) = (false, true);
    assert_eq!(bench.get(&url), Ok(vec![4; 11]));
    assert_eq!(bench.lock().files[&url].size, 11);
}

#[test]
fn a_resumed_file_with_a_wrong_checksum_begins_again() {
    let server = Server::new(|number, head| match (number, range(head)) {
        (0 | 3, None) => answer("200 OK", "ETag: \"v1\"\r\n", &body()),
        (1, None) => broken("200 OK", "ETag: \"v1\"\r\n", &[9; 1000], 400),
        (2, Some(400)) => answer("206 Partial Content", "Content-Range: bytes 400-999/1000\r\n", &body()[400..]),
        other => panic!("{other:?}"),
    });
    let (bench, url) = (Bench::new(), server.url("w"));
    assert_eq!(bench.get(&url), Ok(body()));
    std::fs::remove_dir_all(bench.cache()).unwrap();
    assert_eq!(bench.get(&url), Ok(body()));
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_busy_server_is_asked_again_and_a_final_answer_is_not() {
    for status in ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests", "408 Timeout"] {
        let server = Server::new(move |number, _| match number {
            0..3 => answer(status, "Retry-After: 0\r\n", b""),
            _ => answer("200 OK", "", b"there"),
        });
        assert_eq!(Bench::new().get(&server.url("w")), Ok(b"there".to_vec()), "{status}");
        assert_eq!(server.requests().len(), 4);
    }
    for (status, requests, expected) in [
        ("500 Internal Server Error", 5, "`127.0.0.1` answered 500 Internal Server Error (5 attempts)"),
        ("404 Not Found", 1, "`127.0.0.1` answered 404 Not Found"),
        (
            "401 Unauthorized",
            1,
            "answered 401 Unauthorized; name a header with `--header-env`, or for `s3://` set the key of AWS",
        ),
        ("302 Found", 1, "answered 302 Found"),
        ("204 No Content", 1, "answered 204 No Content"),
    ] {
        let server = Server::new(move |_, _| answer(status, "", b""));
        let why = Bench::new().get(&server.url("w")).unwrap_err();
        assert!(why.ends_with(expected) && server.requests().len() == requests, "{why}");
    }
}

#[test]
fn a_silent_a_slow_and_an_endless_server_end() {
    let mut bench = Bench::new();
    bench.idle = Duration::from_millis(50);
    let server = Server::new(|_, _| Answer::Silence);
    let why = bench.get(&server.url("w")).unwrap_err();
    assert!(why.contains("was silent for 50.0 ms; allow more with `--idle-timeout` (5 attempts)"), "{why}");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let endless = |pause| move |_: usize, _: &str| Answer::Endless(head.into(), b"4\r\nmore\r\n".to_vec(), pause);
    let mut bench = Bench::new();
    bench.max_bytes = 4000;
    let why = bench.get(&Server::new(endless(Duration::ZERO)).url("w")).unwrap_err();
    assert_eq!(why, format!("has more than {}; allow more with `--max-bytes`", limen::unit::show_bytes(4000)));
    let mut bench = Bench::new();
    bench.total = Duration::from_millis(200);
    let why = bench.get(&Server::new(endless(Duration::from_millis(5))).url("w")).unwrap_err();
    assert!(why.contains("was not complete after 200"), "{why}");
    // Nothing is reserved for a length that is only announced.
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n";
    let server = Server::new(move |_, _| Answer::Bytes(head.as_bytes().to_vec()));
    assert!(Bench::new().get(&server.url("w")).unwrap_err().contains("has more than"));
    // A head without an end.
    let server =
        Server::new(|_, _| Answer::Endless("HTTP/1.1 200 OK\r\n".into(), b"a: b\r\n".to_vec(), Duration::ZERO));
    assert!(Bench::new().get(&server.url("w")).is_err());
}

#[test]
fn a_body_that_is_encoded_or_has_no_end_is_refused() {
    let server = Server::new(|_, head| match head {
        _ if head.starts_with("get /gzip ") => answer("200 OK", "Content-Encoding: gzip\r\n", b"\x1f\x8b"),
        _ if head.starts_with("get /half ") => {
            Answer::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nhalf".to_vec())
        }
        _ if head.starts_with("get /whole ") => {
            Answer::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n".to_vec())
        }
        _ => Answer::Bytes(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nopen".to_vec()),
    });
    let bench = Bench::new();
    let get = |path| bench.get(&server.url(path));
    assert_eq!(get("gzip"), Err("expected the file as it is, found `Content-Encoding: gzip`".into()));
    assert_eq!(get("open").unwrap_err(), "expected `Content-Length` or chunks: a lost end could not be recognised");
    assert!(get("half").unwrap_err().ends_with("(5 attempts)"));
    assert_eq!(get("whole"), Ok(b"whole".to_vec()));
    // With a lock, the end is known.
    let mut lock = bench.lock();
    let file = |size, content: &[u8]| LockedFile { sha256: sha256(content), size, revision: None };
    lock.files.insert(server.url("open"), file(4, b"open"));
    lock.files.insert(server.url("open2"), file(5, b"open!"));
    lock.write(&Lock::path_for(&bench.graph())).unwrap();
    assert_eq!(get("open"), Ok(b"open".to_vec()));
    assert_eq!(get("open2"), Err("broke off after 4 B of 5 B (5 attempts)".into()));
}

#[test]
fn credentials_stay_with_their_host() {
    let other =
        Server::new(|_, _| answer("200 OK", "X-Repo-Commit: ffffffffffffffffffffffffffffffffffffffff\r\n", &body()));
    let to = other.url("elsewhere?signature=hidden");
    let server = Server::new(move |_, head| match head {
        _ if head.starts_with("get /again ") => answer("302 Found", &format!("Location: {to}\r\n"), b""),
        _ => answer("307 Temporary Redirect", "Location: /again\r\n", b""),
    });
    let mut bench = Bench::new();
    bench.environment.insert("TOKEN", "web_hidden".into());
    bench.environment.insert("HF_TOKEN", "hub_hidden".into());
    bench.environment.insert("HF_ENDPOINT", format!("http://{}", server.host));
    bench.environment.insert("AWS_ENDPOINT_URL", format!("http://{}/s3", server.host));
    bench.environment.insert("AWS_ACCESS_KEY_ID", "AKID".into());
    bench.environment.insert("AWS_SECRET_ACCESS_KEY", "aws_hidden".into());
    bench.environment.insert("AWS_SESSION_TOKEN", "session_hidden".into());
    bench.headers = vec![format!("{}:X-Key=TOKEN", server.host)];
    for (url, expected) in [
        (server.url("m"), "x-key: web_hidden"),
        ("hf://acme/voice/m".into(), "authorization: bearer hub_hidden"),
        ("s3://bucket/m".into(), "x-amz-security-token: session_hidden"),
    ] {
        let before = server.requests().len();
        let summary = bench.fetch(&[&url]);
        assert!(summary.errors.is_empty(), "{summary:?}");
        // Asked twice on its own host, and then elsewhere.
        let requests = server.requests().split_off(before);
        assert!(requests.len() == 2 && requests.iter().all(|head| head.contains(expected)), "{requests:?}");
        let elsewhere = other.requests().pop().unwrap();
        assert!(!elsewhere.replace("signature=hidden", "").contains("hidden"), "{elsewhere}");
        assert!(!elsewhere.contains("authorization") && !elsewhere.contains("x-amz"), "{elsewhere}");
        // Only the hub says which commit it is.
        assert_eq!(bench.lock().files[&url].revision, None);
        std::fs::remove_dir_all(bench.cache()).unwrap();
    }
    let lock = std::fs::read_to_string(Lock::path_for(&bench.graph())).unwrap();
    assert!(!lock.contains("hidden") && !lock.contains("AKID"), "{lock}");
    // Nothing secret is in an error either.
    let refused = Server::new(|_, _| answer("403 Forbidden", "", b""));
    bench.environment.insert("HF_ENDPOINT", format!("http://{}", refused.host));
    assert_eq!(bench.get("hf://acme/voice/n"), Err("`127.0.0.1` answered 403 Forbidden; check HF_TOKEN".into()));
    for wrong in ["hidden", "a:b", "a=b", ":a=b", "a:=b", "a:b=", "http://a:b=c", "a:b=c d"] {
        let why = host_header(wrong, &|_| Some("value".into())).unwrap_err();
        assert!(why.contains("expected HOST:NAME=VARIABLE") && !why.contains("hidden"), "{wrong}: {why}");
    }
    assert_eq!(host_header("h:a=TOKEN", &|_| None).unwrap_err(), "--header-env: TOKEN is not set");
    assert!(host_header("h:a=TOKEN", &|_| Some("hidden\n".into())).is_err_and(|why| !why.contains("hidden")));
    // A redirect that never ends, and one to a file of this machine.
    let circle = Server::new(|_, head| match head {
        _ if head.starts_with("get /file ") => answer("302 Found", "Location: file:///etc/passwd\r\n", b""),
        _ => answer("302 Found", "Location: /x\r\n", b""),
    });
    let bench = Bench::new();
    assert_eq!(bench.get(&circle.url("m")), Err("was redirected more than 10 times".into()));
    assert!(bench.get(&circle.url("file")).is_err());
}

#[test]
fn the_hub_pins_the_commit_that_it_answers_with() {
    const OLD: &str = "0123456789abcdef0123456789abcdef01234567";
    const NEW: &str = "fedcba9876543210fedcba9876543210fedcba98";
    let server = Server::new(|number, head| {
        let commit = if number == 0 { OLD } else { NEW };
        assert!(head.starts_with("get /acme/voice/resolve/"), "{head}");
        answer("200 OK", &format!("X-Repo-Commit: {commit}\r\n"), if head.contains(NEW) { b"new" } else { b"old" })
    });
    let mut bench = Bench::new();
    bench.environment.insert("HF_ENDPOINT", format!("http://{}", server.host));
    let url = "hf://acme/voice/w.npy";
    for (is_update, asked, pinned) in [(false, "main", OLD), (false, OLD, OLD), (true, "main", NEW)] {
        let _ = std::fs::remove_dir_all(bench.cache());
        bench.is_update = is_update;
        assert_eq!(bench.get(url), Ok(b"old".to_vec()));
        let last = server.requests().pop().unwrap();
        assert!(last.starts_with(&format!("get /acme/voice/resolve/{asked}/w.npy ")), "{last}");
        assert_eq!(bench.lock().files[url].revision.as_deref(), Some(pinned));
    }
}

#[test]
fn hostile_names_reach_no_file_outside_the_cache() {
    let server = Server::new(|_, _| answer("200 OK", "", b"there"));
    let bench = Bench::new();
    for url in [server.url("../../w"), server.url("a/.."), "hf://../../etc/passwd".into(), "s3://bucket/../w".into()] {
        assert!(bench.get(&url).unwrap_err().contains("`..`"), "{url}");
    }
    assert!(server.requests().is_empty());
    assert_eq!(bench.get(&server.url("%2e%2e%2fw")), Ok(b"there".to_vec()));
    let names = std::fs::read_dir(bench.cache().join("fetched")).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names.collect::<Vec<_>>(), [sha256(b"there").as_str()]);
}

#[test]
fn many_files_come_at_once_and_the_cache_stays_small() {
    let server = Server::new(|_, head| {
        let path = head.split(' ').nth(1).unwrap();
        answer("200 OK", "", format!("{path:->100}").as_bytes())
    });
    let (mut bench, other) = (Bench::new(), Bench::new());
    let urls: Vec<String> = (0..20).map(|number| server.url(&format!("w{number}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    // Two processes with one cache.
    std::os::unix::fs::symlink(bench.cache(), other.cache()).unwrap();
    std::fs::create_dir(bench.cache()).unwrap();
    thread::scope(|scope| {
        for bench in [&bench, &other] {
            scope.spawn(|| {
                let summary = bench.fetch(&urls);
                assert!(summary.files.len() == 20 && summary.errors.is_empty(), "{summary:?}");
            });
        }
    });
    assert_eq!(bench.lock(), other.lock());
    let folder = bench.cache().join("fetched");
    let count = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(count(), 20);
    bench.max_cache = 250;
    let notes = bench.fetch(&urls[..3]).notes;
    assert_eq!(notes[0], "17 unused files were removed from the cache");
    assert!(notes[1].ends_with("all of it is in use") && count() == 3, "{notes:?}");
}

/// A field of a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// An ONNX model whose only weight is in another file.
fn model(weights: &str) -> Vec<u8> {
    let entry = [field(1, b"location"), field(2, weights.as_bytes())].concat();
    let weight = [&[8, 1, 16, 1][..], &field(8, b"w"), &field(13, &entry), &[14 << 3, 1]].concat();
    let opset = [16, 17];
    [&[8, 8][..], &field(7, &[field(2, b"g"), field(5, &weight)].concat()), &field(8, &opset)].concat()
}

#[test]
fn the_weights_beside_a_model_are_fetched_too() {
    let server = Server::new(|_, head| match head.split(' ').nth(1).unwrap() {
        "/a/m.onnx" => answer("200 OK", "", &model("./w.data")),
        "/a/evil.onnx" => answer("200 OK", "", &model("../w.data")),
        "/a/text.onnx" => answer("200 OK", "", b"text"),
        "/a/w.data" => answer("200 OK", "", &1f32.to_le_bytes()),
        other => panic!("{other}"),
    });
    let bench = Bench::new();
    let summary = bench.fetch(&[&server.url("a/m.onnx")]);
    assert_eq!(summary.files.keys().collect::<Vec<_>>(), [&server.url("a/m.onnx"), &server.url("a/w.data")]);
    assert_eq!((bench.lock().files.len(), summary.errors.len()), (2, 0));
    assert_eq!(bench.fetch(&[&server.url("a/evil.onnx")]).files.len(), 1);
    let summary = bench.fetch(&[&server.url("a/text.onnx")]);
    assert!(summary.notes[0].contains("the files of the weights are unknown"), "{:?}", summary.notes);
}

/// Plans a graph with the files of its lock; returns the first problem.
fn plan(bench: &Bench, registry: &Registry) -> Result<(), String> {
    let remote = Some(fetched_files(&bench.graph(), Some(&bench.cache())));
    let plan = Plan::from_file(bench.graph(), &Layers::default(), registry, &Options { remote, ..Options::default() });
    plan.map(|_| ()).map_err(|problems| {
        assert_eq!(problems.0.len(), 1, "{problems}");
        format!("{} {}", problems.0[0].message, problems.0[0].help.as_deref().unwrap_or_default())
    })
}

#[test]
fn a_graph_runs_on_what_was_fetched_and_on_nothing_else() {
    let mut array = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }".to_vec();
    array.resize(127, b' ');
    array.extend(*b"\n\0\0\x80\x3f");
    let server = Server::new(move |_, _| answer("200 OK", "", &array));
    let (bench, url) = (Bench::new(), server.url("w.npy"));
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: synthetic, config: {{ pattern: counter, count: 1, shape: [1], dtype: f32 }} }}\n  \
         b: {{ kind: linear, config: {{ weight: {{ file: '{url}' }} }}, from: a }}\n  c: {{ kind: 'null', from: b }}\n"
    );
    std::fs::write(bench.graph(), text).unwrap();
    let registry = crate::registry();
    let why = plan(&bench, &registry).unwrap_err();
    let word = |path: std::path::PathBuf| path.display().to_string();
    let help = format!("run `limen-run fetch {} --cache {}`", word(bench.graph()), word(bench.cache()));
    assert!(why.contains("was not fetched: the lock has no entry for the URL") && why.contains(&help), "{why}");
    let spec = limen::Spec::from_file(bench.graph()).unwrap();
    let urls: Vec<String> = spec.remote_files().into_iter().map(|(url, _)| url).collect();
    assert_eq!(urls, std::slice::from_ref(&url));
    let summary = bench.fetch(&[&url]);
    plan(&bench, &registry).unwrap();
    assert_eq!(server.requests().len(), 1);
    let path = bench.cache().join("fetched").join(&summary.files[&url].sha256);
    let mut content = std::fs::read(&path).unwrap();
    *content.last_mut().unwrap() ^= 1;
    for (content, expected) in [(Some(content), "found "), (Some(Vec::new()), "found 0 B"), (None, "not in the cache")]
    {
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let why = plan(&bench, &registry).unwrap_err();
        assert!(why.contains(expected) && why.contains(&help), "{why}");
    }
    std::fs::write(Lock::path_for(&bench.graph()), "{").unwrap();
    assert!(plan(&bench, &registry).unwrap_err().contains("expected a lock that `limen-run fetch` wrote"));
}
