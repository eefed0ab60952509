//! Reading the paths of a graph file.

use super::{PathSpec, SpecReader};
use crate::base::document::{Tree, Value};
use crate::base::policy::{Criticality, OnMiss};
use crate::base::unit::Span;
use crate::file::schema::NODE;
use schemars::JsonSchema;
use serde::Deserialize;

/// A path, as the file writes it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct WrittenPath {
    /// A source.
    #[schemars(regex(pattern = NODE))]
    from: String,
    /// A sink that its messages reach.
    #[schemars(regex(pattern = NODE))]
    to: String,
    /// A message that arrives later than this after it began is late.
    deadline: Option<Span>,
    /// What happens to late messages; `count` by default.
    #[serde(default)]
    on_miss: OnMiss,
    /// How much the run depends on the path; `normal` by default.
    #[serde(default)]
    criticality: Criticality,
}

impl SpecReader<'_> {
    pub(super) fn paths(&mut self, tree: &Tree) -> Vec<PathSpec> {
        let Value::List(items) = &tree.value else {
            let message = format!("`paths` must be a list, got {}", tree.value.describe());
            self.problem(
                "E0105",
                &tree.place,
                message,
                "write `paths: [{ from: camera, to: labels, deadline: 10ms }]`",
            );
            return Vec::new();
        };
        let mut paths = Vec::new();
        for item in items {
            let written = item.read::<WrittenPath>(self.problems);
            if let Some(WrittenPath { deadline: None, on_miss, .. }) = written
                && on_miss != OnMiss::Count
            {
                let message = format!("`on_miss: {}` requires a `deadline`", on_miss.name());
                self.problem("E0118", &item.place, message, "add `deadline: 10ms`");
            }
            if let Some(WrittenPath { deadline: None, criticality: Criticality::Critical, .. }) = written {
                let message = "`criticality: critical` requires a `deadline`";
                self.problem("E0118", &item.place, message, "add `deadline: 10ms`");
            }
            if let Some(WrittenPath { criticality: Criticality::BestEffort, on_miss: OnMiss::Stop, .. }) = written {
                let message = "a `best_effort` path would end the run at its first miss";
                self.problem("E0170", &item.place, message, "write `on_miss: drop`, or `criticality: normal`");
            }
            // Its ends are checked even if the rest could not be read.
            let end = |key| item.get(key).and_then(Tree::as_text).unwrap_or_default().to_string();
            let WrittenPath { from, to, deadline, on_miss, criticality } = written.unwrap_or_else(|| WrittenPath {
                from: end("from"),
                to: end("to"),
                deadline: None,
                on_miss: OnMiss::Count,
                criticality: Criticality::Normal,
            });
            let (place, deadline_place) = (item.place.clone(), item.locate("deadline"));
            let (from, to) = (self.meant(from), self.meant(to));
            paths.push(PathSpec { place, deadline_place, from, to, deadline, on_miss, criticality });
        }
        paths
    }
}
