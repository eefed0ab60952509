//! A picture in Graphviz's DOT language.

use super::{Picture, mixed};
use crate::text::escape::one_line;
use std::fmt::Write;

/// Node fills of no load and of a whole thread's.
const COLD: [u8; 3] = [0xff, 0xff, 0xff];
const HOT: [u8; 3] = [0xf0, 0x70, 0x5c];

impl Picture {
    /// Returns the picture in the DOT language: threads as boxes around their nodes, payload types
    /// on the edges. Edges that cross threads are bold, those that may lose messages dashed, and
    /// those that did red.
    pub fn dot(&self) -> String {
        let mut text = format!(
            "digraph {} {{\n  rankdir=LR;\n  node [fontname=\"sans-serif\", margin=\"0.2,0.1\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
            quoted(&self.graph)
        );
        if let Some(outcome) = &self.outcome {
            let label = label(&format!("{}: {outcome}", self.graph));
            let _ = writeln!(text, "  label={label}; labelloc=t; fontname=\"sans-serif\";");
        }
        for (at, thread) in self.threads.iter().enumerate() {
            let label = label(&format!("{} ({})", thread.name, thread.on));
            let _ = writeln!(
                text,
                "  subgraph cluster_{at} {{\n    label={label};\n    style=rounded;\n    fontname=\"sans-serif\";"
            );
            for n in &thread.nodes {
                let node = &self.outline.nodes[*n];
                let shape = match node.role {
                    "source" => "cds",
                    "sink" => "box3d",
                    "model" => "component",
                    _ => "box",
                };
                let mut lines = vec![node.name.clone(), node.kind.clone()];
                lines.extend(self.about(*n));
                let problem = self.problem(*n);
                let is_bad = problem.is_some();
                lines.extend(problem);
                let mut style = String::new();
                if self.outcome.is_some() {
                    let _ = write!(style, ", style=filled, fillcolor=\"{}\"", mixed(COLD, HOT, self.heat(*n)));
                }
                if is_bad {
                    style += ", color=\"#c62828\", penwidth=2";
                }
                let label = self::label(&lines.join("\n"));
                let _ = writeln!(text, "    {} [label={label}, shape={shape}{style}];", quoted(&node.name));
            }
            text.push_str("  }\n");
        }
        for (edge, place) in self.edges.iter().zip(&self.outline.edges) {
            let mut lines = vec![place.spec.clone()];
            if edge.when_full != "block" {
                lines.push(edge.when_full.into());
            }
            if let Some(moved) = &edge.moved {
                lines.push(format!("{} sent", moved.sent));
                lines.push(format!("peak depth {}", edge.peak_depth()));
            }
            lines.extend(edge.discarded());
            let lost = edge.lost();
            let mut style = match (edge.crossing, edge.is_lossy) {
                (true, true) => ", style=\"bold,dashed\"",
                (true, false) => ", style=bold",
                (false, true) => ", style=dashed",
                (false, false) => "",
            }
            .to_string();
            if lost.is_some() {
                style += ", color=\"#c62828\", fontcolor=\"#c62828\"";
            }
            lines.extend(lost);
            let node = |n: usize| quoted(&self.outline.nodes[n].name);
            let label = label(&lines.join("\n"));
            let _ = writeln!(text, "  {} -> {} [label={label}{style}];", node(place.from), node(place.to));
        }
        text.push_str("}\n");
        text
    }
}

/// A label, in which Graphviz replaces character references of HTML.
fn label(text: &str) -> String {
    quoted(&text.replace('&', "&amp;"))
}

/// Quotes a string for the DOT language.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(one_line).collect();
    format!("\"{}\"", lines.join("\n").replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_string() {
        for (text, expected) in [
            ("camera\ninfer", r#""camera\ninfer""#),
            (r#"a"] -> b\N"#, r#""a\"] -> b\\N""#),
            ("a&lt;b", r#""a&amp;lt;b""#),
            ("größe\u{1b}[31m", r#""größe\\u{1b}[31m""#),
        ] {
            assert_eq!(label(text), expected);
        }
    }
}
