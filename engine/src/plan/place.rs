//! Placement: which node runs on which thread.
//!
//! One worker per core, never a thread per node. Nodes named a core go there. Of the rest, heavy ones get a core each
//! while cores last, in the order of the graph, models before others; light ones join the node they feed. Nodes that
//! may wait in the kernel within a call run on helper threads of their own, on the core they were given or on any.

use crate::base::error::{Problem, Problems};
use crate::base::policy::RealTime;
use crate::base::policy::Schedule;
use crate::base::policy::Wait;
use crate::file::spec::{CoreSpec, NodeSpec};
use crate::host::cpu::Place;
use crate::node::ports::Cost;
use crate::plan::{EdgePlan, NodePlan};
use std::collections::BTreeMap;

/// A thread of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// Its name, also the thread's.
    pub name: String,
    /// Its nodes, in the order in which they are turned.
    pub nodes: Vec<usize>,
    pub(crate) place: Place,
    /// Which of its nodes is turned next.
    pub schedule: Schedule,
    pub(crate) is_helper: bool,
}

impl WorkerPlan {
    /// The CPU it is pinned to, by the kernel's number; `None` for a helper whose node was given no core.
    pub fn cpu(&self) -> Option<usize> {
        self.place.cpu
    }

    /// Whether it is a helper thread, which one node has to itself because its calls may wait in the kernel.
    pub fn is_helper(&self) -> bool {
        self.is_helper
    }

    /// Why it is pinned to no CPU; `None` where it is.
    pub fn floats(&self) -> Option<&'static str> {
        const WHY: &str = "its node may wait in the kernel, and has no `core` to be pinned to";
        self.place.cpu.is_none().then_some(WHY)
    }

    /// What the kernel's scheduler is asked for.
    pub fn real_time(&self) -> Option<RealTime> {
        self.place.real_time
    }

    /// How it waits.
    pub fn wait(&self) -> Wait {
        self.place.wait
    }
}

/// Why a node runs where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Its `cpu` says so.
    Cpu,
    /// Its `core` says so.
    Core,
    /// It may wait in the kernel within a call, which would hold up everything else on its core, and was given none.
    Helper,
    /// It is heavy, and heavy nodes are spread over the cores in the order of the graph.
    Heavy,
    /// It is light and joins the node of this index, which it feeds.
    Feeds(usize),
    /// It is light and joins the node of this index, from which it takes.
    Takes(usize),
    /// It feeds the node of this index by an edge that may lose, and would wait for a heavy one on that one's core: what
    /// shares a thread supersedes nothing.
    Apart(usize),
    /// Nothing near it has a core: it goes to the first.
    First,
}

/// Where a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seat {
    Cpu(usize),
    /// A thread of the node's own, pinned to a CPU where the graph says so.
    Helper(usize, Option<usize>),
}

impl Seat {
    fn cpu(self) -> Option<usize> {
        match self {
            Seat::Cpu(cpu) => Some(cpu),
            Seat::Helper(_, cpu) => cpu,
        }
    }
}

/// A node whose calls may take 50 µs is heavy, whatever its kind says.
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
    let mut seats: Vec<Option<Seat>> = vec![None; nodes.len()];
    for (at, spec) in specs.iter().enumerate() {
        if let Some(cpu) = &spec.cpu {
            if cpus.contains(&cpu.value) {
                nodes[at].why = Placement::Cpu;
                seats[at] = Some(Seat::Cpu(cpu.value));
            } else {
                let message = format!("CPU {} is not among those of this run", cpu.value);
                problems.push(Problem::new("E0141", cpu.place.clone(), message).help(format!("choose from {cpus:?}")));
            }
        }
        if let Some(core) = &spec.core {
            if core.value >= online || (core.value >= cpus.len() && strict) {
                let message =
                    format!("core {} does not exist: this run has {} (CPUs {cpus:?})", core.value, cpus.len());
                let help = format!("write a core from 0 to {}", cpus.len().saturating_sub(1));
                problems.push(Problem::new("E0141", core.place.clone(), message).help(help));
            } else {
                if core.value >= cpus.len() {
                    let folded = core.value % cpus.len();
                    notes.push(format!(
                        "`{}` asks for core {} and runs on core {folded} of {}",
                        spec.name,
                        core.value,
                        cpus.len()
                    ));
                }
                nodes[at].why = Placement::Core;
                seats[at] = Some(Seat::Cpu(cpus[core.value % cpus.len()]));
            }
        }
        if nodes[at].blocking {
            let cpu = seats[at].and_then(Seat::cpu);
            if cpu.is_none() {
                nodes[at].why = Placement::Helper;
            }
            seats[at] = Some(Seat::Helper(at, cpu));
        }
    }
    seat_heavy(nodes, &mut seats, cpus);
    seat_light(nodes, edges, &mut seats, cpus);
    for (core, spec) in cores.iter().filter(|(core, _)| **core >= online) {
        let message = format!("core {core} does not exist: this machine has {online}");
        let help = format!("write a core from 0 to {}", online.saturating_sub(1));
        problems.push(Problem::new("E0141", spec.place.clone(), message).help(help));
    }
    for node in nodes.iter().filter(|node| node.helpers > 0) {
        notes.push(format!(
            "`{}` makes its calls on threads of its own ({}), which float: side by side they need more than its one core",
            node.name, node.helpers
        ));
    }
    workers(nodes, specs, &seats, cores, cpus, problems)
}

