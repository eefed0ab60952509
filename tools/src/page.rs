//! `--report FILE`: a page that shows a run, in one file that needs no network.
//!
//! The page is `page.html` with its style, its script and the run's data written into it. The data
//! are one JSON object, so that a later page can be compared with it, and other programs can read
//! it.

mod history;

use crate::dump::run_info::RunInfo;
use crate::dump::write_file;
use crate::old_names;
use crate::picture::outline::PlanOutline;
use crate::report::summary::Summary;
use crate::text::escape::plain_json;
use history::History;
use limen::files;
use limen::report::Term;
use limen::run::{EdgeStats, IntervalReport};
use limen::{Event, Plan, Report};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

/// The format of the data.
const FORMAT: u64 = 1;
/// The most paths whose way through the graph is shown.
const MAX_PATHS: usize = 64;
/// The most bytes of a graph file that are shown.
const MAX_GRAPH: u64 = 128 << 10;
/// The most bytes of a page that is compared with.
const MAX_PAGE: u64 = 32 << 20;
/// Points of a percentile curve for a factor of ten.
const STEPS: i32 = 8;
/// The lines around the data.
const BEGIN: &str = "<script type=\"application/json\" id=\"data\">";
const END: &str = "</script>";

/// The data of another run's page, to compare with.
#[derive(Debug, Clone)]
pub struct BaseReport(Value);

impl BaseReport {
    /// Reads a page that `--report` has written.
    ///
    /// # Errors
    /// Those of the file, and [`io::ErrorKind::InvalidData`] if it is no such page.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = files::read(path, MAX_PAGE)?;
        let text = String::from_utf8_lossy(&bytes);
        let begin = text.find(BEGIN).map(|at| at + BEGIN.len());
        let data = begin.and_then(|begin| Some(&text[begin..begin + text[begin..].find(END)?]));
        let data: Option<Value> = data.and_then(|data| serde_json::from_str(data).ok());
        match data {
            Some(mut data) if data["limen_report"] == FORMAT => {
                // A comparison of a comparison compares the newer run.
                data["base"] = Value::Null;
                renew(&mut data);
                Ok(BaseReport(data))
            }
            _ => {
                let why = "expected a page written by `--report` of this version, found another file";
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }
}

/// A page about a run, under construction while the graph runs.
///
/// ```no_run
/// use limen_run::{GraphFile, ReportPage, RunInfo, Summary};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = limen::Plan::from_file("graph.yaml", &Default::default(), &limen_run::registry(), &Default::default())?;
/// let mut page = ReportPage::new(&plan);
/// let mut running = plan.wire()?.start()?;
/// let mut events = running.events();
/// while !running.wait_for(Duration::from_millis(100)) {
///     events.by_ref().for_each(|event| page.add_event(&event));
///     page.look(&running.edge_stats());
///     page.add_intervals(&running.intervals());
/// }
/// let report = running.wait();
/// let run = RunInfo::new(&report, &GraphFile::read("graph.yaml"), std::env::args());
/// std::fs::write("report.html", page.html(&report, &Summary::new(&report, &[]), &run, None))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReportPage {
    outline: PlanOutline,
    history: History,
}

impl ReportPage {
    /// Begins the page of a plan that is about to run.
    pub fn new(plan: &Plan) -> Self {
        let outline = PlanOutline::new(plan);
        let threads = plan.workers().iter().map(|worker| worker.name.clone());
        let history = History::new(plan.edges().len(), plan.nodes().len(), plan.paths().len(), threads);
        ReportPage { outline, history }
    }

    /// Adds what happened during the run to the page's list of events.
    pub fn add_event(&mut self, event: &Event) {
        self.history.happened(event);
    }

    /// Adds intervals that have ended, about one a second.
    pub fn add_intervals(&mut self, intervals: &[IntervalReport]) {
        self.history.add(intervals);
    }

    /// Reads the queue depth of every edge ([`Running::edge_stats`](limen::Running::edge_stats)),
    /// and looks how busy threads are. To be called about ten times a second.
    pub fn look(&mut self, edges: &[EdgeStats]) {
        self.history.look(edges);
    }

