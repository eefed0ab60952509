//! The parts of `limen-run`: the standard registry, the command line, and the writers of plans,
//! reports and histograms.
//!
//! A program with nodes of its own gets the same command line by adding them to the registry:
//!
//! ```no_run
//! fn acme_lidar(registry: limen::Registry) -> limen::Registry {
//!     registry // `.source::<Lidar>("acme_lidar")`
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     limen_run::main(limen_run::registry().with(acme_lidar))
//! }
//! ```
//!
//! A program that embeds the engine can use the parts one by one: [`show_plan`], [`show_report`],
//! [`Summary`] (the object of `--json`), [`Gate`] (`--fail-on`), and [`Dump`] (`--histograms`),
//! which combines [`write_hlog`], [`percentile_text`], [`Summary::csv`] and [`RunInfo`].
//!
//! [`Monitor`] serves a run to `limen-top` and to scripts while it lasts (`--monitor`), and
//! [`MonitorClient`] asks it.
//!
//! [`Profile`] reads such files again, and those of other programs; [`show_profiles`], [`Plot`] and
//! [`Comparison`] with its [`Limit`]s are `limen-run hist`.
//!
//! This crate reads what a run tells while it lasts, and the finished [`limen::Report`]; it
//! measures nothing itself and is not on the message path.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

/// The page on embedding; every example in it runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
mod embedding {}

/// The page on nodes of one's own; every example in it runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../docs/own-node.md")]
mod own_node {}

mod command;
mod dump;
mod fetch;
mod metrics;
mod monitor;
mod old_names;
mod page;
mod picture;
mod places;
mod profile;
mod report;
mod stock;
mod terminal;
mod text;
mod trace;

pub use command::arguments::{Arguments, DryRun, RunArguments};
pub use command::doctor::{Finding, Health, examine, show_findings};
pub use command::explain::codes::{Code, codes};
pub use command::explain::explain;
pub use command::hist::{HistFiles, HistVerb};
pub use command::kinds::{kinds_json, show_kinds};
pub use command::model_starter::InputKind;
pub use command::option_values::{CpuList, ServerAddress};
pub use command::plan::{plan_json, show_plan, show_why};
pub use command::problems::show_problems;
pub use command::program::main;
pub use command::schema::schema;
pub use command::starter::{begin, begin_with_models};
pub use command::{FetchArguments, Verb};
pub use dump::hgrm::percentile_text;
pub use dump::hlog::write_hlog;
pub use dump::run_info::{GraphFile, RunInfo, WorkerInfo};
pub use dump::{Dump, IntervalLog};
pub use fetch::fetched_files;
pub use limen::report::Counts;
pub use limen_nodes_core::pace::Pace;
pub use metrics::RunMetrics;
#[cfg(feature = "otlp")]
pub use metrics::exporter::{Exported, OtlpExporter};
pub use metrics::server::MetricsServer;
pub use monitor::{Monitor, MonitorClient, MonitorNode, MonitorStats, MonitorWorker};
pub use page::{BaseReport, ReportPage};
pub use picture::Picture;
pub use profile::bootstrap::Stat;
pub use profile::comparison::{Change, ChangeVerdict, Comparison};
pub use profile::host::{Host, HostDifference, HostWorker};
pub use profile::limit::{Limit, LimitError};
pub use profile::plot::Plot;
pub use profile::printed::show_profiles;
pub use profile::{Profile, ProfileError, ProfileFormat, ProfileInterval, Series};
pub use report::exit_code::exit_code;
pub use report::gate::{Gate, GateError, GateVerdict};
pub use report::printed::{Detail, show_report};
pub use report::summary::{PathSummary, Summary};
pub use stock::register_nodes;
pub use terminal::interrupt::Interrupt;
pub use trace::TraceFile;

/// Returns the standard registry: the stock nodes and the backends that this program was built
/// with.
///
/// ```
/// assert!(limen_run::registry().kinds().any(|kind| kind.name == "infer"));
/// ```
pub fn registry() -> limen::Registry {
    let registry = limen::Registry::new().with(register_nodes).with(limen_infer::register);
    #[cfg(feature = "gpu")]
    let registry = registry.with(limen_gpu::register);
    #[cfg(not(feature = "gpu"))]
    let registry = registry.without_kinds(
        &["kernel", "to_device", "to_host"],
        "build limen-run with `--features gpu`, or your program with the feature `gpu` of limen-tools",
    );
    registry
}
