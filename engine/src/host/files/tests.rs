//! Which files are opened, and which are refused.

use super::*;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::Instant;

/// `graph/` with files, and links to inside and outside.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["graph", "graph/sub", "outside"] {
        fs::create_dir(at(name)).unwrap();
    }
    for name in ["graph/a", "graph/sub/b", "outside/c"] {
        fs::write(at(name), name).unwrap();
    }
    nix::unistd::mkfifo(&at("graph/pipe"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    for (to, name) in [
        ("a", "graph/to-a"),
        ("sub/../to-a", "graph/to-to-a"),
        ("../outside", "graph/to-outside"),
        ("../outside/c", "graph/to-c"),
        ("../outside/none", "graph/to-none"),
        ("/dev/zero", "graph/zero"),
        ("circle", "graph/circle"),
    ] {
        symlink(to, at(name)).unwrap();
    }
    folder
}

#[test]
fn a_missing_file_is_compared_with_the_names_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("speech.wav"), "").unwrap();
    let folders = Folders { graph: folder.path().into(), ..Folders::default() };
    for (path, help) in [
        ("spech.wav", "did you mean `speech.wav`?"),
        ("image.png", "write the path of an existing file"),
        ("sounds/speech.wav", "write the path of an existing file"),
    ] {
        assert_eq!(folders.open(path).err().map(|error| error.help()).as_deref(), Some(help), "{path}");
    }
}

