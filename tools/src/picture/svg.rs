//! A picture as one SVG file, without scripts, fonts or links, in the colours that a reader
//! prefers.

use super::{Edge, Picture};
use crate::text::escape::{one_line, xml};
use crate::text::table::cut;
use std::fmt::Write;

/// The size of a node; it is higher with many edges on one side.
const WIDTH: f64 = 190.0;
const LINE: f64 = 15.0;
/// The distance between columns, in which the labels of edges stand.
const GAP_X: f64 = 150.0;
const GAP_Y: f64 = 16.0;
/// The height of an edge that passes a column, and of an edge with its label where it begins or
/// ends; each further line of the label takes more.
const PORT: f64 = 28.0;
const LABEL_LINE: f64 = 12.0;
/// Beside its label an edge is straight.
const STRAIGHT: f64 = 70.0;
/// Around the nodes of a thread.
const PAD: f64 = 12.0;
const TITLE: f64 = 22.0;
/// Around the picture.
const EDGE: f64 = 16.0;
const TOP: f64 = 66.0;
/// Room below nodes for an edge that leads back.
const BACK: f64 = 96.0;
/// The most characters of a line in a node and of a label.
const NODE_TEXT: usize = 27;
const LABEL_TEXT: usize = 20;

/// Where a node is, or an edge that passes its column.
#[derive(Clone, Copy, Debug, Default)]
struct NodePlace {
    column: usize,
    row: usize,
    thread: usize,
    height: f64,
    y: f64,
}

impl NodePlace {
    fn x(self) -> f64 {
        EDGE + PAD + self.column as f64 * (WIDTH + GAP_X)
    }

