//! `limen-run hist`: the verbs on files of histograms.

use crate::command::turns::take_in_turns;
use crate::profile::bootstrap::Stat;
use crate::profile::comparison::Comparison;
use crate::profile::limit::Limit;
use crate::profile::plot::Plot;
use crate::profile::printed::show_profiles;
use crate::profile::{Profile, ProfileFormat};
use crate::report::condition;
use crate::report::exit_code::{FAILED, GATE, REFUSED};
use crate::terminal::log::{print_error, print_info};
use crate::terminal::stdout::Stdout;
use crate::text::escape::one_line;
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use limen::files;
use limen::unit::Span;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The verbs of `limen-run hist`.
#[derive(Clone, Debug, Subcommand)]
pub enum HistVerb {
    /// Print the percentiles of every histogram
    Print {
        /// The histograms to read
        #[command(flatten)]
        read: HistFiles,
        /// Only this histogram, or the histograms of this node, or of this term; may be repeated
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
    },
    /// Add the histograms of several runs
    Merge {
        /// The histograms to read
        #[command(flatten)]
        read: HistFiles,
        /// The new file: .hlog, .csv or .json
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Draw percentile curves in the terminal, or as an SVG file
    Plot {
        /// The histograms to read
        #[command(flatten)]
        read: HistFiles,
        /// Only this histogram, or the histograms of this node, or of this term; may be repeated.
        /// By default the paths; at most six
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
        /// Write an SVG file instead
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Write a file in another format
    Convert {
        /// The file, or the folder of a run
        #[arg(value_name = "IN")]
        from: PathBuf,
        /// The new file; its extension selects the format; `-` for stdout. With `--to hgrm` a
        /// folder, with a file for each histogram
        #[arg(value_name = "OUT")]
        to: PathBuf,
        /// The format, if the extension is not .hlog, .hgrm, .csv or .json
        #[arg(long = "to", value_name = "FORMAT")]
        format: Option<ProfileFormat>,
        /// Only this histogram, or the histograms of this node, or of this term; may be repeated
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
        /// Unit of the values, in a file that does not declare it: 1ns, 1us, 1ms
        #[arg(long, value_name = "TIME")]
        unit: Option<Span>,
    },
    /// Compare runs: what got worse by more than the noise between runs
    #[command(
        after_help = "Each row has the median of a figure over the runs of each side, and its change: the ratio of the two medians. A \
                            bootstrap over runs and intervals estimates the change's 99 % interval. Take the runs of both sides in turns, at \
                            least three of each: one run does not show how much runs differ.\n\n\
                            A limit names a percentile or the mean of `source->sink`, `node.term`, or `e2e` for every path. It trips if the \
                            figure got worse by more than the limit and by more than noise. It also trips if it cannot be judged, for example \
                            because the runs differ too much.\n\n\
                            Exits with 3 if a limit tripped, 2 if a file cannot be read."
    )]
    Compare {
        /// The baseline runs: a file, the folder of a run, or a folder of such folders
        #[arg(value_name = "BASE", required_unless_present = "bases", conflicts_with_all = ["bases", "news"], requires = "new")]
        base: Option<PathBuf>,
        /// The new runs
        #[arg(value_name = "NEW")]
        new: Option<PathBuf>,
        /// Several baseline runs, instead of BASE: `--base a1 a2 a3 --new b1 b2 b3`
        #[arg(long = "base", value_name = "FILE", num_args = 1.., requires = "news")]
        bases: Vec<PathBuf>,
        /// Several new runs, instead of NEW
        #[arg(long = "new", value_name = "FILE", num_args = 1.., requires = "bases")]
        news: Vec<PathBuf>,
        /// Take the runs first, both sides in turns: the command of a run of BASE, such as
        /// 'limen-run graph.yaml --duration 10s'. LIMEN_HISTOGRAMS names the folder for its
        /// histograms
        #[arg(long, value_name = "COMMAND", requires_all = ["run_new", "base"])]
        run_base: Option<String>,
        /// The command of a run of NEW
        #[arg(long, value_name = "COMMAND", requires = "run_base")]
        run_new: Option<String>,
        /// Number of runs of each side
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        runs: u32,
        /// Figures that are compared
        #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "p50,p99", value_parser = stat)]
        figures: Vec<Stat>,
        /// Exit with 3 if a figure got worse by more than this, such as 'p99(camera->labels) =
        /// +5%'; may be repeated
        #[arg(long, value_name = "LIMIT")]
        fail: Vec<Limit>,
        /// Judge limits although the runs are from different hosts
        #[arg(long)]
        any_host: bool,
        /// Print one JSON object
        #[arg(long, env = "LIMEN_JSON", hide_env = true, value_parser = BoolishValueParser::new())]
        json: bool,
        /// Unit of the values, in files that do not declare it: 1ns, 1us, 1ms
        #[arg(long, value_name = "TIME")]
        unit: Option<Span>,
    },
}

