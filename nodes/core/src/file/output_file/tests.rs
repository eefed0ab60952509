use super::*;
use nix::errno::Errno;

fn folders(graph: &Path) -> Folders {
    Folders { graph: graph.into(), ..Folders::default() }
}

#[test]
fn an_existing_file_is_kept_until_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("out/a.txt");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    for (old, text, finish) in [("", "one", true), ("one", "two", false)] {
        let mut file = OutputFile::open(&folders(folder), "out/a.txt", Exists::Replace, FullDisk::default()).unwrap();
        file.write(text.as_bytes()).unwrap();
        OutputFile::flush(&mut file).unwrap();
        assert_eq!(read(), old);
        assert!(!file.continues);
        if finish {
            file.finish().unwrap();
            assert_eq!(read(), text);
        }
        drop(file);
        assert_eq!(read(), text, "the file gets its name even if it was not finished");
    }
    assert_eq!(fs::read_dir(folder.join("out")).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn an_existing_file_is_appended_to_or_refused_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let open = |exists| OutputFile::open(&folders(folder), "a.txt", exists, FullDisk::default());
    for (text, continues) in [("one ", false), ("two", true)] {
        let mut file = open(Exists::Append).unwrap();
        assert_eq!(file.continues, continues);
        file.write(text.as_bytes()).unwrap();
    }
    assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one two");
    assert!(
        matches!(open(Exists::Fail), Err(error) if matches!(error.kind(), limen::node::NodeErrorKind::File { .. }))
    );
    assert!(OutputFile::open(&folders(folder), "b.txt", Exists::Fail, FullDisk::default()).is_ok());
    assert!(OutputFile::open(&folders(folder), "no/such/a.txt", Exists::Replace, FullDisk::default()).is_err());
    assert!(OutputFile::open(&folders(folder), "../a.txt", Exists::Replace, FullDisk::default()).is_err());
}

/// Promise (files): A file that is deleted while it is written is an error.
#[test]
fn deleting_the_file_during_the_run_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for exists in [Exists::Append, Exists::Fail, Exists::Replace] {
        let mut file = OutputFile::open(&folders(folder), "a.txt", exists, FullDisk::default()).unwrap();
        file.write(b"one").unwrap();
        file.flush().unwrap();
        fs::remove_file(fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()).unwrap();
        file.write(b"two").unwrap();
        let error = file.finish().unwrap_err().to_string();
        let expected = "a.txt: the file was deleted during the run; messages lost: 2";
        assert!(error.ends_with(expected), "{exists:?}: {error}");
        assert_eq!((file.full.unwritten.get(), file.ends.len()), (2, 0), "{exists:?}");
    }
}

/// Promise (files): An output follows a symbolic link only into a permitted folder.
#[test]
fn symbolic_links_are_followed_only_into_allowed_folders() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["graph", "out", "outside", "out/sub"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    fs::write(folder.join("outside/there"), "precious").unwrap();
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.join(at)).unwrap();
    for at in ["graph", "out"] {
        link("../outside/new", &format!("{at}/new"));
        link("../outside/there", &format!("{at}/there"));
        link("../outside", &format!("{at}/folder"));
        link("inside", &format!("{at}/first"));
        link("circle", &format!("{at}/circle"));
    }
    let of = |out: bool, allowed: bool| Folders {
        graph: folder.join("graph"),
        out: out.then(|| folder.join("out")),
        allowed: if allowed { vec![folder.join("outside")] } else { Vec::new() },
        ..Folders::default()
    };
    for (out, exists) in [(false, true), (false, false), (true, true), (true, false)]
        .map(|(out, append)| (out, if append { Exists::Append } else { Exists::Replace }))
    {
        for path in ["new", "there", "folder/new"] {
            let error = OutputFile::open(&of(out, false), path, exists, FullDisk::default()).unwrap_err().to_string();
            assert!(
                (error.contains("leaves the") || error.contains("outside the output folder"))
                    && error.contains("--allow-path"),
                "{path}: {error}"
            );
            let mut errors = PlanErrors::default();
            let cx = Planning {
                node: "n",
                folders: &of(out, false),
                trials: &limen::policy::Trials::default(),
                extensions: &limen::node::Extensions::default(),
                isolation: limen::policy::Isolation::None,
            };
            plan(path, exists, &cx, Ports::new(), &mut errors);
            assert!(errors.into_result(()).is_err(), "{path}");
        }
        let circle = OutputFile::open(&of(out, false), "circle", exists, FullDisk::default()).unwrap_err().to_string();
        assert!(circle.contains("symbolic links") || circle.contains("a link"), "{circle}");
        assert_eq!(fs::read_dir(folder.join("outside")).unwrap().count(), 1, "nothing was created outside");
        // Links inside are followed, even to a file that does not exist yet.
        let mut file = OutputFile::open(&of(out, false), "first", exists, FullDisk::default()).unwrap();
        file.write(b"x").unwrap();
        file.finish().unwrap();
        let inside = folder.join(if out { "out/inside" } else { "graph/inside" });
        assert!(fs::symlink_metadata(&inside).unwrap().is_file(), "{exists:?}");
        fs::remove_file(inside).unwrap();
        OutputFile::open(&of(out, true), "new", exists, FullDisk::default()).unwrap().finish().unwrap();
        fs::remove_file(folder.join("outside/new")).unwrap();
    }
    assert_eq!(fs::read_to_string(folder.join("outside/there")).unwrap(), "precious");
}