    fn middle(self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// The box around the nodes of a thread.
#[derive(Clone, Copy, Debug)]
struct Group {
    thread: usize,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Everything with its place.
struct PictureLayout {
    nodes: Vec<NodePlace>,
    /// Of each edge, the places in the columns that it passes.
    bends: Vec<Vec<NodePlace>>,
    /// Of each edge, where it leaves its producer and reaches its consumer.
    ends: Vec<(f64, f64)>,
    /// Of each edge, how many leave its producer.
    siblings: Vec<usize>,
    groups: Vec<Group>,
    width: f64,
    height: f64,
}

impl PictureLayout {
    fn new(picture: &Picture, lines: usize) -> Self {
        let outline = &picture.outline;
        let (mut outs, mut ins) = (vec![0.0; outline.nodes.len()], vec![0.0; outline.nodes.len()]);
        let mut counts = vec![0; outline.nodes.len()];
        for (edge, about) in outline.edges.iter().zip(&picture.edges) {
            outs[edge.from] += about.port();
            ins[edge.to] += about.port();
            counts[edge.from] += 1;
        }
        let own = lines as f64 * LINE + 14.0;
        let mut places: Vec<NodePlace> = outline
            .nodes
            .iter()
            .enumerate()
            .map(|(n, node)| NodePlace {
                column: node.layer,
                row: node.row,
                thread: node.worker,
                height: own.max(outs[n]).max(ins[n]),
                y: 0.0,
            })
            .collect();
        let nodes = places.len();
        let mut ranges = Vec::new();
        for edge in &outline.edges {
            let begin = places.len();
            let thread = outline.nodes[edge.from].worker;
            places.extend(edge.bends.iter().map(|(column, row)| NodePlace {
                column: *column,
                row: *row,
                thread,
                height: PORT,
                y: 0.0,
            }));
            ranges.push(begin..places.len());
        }
        let groups = groups(&mut places, nodes, picture.threads.len());
        let bends: Vec<Vec<NodePlace>> = ranges.into_iter().map(|range| places[range].to_vec()).collect();
        places.truncate(nodes);
        let siblings = outline.edges.iter().map(|edge| counts[edge.from]).collect();
        let mut layout =
            PictureLayout { ends: Vec::new(), nodes: places, bends, siblings, groups, width: 0.0, height: 0.0 };
        layout.ends = layout.ports(picture);
        let backs = outline.edges.iter().filter(|edge| edge.is_back);
        let below = backs.map(|edge| layout.below(edge.from, edge.to)).fold(0.0, f64::max);
        let bottom = layout.groups.iter().map(|group| group.y + group.height).fold(below, f64::max);
        let right = layout.groups.iter().map(|group| group.x + group.width).fold(0.0, f64::max);
        (layout.width, layout.height) = (right + EDGE, bottom + EDGE);
        layout
    }

    /// The lowest point of an edge that leads back, below both of its nodes.
    fn below(&self, from: usize, to: usize) -> f64 {
        let bottom = |n: usize| self.nodes[n].y + self.nodes[n].height;
        bottom(from).max(bottom(to)) + BACK
    }

    /// Where each edge leaves its producer and reaches its consumer: in the order of their other
    /// ends.
    fn ports(&self, picture: &Picture) -> Vec<(f64, f64)> {
        let edges = &picture.outline.edges;
        let mut ends = vec![(0.0, 0.0); edges.len()];
        let (mut leaving, mut reaching) = (vec![Vec::new(); self.nodes.len()], vec![Vec::new(); self.nodes.len()]);
        for (at, edge) in edges.iter().enumerate() {
            let next = self.bends[at].first().unwrap_or(&self.nodes[edge.to]);
            let last = self.bends[at].last().unwrap_or(&self.nodes[edge.from]);
            // An edge that leads back comes from below.
            let shift = if edge.is_back { 1e9 } else { 0.0 };
            leaving[edge.from].push((next.middle() + shift, at));
            reaching[edge.to].push((last.middle() + shift, at));
        }
        let mut spread = |sides: Vec<Vec<(f64, usize)>>, set: fn(&mut (f64, f64), f64)| {
            for (n, mut side) in sides.into_iter().enumerate() {
                side.sort_by(|a, b| a.0.total_cmp(&b.0));
                let all: f64 = side.iter().map(|(_, at)| picture.edges[*at].port()).sum();
                let room = (self.nodes[n].height - all) / side.len().max(1) as f64;
                let mut y = self.nodes[n].y;
                for (_, at) in side {
                    let port = picture.edges[at].port();
                    // One line of the label is above the edge.
                    let is_above = if port > PORT { PORT / (2.0 * port) } else { 0.5 };
                    set(&mut ends[at], y + room / 2.0 + port * is_above);
                    y += room + port;
                }
            }
        };
        spread(leaving, |end, y| end.0 = y);
        spread(reaching, |end, y| end.1 = y);
        ends
    }
}

/// Places the nodes of each thread beside each other, in boxes that do not overlap. The first
/// places are nodes.
fn groups(places: &mut [NodePlace], nodes: usize, threads: usize) -> Vec<Group> {
    let columns = places.iter().map(|place| place.column + 1).max().unwrap_or(0);
    let mut members = vec![Vec::new(); threads];
    for (at, place) in places.iter().enumerate() {
        if let Some(of) = members.get_mut(place.thread) {
            of.push(at);
        }
    }
    // Threads whose nodes are further up come first.
    let mean = |of: &Vec<usize>| {
        let rows: usize = of.iter().filter(|at| **at < nodes).map(|at| places[*at].row).sum();
        rows as f64 / of.iter().filter(|at| **at < nodes).count().max(1) as f64
    };
    let mut order: Vec<usize> = (0..threads).filter(|thread| !members[*thread].is_empty()).collect();
    let means: Vec<f64> = members.iter().map(mean).collect();
    order.sort_by(|a, b| means[*a].total_cmp(&means[*b]));
    // How far down each column is taken.
    let mut taken = vec![TOP; columns];
    let mut groups = Vec::new();
    for thread in order {
        let mut by_column = vec![Vec::new(); columns];
        members[thread].iter().for_each(|at| by_column[places[*at].column].push(*at));
        by_column.iter_mut().for_each(|column| column.sort_by_key(|at| places[*at].row));
        let height_of = |column: &Vec<usize>| {
            column.iter().map(|at| places[*at].height + GAP_Y).sum::<f64>()
                - if column.is_empty() { 0.0 } else { GAP_Y }
        };
        let heights: Vec<f64> = by_column.iter().map(height_of).collect();
        let inner = heights.iter().copied().fold(0.0, f64::max);
        let used = |column: &usize| !by_column[*column].is_empty();
        let (first, last) = ((0..columns).find(used).unwrap_or(0), (0..columns).rev().find(used).unwrap_or(0));
        let y = taken[first..=last].iter().copied().fold(0.0, f64::max);
        for (column, height) in by_column.iter().zip(&heights) {
            let mut at_y = y + TITLE + (inner - height) / 2.0;
            for at in column {
                places[*at].y = at_y;
                at_y += places[*at].height + GAP_Y;
            }
        }
        let bottom = y + TITLE + inner + PAD;
        taken[first..=last].iter_mut().for_each(|taken| *taken = bottom + GAP_Y);
        // The box is around nodes; edges that pass further columns need no box.
        let of_nodes = || members[thread].iter().filter(|at| **at < nodes).map(|at| places[*at]);
        let left = of_nodes().map(NodePlace::x).fold(f64::MAX, f64::min);
        let right = of_nodes().map(|place| place.x() + WIDTH).fold(0.0, f64::max);
        if left < right {
            let (x, width) = (left - PAD, right - left + 2.0 * PAD);
            groups.push(Group { thread, x, y, width, height: bottom - y });
        }
    }
    groups
}

impl Edge {
    /// The lines of its label below it, and their classes.
    fn beneath(&self) -> Vec<(String, &'static str)> {
        let depth = self.moved.as_ref().map(|_| (self.peak_depth(), "soft"));
        let discarded = self.discarded().map(|discarded| (discarded, "soft"));
        let lost = self.lost().map(|lost| (lost, "bad"));
        depth.into_iter().chain(discarded).chain(lost).collect()
    }

    /// The height that it takes with its label where it begins or ends.
    fn port(&self) -> f64 {
        PORT + LABEL_LINE * self.beneath().len().saturating_sub(1) as f64
    }
}

const STYLE: &str = "\
svg { color: #1c2024; font: 12px sans-serif }
text { fill: currentColor }
.ground { fill: #fff } .halo { stroke: #fff }
.group { fill: #f1f3f5; stroke: #c9d0d6 } .panel { fill: #fff; stroke: none }
.heat { fill: #f0705c; stroke: #60686f } .failed { stroke: #c62828; stroke-width: 2.5 }
.edge { fill: none; stroke: #60686f } .tip { fill: #60686f } .lossy { stroke-dasharray: 6 4 }
.halo { stroke-width: 4; stroke-linejoin: round; paint-order: stroke; font-size: 11px }
.soft { fill: #515960 } .bad { fill: #c62828 } .lost { stroke: #c62828 } .tip.lost { fill: #c62828; stroke: none }
.name { font-weight: bold } .title { font-size: 16px; font-weight: bold }
@media (prefers-color-scheme: dark) {
svg { color: #e8ebee }
.ground { fill: #14171a } .halo { stroke: #14171a }
.group { fill: #1b1f23; stroke: #3a4148 } .panel { fill: #262b30 }
.heat { fill: #a8322a; stroke: #8d979f } .failed { stroke: #ff7b72 }
.edge { stroke: #98a2aa } .tip { fill: #98a2aa }
.soft { fill: #b4bcc3 } .bad { fill: #ff8a80 } .lost { stroke: #ff7b72 } .tip.lost { fill: #ff7b72 }
}
";

impl Picture {
    /// Returns the picture as the text of an SVG file, which needs neither scripts nor a network,
    /// and follows its reader's dark mode.
    pub fn svg(&self) -> String {
        let about: Vec<Vec<String>> = (0..self.outline.nodes.len())
            .map(|n| {
                let mut lines = self.about(n);
                lines.extend(self.problem(n));
                lines
            })
            .collect();
        let lines = 2 + about.iter().map(Vec::len).max().unwrap_or(0);
        let layout = PictureLayout::new(self, lines);
        let (width, height) = (layout.width.max(560.0), layout.height);
        let title = match &self.outcome {
            Some(outcome) => format!("{}: {outcome}", self.graph),
            None => self.graph.clone(),
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{EDGE}\" y=\"28\">{title}</text>\n",
            title = xml(&one_line(&title)),
        );
        let legend = match &self.outcome {
            Some(_) => {
                "Colour: share of its thread’s time. Edges: messages sent, peak depth. Dashed: may lose messages; red: did."
            }
            None => "Boxes: threads. Edges: types of messages. Dashed: may lose messages. Thick: to another thread.",
        };
        let _ = writeln!(svg, "<text class=\"soft\" x=\"{EDGE}\" y=\"48\">{legend}</text>");
        for group in &layout.groups {
            let thread = &self.threads[group.thread];
            let name = one_line(&format!("{} ({})", thread.name, thread.on));
            let Group { x, y, width, height, .. } = group;
            let _ = writeln!(
                svg,
                "<g><title>{}</title><rect class=\"group\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                xml(&name),
                x + PAD,
                y + 15.0,
                xml(&cut(&name, NODE_TEXT + 3)),
            );
        }
        let most = self.edges.iter().filter_map(|edge| edge.moved.as_ref()).map(|moved| moved.sent).max().unwrap_or(0);
        let mut labels = String::new();
        for at in 0..self.outline.edges.len() {
            self.edge(at, &layout, most, &mut svg, &mut labels);
        }
        for (n, about) in about.iter().enumerate() {
            self.node(n, layout.nodes[n], about, &mut svg);
        }
        svg + &labels + "</svg>\n"
    }

    fn node(&self, n: usize, place: NodePlace, about: &[String], svg: &mut String) {
        let node = &self.outline.nodes[n];
        let problem = self.problem(n);
        let all: Vec<String> =
            [&node.name, &node.kind].into_iter().chain(about).map(|line| xml(&one_line(line))).collect();
        let class = if problem.is_some() { "heat failed" } else { "heat" };
        let (x, y, height) = (place.x(), place.y, place.height);
        let _ = write!(
            svg,
            "<g><title>{}</title><rect class=\"panel\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\" rx=\"6\"/>\
             <rect class=\"{class}\" fill-opacity=\"{:.2}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\" rx=\"6\"/>",
            all.join("\n"),
            self.heat(n) * 0.85,
        );
        let lines: Vec<&str> = [&node.name, &node.kind].into_iter().chain(about).map(String::as_str).collect();
        let mut line_y = y + (height - lines.len() as f64 * LINE) / 2.0 + 11.5;
        for (at, line) in lines.iter().enumerate() {
            let is_bad = problem.is_some() && at + 1 == lines.len();
            let class = if at == 0 || is_bad { " class=\"name\"" } else { "" };
            let line = xml(&cut(&one_line(line), NODE_TEXT));
            let _ = write!(svg, "<text{class} x=\"{:.1}\" y=\"{line_y:.1}\">{line}</text>", x + 9.0);
            line_y += LINE;
        }
        svg.push_str("</g>\n");
    }

    fn edge(&self, at: usize, layout: &PictureLayout, most: u64, svg: &mut String, labels: &mut String) {
        let (edge, place) = (&self.edges[at], &self.outline.edges[at]);
        let (from, to) = (layout.nodes[place.from], layout.nodes[place.to]);
        let (begin, end) = ((from.x() + WIDTH, layout.ends[at].0), (to.x() - 7.0, layout.ends[at].1));
        let is_alone = layout.siblings[at] == 1;
        let mut way = format!("M{:.1} {:.1}", begin.0, begin.1);
        if place.is_back {
            let below = layout.below(place.from, place.to) + 20.0;
            let _ = write!(
                way,
                "C{:.1} {below:.1} {:.1} {below:.1} {:.1} {:.1}",
                begin.0 + 70.0,
                end.0 - 70.0,
                end.0,
                end.1
            );
        } else {
            let mut last = begin;
            let mut curve = |to: (f64, f64), way: &mut String| {
                let middle = f64::midpoint(last.0, to.0);
                let _ = write!(way, "C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}", last.1, to.1, to.0, to.1);
                last = to;
            };
            // Curved between columns, straight within, and beside the label.
            if is_alone {
                curve((begin.0 + STRAIGHT, begin.1), &mut way);
            }
            for bend in &layout.bends[at] {
                curve((bend.x(), bend.middle()), &mut way);
                curve((bend.x() + WIDTH, bend.middle()), &mut way);
            }
            if !is_alone {
                curve((end.0 - STRAIGHT, end.1), &mut way);
            }
            curve(end, &mut way);
        }
        let width = match &edge.moved {
            Some(moved) => 1.0 + 1.8 * (moved.sent as f64 / most.max(1) as f64).sqrt(),
            None if edge.crossing => 2.4,
            None => 1.2,
        };
        let red = if edge.lost().is_some() { " lost" } else { "" };
        let dashed = if edge.is_lossy { " lossy" } else { "" };
        let mut about = vec![
            format!("{} → {}", edge.from, edge.to),
            format!("{}, {}, holds {}", place.spec, edge.when_full, edge.capacity),
        ];
        let above = match &edge.moved {
            Some(moved) => {
                about.push(format!("{} sent, peak depth {}", moved.sent, edge.peak_depth()));
                moved.sent.to_string()
            }
            None => place.spec.clone(),
        };
        about.extend(edge.discarded().into_iter().chain(edge.lost()));
        let about: Vec<String> = about.iter().map(|line| xml(&one_line(line))).collect();
        let about = about.join("\n");
        let _ = writeln!(
            svg,
            "<g><title>{about}</title><path class=\"edge{dashed}{red}\" stroke-width=\"{width:.1}\" d=\"{way}\"/>\
             <path class=\"tip{red}\" d=\"M{:.1} {:.1}l8 4.5l-8 4.5z\"/></g>",
            to.x() - 8.0,
            end.1 - 4.5,
        );
        // Beside the end at which it is alone.
        let (x, y, anchor) =
            if layout.siblings[at] == 1 { (begin.0 + 6.0, begin.1, "start") } else { (end.0 - 8.0, end.1, "end") };
        let mut label = |text: &str, class: &str, y: f64| {
            let text = xml(&cut(&one_line(text), LABEL_TEXT));
            let _ = writeln!(
                labels,
                "<text class=\"halo {class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
            );
        };
        label(&above, "", y - 5.0);
        for (n, (text, class)) in edge.beneath().iter().enumerate() {
            label(text, class, y + 13.0 + LABEL_LINE * n as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        for (text, expected) in [
            ("a</text><script>\"x\"&", "a&lt;/text&gt;&lt;script&gt;&quot;x&quot;&amp;"),
            ("\u{1}--> größe\u{ffff}", "\\u{1}--&gt; größe\u{fffd}"),
        ] {
            assert_eq!(xml(&one_line(text)), expected);
        }
    }

    #[test]
    fn the_boxes_of_threads_do_not_overlap() {
        let place = |column, row, thread| NodePlace { column, row, thread, height: 40.0, y: 0.0 };
        // A chain over three threads, which fits in one line; then a thread beside them.
        for (places, expected) in [
            (vec![place(0, 0, 0), place(1, 0, 1), place(2, 0, 2)], 1),
            (vec![place(0, 0, 0), place(1, 0, 1), place(2, 0, 0)], 2),
            (vec![place(0, 0, 0), place(0, 1, 1), place(1, 0, 2), place(1, 1, 2)], 3),
        ] {
            let mut places = places;
            let nodes = places.len();
            let groups = groups(&mut places, nodes, 3);
            let overlap = |a: &Group, b: &Group| {
                a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
            };
            for (n, a) in groups.iter().enumerate() {
                assert!(groups[n + 1..].iter().all(|b| !overlap(a, b)), "{groups:?}");
                let of = places.iter().filter(|place| place.thread == a.thread);
                for place in of {
                    assert!(place.y >= a.y && place.y + place.height <= a.y + a.height, "{place:?} {a:?}");
                }
            }
            let mut ys: Vec<u64> = groups.iter().map(|group| group.y as u64).collect();
            ys.sort_unstable();
            ys.dedup();
            assert!(ys.len() <= expected, "{groups:?}");
        }
    }
}
