//! Histograms of finished runs, read from files: printing, merging, plots, conversion, and
//! comparison of runs.
//!
//! Files come from anywhere, so everything in them is bounded and checked; an error names the file
//! and its line.

pub(crate) mod bootstrap;
pub(crate) mod buckets;
pub(crate) mod comparison;
pub(crate) mod encoded;
pub(crate) mod host;
pub(crate) mod interval_log;
pub(crate) mod json;
pub(crate) mod limit;
pub(crate) mod percentile_file;
pub(crate) mod plot;
pub(crate) mod printed;
pub(crate) mod svg;

use crate::dump::{is_log, is_unfinished_log};
use crate::old_names;
use host::Host;
use limen::files;
use limen::report::Counts;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The largest file that is read: a log of a day and 50 histograms has about 100 MiB.
const MAX_BYTES: u64 = 256 << 20;
/// The most counts in a file; they take 16 bytes each.
const MAX_COUNTS: usize = 64 << 20;
/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// A format of files with histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileFormat {
    /// HdrHistogram's interval log: every histogram of every interval
    Hlog,
    /// HdrHistogram's percentile text: one histogram, at the percentiles of its rows
    Hgrm,
    /// A row for each value of each interval
    Csv,
    /// One object, with quantiles
    Json,
}

impl ProfileFormat {
    /// Returns the format that a file's name ends in.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "hlog" => Some(ProfileFormat::Hlog),
            "hgrm" => Some(ProfileFormat::Hgrm),
            "csv" => Some(ProfileFormat::Csv),
            "json" => Some(ProfileFormat::Json),
            _ => None,
        }
    }

    /// Recognizes the format of a file by its first lines: the output of a load generator has any
    /// name.
    fn recognized(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            return Some(ProfileFormat::Json);
        }
        text.lines().take(1000).find_map(|line| {
            let line = line.trim();
            if interval_log::is_line(line) {
                Some(ProfileFormat::Hlog)
            } else if percentile_file::is_heading(line) {
                Some(ProfileFormat::Hgrm)
            } else if buckets::is_heading(line) {
                Some(ProfileFormat::Csv)
            } else {
                None
            }
        })
    }
}

/// A file that cannot be read as histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The file or folder.
    pub path: PathBuf,
    /// The line, from 1; `None` where it is about the file.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path.display(), self.why),
            None => write!(f, "{}: {}", self.path.display(), self.why),
        }
    }
}

impl std::error::Error for ProfileError {}

/// What is wrong with a text, and in which line.
type Wrong = (Option<usize>, String);

/// One histogram of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileInterval {
    /// Its begin in seconds: since 1970 if the file says so, else since any moment.
    pub begin: f64,
    /// Its length in seconds.
    pub length: f64,
    /// What was recorded in it.
    pub counts: Counts,
}

/// The intervals of one histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its tag: `node.term` or `source->sink.e2e` in files of limen; empty in files without tags.
    pub tag: String,
    /// Its intervals, in the order of the file.
    pub intervals: Vec<ProfileInterval>,
}

impl Series {
    /// Returns the sum of its intervals.
    pub fn sum(&self) -> Counts {
        sum(&self.intervals)
    }

    /// Whether its values are times, if the file's values have a unit.
    pub(crate) fn is_time(&self) -> bool {
        !self.tag.ends_with(".batch")
    }
}

/// Adds neighbours first, so that each count is copied only as often as the number of intervals has
/// bits.
fn sum(intervals: &[ProfileInterval]) -> Counts {
    match intervals {
        [] => Counts::new(3),
        [one] => one.counts.clone(),
        _ => {
            let (left, right) = intervals.split_at(intervals.len() / 2);
            let mut sum = sum(left);
            sum.add(&self::sum(right));
            sum
        }
    }
}

/// The histograms of one run.
///
/// ```
/// let log = "#limen: values are nanoseconds\nTag=a.compute,0.0,1.0,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJ\
///            ISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=\n";
/// let profile = limen_run::Profile::from_text("a.hlog", log, None).unwrap();
/// assert_eq!(profile.series[0].sum().quantile(0.5), Some(344_063));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Where it was read.
    pub path: PathBuf,
    /// Whether values are nanoseconds, except where a tag ends in `.batch`; else their unit is not
    /// known.
    pub has_unit: bool,
    /// Its histograms, in the order of the file.
    pub series: Vec<Series>,
    /// The host and the settings of the run, from the `run.json` beside it.
    pub host: Option<Host>,
}

impl Profile {
    fn new(path: &Path) -> Self {
        Profile { path: path.into(), has_unit: false, series: Vec::new(), host: None }
    }

