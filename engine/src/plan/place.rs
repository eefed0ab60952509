//! Placement: which node runs on which thread.
//!
//! One worker per core, never a thread per node. Nodes with a `core` or `cpu` go there. Heavy nodes
//! get a core each while cores last, in the order of the graph, models first; light nodes join the
//! node they feed. Nodes whose calls may block in the kernel run on helper threads of their own, on
//! their `core` if they have one.

use crate::base::error::{Problem, Problems};
use crate::base::policy::RealTime;
use crate::base::policy::Schedule;
use crate::base::policy::Wait;
use crate::file::spec::{CoreSpec, NodeSpec};
use crate::host::cpu::ThreadPlace;
use crate::node::ports::Cost;
use crate::plan::{EdgePlan, NodePlan};
use std::collections::BTreeMap;

/// A thread of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// Its name, and the name of the thread.
    pub name: String,
    /// Its nodes, in the order of their turns.
    pub nodes: Vec<usize>,
    pub(crate) place: ThreadPlace,
    /// Which of its nodes gets the next turn.
    pub schedule: Schedule,
    pub(crate) is_helper: bool,
}

impl WorkerPlan {
    /// Returns the CPU it is pinned to, by the kernel's number; `None` for a helper whose node has
    /// no `core`.
    pub fn cpu(&self) -> Option<usize> {
        self.place.cpu
    }

    /// Returns whether it is a helper thread, dedicated to one node because its calls may block in
    /// the kernel.
    pub fn is_helper(&self) -> bool {
        self.is_helper
    }

    /// Returns why it is not pinned; `None` if it is.
    pub fn floats(&self) -> Option<&'static str> {
        const WHY: &str = "its node may block in the kernel and sets no `core`";
        self.place.cpu.is_none().then_some(WHY)
    }

    /// Returns the real-time policy it asks the kernel for.
    pub fn real_time(&self) -> Option<RealTime> {
        self.place.real_time
    }

    /// Returns how it waits.
    pub fn wait(&self) -> Wait {
        self.place.wait
    }
}

/// The reason for a node's placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Its `cpu` is set.
    Cpu,
    /// Its `core` is set.
    Core,
    /// Its calls may block in the kernel, which would block everything else on its core, and it has
    /// no `core`.
    Helper,
    /// It is heavy, and heavy nodes are spread over the cores in the order of the graph.
    Heavy,
    /// It is light and joins the node of this index, which it feeds.
    Feeds(usize),
    /// It is light and joins the node of this index, from which it takes.
    Takes(usize),
    /// It feeds the node of this index by a lossy edge, and is placed apart from a heavy node on
    /// that node's core: on one thread nothing would be superseded.
    Apart(usize),
    /// No neighbour has a core: it goes to the first core.
    First,
}

/// The thread a node is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Assignment {
    Cpu(usize),
    /// A thread of the node's own, pinned to a CPU if the graph sets one.
    Helper(usize, Option<usize>),
}

impl Assignment {
    fn cpu(self) -> Option<usize> {
        match self {
            Assignment::Cpu(cpu) => Some(cpu),
            Assignment::Helper(_, cpu) => cpu,
        }
    }
}

/// Returns the cost of a node: its budget overrides its kind, and 50 µs a call is heavy.
fn cost(node: &NodePlan) -> Cost {
    match node.policy().budget_ns() {
        None => node.cost,
        Some(_) if node.cost == Cost::Infer => Cost::Infer,
        Some(budget) => match budget {
            0..1_000 => Cost::Light,
            1_000..50_000 => Cost::Medium,
            _ => Cost::Heavy,
        },
    }
}

#[allow(clippy::too_many_arguments, reason = "called once, with everything planning knows")]
pub(crate) fn place(
    nodes: &mut [NodePlan],
    edges: &[EdgePlan],
    specs: &[&NodeSpec],
    cores: &BTreeMap<usize, CoreSpec>,
    cpus: &[usize],
    strict: bool,
    problems: &mut Problems,
    notes: &mut Vec<String>,
) -> Vec<WorkerPlan> {
    let online = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(cpus.len());
    for node in nodes.iter_mut() {
        node.cost = cost(node);
    }
    let mut assigned: Vec<Option<Assignment>> = vec![None; nodes.len()];
    for (at, spec) in specs.iter().enumerate() {
        if let Some((why, cpu)) = cpu_in_graph(spec, cpus, online, strict, problems, notes) {
            nodes[at].why = why;
            assigned[at] = Some(Assignment::Cpu(cpu));
        }
        if nodes[at].blocking {
            let cpu = assigned[at].and_then(Assignment::cpu);
            if cpu.is_none() {
                nodes[at].why = Placement::Helper;
            }
            assigned[at] = Some(Assignment::Helper(at, cpu));
        }
    }
    place_heavy(nodes, &mut assigned, cpus);
    place_light(nodes, edges, &mut assigned, cpus);
    for (core, spec) in cores.iter().filter(|(core, _)| **core >= online) {
        let message = format!("a core must be 0 to {} on this machine, got {core}", online.saturating_sub(1));
        let help = format!("write a core from 0 to {}", online.saturating_sub(1));
        problems.push(Problem::new("E0141", spec.place.clone(), message).help(help));
    }
    for node in nodes.iter().filter(|node| node.helpers > 0) {
        notes.push(format!(
            "`{}` runs its calls on unpinned threads ({}): parallel calls require more than one core",
            node.name, node.helpers
        ));
    }
    workers(nodes, specs, &assigned, cores, cpus, problems)
}

