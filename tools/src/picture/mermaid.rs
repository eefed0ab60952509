//! A picture in Mermaid's language, which Markdown renderers draw.

use super::{Picture, mixed};
use crate::text::escape::one_line;
use std::fmt::Write;

/// Node fills of no load and of a whole thread's. Text on them is dark in every theme.
const COLD: [u8; 3] = [0xf5, 0xf7, 0xf8];
const HOT: [u8; 3] = [0xf0, 0x70, 0x5c];
/// Steps between them.
const STEPS: usize = 10;

impl Picture {
    /// Returns the picture as a flowchart of Mermaid. Edges that may lose messages are dotted,
    /// others that cross threads thick, and those that lost some red.
    pub fn mermaid(&self) -> String {
        let title = match &self.outcome {
            Some(outcome) => format!("{}: {outcome}", self.graph),
            None => self.graph.clone(),
        };
        // It is read as HTML, which has no character references there. The header is YAML, of which
        // JSON strings are a part.
        let title = one_line(&title).replace('<', "‹").replace('>', "›").replace('&', "+");
        let title = serde_json::Value::from(title);
        let mut text =
            format!("---\ntitle: {title}\nconfig:\n  flowchart:\n    wrappingWidth: 400\n---\nflowchart LR\n");
        let mut used = [false; STEPS + 1];
        let mut failing = Vec::new();
        for (at, thread) in self.threads.iter().enumerate() {
            let _ = writeln!(text, "  subgraph t{at}[\"{} ({})\"]", escaped(&thread.name), escaped(&thread.on));
            text.push_str("    direction LR\n");
            for n in &thread.nodes {
                let node = &self.outline.nodes[*n];
                let mut lines = vec![node.name.clone(), node.kind.clone()];
                lines.extend(self.about(*n));
                if let Some(problem) = self.problem(*n) {
                    lines.push(problem);
                    failing.push(format!("n{n}"));
                }
                let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
                let (open, close) = match node.role {
                    "source" => ("([", "])"),
                    "sink" => ("(", ")"),
                    "model" => ("[[", "]]"),
                    _ => ("[", "]"),
                };
                let step = (self.heat(*n) * STEPS as f64).round() as usize;
                let class = if self.outcome.is_some() {
                    used[step.min(STEPS)] = true;
                    format!(":::h{step}")
                } else {
                    String::new()
                };
                let _ = writeln!(text, "    n{n}{open}\"{}\"{close}{class}", lines.join("<br>"));
            }
            text.push_str("  end\n");
        }
        let mut red = Vec::new();
        for (at, (edge, place)) in self.edges.iter().zip(&self.outline.edges).enumerate() {
            let mut lines = Vec::new();
            match &edge.moved {
                Some(moved) => {
                    lines.extend([format!("{} sent", moved.sent), format!("peak depth {}", edge.peak_depth())])
                }
                None => lines.push(place.spec.clone()),
            }
            lines.extend(edge.discarded());
            if let Some(lost) = edge.lost() {
                red.push(at.to_string());
                lines.push(lost);
            }
            let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
            let arrow = match (edge.is_lossy, edge.crossing) {
                (true, _) => "-.->",
                (false, true) => "==>",
                (false, false) => "-->",
            };
            let _ = writeln!(text, "  n{} {arrow}|\"{}\"| n{}", place.from, lines.join("<br>"), place.to);
        }
        for step in (0..=STEPS).filter(|step| used[*step]) {
            let fill = mixed(COLD, HOT, step as f64 / STEPS as f64);
            let _ = writeln!(text, "  classDef h{step} fill:{fill},stroke:#60686f,color:#1c2024");
        }
        if !failing.is_empty() {
            let _ = writeln!(text, "  classDef bad stroke:#c62828,stroke-width:3px\n  class {} bad", failing.join(","));
        }
        if !red.is_empty() {
            let _ = writeln!(text, "  linkStyle {} stroke:#d9363e,color:#d9363e", red.join(","));
        }
        text
    }
}

/// Text for a label in quotes: whatever could mean something to Mermaid, HTML or Markdown is a
/// character reference.
fn escaped(text: &str) -> String {
    let mut plain = String::new();
    for c in one_line(text).chars() {
        if c.is_ascii_alphanumeric() || " ./:,()[]_-".contains(c) || !c.is_ascii() {
            plain.push(c);
        } else {
            let _ = write!(plain, "#{};", u32::from(c));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_label() {
        for (text, expected) in [
            ("camera_1 (CPU 0)", "camera_1 (CPU 0)"),
            ("a\"] --> b", "a#34;] --#62; b"),
            ("%%{init}", "#37;#37;#123;init#125;"),
            ("</svg>&amp;#35;", "#60;/svg#62;#38;amp#59;#35;35#59;"),
            ("`**größe**`\n两", "#96;#42;#42;größe#42;#42;#96; 两"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
