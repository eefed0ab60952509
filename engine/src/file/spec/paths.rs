//! Reading the paths of a graph file.

use super::{PathSpec, SpecReader};
use crate::base::document::{Tree, Value};
use crate::base::policy::OnMiss;
use crate::base::unit::Span;
use serde::Deserialize;

impl SpecReader<'_> {
    pub(super) fn paths(&mut self, tree: &Tree) -> Vec<PathSpec> {
        #[derive(Deserialize)]
        struct Written {
            from: String,
            to: String,
            deadline: Option<Span>,
            #[serde(default)]
            on_miss: OnMiss,
        }
        let Value::List(items) = &tree.value else {
            let message = format!("`paths` is a list, not {}", tree.value.describe());
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
            let written = item.read::<Written>(self.problems);
            if let Some(Written { deadline: None, on_miss, .. }) = written
                && on_miss != OnMiss::Count
            {
                let message = format!("`on_miss: {}` without a deadline", on_miss.name());
                self.problem("E0118", &item.place, message, "write `deadline: 10ms`");
            }
            // Its ends are checked even if the rest could not be read.
            let end = |key| item.get(key).and_then(Tree::as_text).unwrap_or_default().to_string();
            let Written { from, to, deadline, on_miss } = written.unwrap_or_else(|| Written {
                from: end("from"),
                to: end("to"),
                deadline: None,
                on_miss: OnMiss::Count,
            });
            let (place, deadline_place) = (item.place.clone(), item.locate("deadline"));
            let (from, to) = (self.meant(from), self.meant(to));
            paths.push(PathSpec { place, deadline_place, from, to, deadline, on_miss });
        }
        paths
    }
}