/// The CPU that the graph file gives a node, and by which key. Reports one that does not exist.
fn cpu_in_graph(
    spec: &NodeSpec,
    cpus: &[usize],
    online: usize,
    strict: bool,
    problems: &mut Problems,
    notes: &mut Vec<String>,
) -> Option<(Placement, usize)> {
    let mut found = None;
    if let Some(cpu) = &spec.cpu {
        if cpus.contains(&cpu.value) {
            found = Some((Placement::Cpu, cpu.value));
        } else {
            let message = format!("`cpu` must be one of {cpus:?}, got {}", cpu.value);
            problems.push(
                Problem::new("E0141", cpu.place.clone(), message)
                    .help(format!("write `cpu: {}`", cpus.first().unwrap_or(&0))),
            );
        }
    }
    let Some(core) = &spec.core else { return found };
    if core.value >= online || (core.value >= cpus.len() && strict) {
        let most = cpus.len().saturating_sub(1);
        let message = format!("`core` must be 0 to {most}, got {}: the run has the CPUs {cpus:?}", core.value);
        let help = format!("write a core from 0 to {most}");
        problems.push(Problem::new("E0141", core.place.clone(), message).help(help));
        return found;
    }
    let folded = core.value % cpus.len();
    if core.value >= cpus.len() {
        let (node, core, all) = (&spec.name, core.value, cpus.len());
        let s = if all == 1 { "" } else { "s" };
        notes.push(format!("`{node}` requests core {core} and runs on core {folded}: the run has {all} CPU{s}"));
    }
    Some((Placement::Core, cpus[folded]))
}

/// Splits the heavy nodes into contiguous groups, in the order of the graph so that few edges cross
/// threads, with the largest group as small as possible.
fn place_heavy(nodes: &mut [NodePlan], assigned: &mut [Option<Assignment>], cpus: &[usize]) {
    // A core set for a heavy node is not used for others while other cores are left.
    let taken: Vec<usize> = (0..nodes.len())
        .filter(|i| nodes[*i].cost >= Cost::Heavy)
        .filter_map(|i| if let Some(Assignment::Cpu(cpu)) = assigned[i] { Some(cpu) } else { None })
        .collect();
    let free: Vec<usize> = cpus.iter().copied().filter(|c| !taken.contains(c)).collect();
    let free = if free.is_empty() { cpus.to_vec() } else { free };
    let heavy: Vec<usize> =
        (0..nodes.len()).filter(|i| assigned[*i].is_none() && nodes[*i].cost >= Cost::Heavy).collect();
    let weight = |i: usize| if nodes[i].cost == Cost::Infer { 8u64 } else { 3 };
    // Binary search for the smallest bound with as many groups as cores; groups are filled
    // greedily.
    let total: u64 = heavy.iter().map(|i| weight(*i)).sum();
    let split = |bound: u64| {
        let (mut groups, mut sum) = (vec![Vec::new()], 0);
        for i in &heavy {
            if sum + weight(*i) > bound && sum > 0 {
                groups.push(Vec::new());
                sum = 0;
            }
            sum += weight(*i);
            groups.last_mut().expect("there is always a group").push(*i);
        }
        groups
    };
    let (mut below, mut enough) = (0, total.max(1));
    while below + 1 < enough {
        let bound = below + (enough - below) / 2;
        if split(bound).len() <= free.len() { enough = bound } else { below = bound }
    }
    let groups = split(enough);
    for (group, cpu) in groups.iter().zip(&free) {
        for i in group {
            nodes[*i].why = Placement::Heavy;
            assigned[*i] = Some(Assignment::Cpu(*cpu));
        }
    }
}