/// Promise (files): The next run names and keeps the part files of an interrupted run.
#[test]
fn temporary_files_of_an_interrupted_run_are_reported_and_kept_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // A process with the same id, as in a container, and one that is still writing.
    let own = format!(".a.txt.{}.part", std::process::id());
    for name in [&own, ".a.txt.77.part", ".a.txt.77-2.part", ".a.txt.mine.part", ".ba.txt.77.part"] {
        fs::write(folder.join(name), "older").unwrap();
    }
    let busy = File::create(folder.join(".a.txt.78.part")).unwrap();
    busy.lock().unwrap();
    let cx = Planning {
        node: "n",
        folders: &folders(folder),
        trials: &limen::policy::Trials::default(),
        extensions: &limen::node::Extensions::default(),
        isolation: limen::policy::Isolation::None,
    };
    let mut errors = PlanErrors::default();
    let ports = plan("a.txt", Exists::Replace, &cx, Ports::new(), &mut errors);
    let notices = format!("{ports:?}");
    for (name, is_left) in [(&*own, true), (".77.part", true), (".77-2.part", true), (".78.part", false)] {
        assert_eq!(notices.contains(name), is_left, "{name}: {notices}");
    }
    let mut file = OutputFile::open(&folders(folder), "a.txt", Exists::Replace, FullDisk::default()).unwrap();
    assert_eq!(fs::read_to_string(folder.join(&own)).unwrap(), "older", "nothing is overwritten");
    let part = file.part.as_ref().unwrap().path().to_path_buf();
    assert!(files::unfinished().contains(&part));
    file.finish().unwrap();
    assert!(!files::unfinished().contains(&part));
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    let kept = ["a-interrupted-77-2.txt".to_string(), "a-interrupted-77.txt".to_string()];
    let own = format!("a-interrupted-{}.txt", std::process::id());
    let mut expected = vec![".a.txt.78.part".to_string(), ".a.txt.mine.part".into(), ".ba.txt.77.part".into(), own];
    expected.extend(kept.clone());
    expected.push("a.txt".into());
    expected.sort();
    assert_eq!(names, expected);
    assert!(kept.iter().all(|name| notices.contains(name)), "{notices}");
    for name in kept {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "older");
    }
}

/// Promise (files): If the final rename of a file fails, the error names the part file.
#[test]
fn if_the_final_rename_fails_the_error_names_the_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut file = OutputFile::open(&folders(folder), "a.txt", Exists::Replace, FullDisk::default()).unwrap();
    file.write(b"one").unwrap();
    fs::create_dir(folder.join("a.txt")).unwrap();
    let error = file.finish().unwrap_err().to_string();
    let part = folder.join(format!(".a.txt.{}.part", std::process::id()));
    assert!(error.ends_with(&format!("(the data is in {})", part.display())), "{error}");
    assert_eq!(fs::read_to_string(&part).unwrap(), "one");
    assert!(files::unfinished().contains(&part));
}

/// As another user, if the test runs as root: root may write everywhere.
fn as_another_user<T: Send>(check: impl FnOnce() -> T + Send) -> T {
    // Of this thread only.
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| {
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            }
            check()
        });
        checked.join().unwrap()
    })
}

/// Promise (files): Planning rejects outputs that cannot be written, and creates nothing.
#[test]
fn planning_refuses_folders_and_files_that_may_not_be_written_and_creates_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, bits) in [("", 0o755), ("open", 0o777), ("shut", 0o555)] {
        fs::create_dir_all(folder.join(name)).unwrap();
        mode(name, bits);
    }
    for (name, bits) in [("open/log", 0o666), ("open/old", 0o444), ("shut/log", 0o666)] {
        fs::write(folder.join(name), "x").unwrap();
        mode(name, bits);
    }
    let graph = folders(folder);
    let out = Folders { out: Some(folder.join("shut/new/out")), ..folders(folder) };
    for (folders, path, exists, expected) in [
        (&graph, "open/new", Exists::Replace, ""),
        (&graph, "open/new", Exists::Append, ""),
        (&graph, "open/made/new", Exists::Fail, ""),
        (&graph, "open/old", Exists::Replace, ""),
        (&graph, "open/old", Exists::Append, "Permission denied"),
        (&graph, "shut/new", Exists::Replace, "Permission denied"),
        (&graph, "shut/new", Exists::Append, "Permission denied"),
        (&graph, "shut/new", Exists::Fail, "Permission denied"),
        (&graph, "shut/made/new", Exists::Replace, "Permission denied"),
        (&graph, "shut/log", Exists::Replace, "Permission denied"),
        (&graph, "shut/log", Exists::Append, ""),
        (&graph, "open/log/new", Exists::Replace, "Not a directory"),
        (&out, "new", Exists::Replace, "Permission denied"),
    ] {
        let found = as_another_user(|| {
            let cx = Planning {
                node: "n",
                folders,
                trials: &limen::policy::Trials::default(),
                extensions: &limen::node::Extensions::default(),
                isolation: limen::policy::Isolation::None,
            };
            let mut errors = PlanErrors::default();
            plan(path, exists, &cx, Ports::new(), &mut errors);
            format!("{:?}", errors.into_result(()))
        });
        assert_eq!(expected.is_empty(), found == "Ok(())", "{path} {exists:?}: {found}");
        assert!(found.contains(expected), "{path} {exists:?}: {found}");
    }
    assert_eq!(fs::read_dir(folder.join("open")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(folder.join("shut")).unwrap().count(), 1);
}

