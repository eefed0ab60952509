//! Damaged files of every format and every framing: a node reads them or fails, and never panics.
//! H3, S7, N1.

use limen::Folders;
use limen::files::{InputFile, Target};
use limen_recording::repair::{inspect, repair};
use limen_tests::fuzz::files::{ReaderCase, readers, weights};
use limen_tests::fuzz::{attack, damage, pick};
use std::path::Path;

/// Reads a file to its end or first error; returns whether a message was read, or else why not.
fn read(folder: &Path, reader: &ReaderCase) -> Result<Result<(), String>, String> {
    let spec = limen::Spec::from_text(&reader.graph(false), "graph.yaml");
    let mut spec = spec.map_err(|problems| problems.to_string())?;
    spec.folders.graph = folder.to_path_buf();
    let plan = match limen::Plan::new(spec, &limen_tests::registry()) {
        Ok(plan) => plan,
        Err(problems) => return Ok(Err(problems.to_string())),
    };
    let mut running = match plan.wire().and_then(limen::Wired::start) {
        Ok(running) => running,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let has_ended = running.wait_for(limen_tests::PATIENCE);
    let report = running.wait();
    let failures: Vec<String> = report.failures.iter().map(|failure| format!("{failure:?}")).collect();
    if !has_ended || !report.bugs.is_empty() || report.failures.iter().any(|failure| failure.panicked) {
        return Err(format!("ended: {has_ended}, {}; {}", report.bugs.join("; "), failures.join("; ")));
    }
    let has_read = report.node("r").is_some_and(|node| node.taken > 0);
    Ok(if has_read { Ok(()) } else { Err(failures.join("; ")) })
}

/// Attack (data): damaged files of every kind that reads one, and bytes in every framing; expected:
/// read, or refused with a reason
#[test]
fn damaged_files_are_read_or_refused() {
    let readers = readers();
    let folder = tempfile::tempdir().unwrap();
    for reader in &readers {
        reader.write(folder.path(), &reader.content);
        assert_eq!(read(folder.path(), reader), Ok(Ok(())), "{}, undamaged", reader.nodes);
    }
    attack("data", 900, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let reader = pick(&mut rng, &readers);
        let mut content = reader.content.clone();
        damage(&mut rng, &mut content);
        reader.write(folder.path(), &content);
        let read = read(folder.path(), reader).map_err(|why| format!("{}: {why}", reader.nodes))?;
        Ok(read.is_ok())
    });
}

/// Attack (weights): damaged weights in every format and encoding; expected: read, or refused with
/// a reason
#[test]
fn damaged_weights_are_read_or_refused() {
    let kinds = weights();
    let folder = tempfile::tempdir().unwrap();
    let folders = Folders { graph: folder.path().to_path_buf(), ..Folders::default() };
    for kind in &kinds {
        std::fs::write(folder.path().join(&kind.config.file), (kind.wrap)(&kind.content)).unwrap();
        assert_eq!(kind.config.load(&folders).map(drop), Ok(()), "{:?}, undamaged", kind.config);
    }
    attack("weights", 1200, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = pick(&mut rng, &kinds);
        let mut content = kind.content.clone();
        damage(&mut rng, &mut content);
        std::fs::write(folder.path().join(&kind.config.file), (kind.wrap)(&content)).unwrap();
        match kind.config.load(&folders) {
            Ok(weights) if weights.elements() * weights.dtype.size() > 64 * content.len() + 4096 => {
                Err(format!("{:?}: {} bytes became {} elements", kind.config, content.len(), weights.elements()))
            }
            Ok(_) => Ok(true),
            Err((_, why)) if why.is_empty() => Err(format!("{:?}: refused without a message", kind.config)),
            Err(_) => Ok(false),
        }
    });
}

/// Attack (recovery): damaged recordings; expected: the recovered file is intact and holds only
/// recorded messages
#[test]
fn damaged_recordings_are_recovered() {
    let readers: Vec<ReaderCase> = readers().into_iter().filter(|reader| reader.file == "f.mcap").collect();
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("f.mcap");
    let new = folder.path().join("new.mcap");
    attack("recordings", 600, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let reader = pick(&mut rng, &readers);
        let mut content = reader.content.clone();
        damage(&mut rng, &mut content);
        reader.write(folder.path(), &content);
        let _ = std::fs::remove_file(&new);
        let file = || InputFile::open(&old).map_err(|error| error.to_string());
        let Ok(found) = inspect(file()?) else { return Ok(false) };
        let target = Target::beneath(folder.path(), "new.mcap").map_err(|error| error.to_string())?;
        let written = repair(file()?, target).map_err(|error| error.to_string())?;
        let again =
            inspect(InputFile::open(&new).map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        if (written.messages, again.messages, again.unreadable.places) != (found.messages, found.messages, 0) {
            return Err(format!("{found:?} became {written:?} and {again:?}"));
        }
        Ok(found.messages > 0)
    });
}