/// Heavy nodes in runs that follow the graph, so that as few edges as possible cross, the largest run being as small as
/// it can be.
fn seat_heavy(nodes: &mut [NodePlan], seats: &mut [Option<Seat>], cpus: &[usize]) {
    // A core that was named for a heavy node is no longer free for others, as long as there are others.
    let taken: Vec<usize> = (0..nodes.len())
        .filter(|i| nodes[*i].cost >= Cost::Heavy)
        .filter_map(|i| if let Some(Seat::Cpu(cpu)) = seats[i] { Some(cpu) } else { None })
        .collect();
    let free: Vec<usize> = cpus.iter().copied().filter(|c| !taken.contains(c)).collect();
    let free = if free.is_empty() { cpus.to_vec() } else { free };
    let heavy: Vec<usize> = (0..nodes.len()).filter(|i| seats[*i].is_none() && nodes[*i].cost >= Cost::Heavy).collect();
    let weight = |i: usize| if nodes[i].cost == Cost::Infer { 8u64 } else { 3 };
    // The smallest bound for which the runs fit the cores; runs are then filled greedily.
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
            seats[*i] = Some(Seat::Cpu(*cpu));
        }
    }
}

/// Light nodes join the first node they feed that has a core, else the node they take from, else the first core. One that
/// must not be held up by a heavy node, because its edge there may lose, has a core without one while there is such a core.
fn seat_light(nodes: &mut [NodePlan], edges: &[EdgePlan], seats: &mut [Option<Seat>], cpus: &[usize]) {
    let on_cpu = |seat: &Option<Seat>| seat.and_then(Seat::cpu).map(Seat::Cpu);
    let heavy: Vec<Seat> =
        (0..nodes.len()).filter(|at| nodes[*at].cost >= Cost::Heavy).filter_map(|at| on_cpu(&seats[at])).collect();
    let calm = cpus.iter().map(|cpu| Seat::Cpu(*cpu)).find(|seat| !heavy.contains(seat));
    let mut feeds: Vec<Vec<&EdgePlan>> = vec![Vec::new(); nodes.len()];
    edges.iter().for_each(|edge| feeds[edge.from].push(edge));
    for at in (0..nodes.len()).rev().filter(|at| seats[*at].is_none()).collect::<Vec<_>>() {
        let seated = || feeds[at].iter().filter_map(|edge| Some((edge, on_cpu(&seats[edge.to])?)));
        let holds_up =
            |edge: &EdgePlan, seat| edge.policy.when_full.is_lossy() && heavy.contains(&seat) && calm.is_some();
        let found = match (seated().find(|(edge, seat)| holds_up(edge, *seat)), calm) {
            (Some((edge, _)), Some(calm)) => Some((Placement::Apart(edge.to), calm)),
            _ => seated().next().map(|(edge, seat)| (Placement::Feeds(edge.to), seat)),
        };
        if let Some((why, seat)) = found {
            nodes[at].why = why;
            seats[at] = Some(seat);
        }
    }
    for at in 0..nodes.len() {
        let mut takes = nodes[at].in_edges.iter().map(|edge| edges[*edge].from);
        if seats[at].is_none()
            && let Some((from, seat)) = takes.find_map(|from| Some((from, on_cpu(&seats[from])?)))
        {
            nodes[at].why = Placement::Takes(from);
            seats[at] = Some(seat);
        }
        seats[at].get_or_insert(Seat::Cpu(cpus[0]));
    }
}

fn workers(
    nodes: &mut [NodePlan],
    specs: &[&NodeSpec],
    seats: &[Option<Seat>],
    cores: &BTreeMap<usize, CoreSpec>,
    cpus: &[usize],
    problems: &mut Problems,
) -> Vec<WorkerPlan> {
    let mut members: BTreeMap<Seat, Vec<usize>> = BTreeMap::new();
    for (at, seat) in seats.iter().enumerate() {
        members.entry(seat.unwrap_or(Seat::Cpu(cpus[0]))).or_default().push(at);
    }
    let mut workers = Vec::new();
    for (seat, members) in members {
        let core = seat.cpu().and_then(|cpu| cores.get(&cpus.iter().position(|c| *c == cpu)?));
        let core = core.cloned().unwrap_or_default();
        let (cpu, is_helper) = (seat.cpu(), matches!(seat, Seat::Helper(..)));
        let (core, name) = match seat {
            Seat::Cpu(cpu) => (core, format!("limen-{cpu}")),
            Seat::Helper(at, _) => {
                // Linux keeps 15 bytes of a thread's name.
                let name: String = format!("limen-{}", nodes[at].name).chars().take(15).collect();
                (CoreSpec { wait: Wait::Park, schedule: Schedule::default(), ..core }, name)
            }
        };
        for at in &members {
            nodes[*at].worker = workers.len();
        }
        let place = Place { cpu, allowed: cpus.to_vec(), wait: core.wait, may_spin: true, real_time: core.rt };
        workers.push(WorkerPlan { name, nodes: members, place, schedule: core.schedule, is_helper });
    }
    check_helpers(nodes, specs, &workers, cpus, problems);
    workers
}

/// A helper thread needs a core on which no worker spins: its own, or any.
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
            let message = format!("`{}` needs a helper thread, and the core it was given spins", node.name);
            let problem = Problem::new("E0142", specs[at].place.clone(), message);
            problems.push(problem.help("give it another core, or none, or that core `wait: adaptive` or `park`"));
        }
    }
    let floats = |node: &NodePlan| workers[node.worker].cpu().is_none() || node.helpers > 0;
    if let (Some(at), true) = (nodes.iter().position(floats), spinning.len() >= cpus.len()) {
        let message = format!("`{}` needs a helper thread, and every core of this run spins", nodes[at].name);
        let problem = Problem::new("E0142", specs[at].place.clone(), message);
        problems.push(problem.help("give one core `wait: adaptive` or `park`"));
    }
}