    /// Returns the page of a run that has ended. With `base`, both runs are shown beside each
    /// other.
    pub fn html(mut self, report: &Report, summary: &Summary<'_>, run: &RunInfo, base: Option<&BaseReport>) -> String {
        self.history.finish(report);
        let data = self.data(report, summary, run, base);
        // Nothing in the data can end the script.
        let data = plain_json(data.to_string()).replace('<', "\\u003c");
        let mut page = include_str!("page/page.html").to_string();
        for (mark, text) in [
            ("/* style */", include_str!("page/page.css")),
            ("/* script */", include_str!("page/page.js")),
            ("/* data */", &data),
        ] {
            // The data come last: a mark within them is no mark.
            page = page.replacen(mark, text, 1);
        }
        page
    }

    /// Checks that a page can be written to a file, and creates nothing.
    ///
    /// # Errors
    /// As [`files::check_output`].
    pub fn check(path: &Path) -> io::Result<()> {
        Ok(files::check_output(path)?)
    }

    /// Writes the page to a file, which it replaces once it is whole, or into a pipe or a device.
    /// Creates the folders of the path.
    ///
    /// # Errors
    /// As [`files::write_output`].
    pub fn write(path: &Path, page: &str) -> io::Result<()> {
        write_file(path, page)
    }

    fn data(&self, report: &Report, summary: &Summary<'_>, run: &RunInfo, base: Option<&BaseReport>) -> Value {
        let graph = files::read(Path::new(&run.file), MAX_GRAPH).ok();
        let graph = graph.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        json!({
            "limen_report": FORMAT,
            "summary": summary,
            "run": run,
            "outline": self.outline,
            "routes": self.routes(report),
            "curves": curves(report),
            "history": self.history.json(report.started),
            "graph": graph,
            "base": base.map(|base| &base.0),
        })
    }

    /// For each path: the way that takes most of its time, with the mean of each term, and the mean
    /// from end to end.
    fn routes(&self, report: &Report) -> Vec<Value> {
        const TERMS: [Term; 7] =
            [Term::Source, Term::Queue, Term::Wait, Term::BatchWait, Term::Blocked, Term::Compute, Term::Emit];
        // In one pass: a search for each node and term would grow with the square of the graph.
        let mut recorded: HashMap<&str, Vec<(Term, Option<f64>)>> = HashMap::new();
        for one in report.histograms.iter().filter(|one| one.to.is_none() && TERMS.contains(&one.term)) {
            let histogram = Some(&one.recorded.histogram).filter(|histogram| !histogram.is_empty());
            recorded.entry(&one.node).or_default().push((one.term, histogram.map(limen::report::Counts::mean)));
        }
        let of =
            |node: &str, term: Term| recorded.get(node)?.iter().find(|(one, _)| *one == term).map(|(_, mean)| *mean);
        // Where several edges come in, the last message waits for no partner.
        let joins: HashSet<&str> = {
            let mut seen = HashSet::new();
            let all = self.outline.edges.iter().filter(|edge| !seen.insert(edge.to));
            all.map(|edge| self.outline.nodes[edge.to].name.as_str()).collect()
        };
        // Of nodes such as `delay`: no term has it.
        let all = self.outline.nodes.iter().filter(|node| node.waits > 0);
        let waits: HashMap<&str, f64> = all.map(|node| (node.name.as_str(), node.waits as f64)).collect();
        // The time of a source is counted from the origin, and includes its calls.
        let is_source = |node: &str| of(node, Term::Source).is_some();
        let terms = |node: &str| -> Vec<(Term, f64)> {
            let all = TERMS.into_iter().filter(|term| match term {
                Term::Compute => !is_source(node),
                Term::Wait => !joins.contains(node),
                _ => true,
            });
            let mut terms: Vec<_> = all.filter_map(|term| Some((term, of(node, term)??))).collect();
            if let Some(wait) = waits.get(node) {
                terms.insert(terms.partition_point(|(term, _)| *term <= Term::Queue), (Term::Wait, *wait));
            }
            terms
        };
        let name = |n: usize| self.outline.nodes[n].name.as_str();
        let cost = |n: usize| terms(name(n)).iter().map(|(_, mean)| mean).sum();
        let costs: Vec<f64> = (0..self.outline.nodes.len()).map(cost).collect();
        let route = |(from, to, recorded): (&str, &str, &limen::report::Recorded)| {
            let nodes = self.outline.slowest_route(from, to, &costs);
            let mean = recorded.histogram.mean();
            // A join counts the wait of each set. That of this path's messages is what no other
            // term has, shared by the joins on the way.
            let others: f64 = nodes.iter().map(|n| costs[*n]).sum();
            let waited = |n: usize| {
                let is_join = joins.contains(name(n)) && nodes.first() != Some(&n);
                if is_join { of(name(n), Term::Wait).flatten().unwrap_or(0.0) } else { 0.0 }
            };
            let all_waited: f64 = nodes.iter().map(|n| waited(*n)).sum();
            let share = if all_waited > 0.0 { (mean - others).max(0.0) / all_waited } else { 0.0 };
            let mut way: Vec<Value> = Vec::new();
            for n in &nodes {
                let mut of_node = terms(name(*n));
                let wait = waited(*n) * share;
                if wait >= 0.5 {
                    of_node.insert(of_node.partition_point(|(term, _)| *term <= Term::Queue), (Term::Wait, wait));
                }
                way.extend(of_node.into_iter().map(|(term, mean)| json!([n, term.name(), mean.round()])));
            }
            json!({ "from": from, "to": to, "terms": way, "mean": mean.round() })
        };
        report.paths().filter(|(_, _, recorded)| !recorded.histogram.is_empty()).take(MAX_PATHS).map(route).collect()
    }
}

