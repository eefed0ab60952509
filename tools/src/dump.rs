//! `--histograms DIR`: all measurements, in files that existing tools open.
//!
//! `<graph>.hlog` and one `<tag>.hgrm` per histogram are HdrHistogram's own formats; `summary.json`
//! and `summary.csv` hold the same quantiles for scripts; `run.json` describes the machine and the
//! command line. Each file is written under a temporary name in the same folder and renamed, so
//! that a reader never sees an incomplete one.

pub(crate) mod hgrm;
pub(crate) mod hlog;
pub(crate) mod run_info;

use crate::report::summary::Summary;
use hgrm::percentile_text;
use hlog::{Log, clean, write_hlog};
use limen::Report;
use limen::files::{self, PartialFile, Target};
use limen::run::IntervalReport;
use limen::text::is_terminal_control;
use run_info::RunInfo;
use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// The data of one run that is written.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    /// The run.
    pub report: &'a Report,
    /// The summary of the report.
    pub summary: &'a Summary<'a>,
    /// The machine and the command line.
    pub run: &'a RunInfo,
    /// The path of the interval log, if one was written while the graph ran.
    pub log: Option<&'a Path>,
}

/// The interval log of a run, written during the run under a temporary name until it is complete.
#[derive(Debug)]
pub struct IntervalLog {
    log: Log<BufWriter<fs::File>>,
    part: PartialFile,
    path: PathBuf,
}

impl IntervalLog {
    /// Creates the log of a run of `graph` that began at `started`, in a folder.
    ///
    /// # Errors
    /// I/O errors, with the path.
    pub fn create(folder: &Path, graph: &str, started: SystemTime) -> io::Result<Self> {
        fs::create_dir_all(folder).map_err(|e| with_path(folder, &e))?;
        let name = format!("{}.hlog", file_name(graph));
        let path = folder.join(&name);
        let begun = Target::beneath(folder, name).and_then(Target::begin);
        let (file, part) = begun.map_err(|e| with_path(&path, &e))?;
        let log = Log::new(BufWriter::new(file), started).map_err(|e| with_path(part.path(), &e))?;
        Ok(IntervalLog { log, part, path })
    }

    /// Appends intervals. They are in the file when this returns, so that a process that is killed
    /// later leaves them there.
    ///
    /// # Errors
    /// I/O errors, with the path.
    pub fn write(&mut self, intervals: &[IntervalReport]) -> io::Result<()> {
        self.log.write(intervals).map_err(|e| with_path(self.part.path(), &e))
    }

    /// Completes the log with what the report recorded after the last interval, renames it, and
    /// returns its path.
    ///
    /// # Errors
    /// I/O errors, with the path.
    pub fn finish(self, report: &Report) -> io::Result<PathBuf> {
        let IntervalLog { log, part, path } = self;
        log.finish(report).and_then(|mut file| file.flush()).map_err(|e| with_path(part.path(), &e))?;
        part.finish().map_err(|e| with_path(&path, &e))?;
        Ok(path)
    }
}

impl Dump<'_> {
    /// Writes all files into a folder, which is created if missing, and returns their paths. Files
    /// of earlier runs with the same names are replaced, others stay.
    ///
    /// # Errors
    /// I/O errors, with the path.
    pub fn write(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).map_err(|e| with_path(folder, &e))?;
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        if self.log.is_none() {
            let mut log = Vec::new();
            write_hlog(&mut log, self.report)?;
            files.push((format!("{}.hlog", file_name(&self.report.graph)), log));
        }
        files.extend([
            ("summary.json".into(), self.summary.json().into_bytes()),
            ("summary.csv".into(), self.summary.csv().into_bytes()),
            ("run.json".into(), self.run.json().into_bytes()),
        ]);
        for one in &self.report.histograms {
            let is_time = one.term != limen::report::Term::Batch;
            let text = percentile_text(&one.recorded.histogram) + &hgrm_unit(&one.tag(), is_time);
            files.push((format!("{}.hgrm", file_name(&one.tag())), text.into_bytes()));
        }
        let all = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        files::replace_all(folder, all).map_err(|(name, error)| with_path(&folder.join(name), &error))?;
        let log = self.log.map(Path::to_path_buf);
        Ok(log.into_iter().chain(files.iter().map(|(name, _)| folder.join(name))).collect())
    }
}