    /// Reads the runs in a file or folder. Each `.hlog` in a folder is a run, also one that was
    /// killed, whose file still has its temporary name (`.NAME.hlog.PID.part`); without one, so is
    /// each in its folders. The `run.json` beside a file describes its run. `unit` is the number of
    /// nanoseconds that a value of 1 stands for in files that do not say.
    ///
    /// # Errors
    /// What cannot be read, or is not in one of the formats of [`ProfileFormat`].
    pub fn read(path: &Path, unit: Option<u64>) -> Result<Vec<Self>, ProfileError> {
        logs(path)?.iter().map(|file| Profile::read_file(file, unit)).collect()
    }

    fn read_file(path: &Path, unit: Option<u64>) -> Result<Self, ProfileError> {
        let wrong = |why: String| ProfileError { path: path.into(), line: None, why };
        let bytes = files::read(path, MAX_BYTES).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes);
        if is_unfinished_log(path) {
            // The last line may be torn, and a `run.json` beside it describes another run.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            return Profile::from_text(path, &text[..whole], unit);
        }
        let mut profile = Profile::from_text(path, &text, unit)?;
        profile.host = Host::read(&path.with_file_name("run.json"));
        Ok(profile)
    }

    /// Reads the text of a file. Its format is recognized; `path` is for errors, and names a
    /// histogram without a tag.
    ///
    /// # Errors
    /// What is not in one of the formats of [`ProfileFormat`].
    pub fn from_text(path: impl AsRef<Path>, text: &str, unit: Option<u64>) -> Result<Self, ProfileError> {
        let path = path.as_ref();
        let mut profile = Profile::new(path);
        let read = match ProfileFormat::recognized(text) {
            Some(ProfileFormat::Hlog) => interval_log::read(text, &mut profile),
            Some(ProfileFormat::Hgrm) => percentile_file::read(text, &mut profile, unit),
            Some(ProfileFormat::Csv) => buckets::read(text, &mut profile),
            Some(ProfileFormat::Json) => json::read(text, &mut profile),
            None => Err((
                None,
                "expected an HdrHistogram interval log (.hlog) or percentiles (.hgrm), or the .csv or .json of `limen-run hist \
                 convert`, found no histograms"
                    .into(),
            )),
        };
        read.map_err(|(line, why)| ProfileError { path: path.into(), line, why })?;
        if let (false, Some(unit)) = (profile.has_unit, unit) {
            let intervals = profile.series.iter_mut().filter(|series| series.is_time()).flat_map(|s| &mut s.intervals);
            if unit != 1 {
                intervals.for_each(|interval| interval.counts = interval.counts.scaled(unit as f64));
            }
            profile.has_unit = true;
        }
        Ok(profile)
    }

    /// Returns the histogram with a tag.
    pub fn series(&self, tag: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.tag == tag)
    }

    /// Adds the intervals of another run, in the order of time.
    ///
    /// # Errors
    /// Values of one are nanoseconds, and those of the other have no known unit.
    pub fn merge(&mut self, other: Profile) -> Result<(), ProfileError> {
        if self.series.is_empty() {
            self.has_unit = other.has_unit;
        } else if self.has_unit != other.has_unit {
            let why = "the values have no unit, but other runs have a unit: set the unit with --unit".to_string();
            let path = if self.has_unit { other.path } else { self.path.clone() };
            return Err(ProfileError { path, line: None, why });
        }
        for series in other.series {
            match self.series.iter_mut().find(|mine| mine.tag == series.tag) {
                Some(mine) => mine.intervals.extend(series.intervals),
                None => self.series.push(series),
            }
        }
        self.series.iter_mut().for_each(|series| series.intervals.sort_by(|a, b| a.begin.total_cmp(&b.begin)));
        Ok(())
    }

    /// Returns the text of a file in a format. `.hgrm` holds one histogram, so it needs a profile
    /// with one.
    ///
    /// # Errors
    /// Several histograms for `.hgrm`; counts of more than 63 bits.
    pub fn to_text(&self, format: ProfileFormat) -> Result<String, ProfileError> {
        let wrong = |why: String| ProfileError { path: self.path.clone(), line: None, why };
        match format {
            ProfileFormat::Hlog => interval_log::text(self).map_err(|error| wrong(error.to_string())),
            ProfileFormat::Csv => Ok(buckets::text(self)),
            ProfileFormat::Json => Ok(json::text(self)),
            ProfileFormat::Hgrm => match &self.series[..] {
                [series] => Ok(percentile_file::text(series, self.has_unit)),
                [] => Err(wrong("expected a histogram, found none".into())),
                all => {
                    let tags: Vec<&str> = all.iter().map(|series| series.tag.as_str()).collect();
                    let tags = tags.join(", ");
                    Err(wrong(format!(
                        "expected one histogram for an .hgrm, found {tags}: choose one histogram with --tag, or write to a folder (`out/ --to hgrm`)"
                    )))
                }
            },
        }
    }

    /// Leaves only the histograms whose tags are among these, or begin or end with one of them; all
    /// if there are none.
    ///
    /// # Errors
    /// A tag that no histogram has.
    pub fn select(&mut self, tags: &[String]) -> Result<(), ProfileError> {
        let fits = |series: &Series, tag: &String| {
            let rest = series.tag.strip_prefix(tag.as_str());
            series.tag == *tag
                || series.tag == old_names::tag(tag)
                || series.tag.ends_with(&format!(".{}", old_names::term(tag)))
                || rest.is_some_and(|rest| rest.starts_with('.'))
        };
        if let Some(missing) = tags.iter().find(|tag| !self.series.iter().any(|series| fits(series, tag))) {
            let all: Vec<&str> = self.series.iter().map(|series| series.tag.as_str()).collect();
            let why = format!("expected one of the histograms {}, found `{missing}`", all.join(", "));
            return Err(ProfileError { path: self.path.clone(), line: None, why });
        }
        if !tags.is_empty() {
            self.series.retain(|series| tags.iter().any(|tag| fits(series, tag)));
        }
        Ok(())
    }

    /// Returns its name for people: that of its folder, with the one above, if it is a dump, else
    /// of its file.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        let folder = self.path.parent().filter(|folder| self.host.is_some() && folder.file_name().is_some());
        let Some(folder) = folder else {
            return self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        };
        match (folder.parent().and_then(Path::file_name), folder.file_name()) {
            (Some(above), Some(name)) => format!("{}/{}", above.to_string_lossy(), name.to_string_lossy()).into(),
            _ => folder.to_string_lossy(),
        }
    }
}