/// Gives what a page of an earlier version shows its new names.
fn renew(data: &mut Value) {
    data.pointer_mut("/summary/paths").into_iter().for_each(old_names::renew);
    for one in data.pointer_mut("/summary/histograms").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(tag) = one["tag"].as_str() {
            one["tag"] = old_names::tag(tag).into();
        }
    }
    if let Some(curves) = data.get_mut("curves").and_then(Value::as_object_mut) {
        *curves = std::mem::take(curves).into_iter().map(|(tag, curve)| (old_names::tag(&tag).into(), curve)).collect();
    }
    let routes = data.get_mut("routes").and_then(Value::as_array_mut).into_iter().flatten();
    for part in routes.filter_map(|route| route.get_mut("terms")?.as_array_mut()).flatten() {
        if let Some(term) = part[1].as_str() {
            part[1] = old_names::term(term).into();
        }
    }
}

/// For each histogram of times the points of its percentile curve: how many of the values are
/// beyond, as 1 in so many, and the value in ns. A quantile has at least ten samples beyond it; the
/// last point is the maximum.
fn curves(report: &Report) -> Value {
    let followed = |term: Term| matches!(term, Term::EndToEnd | Term::Compute | Term::Queue);
    let curves = report.histograms.iter().filter(|one| followed(one.term) && !one.recorded.histogram.is_empty());
    let curve = |recorded: &limen::report::Recorded| {
        let steps = || (0..12 * STEPS).map(|step| 10f64.powf(f64::from(step) / f64::from(STEPS)));
        let values = recorded.quantiles(steps().map(|one_in| 1.0 - 1.0 / one_in));
        let mut points: Vec<(f64, u64)> = steps().zip(values).collect();
        points.push((recorded.histogram.len() as f64, recorded.histogram.max()));
        let round = |one_in: f64| (one_in * 1000.0).round() / 1000.0;
        points.into_iter().map(|(one_in, value)| json!([round(one_in), value])).collect::<Vec<Value>>()
    };
    curves.map(|one| (one.tag(), Value::from(curve(&one.recorded)))).collect::<serde_json::Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a page that an earlier version has written.
    #[test]
    fn an_earlier_page_gets_the_new_names() {
        let mut data = json!({
            "summary": { "paths": [{ "closure_p99": 5 }], "histograms": [{ "node": "hold", "tag": "hold.hold" }] },
            "curves": { "z.closure": [], "a->hold.e2e": [] },
            "routes": [{ "terms": [[0, "hold", 3], [1, "queue", 4]] }],
        });
        renew(&mut data);
        let expected = json!({
            "summary": { "paths": [{ "residual_p99": 5 }], "histograms": [{ "node": "hold", "tag": "hold.wait" }] },
            "curves": { "z.residual": [], "a->hold.e2e": [] },
            "routes": [{ "terms": [[0, "wait", 3], [1, "queue", 4]] }],
        });
        assert_eq!(data, expected);
        for mut other in [json!({}), json!({ "summary": "x", "curves": 1, "routes": ["x", { "terms": [2] }] })] {
            let before = other.clone();
            renew(&mut other);
            assert_eq!(other, before);
        }
    }
}