/// Files of histograms.
#[derive(Clone, Debug, Args)]
pub struct HistFiles {
    /// Files: .hlog, .hgrm, .csv or .json, recognized by their content; a folder that
    /// `--histograms` wrote, also of a run that was killed; or a folder of such folders
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Unit of the values, in files that do not declare it: 1ns, 1us, 1ms
    #[arg(long, value_name = "TIME")]
    pub unit: Option<Span>,
}

fn stat(name: &str) -> Result<Stat, String> {
    Stat::named(name).ok_or_else(|| format!("expected `mean` or a percentile such as p99.9, found `{name}`"))
}

/// What is wrong, and the exit code.
pub(super) type Refused = (u8, String);

/// Runs a verb, and returns the exit code.
pub(super) fn hist(verb: &HistVerb) -> u8 {
    match run(verb) {
        Ok(code) => code,
        Err((code, why)) => {
            print_error(&format!("limen-run: {}", one_line(&why)));
            code
        }
    }
}

fn run(verb: &HistVerb) -> Result<u8, Refused> {
    match verb {
        HistVerb::Print { read, tag } => {
            let mut profiles = profiles(&read.files, read.unit)?;
            select(&mut profiles, tag)?;
            Ok(Stdout::default().print(&show_profiles(&profiles), 0))
        }
        HistVerb::Merge { read, out } => {
            let format = match ProfileFormat::of(out) {
                Some(ProfileFormat::Hgrm) | None => {
                    let name = out.display();
                    return Err((
                        REFUSED,
                        format!("expected a file that ends in .hlog, .csv or .json, found `{name}`"),
                    ));
                }
                Some(format) => format,
            };
            let mut all = profiles(&read.files, read.unit)?.into_iter();
            let Some(mut sum) = all.next() else {
                return Err((REFUSED, "expected at least one run, found none".into()));
            };
            let runs = all.len() + 1;
            all.try_for_each(|other| sum.merge(other)).map_err(refused)?;
            let text = sum.to_text(format).map_err(refused)?;
            write(out, &text)?;
            print_info(&format!(
                "{}: {} of {}",
                out.display(),
                histograms(sum.series.len()),
                crate::text::number::count(runs, "run")
            ));
            Ok(0)
        }
        HistVerb::Plot { read, tag, svg } => {
            let mut profiles = profiles(&read.files, read.unit)?;
            select(&mut profiles, tag)?;
            let plot = if tag.is_empty() { Plot::of_paths(&profiles) } else { Plot::new(&profiles) };
            match svg {
                None => Ok(Stdout::default().print(&plot.text(), 0)),
                Some(path) => {
                    write(path, &plot.svg())?;
                    plot.note().iter().for_each(|note| print_info(note));
                    Ok(0)
                }
            }
        }
        HistVerb::Convert { from, to, format, tag, unit } => convert(from, to, *format, tag, *unit),
        HistVerb::Compare { base, new, bases, news, run_base, run_new, runs, figures, fail, any_host, json, unit } => {
            if let (Some(base), Some(new), Some(run_base), Some(run_new)) = (base, new, run_base, run_new) {
                take_in_turns([(base, run_base), (new, run_new)], *runs)?;
            }
            let side = |one: &Option<PathBuf>, several: &[PathBuf]| {
                let all: Vec<PathBuf> = one.iter().chain(several).cloned().collect();
                profiles(&all, *unit)
            };
            let (base, new) = (side(base, bases)?, side(new, news)?);
            let mut stats = figures.clone();
            for limit in fail {
                if !stats.contains(&limit.stat()) {
                    stats.push(limit.stat());
                }
                if let Some(warning) = condition::deprecation(&limit.to_string()) {
                    print_info(&format!("limen-run: --fail '{limit}': {warning}"));
                }
            }
            let comparison = Comparison::new(&base, &new, &stats).map_err(refused)?;
            let verdicts: Vec<_> = fail.iter().map(|limit| limit.judge(&comparison, *any_host)).collect();
            let text = if *json { comparison.json(&verdicts) } else { comparison.text() };
            let code = Stdout::default().print(&text, 0);
            verdicts.iter().for_each(|verdict| match verdict.tripped {
                true => print_error(&format!("limit tripped: {}", verdict.text)),
                false => print_info(&verdict.text),
            });
            Ok(if code == 0 && verdicts.iter().any(|verdict| verdict.tripped) { GATE } else { code })
        }
    }
}