/// A profile that is being read.
struct ProfileReader<'a> {
    profile: &'a mut Profile,
    /// The index of each tag's series.
    index: HashMap<String, usize>,
    counts: usize,
}

/// The most histograms of a file.
const MAX_SERIES: usize = 10_000;

impl<'a> ProfileReader<'a> {
    fn new(profile: &'a mut Profile) -> Self {
        ProfileReader { profile, index: HashMap::new(), counts: 0 }
    }

    /// Adds an interval.
    fn add(&mut self, tag: &str, begin: f64, length: f64, counts: Counts) -> Result<(), String> {
        let is_time = |seconds: f64| (0.0..1e12).contains(&seconds);
        if !is_time(begin) || !is_time(length) {
            return Err(format!("invalid interval: begins at {begin} s, {length} s long"));
        }
        self.counts += counts.cells() + 1;
        if self.counts > MAX_COUNTS {
            return Err(format!("a file must have at most {MAX_COUNTS} counts, got more"));
        }
        // Other programs may mean something else by such names.
        let tag = if self.profile.has_unit { &*old_names::tag(tag) } else { tag };
        let at = match self.index.get(tag) {
            Some(at) => *at,
            None if self.index.len() == MAX_SERIES => {
                return Err(format!("a file must have at most {MAX_SERIES} histograms, got more"));
            }
            None => {
                self.profile.series.push(Series { tag: tag.into(), intervals: Vec::new() });
                self.index.insert(tag.into(), self.profile.series.len() - 1);
                self.profile.series.len() - 1
            }
        };
        self.profile.series[at].intervals.push(ProfileInterval { begin, length, counts });
        Ok(())
    }
}

/// The files of runs below a path.
fn logs(path: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let is_run = |entry: &Path| is_log(entry) && entry.is_file();
    let own = entries(path, is_run)?;
    if !own.is_empty() {
        return Ok(own);
    }
    let mut all = Vec::new();
    for folder in entries(path, Path::is_dir)? {
        all.extend(entries(&folder, is_run)?);
    }
    if all.is_empty() {
        let why = "expected an .hlog in the folder or its subfolders, found none: name a folder that `--histograms` wrote, or a file".into();
        return Err(ProfileError { path: path.into(), line: None, why });
    }
    Ok(all)
}

/// The entries of a folder that are kept, by name.
fn entries(folder: &Path, keep: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, ProfileError> {
    let wrong = |why: String| ProfileError { path: folder.into(), line: None, why };
    let read = std::fs::read_dir(folder).map_err(|error| wrong(error.to_string()))?;
    let mut found = Vec::new();
    for (n, entry) in read.enumerate() {
        if n == MAX_ENTRIES {
            return Err(wrong(format!("a folder must have at most {MAX_ENTRIES} entries, got more")));
        }
        let path = entry.map_err(|error| wrong(error.to_string()))?.path();
        if keep(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
