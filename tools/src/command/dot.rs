//! `limen-run dot`: a planned graph in Graphviz format.

use limen::Plan;
use limen::plan::Role;
use limen::policy::WhenFull;
use limen::text::is_terminal_control;
use std::fmt::Write;

/// Formats a plan in the DOT language: threads as boxes around their nodes, payload types on the edges.
pub fn show_dot(plan: &Plan) -> String {
    let mut text = format!(
        "digraph {} {{\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
        quoted(plan.graph())
    );
    for (at, worker) in plan.workers().iter().enumerate() {
        let on = worker.cpu().map_or_else(|| "any CPU".to_string(), |cpu| format!("CPU {cpu}"));
        let _ = writeln!(
            text,
            "  subgraph cluster_{at} {{\n    label={};\n    style=rounded;",
            quoted(&format!("{} ({on})", worker.name))
        );
        for node in worker.nodes.iter().map(|node| &plan.nodes()[*node]) {
            let shape = match node.role {
                Role::Source => "cds",
                Role::Sink => "box3d",
                Role::Infer => "component",
                Role::Transform => "box",
            };
            let label = quoted(&format!("{}\n{}", node.name, node.kind));
            let _ = writeln!(text, "    {} [label={label}, shape={shape}];", quoted(&node.name));
        }
        text.push_str("  }\n");
    }
    for edge in plan.edges() {
        let node = |name: &str| quoted(name.split('/').next().unwrap_or(name));
        let mut label = edge.spec.as_ref().map_or_else(|| "a plain value".to_string(), ToString::to_string);
        if edge.when_full() != WhenFull::Block {
            let _ = write!(label, "\n{}", edge.when_full().name());
        }
        // Edges that cross threads are bold, lossy ones dashed.
        let style = match (edge.crossing, edge.when_full().is_lossy()) {
            (true, true) => ", style=\"bold,dashed\"",
            (true, false) => ", style=bold",
            (false, true) => ", style=dashed",
            (false, false) => "",
        };
        let _ =
            writeln!(text, "  {} -> {} [label={}{style}];", node(&edge.from_name), node(&edge.to_name), quoted(&label));
    }
    text.push_str("}\n");
    text
}

/// Quotes a string for the DOT language.
fn quoted(text: &str) -> String {
    let text: String = text.chars().filter(|c| *c == '\n' || !is_terminal_control(*c)).collect();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
