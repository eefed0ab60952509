//! Checks of the whole graph, once every node is planned.

use super::losses::{keeps_rate, loses_nothing};
use super::node::can_be_interpolated;
use super::planner::Planner;
use super::{EdgePlan, NodePlan};
use crate::base::policy::{ClockOffset, JoinPolicy, Pick, WhenFull};
use crate::base::unit::{show_bytes, show_ns};
use crate::file::spec::NodeSpec;
use crate::node::ports::{Claim, Cost, Ports};
use crate::node::remedy::remedy;
use crate::plan::kind::Role;
use crate::plan::place::WorkerPlan;
use crate::plan::transfer::{TO_DEVICE, TO_HOST};
use std::collections::{HashMap, HashSet};

/// The least share of an anchor's messages without a partner that is noted, in percent. The clocks
/// of two devices of one rate differ by less.
const FEW_WITHOUT_PARTNER: u64 = 10;

/// The most sources that the help of a misplaced key names.
const MAX_SOURCES_NAMED: usize = 3;

/// Returns the note of a join by time whose anchor begins more messages than another input has
/// partners for. Both are an edge, its only source and the ports of that.
fn note_slow_partner(
    node: &NodePlan,
    (anchor_edge, anchor, anchor_ports): (usize, usize, &Ports),
    (edge, other, ports): (usize, usize, &Ports),
    nodes: &[NodePlan],
    edges: &[EdgePlan],
) -> Option<String> {
    let (each, period) = (anchor_ports.period?.max(1), ports.period?.max(1));
    let rule = &node.stage.rule;
    let interpolates = rule.pick == Pick::Interpolate;
    // How many moments of one period of the partner it can serve. A message is used once.
    // Interpolation uses it again, for the moments that have one on each side within the window.
    let most = match (rule.within.saturating_mul(2)).checked_sub(period).filter(|_| interpolates) {
        Some(_) if rule.within >= period => return None,
        Some(served) => served / each + 1,
        None => 1,
    };
    let percent = u64::try_from(u128::from(most) * u128::from(each) * 100 / u128::from(period)).unwrap_or(100);
    if percent > 100 - FEW_WITHOUT_PARTNER {
        return None;
    }
    let port = |edge: usize| edges[edge].to_name.rsplit('/').next().unwrap_or_default();
    let (anchor_name, name) = (&nodes[anchor].name, &nodes[other].name);
    let of_port = node.inputs.iter().find(|(name, _)| *name == port(edge)).and_then(|(_, spec)| spec.as_ref());
    let (why, advice) = match (interpolates, of_port) {
        (true, _) => (
            format!("interpolation requires a message on each side within {}", show_ns(rule.within)),
            format!("write `within: {}`", written(period)),
        ),
        (false, Some(spec)) if can_be_interpolated(spec) => (
            "each message is used once".to_string(),
            format!("write `pick: interpolate` with `within: {}`, or `anchor: {}`", written(period), port(edge)),
        ),
        _ => ("each message is used once".to_string(), format!("write `anchor: {}`", port(edge))),
    };
    Some(format!(
        "`{}` joins one message of `{name}` with each message of `{anchor_name}` by time. `{anchor_name}` produces a message every {}, \
         `{name}` every {}, and {why}: at most {percent} % of the messages of `{anchor_name}` find a partner. To match more, \
         {advice}, or `join: {{ policy: sample, trigger: {} }}` to read the newest message",
        node.name,
        show_ns(each),
        show_ns(period),
        port(anchor_edge)
    ))
}

/// A time as a graph file has it, rounded up.
fn written(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{}us", ns.div_ceil(1_000)),
        _ => format!("{}ms", ns.div_ceil(1_000_000)),
    }
}