/// Light nodes join the first node they feed that has a core, else the node they take from, else
/// the first core. A node whose lossy edge leads to a core with a heavy node goes to a core without
/// one, if there is one.
fn place_light(nodes: &mut [NodePlan], edges: &[EdgePlan], assigned: &mut [Option<Assignment>], cpus: &[usize]) {
    let on_cpu = |assignment: &Option<Assignment>| assignment.and_then(Assignment::cpu).map(Assignment::Cpu);
    let heavy: Vec<Assignment> =
        (0..nodes.len()).filter(|at| nodes[*at].cost >= Cost::Heavy).filter_map(|at| on_cpu(&assigned[at])).collect();
    let light_core = cpus.iter().map(|cpu| Assignment::Cpu(*cpu)).find(|assignment| !heavy.contains(assignment));
    let mut feeds: Vec<Vec<&EdgePlan>> = vec![Vec::new(); nodes.len()];
    edges.iter().for_each(|edge| feeds[edge.from].push(edge));
    for at in (0..nodes.len()).rev().filter(|at| assigned[*at].is_none()).collect::<Vec<_>>() {
        let placed_consumers = || feeds[at].iter().filter_map(|edge| Some((edge, on_cpu(&assigned[edge.to])?)));
        let holds_up = |edge: &EdgePlan, assignment| {
            edge.policy.when_full.is_lossy() && heavy.contains(&assignment) && light_core.is_some()
        };
        let found = match (placed_consumers().find(|(edge, assignment)| holds_up(edge, *assignment)), light_core) {
            (Some((edge, _)), Some(core)) => Some((Placement::Apart(edge.to), core)),
            _ => placed_consumers().next().map(|(edge, assignment)| (Placement::Feeds(edge.to), assignment)),
        };
        if let Some((why, assignment)) = found {
            nodes[at].why = why;
            assigned[at] = Some(assignment);
        }
    }
    for at in 0..nodes.len() {
        let mut takes = nodes[at].in_edges.iter().map(|edge| edges[*edge].from);
        if assigned[at].is_none()
            && let Some((from, assignment)) = takes.find_map(|from| Some((from, on_cpu(&assigned[from])?)))
        {
            nodes[at].why = Placement::Takes(from);
            assigned[at] = Some(assignment);
        }
        assigned[at].get_or_insert(Assignment::Cpu(cpus[0]));
    }
}

fn workers(
    nodes: &mut [NodePlan],
    specs: &[&NodeSpec],
    assigned: &[Option<Assignment>],
    cores: &BTreeMap<usize, CoreSpec>,
    cpus: &[usize],
    problems: &mut Problems,
) -> Vec<WorkerPlan> {
    let mut members: BTreeMap<Assignment, Vec<usize>> = BTreeMap::new();
    for (at, assignment) in assigned.iter().enumerate() {
        members.entry(assignment.unwrap_or(Assignment::Cpu(cpus[0]))).or_default().push(at);
    }
    let mut workers = Vec::new();
    for (assignment, members) in members {
        let core = assignment.cpu().and_then(|cpu| cores.get(&cpus.iter().position(|c| *c == cpu)?));
        let core = core.cloned().unwrap_or_default();
        let (cpu, is_helper) = (assignment.cpu(), matches!(assignment, Assignment::Helper(..)));
        let (core, name) = match assignment {
            Assignment::Cpu(cpu) => (core, format!("limen-{cpu}")),
            Assignment::Helper(at, _) => {
                // Linux keeps 15 bytes of a thread's name.
                let name: String = format!("limen-{}", nodes[at].name).chars().take(15).collect();
                (CoreSpec { wait: Wait::Park, schedule: Schedule::default(), ..core }, name)
            }
        };
        for at in &members {
            nodes[*at].worker = workers.len();
        }
        let place = ThreadPlace { cpu, allowed: cpus.to_vec(), wait: core.wait, real_time: core.rt };
        workers.push(WorkerPlan { name, nodes: members, place, schedule: core.schedule, is_helper });
    }
    check_helpers(nodes, specs, &workers, cpus, problems);
    workers
}

/// A helper thread needs a core on which no worker spins: its own, or any if it is not pinned.
fn check_helpers(
    nodes: &[NodePlan],
    specs: &[&NodeSpec],
    workers: &[WorkerPlan],
    cpus: &[usize],
    problems: &mut Problems,
) {
    let spinning: Vec<Option<usize>> =
        workers.iter().filter(|w| w.place.wait == Wait::Spin).map(WorkerPlan::cpu).collect();
    for (at, node) in nodes.iter().enumerate() {
        let worker = &workers[node.worker];
        if worker.is_helper && worker.cpu().is_some() && spinning.contains(&worker.cpu()) {
            let message = format!("`{}` needs a helper thread, but a worker spins on its core", node.name);
            let problem = Problem::new("E0142", specs[at].place.clone(), message);
            let help = format!("write another `core:` for `{0}`, or `wait: adaptive` for the core of `{0}`", node.name);
            problems.push(problem.help(help));
        }
    }
    let floats = |node: &NodePlan| workers[node.worker].cpu().is_none() || node.helpers > 0;
    if let (Some(at), true) = (nodes.iter().position(floats), spinning.len() >= cpus.len()) {
        let message = format!("`{}` needs a helper thread, but workers spin on every core of this run", nodes[at].name);
        let problem = Problem::new("E0142", specs[at].place.clone(), message);
        problems.push(problem.help("write `wait: adaptive` for one of the `cores`"));
    }
}