/// The line of a percentile text that says what its values are. At the end: readers expect the
/// headings first, and skip trailing lines that begin with `#`.
pub(crate) fn hgrm_unit(tag: &str, is_time: bool) -> String {
    format!("# limen {}: values in {}\n", clean(tag), if is_time { "nanoseconds (ns), scale 1" } else { "messages" })
}

/// Makes a file name of a graph's name or a tag. The name may be anything: a graph without a name
/// is called after its file.
pub(crate) fn file_name(name: &str) -> String {
    // A shell would read the arrow of a path as a redirection.
    let name: String = clean(name)
        .replace("->", "--")
        .chars()
        .map(|c| if c == '/' || is_terminal_control(c) { '_' } else { c })
        .collect();
    match name.trim_start_matches('.') {
        "" => "graph".into(),
        // The callers append an extension.
        name => files::shortened(name.as_ref(), LONGEST).to_string_lossy().into_owned(),
    }
}

/// Longer names are cut, because file systems limit the length.
const LONGEST: usize = 200;

/// Whether a file is the interval log of a run, perhaps under the temporary name that a run has not
/// yet replaced, or never will.
pub(crate) fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "hlog") || is_unfinished_log(path)
}

/// Whether a file is the interval log of a run that goes on or was killed.
pub(crate) fn is_unfinished_log(path: &Path) -> bool {
    let temporary =
        path.file_name().map(OsStr::as_encoded_bytes).and_then(|name| name.strip_prefix(b".")?.strip_suffix(b".part"));
    // What is left is `NAME.hlog.PROCESS`.
    temporary
        .and_then(|name| Path::new(OsStr::from_bytes(name)).file_stem())
        .is_some_and(|name| name.as_bytes().ends_with(b".hlog"))
}

/// Whether the dump of a run of `graph` may write a file of that name. The tags of its histograms
/// are known only after the run.
pub(crate) fn is_dumped(graph: &str, name: &str) -> bool {
    let is_fixed = matches!(name, "summary.json" | "summary.csv" | "run.json");
    is_fixed || name.ends_with(".hgrm") || name.strip_suffix(".hlog") == Some(file_name(graph).as_str())
}

/// Writes the file that an option names, and creates its folders.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
    files::write_output(path, text.as_bytes())
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_report;
    use run_info::GraphFile;

    /// A temporary folder for one test.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn folder(test: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("limen-dump-{test}-{}", std::process::id())))
    }

    #[test]
    fn a_dump_writes_all_files_and_leaves_no_temporary_ones() {
        let folder = folder("complete");
        let report = test_report::report();
        let summary = Summary::new(&report, &[]);
        let run = RunInfo::new(&report, &GraphFile { path: "g.yaml".into(), hash: Some(1) }, []);
        let dump = Dump { report: &report, summary: &summary, run: &run, log: None };
        let written = dump.write(&folder.0.join("deep/er")).unwrap();
        assert_eq!(dump.write(&folder.0.join("deep/er")).unwrap(), written);
        let mut names: Vec<String> = fs::read_dir(folder.0.join("deep/er"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "camera--labels.e2e.hgrm",
            "digit.batch.hgrm",
            "digit.compute.hgrm",
            "digit.queue.hgrm",
            "digits.hlog",
            "labels.residual.hgrm",
            "run.json",
            "summary.csv",
            "summary.json",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn file_names_stay_in_their_folder() {
        assert_eq!(file_name(&"a".repeat(300)).len(), LONGEST);
        for (name, file) in [("../../etc/x", "_.._etc_x"), ("..", "graph"), ("", "graph"), ("a b", "a_b")] {
            assert_eq!(file_name(name), file);
        }
    }

    #[test]
    fn a_log_is_recognized_under_its_temporary_name() {
        for (name, is_whole, is_unfinished) in [
            ("a.hlog", true, false),
            ("x/.a.hlog.17.part", false, true),
            (".a.hlog.17-2.part", false, true),
            (".a.csv.17.part", false, false),
            ("a.hlog.17.part", false, false),
            (".part", false, false),
            (".hlog.part", false, false),
        ] {
            assert_eq!(is_unfinished_log(Path::new(name)), is_unfinished, "{name}");
            assert_eq!(is_log(Path::new(name)), is_whole || is_unfinished, "{name}");
        }
    }

    #[test]
    fn an_error_names_the_path() {
        let folder = Path::new("/nowhere/at");
        let (name, error) = files::replace_all(folder, [("all", &b"x"[..])]).unwrap_err();
        let error = with_path(&folder.join(name), &error);
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
    }
}