impl Planner<'_> {
    /// Checks that messages at the ports of subgraphs have the declared types.
    pub(super) fn check_expectations(&mut self, nodes: &[NodePlan]) {
        let spec = self.spec;
        if spec.expectations.is_empty() {
            return;
        }
        let named: HashMap<&str, &NodePlan> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        for expectation in &spec.expectations {
            let Some(node) = named.get(expectation.node.as_str()) else { continue };
            let output = match &expectation.output {
                Some(name) => node.outputs.iter().find(|output| output.name == *name),
                None => node.outputs.first().filter(|_| node.outputs.len() == 1),
            };
            let Some(have) = output.and_then(|output| output.spec.as_ref()) else { continue };
            if let Err(why) = expectation.spec.accepts(have) {
                let message =
                    format!("type mismatch: {} expects {}, found {have}: {why}", expectation.port, expectation.spec);
                self.problem("E0156", &expectation.place, message, remedy(have, &expectation.spec));
            }
        }
    }

    pub(super) fn check_claims(&mut self, nodes: &[NodePlan]) {
        let mut claimed: HashMap<Claim, String> = HashMap::new();
        let spec = self.spec;
        let named: HashMap<&str, &NodeSpec> = spec.nodes.iter().rev().map(|node| (node.name.as_str(), node)).collect();
        for node in nodes {
            let Some(planned) = &node.planned else { continue };
            for claim in &planned.ports().claims {
                if let Claim::File(path) = claim
                    && let Some(read) = self.spec.folders.read.find(path)
                {
                    let read = read.display();
                    let message = format!("`{}` overwrites {read}, which the graph reads", node.name);
                    let place = named.get(node.name.as_str()).map(|n| n.config.locate("path"));
                    let place = place.unwrap_or_else(|| self.spec.place.clone());
                    self.problem("E0132", &place, message, format!("write another `path` at `{}`", node.name));
                }
                if let Some(other) = claimed.insert(claim.clone(), node.name.clone()) {
                    let (what, key) = match claim {
                        Claim::File(path) => (format!("write to {}", path.display()), "`path`"),
                        Claim::Device(name) => (format!("use {name}"), "device"),
                    };
                    let help = format!("write another {key} at `{}` or `{other}`", node.name);
                    let message = format!("`{}` and `{other}` both {what}", node.name);
                    let place = named.get(node.name.as_str()).map(|n| n.config.place.clone());
                    let place = place.unwrap_or_else(|| self.spec.place.clone());
                    self.problem("E0132", &place, message, help);
                }
            }
        }
    }

    /// Notes edges whose `latest` never supersedes a message: on one thread, the next message is
    /// made after the last is done.
    pub(super) fn note_latest(&self, nodes: &mut [NodePlan], edges: &[EdgePlan]) {
        for edge in edges.iter().filter(|edge| edge.policy.when_full == WhenFull::Latest && !edge.crossing) {
            let note = format!(
                "`when_full: latest` from `{}` has no effect on one thread: write another `core:` for one of the two nodes",
                edge.from_name
            );
            nodes[edge.to].notes.push(note);
        }
    }

    /// Notes nodes whose outputs no node takes.
    pub(super) fn note_untaken(nodes: &[NodePlan], notes: &mut Vec<String>) {
        let is_untaken =
            |node: &&NodePlan| !node.outputs.is_empty() && node.outputs.iter().all(|output| output.edges.is_empty());
        for node in nodes.iter().filter(is_untaken) {
            notes.push(format!("no node reads the outputs of `{}`", node.name));
        }
    }

    /// Notes live sources that a slow node can block.
    pub(super) fn warn(&self, nodes: &[NodePlan], edges: &[EdgePlan], notes: &mut Vec<String>) {
        for (at, node) in nodes.iter().enumerate() {
            if !node.planned.as_ref().is_some_and(|p| p.ports().live) {
                continue;
            }
            let mut seen = HashSet::from([at]);
            let mut todo = vec![at];
            while let Some(from) = todo.pop().filter(|_| self.effort.allows(1)) {
                for edge in nodes[from].outputs.iter().flat_map(|out| &out.edges).map(|edge| &edges[*edge]) {
                    if edge.policy.when_full == WhenFull::Block && seen.insert(edge.to) {
                        todo.push(edge.to);
                    }
                }
            }
            let slow = seen.into_iter().filter(|i| nodes[*i].cost == Cost::Infer).min();
            if let Some(slow) = slow.map(|i| &nodes[i]) {
                notes.push(format!(
                    "the live source `{}` waits when `{}` is slow, because every edge between the two nodes blocks: write \
                     `when_full: latest` at one of these edges",
                    node.name, slow.name
                ));
            }
        }
    }

    /// Notes nodes that must act when no message comes, and share their thread with a node upstream
    /// that may hang.
    pub(super) fn note_shared_threads(&self, nodes: &[NodePlan], edges: &[EdgePlan], notes: &mut Vec<String>) {
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.stage.wakes) {
            let (mut seen, mut todo) = (HashSet::from([at]), vec![at]);
            while let Some(at) = todo.pop().filter(|_| self.effort.allows(1)) {
                todo.extend(nodes[at].in_edges.iter().map(|edge| edges[*edge].from).filter(|from| seen.insert(*from)));
            }
            let mut shares: Vec<usize> = seen.into_iter().filter(|other| *other != at).collect();
            shares.retain(|other| nodes[*other].worker == node.worker && nodes[*other].role != Role::Source);
            // The slowest, and the nearest of several.
            if let Some(slow) = shares.into_iter().max_by_key(|other| (nodes[*other].cost, *other)) {
                let slow = &nodes[slow].name;
                notes.push(format!(
                    "`{}` shares a thread with `{slow}`: while a call of `{slow}` hangs, `{0}` cannot act; write another                      `core` at one of them",
                    node.name
                ));
            }
        }
    }

    /// Notes calls that may take more than half of the deadline of a path on the same thread.
    pub(super) fn note_budgets(&self, nodes: &[NodePlan], workers: &[WorkerPlan], notes: &mut Vec<String>) {
        for worker in workers {
            let soonest = |at: usize| Some((nodes[at].stage.urgency.iter().min()?, at));
            let Some((deadline, urgent)) = worker.nodes.iter().filter_map(|at| soonest(*at)).min() else { continue };
            for slow in worker.nodes.iter().map(|at| &nodes[*at]) {
                if let Some(budget) = slow.policy().budget_ns().filter(|budget| budget.saturating_mul(2) > *deadline) {
                    notes.push(format!(
                        "`{}` may take {} per call, more than half of the deadline ({}) of a path through `{}` on the same \
                         thread: write another `core:` for `{0}`",
                        slow.name,
                        show_ns(budget),
                        show_ns(*deadline),
                        nodes[urgent].name
                    ));
                }
            }
        }
    }

    /// Refuses keys of sources at other nodes.
    pub(super) fn check_source_keys(&mut self, nodes: &[NodePlan], specs: &[&NodeSpec]) {
        let numbered = sources_by_number(nodes);
        for (plan, node) in std::iter::zip(nodes, specs).filter(|(plan, _)| plan.planned.is_some()) {
            if plan.role == Role::Source {
                continue;
            }
            let keys = [("qos", node.policy.qos.is_some()), ("clock", node.policy.clock != ClockOffset::None)];
            for (key, _) in keys.into_iter().filter(|(_, is_written)| *is_written) {
                let place = node.places.get(key).unwrap_or(&node.place);
                let message = format!("`{key}` requires a source, found `{}` ({})", node.name, plan.role.name());
                let sources =
                    plan.reached_by.iter().rev().filter_map(|number| numbered.get(number)).take(MAX_SOURCES_NAMED);
                let mut sources: Vec<String> = sources.map(|at| format!("`{}`", nodes[*at].name)).collect();
                match plan.reached_by.len() - sources.len() {
                    _ if sources.is_empty() => sources.push("the source".into()),
                    0 => {}
                    _ => sources.push("another source".into()),
                }
                self.problem("E0144", place, message, format!("write `{key}` at {}", sources.join(" or ")));
            }
        }
    }

    /// Notes how much the copies to and from devices move.
    pub(super) fn note_copies(nodes: &[NodePlan], specs: &[&NodeSpec], notes: &mut Vec<String>) {
        let numbered = sources_by_number(nodes);
        for (node, spec) in std::iter::zip(nodes, specs) {
            let is_copy = [TO_DEVICE, TO_HOST].contains(&&*spec.kind.value);
            let ports = node.planned.as_ref().filter(|_| is_copy).map(|planned| planned.ports());
            let Some(bytes) = ports.and_then(|ports| ports.outputs.first()?.spec.as_ref()?.max_bytes()) else {
                continue;
            };
            let source = match node.reached_by[..] {
                [source] => numbered.get(&source).map(|at| &nodes[*at]),
                _ => None,
            };
            let period = source.and_then(|source| source.planned.as_ref()?.ports().period).filter(|period| *period > 0);
            let per_second = source.zip(period).map(|(source, period)| {
                let each_second = (bytes as u128 * 1_000_000_000 / u128::from(period)) as u64;
                format!(", {} per second if every message of `{}` is copied", show_bytes(each_second), source.name)
            });
            let copied = show_bytes(bytes as u64);
            notes.push(format!("`{}` copies {copied} per message{}", node.name, per_second.unwrap_or_default()));
        }
    }

    /// Joined by sequence number, the faster of two sources would be blocked by the slower one.
    /// Joined by time, its messages would find no partner, which is a loss unless an `anchor` sets
    /// the moment.
    pub(super) fn check_rates(
        &mut self,
        nodes: &[NodePlan],
        edges: &[EdgePlan],
        specs: &[&NodeSpec],
        whole: &[bool],
        notes: &mut Vec<String>,
    ) {
        let ports = |at: usize| nodes[at].planned.as_ref().map(|planned| planned.ports());
        let numbered = sources_by_number(nodes);
        // The only source behind an edge, if there is exactly one and its rate is its own.
        let source = |edge: &usize| {
            let [source] = nodes[edges[*edge].from].reached_by[..] else { return None };
            let at = *numbered.get(&source)?;
            ports(at).filter(|ports| ports.live || ports.period.is_some()).map(|ports| (at, ports))
        };
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| whole[*at]) {
            let by_time = node.stage.rule.policy == JoinPolicy::ByTime;
            if node.in_edges.len() < 2
                || node.merges()
                || specs[at].has_unreadable_join()
                || !(by_time || node.stage.rule.policy == JoinPolicy::Zip)
            {
                continue;
            }
            let sources: Vec<(usize, usize, &Ports)> =
                node.in_edges.iter().filter_map(|edge| source(edge).map(|(at, ports)| (*edge, at, ports))).collect();
            if let (true, Some(anchor)) = (by_time, node.stage.rule.anchor) {
                let Some(led) = sources.iter().find(|(edge, ..)| *edge == node.in_edges[anchor]) else { continue };
                for other in sources.iter().filter(|(edge, at, _)| *edge != led.0 && *at != led.1) {
                    if [led.0, other.0].iter().all(|edge| keeps_rate(*edge, nodes, edges, &self.effort)) {
                        notes.extend(note_slow_partner(node, *led, *other, nodes, edges));
                    }
                }
                continue;
            }
            let differ = |a: &Ports, b: &Ports| a.period != b.period || a.period.is_none();
            let pairs = sources.iter().enumerate().flat_map(|(i, a)| sources[i + 1..].iter().map(move |b| (a, b)));
            let mut pairs = pairs.filter(|((_, a, one), (_, b, other))| a != b && differ(one, other));
            let Some(((way, a, one), (other_way, b, other))) = pairs.next() else { continue };
            let (names, way_out) = (
                format!("`{}` and `{}`", nodes[*a].name, nodes[*b].name),
                "write `join: { policy: by_time, within: 10ms }` to pair messages by time, or `join: { policy: sample }` \
                 to read the newest message",
            );
            let rate = |name: &str, ports: &Ports| match ports.period {
                Some(period) => format!("`{name}` produces a message every {}", show_ns(period)),
                None => format!("the rate of `{name}` is unknown"),
            };
            let rates = format!("{}, {}", rate(&nodes[*a].name, one), rate(&nodes[*b].name, other));
            if by_time {
                if one.period.is_some() && other.period.is_some() {
                    notes.push(format!(
                        "`{}` joins messages of {names} by time without an `anchor`: {rates}. Messages without a partner are lost. \
                         With `anchor:`, only messages of the anchor are lost: other messages are discarded",
                        node.name
                    ));
                }
                continue;
            }
            let message = format!(
                "`{}` joins messages of {names} by sequence number: {rates}. The pairs drift apart in time until an edge is \
                 full. Then the faster source waits",
                node.name
            );
            let is_whole = [way, other_way].iter().all(|edge| loses_nothing(**edge, nodes, edges, &self.effort));
            let is_known =
                one.period.is_some() && other.period.is_some() && one.total.is_none() && other.total.is_none();
            if self.effort.is_spent() {
                return;
            }
            if is_known && is_whole {
                self.problem("E0157", &specs[at].place, message, way_out);
            } else {
                notes.push(format!("{message}: {way_out}"));
            }
        }
    }

    /// Listening on public addresses needs the user's permission: the graph may come from someone
    /// else.
    pub(super) fn check_public(&mut self, nodes: &[NodePlan], specs: &[&NodeSpec]) {
        if self.options.allow_public {
            return;
        }
        for (node, spec) in nodes.iter().zip(specs) {
            let Some(planned) = node.planned.as_ref().filter(|planned| planned.ports().public) else { continue };
            let message = format!("`{}` {}, which is not allowed", node.name, planned.ports().notices.join("; "));
            let help = "run with `--allow-public`, or listen on a local port such as `9000`";
            self.problem("E0161", &spec.place, message, help);
        }
    }

    /// Real time needs the user's permission, and leaves one CPU to everything else.
    pub(super) fn check_real_time(
        &mut self,
        nodes: &[NodePlan],
        workers: &mut [WorkerPlan],
        cpus: &[usize],
        strict: bool,
        notes: &mut Vec<String>,
    ) {
        // A helper thread shares the CPU of its core's worker.
        let real_time = |workers: &[WorkerPlan]| {
            let asked = workers.iter().filter(|w| w.place.real_time.is_some());
            asked.map(|w| w.place.cpu).collect::<HashSet<_>>().len()
        };
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(cpus.len());
        for (number, core) in self.spec.cores.iter().filter(|(_, core)| core.rt.is_some()) {
            let cpu = cpus.get(*number);
            if !workers.iter().any(|worker| worker.place.cpu.is_some() && worker.place.cpu == cpu.copied()) {
                let message = format!("core {number} requests real time, but no node runs on it");
                if strict {
                    self.problem(
                        "E0143",
                        &core.place.clone(),
                        message,
                        format!("write `core: {number}` at a node, or remove `rt`"),
                    );
                } else {
                    notes.push(message);
                }
            }
        }
        let asked = self.spec.cores.iter().find(|(_, core)| core.rt.is_some());
        let (Some((number, core)), true) = (asked, real_time(workers) > 0) else { return };
        let has_helpers = nodes.iter().any(|node| node.helpers > 0) || workers.iter().any(|w| w.place.cpu.is_none());
        let place = core.place.clone();
        if !self.options.allow_rt {
            let message = format!("core {number} requests real time, which is not allowed");
            if strict {
                self.problem("E0143", &place, message, "run with `--allow-rt`, or remove `rt`");
            } else {
                notes.push(format!("{message}: its threads run without real time unless `--allow-rt` is set"));
            }
            workers.iter_mut().for_each(|worker| worker.place.real_time = None);
        } else if real_time(workers) >= all {
            let message = format!("real-time threads would occupy all {all} CPUs");
            self.problem("E0143", &place, message, "remove `rt` from one core: other programs need a CPU");
        } else if has_helpers && real_time(workers) >= cpus.len() {
            let message = "real-time threads would occupy all CPUs of the run, but helper threads need a CPU";
            self.problem("E0143", &place, message, "remove `rt` from one core, or add a CPU to the run");
        }
    }

    /// Chooses the input whose messages are the stream of a model that keeps a state for each,
    /// where it has several inputs: sets of messages from several sources would otherwise belong to
    /// whichever began first.
    pub(super) fn choose_streams(
        &mut self,
        nodes: &mut [NodePlan],
        edges: &[EdgePlan],
        specs: &[&NodeSpec],
        whole: &[bool],
    ) {
        for at in (0..nodes.len()).filter(|at| whole[*at]) {
            let node = &nodes[at];
            let written: Vec<usize> =
                (0..node.in_edges.len()).filter(|input| edges[node.in_edges[*input]].policy.stream).collect();
            let is_stateful = node.planned.as_ref().is_some_and(|planned| planned.ports().stateful);
            let (name, place) = (&node.name, &specs[at].place);
            if !is_stateful || node.in_edges.len() < 2 {
                if !written.is_empty() {
                    let message = format!("`stream` requires a model with `state:` and several inputs, found `{name}`");
                    self.problem("E0162", place, message, "remove `stream`");
                }
                continue;
            }
            let rule = &node.stage.rule;
            let given = rule.trigger.or(rule.anchor);
            let stream = match (&written[..], given) {
                ([], Some(input)) => Some(input),
                ([input], None) => Some(*input),
                ([input], Some(given)) if *input == given => Some(given),
                ([], None) => None,
                _ => {
                    let message = format!("`{name}` must have one stream input, got several");
                    let help = match given {
                        Some(given) => format!("write `stream: true` only at `{}`", node.inputs[given].0),
                        None => "write `stream: true` at one input only".into(),
                    };
                    self.problem("E0162", place, message, help);
                    continue;
                }
            };
            // Messages of one source belong to one stream, whichever input they come by.
            let behind = |edge: &usize| &nodes[edges[*edge].from].reached_by;
            let is_sole = node.in_edges.iter().all(|edge| {
                let sources = behind(edge);
                sources.len() == 1 && sources == behind(&node.in_edges[0])
            });
            match stream {
                None if is_sole => {}
                None => {
                    let inputs: Vec<String> = node.inputs.iter().map(|(port, _)| format!("`{port}`")).collect();
                    let message = format!(
                        "`{name}` must have one input with `stream: true`, because its inputs come from different sources"
                    );
                    let help = format!("write `{{ from: .., stream: true }}` at one of {}", inputs.join(", "));
                    self.problem("E0162", place, message, help);
                }
                Some(input) => {
                    let note = format!("keeps a state for each source of `{}`", node.inputs[input].0);
                    nodes[at].stage.rule.stream = Some(input);
                    nodes[at].notes.push(note);
                }
            }
        }
    }

    /// Checks that `gather` follows a `scatter`, and that scatters are not nested.
    pub(super) fn check_gathers(
        &mut self,
        nodes: &[NodePlan],
        edges: &[EdgePlan],
        specs: &[&NodeSpec],
        whole: &[bool],
    ) {
        let is = |at: usize, what: fn(&Ports) -> bool| nodes[at].planned.as_ref().is_some_and(|p| what(p.ports()));
        let is_part = |at: &usize| whole[*at] && is(*at, |ports| ports.gathers.is_some() || ports.scatters);
        for at in (0..nodes.len()).filter(is_part) {
            let gathers = nodes[at].planned.as_ref().and_then(|planned| planned.ports().gathers);
            let (mut seen, mut todo) = (HashSet::from([at]), nodes[at].in_edges.clone());
            while let Some(edge) = todo.pop().filter(|_| self.effort.allows(1)) {
                let from = edges[edge].from;
                if nodes[from].planned.is_none() {
                    continue;
                }
                let Some(most) = gathers else {
                    if is(from, |ports| ports.scatters) {
                        let message = format!(
                            "`{}` scatters parts that `{}` has scattered already",
                            nodes[at].name, nodes[from].name
                        );
                        let help =
                            format!("put a `gather` node between `{}` and `{}`", nodes[from].name, nodes[at].name);
                        self.problem("E0146", &specs[at].place, message, help);
                        break;
                    }
                    if !is(from, |ports| ports.gathers.is_some()) && seen.insert(from) {
                        todo.extend(&nodes[from].in_edges);
                    }
                    continue;
                };
                if is(from, |ports| ports.scatters) {
                    let parts = nodes[from].outputs.iter().map(|out| out.emits).max().unwrap_or(0);
                    if most < parts {
                        let (gather, scatter) = (&nodes[at].name, &nodes[from].name);
                        let message = format!(
                            "`max` of `{gather}` must be at least the {parts} parts of `{scatter}`, got {most}"
                        );
                        self.problem("E0146", &specs[at].config.place, message, format!("write `max: {parts}`"));
                    }
                    continue;
                }
                if nodes[from].in_edges.is_empty() || is(from, |ports| ports.gathers.is_some()) {
                    let message = format!(
                        "`{}` gathers parts, but no `scatter` splits the messages from `{}`",
                        nodes[at].name, nodes[from].name
                    );
                    self.problem(
                        "E0146",
                        &specs[at].place,
                        message,
                        "put a `scatter` node upstream, or use a `window` node to combine several messages",
                    );
                    break;
                }
                if seen.insert(from) {
                    todo.extend(&nodes[from].in_edges);
                }
            }
        }
    }
}

/// The place of each source, by its number.
pub(super) fn sources_by_number(nodes: &[NodePlan]) -> HashMap<usize, usize> {
    let sources = nodes.iter().enumerate().rev().filter(|(_, node)| node.role == Role::Source);
    sources.map(|(at, node)| (usize::from(node.stage.source), at)).collect()
}