/// A disk with scripted answers: each call takes that many bytes or fails; after the last answer it
/// takes everything.
struct Disk {
    answers: std::vec::IntoIter<Result<usize, Errno>>,
    holds: Vec<u8>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.answers.next().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
        self.holds.extend_from_slice(&bytes[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Promise (files): A failed write is retried, or reported with the number of bytes written.
#[test]
fn a_failed_write_is_retried_or_reported_with_the_number_of_bytes_written() {
    let all = b"0123456789";
    let stops = [Errno::EIO, Errno::ENOSPC, Errno::EROFS, Errno::EDQUOT, Errno::EFBIG, Errno::EAGAIN, Errno::ESTALE];
    let stops = stops.map(|errno| (vec![Ok(4), Err(Errno::EINTR), Ok(1), Err(errno)], 5, Some(errno)));
    let goes_on =
        [(vec![], 10, None), (vec![Err(Errno::EINTR), Err(Errno::EINTR)], 10, None), (vec![Ok(1); 9], 10, None)];
    for (answers, expected, errno) in goes_on.into_iter().chain(stops) {
        let mut disk = Disk { answers: answers.into_iter(), holds: Vec::new() };
        let (done, error) = write_to(&mut disk, all);
        assert_eq!((done, error.and_then(|e| e.raw_os_error())), (expected, errno.map(|e| e as i32)), "{errno:?}");
        assert_eq!(disk.holds, all[..done], "{errno:?}");
        // Once the disk works again, the rest is written, and nothing twice.
        assert!(matches!(write_to(&mut disk, &all[done..]), (_, None)));
        assert_eq!(disk.holds, all, "{errno:?}");
    }
    let mut disk = Disk { answers: vec![Ok(3), Ok(0)].into_iter(), holds: Vec::new() };
    assert!(matches!(write_to(&mut disk, all), (3, Some(error)) if error.kind() == ErrorKind::WriteZero));
}

/// Promise (files): Messages that a broken device rejects are reported and counted.
///
/// A pseudo-terminal whose other end was closed answers EIO, as a broken disk does.
#[test]
fn messages_that_a_broken_device_rejects_are_reported_and_counted() {
    let pty = nix::pty::openpty(None, None).unwrap();
    drop(pty.master);
    let mut file = OutputFile::of(File::from(pty.slave), "broken".into());
    file.write(b"one").unwrap();
    let error = file.flush().unwrap_err().to_string();
    assert!(error.starts_with("broken: Input/output error"), "{error}");
    assert!(error.ends_with("bytes written: 0, messages not written: 1"), "{error}");
    assert_eq!(file.ends.len(), 1);
}

#[test]
fn planning_refuses_paths_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("there.txt"), "x").unwrap();
    let folders = folders(folder);
    let cx = Planning {
        node: "n",
        folders: &folders,
        trials: &limen::policy::Trials::default(),
        extensions: &limen::node::Extensions::default(),
        isolation: limen::policy::Isolation::None,
    };
    for (path, exists, expected) in [
        ("new.txt", Exists::Fail, ""),
        ("out/new.txt", Exists::Replace, ""),
        ("there.txt", Exists::Append, ""),
        ("there.txt", Exists::Fail, "already exists"),
        (".", Exists::Replace, "folder"),
        ("new/", Exists::Replace, "the folder"),
        ("out/new/.", Exists::Append, "the folder"),
        ("a/b/c.txt", Exists::Replace, "does not exist"),
        ("../x.txt", Exists::Replace, "--allow-path"),
    ] {
        let mut errors = PlanErrors::default();
        plan(path, exists, &cx, Ports::new(), &mut errors);
        match errors.into_result(()) {
            Ok(()) => assert_eq!(expected, "", "{path}"),
            Err(errors) => {
                let text = format!("{errors:?}");
                assert!(!expected.is_empty() && text.contains(expected), "{path}: {text}");
            }
        }
    }
}