fn convert(
    from: &Path,
    to: &Path,
    format: Option<ProfileFormat>,
    tags: &[String],
    unit: Option<Span>,
) -> Result<u8, Refused> {
    let Some(format) = format.or_else(|| ProfileFormat::of(to)) else {
        let name = to.display();
        return Err((
            REFUSED,
            format!("expected a file that ends in .hlog, .hgrm, .csv or .json, found `{name}`: add `--to hlog`"),
        ));
    };
    let mut all = profiles(std::slice::from_ref(&from.to_path_buf()), unit)?;
    select(&mut all, tags)?;
    let profile = match &all[..] {
        [one] => one,
        all => {
            let name = from.display();
            return Err((
                REFUSED,
                format!("{name}: expected one run, found {}: merge the runs with `limen-run hist merge`", all.len()),
            ));
        }
    };
    if to == Path::new("-") {
        return Ok(Stdout::default().print(&profile.to_text(format).map_err(refused)?, 0));
    }
    let is_folder = to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/") || to.extension().is_none();
    if format != ProfileFormat::Hgrm || !is_folder {
        return write(to, &profile.to_text(format).map_err(refused)?).map(|()| 0);
    }
    std::fs::create_dir_all(to).map_err(|error| (FAILED, format!("{}: {error}", to.display())))?;
    let mut names = HashSet::new();
    for series in &profile.series {
        let name = format!("{}.hgrm", crate::dump::file_name(&series.tag));
        if !names.insert(name.clone()) {
            let why = format!("two histograms have the file name `{name}`: choose one histogram with `--tag`");
            return Err((REFUSED, why));
        }
        let one = Profile { series: vec![series.clone()], ..profile.clone() };
        write(&to.join(name), &one.to_text(format).map_err(refused)?)?;
    }
    Ok(0)
}

/// Reads the runs of all paths.
fn profiles(paths: &[PathBuf], unit: Option<Span>) -> Result<Vec<Profile>, Refused> {
    let unit = match unit.map(|unit| unit.as_nanos()) {
        Some(0) => return Err((REFUSED, "`--unit` must be above 0s, got 0s".into())),
        unit => unit,
    };
    let mut all = Vec::new();
    for path in paths {
        all.extend(Profile::read(path, unit).map_err(refused)?);
    }
    for sampled in all.iter().filter(|profile| profile.host.as_ref().is_some_and(|host| host.sampled)) {
        let name = sampled.path.display();
        print_info(&format!(
            "{name}: counts are estimates: a recorded burst also stands for bursts that were not recorded"
        ));
    }
    Ok(all)
}

fn select(profiles: &mut [Profile], tags: &[String]) -> Result<(), Refused> {
    profiles.iter_mut().try_for_each(|profile| profile.select(tags)).map_err(refused)
}

fn refused(error: crate::profile::ProfileError) -> Refused {
    (REFUSED, error.to_string())
}

fn histograms(n: usize) -> String {
    crate::text::number::count(n, "histogram")
}

fn write(path: &Path, text: &str) -> Result<(), Refused> {
    files::write_output(path, text.as_bytes()).map_err(|error| (FAILED, format!("{}: {error}", path.display())))
}