#[test]
fn a_file_in_memory_is_found_by_its_name_and_nowhere_else() {
    let folder = tree();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("graph/mem:a"), "disk").unwrap();
    fs::write(at("graph/mem:only"), "disk").unwrap();
    let mut folders = Folders { graph: at("graph"), ..Folders::default() };
    folders.memory.add("a", &b"memory"[..]);
    folders.memory.add("voice/b", b"beside".to_vec());
    let missing = "this program does not contain the file: write one of `mem:a`, `mem:voice/b`";
    for (path, expected) in [
        ("mem:a", Ok("memory")),
        ("./mem:a", Ok("disk")),
        ("mem:voice/b", Ok("beside")),
        ("mem:only", Err(missing)),
        ("mem:", Err(missing)),
        ("mem:./a", Err(missing)),
        ("mem:../graph/a", Err(missing)),
        ("mem:voice/../a", Err(missing)),
        ("mem:/etc/hostname", Err(missing)),
        ("mem:mem:a", Err(missing)),
        ("MEM:a", Err("No such file")),
    ] {
        let found = folders.open(path).map_err(|e| e.to_string());
        let found = found.map(|mut file| String::from_utf8(file.read_whole(6).unwrap()).unwrap());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{path}"),
            (Err(found), Err(expected)) => {
                assert!(found.contains(expected) && found.contains(&format!("{path}`")), "{path}: {found}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    let mut file = folders.open("mem:a").unwrap();
    assert_eq!((file.size(), file.path(), file.real()), (6, Path::new("mem:a"), Path::new("mem:a")));
    assert_eq!(file.read_whole(5).unwrap_err().kind(), ErrorKind::FileTooLarge);
    file.seek(SeekFrom::Start(3)).unwrap();
    assert_eq!(file.read_whole(5).unwrap(), b"ory");
    let beside =
        |model: &str, name: &str| folders.memory.open_beside(Path::new(model), name).map(|f| f.path().to_path_buf());
    assert_eq!(beside("mem:voice/model", "./b").unwrap(), Path::new("mem:voice/b"));
    assert_eq!(beside("mem:model", "a").unwrap(), Path::new("mem:a"));
    assert_eq!(beside("mem:voice/model", "a").unwrap_err().kind(), ErrorKind::NotFound);
    // Nothing is written there, and what takes paths takes none of these.
    let only = "expected the path of a file on disk, found `mem:";
    for refused in [
        folders.target("mem:new").map(drop).unwrap_err().to_string(),
        folders.admit_input("mem:a").map(drop).unwrap_err().to_string(),
        folders.input("mem:a").map(drop).unwrap_err(),
        folders.output("mem:a").map(drop).unwrap_err(),
    ] {
        assert!(refused.contains(only), "{refused}");
    }
    assert!(!at("graph/mem:new").exists());
    // Only bytes of its own count, and contents are not shown.
    assert_eq!(folders.memory.owned(), 6);
    assert_eq!(format!("{:?}", folders.memory), r#"{"a": 6, "voice/b": 6}"#);
    assert_eq!(folders.memory.take_opened().into_iter().collect::<Vec<_>>(), ["a", "voice/b"]);
    assert!(folders.memory.take_opened().is_empty());
}

/// Promise (files): A graph reads only regular files in permitted folders.
#[test]
fn only_regular_files_are_opened_and_only_where_a_graph_may_read() {
    let folder = tree();
    let of = |allowed: &[&str]| Folders {
        graph: folder.path().join("graph"),
        allowed: allowed.iter().map(|name| folder.path().join(name)).collect(),
        ..Folders::default()
    };
    for (path, allowed, expected) in [
        ("a", false, "graph/a"),
        ("./sub/../to-to-a", false, "graph/a"),
        ("sub/b", false, "graph/sub/b"),
        ("to-c", true, "outside/c"),
        ("to-outside/c", true, "outside/c"),
        ("../outside/c", true, "outside/c"),
        ("to-c", false, "--allow-path"),
        ("to-none", false, "--allow-path"),
        ("to-outside/c", false, "--allow-path"),
        ("zero", true, "--allow-path"),
        ("/etc/hostname", true, "--allow-path"),
        ("none", false, "No such file"),
        ("pipe", false, "`pipe` is not a regular file"),
        ("sub", false, "`sub` is not a regular file"),
        ("", false, "is not a regular file"),
        ("circle", false, "symbolic links"),
        ("a/b", false, "Not a directory"),
        ("a\0b", false, ""),
    ] {
        let folders = of(if allowed { &["outside"] } else { &[] });
        match folders.open(path) {
            Ok(mut file) => {
                assert_eq!(file.read_whole(100).unwrap(), expected.as_bytes(), "{path}");
                assert_eq!(folders.read.find(&folder.path().join(expected)).as_deref(), Some(file.path()));
            }
            Err(error) => assert!(error.to_string().contains(expected), "{path}: {error}"),
        }
    }
}

/// Promise (files): A symbolic link that appears after the check of a path is not followed.
#[test]
fn a_link_that_appears_in_a_path_is_not_followed() {
    let folder = tree();
    let real = folder.path().canonicalize().unwrap();
    let flags = OFlag::O_RDONLY | PLAIN;
    for (path, expected) in [
        ("graph/a", None),
        ("graph/sub/b", None),
        ("graph", None),
        ("graph/to-a", Some(Errno::ELOOP)),
        ("graph/to-outside/c", Some(Errno::ELOOP)),
        ("graph/none", Some(Errno::ENOENT)),
    ] {
        for flags in [flags, OFlag::O_PATH | OFlag::O_CLOEXEC] {
            // Walked step by step, a link in the middle is not a folder.
            let stepwise = if path.contains("side/c") { Some(Errno::ENOTDIR) } else { expected };
            assert_eq!(open_real(&real.join(path), flags).err(), expected, "{path}");
            assert_eq!(walk(&real.join(path), flags).err(), stepwise, "{path}");
        }
    }
    assert_eq!((walk(Path::new("/"), flags).err(), open_real(Path::new("/"), flags).err()), (None, None));
}

#[test]
fn opening_a_pipe_does_not_block() {
    let folder = tree();
    let began = Instant::now();
    let error = InputFile::open(folder.path().join("graph/pipe")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let target = Target::beneath(&folder.path().join("graph"), "pipe").unwrap();
    assert_eq!(target.append().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn a_read_has_a_bound() {
    let folder = tree();
    let path = folder.path().join("graph/a");
    assert_eq!(read(&path, 7).unwrap(), b"graph/a");
    assert_eq!(read(&path, 6).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert!(system_text("/proc/self/status").unwrap().contains("VmRSS"));
}

/// Promise (files): A file that is read is recognised under every name, including hard links.
#[test]
fn a_file_being_read_is_recognised_by_any_name() {
    let folder = tree();
    let at = |name: &str| folder.path().join("graph").join(name);
    fs::hard_link(at("a"), at("hard")).unwrap();
    let folders = Folders { graph: at(""), ..Folders::default() };
    let planned = folders.clone();
    folders.open("to-a").unwrap();
    for name in ["a", "hard", "to-to-a"] {
        assert_eq!(planned.read.find(&at(name)), Some(at("to-a")), "{name}");
        assert!(planned.target(name).unwrap().append().is_err(), "{name}");
        assert!(planned.target(name).unwrap().begin().is_err(), "{name}");
    }
    let others = folders.read.detached();
    folders.open("sub/b").unwrap();
    assert_eq!((folders.read.find(&at("sub/b")).is_some(), others.find(&at("sub/b"))), (true, None));
}

/// Promise (files): A folder that a link replaces after the check is not followed.
#[test]
fn a_folder_replaced_by_a_link_is_not_followed() {
    let folder = tree();
    let at = |name: &str| folder.path().join(name);
    let folders = Folders { graph: at("graph"), ..Folders::default() };
    let inside = folder.path().canonicalize().unwrap().join("graph/sub");
    // Admitted, and not opened yet.
    let input = folders.admit_input("sub/b").unwrap();
    let target = |name: &str| folders.target(&format!("sub/{name}")).unwrap();
    let (begun, appended, new) = (target("begun"), target("appended"), target("new"));
    fs::rename(at("graph/sub"), at("graph/moved")).unwrap();
    symlink("../outside", at("graph/sub")).unwrap();
    fs::write(at("outside/b"), "outside").unwrap();
    // Without `openat2`, a link in the middle is not a folder.
    let is_refused = |error: io::Error| {
        [Errno::ELOOP, Errno::ENOTDIR].iter().any(|refused| error.raw_os_error() == Some(*refused as i32))
    };
    assert!(is_refused(InputFile::again(&input).unwrap_err()));
    assert!(is_refused(Target::make(&inside, "made".as_ref(), at("graph/sub/made")).unwrap_err()));
    assert!(folders.open("sub/b").unwrap_err().to_string().contains("--allow-path"));
    // Targets prepared before stay in the original folder, whatever its name now.
    begun.begin().unwrap().1.finish().unwrap();
    appended.append().unwrap();
    new.begin_new().unwrap();
    for name in ["begun", "appended", "new"] {
        assert!(at("graph/moved").join(name).is_file() && !at("outside").join(name).exists(), "{name}");
    }
}

#[test]
fn a_file_name_of_any_valid_length_can_be_written() {
    let folder = tree();
    let graph = folder.path().join("graph");
    for (letter, length) in [("a", 224), ("a", 225), ("a", MAX_NAME), ("ä", MAX_NAME / 2), ("€", MAX_NAME / 3)] {
        let name = letter.repeat(length);
        let (file, part) = Target::beneath(&graph, &name).unwrap().begin().unwrap();
        assert!(part.path().is_file() && part.path().to_str().is_some(), "{name}");
        drop(file);
        // Unlocked, as after the process was killed.
        let left = || PartialFiles::default().left(&graph.join(&name));
        assert_eq!(left(), [part.path()], "{name}");
        part.finish().unwrap();
        assert!(graph.join(&name).is_file() && left().is_empty(), "{name}");
    }
    assert!(Target::beneath(&graph, "a".repeat(MAX_NAME + 1)).unwrap().begin().is_err());
    let (one, other) = ("a".repeat(300) + "1", "a".repeat(300) + "2");
    assert_ne!(shortened(one.as_ref(), 100), shortened(other.as_ref(), 100));
    assert_eq!(shortened(one.as_ref(), 100).len(), 100);
}

#[test]
fn a_folder_is_searched_for_leftovers_once() {
    let folder = tree();
    let folders = Folders { graph: folder.path().join("graph"), ..Folders::default() };
    let file = |name: &str| fs::write(folders.graph.join(name), "older").unwrap();
    let found = |folders: &Folders| ["a", "a.b", "x"].map(|name| folders.partial.left(&folders.graph.join(name)).len());
    [".a.7.part", ".a.7-2.part", ".a.b.7.part", ".ab.7.part", ".a.mine.part"].into_iter().for_each(file);
    assert_eq!(found(&folders), [2, 1, 0]);
    file(".a.8.part");
    assert_eq!(found(&folders.clone()), [2, 1, 0]);
    assert_eq!(found(&Folders { partial: PartialFiles::default(), ..folders.clone() }), [3, 1, 0]);
    // What this process has begun and not completed is known, and what is gone is none.
    let part = folders.target("x").unwrap().begin().unwrap().1;
    assert_eq!(found(&folders), [2, 1, 1]);
    part.finish().unwrap();
    assert_eq!(found(&folders), [2, 1, 0]);
}

#[test]
fn a_file_is_replaced_atomically_and_a_link_is_not_followed() {
    let folder = tree();
    let graph = folder.path().join("graph");
    replace(&graph, "to-c", b"new").unwrap();
    assert_eq!(
        (fs::read(graph.join("to-c")).unwrap(), fs::read(folder.path().join("outside/c")).unwrap()),
        (b"new".to_vec(), b"outside/c".to_vec())
    );
    for name in ["", ".", "..", "a/b"] {
        assert!(replace(&graph, name, b"").is_err(), "{name}");
    }
    assert!(replace(&graph, "sub", b"").is_err());
    let names = fs::read_dir(&graph).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        !names.into_iter().any(|name| name.as_bytes().ends_with(b".part") && name.as_bytes().starts_with(b".to-c"))
    );
}

/// A checksum that is easy to write: how many bytes there are.
fn length(from: &mut dyn Read) -> io::Result<String> {
    Ok(io::copy(from, &mut io::sink())?.to_string())
}

/// Promise (files): The file of a URL is read from its local copy, and only if the copy has the
/// expected size and SHA-256.
#[test]
fn the_file_of_a_url_is_its_local_copy() {
    let folder = tree();
    let at = |name: &str| folder.path().join(name);
    let copy = |name: &str, size, sum: &str| FetchedFile { path: at(name), size, sha256: sum.into() };
    let files = [
        ("https://h.example/m.onnx", copy("outside/c", 9, "9")),
        ("https://h.example/m.data", copy("graph/sub/b", 11, "11")),
        ("https://h.example/short", copy("outside/c", 10, "10")),
        ("https://h.example/changed", copy("outside/c", 9, "8")),
        ("https://h.example/pipe", copy("graph/pipe", 0, "0")),
        ("hf://acme/voice/w.npy@v1", copy("graph/a", 7, "7")),
        ("s3://bucket/gone", copy("gone", 7, "7")),
    ];
    let files = files.map(|(url, file)| (url.to_string(), file)).into();
    let of = |remote| Folders { graph: at("graph"), remote, ..Folders::default() };
    let folders = of(RemoteFiles::new(files, length, "a/graph.yaml"));
    for (url, expected) in [
        ("https://h.example/m.onnx", Ok("outside/c")),
        ("hf://acme/voice/w.npy@v1", Ok("graph/a")),
        ("hf://acme/voice/w.npy@v2", Err("was not fetched")),
        ("https://h.example/short", Err("expected 10 B, found 9 B in `")),
        ("https://h.example/changed", Err("expected SHA-256 8, found 9 in `")),
        ("https://h.example/pipe", Err("not a regular file")),
        ("s3://bucket/gone", Err("is in the lock, but not in the cache")),
        ("gs://bucket/file", Err("was not fetched")),
        ("http://h.example/m.onnx", Err("was not fetched")),
    ] {
        // Twice: what was checked is not hashed again.
        for _ in 0..2 {
            match (folders.open(url), expected) {
                (Ok(mut file), Ok(expected)) => {
                    assert_eq!(file.read_whole(100).unwrap(), expected.as_bytes(), "{url}");
                    assert_eq!(file.path(), Path::new(url.trim_end_matches("@v1")));
                    assert!(folders.read.find(&at(expected)).is_some(), "a node could write {expected}");
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(&format!("`{url}` ")), "{error}");
                    assert!(error.to_string().contains(expected), "{url}: {error}");
                    assert_eq!(error.help(), "run `limen-run fetch a/graph.yaml`");
                }
                (found, expected) => panic!("{url}: {found:?}, {expected:?}"),
            }
        }
    }
    // A copy that changes after it was checked is checked again.
    fs::write(at("outside/c"), "outside/").unwrap();
    assert!(folders.open("https://h.example/m.onnx").is_err());
    let model = of(folders.remote.clone()).open("hf://acme/voice/w.npy@v1").unwrap();
    let beside = |name| model.neighbours().unwrap().open(model.path(), name);
    assert!(beside("w.data").unwrap_err().to_string().contains("`hf://acme/voice/w.data@v1` was not fetched"));

    let (refused, none) = (of(RemoteFiles::refused("not JSON", "g")), of(RemoteFiles::default()));
    let why = |folders: &Folders| folders.open("hf://a/b/c").unwrap_err().to_string();
    assert_eq!(why(&refused), "`hf://a/b/c` cannot be looked up: not JSON");
    assert_eq!(why(&none), "`hf://a/b/c` was not fetched: the lock has no entry for the URL");
    let only = "expected the path of a file on disk, found `s3://";
    assert!(none.output("s3://bucket/out.csv").unwrap_err().starts_with(only));
    assert!(none.admit_input("s3://bucket/in").unwrap_err().to_string().starts_with(only));
    assert!(folders.input("s3://bucket/gone").unwrap().ends_with("gone") && none.input("s3://bucket/gone").is_err());
}

#[test]
fn the_url_of_a_file_names_a_file_and_its_neighbours() {
    for (text, expected) in [
        ("https://h.example/m.onnx", true),
        ("hf://acme/voice/m.onnx@main", true),
        ("https://viewer.example", false),
        ("https://viewer.example/", false),
        ("https://viewer.example:8443/a/", false),
        ("HTTPS://h.example/m.onnx", false),
        ("mem:m.onnx", false),
        ("a/https://h.example/b", false),
    ] {
        assert_eq!(is_file_url(text), expected, "{text}");
    }
    for (url, shown) in [
        ("https://me:secret@h.example:80/a@b?c@d", "https://h.example:80/a@b"),
        ("http://me@h.example", "http://h.example"),
        ("hf://acme/voice/m@v1", "hf://acme/voice/m@v1"),
        ("s3://bucket/a@b#c", "s3://bucket/a@b"),
    ] {
        assert_eq!(shown_url(url), shown);
    }
    for (url, name, expected) in [
        ("https://h.example/a/m.onnx", "w.data", "https://h.example/a/w.data"),
        ("https://h.example/a/m.onnx", "b/ä?#%.data", "https://h.example/a/b/%C3%A4%3F%23%25.data"),
        ("s3://bucket/a/m.onnx", "./ä?.data", "s3://bucket/a/ä?.data"),
        ("hf://acme/voice/m@x.onnx@refs/pr/1", "w@y", "hf://acme/voice/w@y@refs/pr/1"),
        ("https://h.example/a@b/m.onnx", "w", "https://h.example/a@b/w"),
    ] {
        assert_eq!(url_beside(url, name), expected);
    }
}
