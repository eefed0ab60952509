//! Wiring: allocates rings and pools, and starts the threads.

mod handles;

use crate::edge::{EdgeBuffers, EdgeShared, Params};
use crate::exec::endpoint::{AnyEndpoint, NewHandle};
use crate::exec::planned::{PlannedNode, StageParts, StagePlan};
use crate::exec::shared::{BuildError, RunShared, StartError};
use crate::exec::stage::{Blueprint, Common, Judged, Links, Liveness, Stage, StageCounts};
use crate::exec::worker::{self, Cx};
use crate::host::clock::Clock;
use crate::host::cpu::{self, Pinned};
use crate::host::descriptors::{Descriptors, Poller};
use crate::host::folders::Folders;
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::origins::Trace;
use crate::message::pool::Pool;
use crate::message::{Memory, PortSpec};
use crate::node::backend::WorkerHost;
use crate::node::planning::{Building, PlannedPorts};
use crate::plan::{OutputPlan, Plan, WorkerPlan};
use crate::port::emit::Begin;
use crate::port::intake::{IntakeParts, JoinRule};
use crate::port::output::PortParts;
use crate::run::error::RunError;
use crate::run::events::spawn_watch;
use crate::run::events::{Watched, WatchedEdge, Watcher};
use crate::run::loops::Loops;
use crate::run::misses::WatchedPaths;
use crate::run::running::{GRACE, Running};
use crate::run::starving;
use crate::run::tails::Tails;
use crate::run::throttling::Throttling;
use handles::attach;
use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// A graph with its rings and pools allocated, made by [`Plan::wire`].
///
/// Take its handles ([`Wired::inlet`], [`Wired::outlet`], [`Wired::tap`]), then start its threads
/// ([`Wired::start`]) or drive it on the calling thread ([`Wired::drive`]). Every inlet and outlet
/// must be taken before the start. The [crate's example](crate#example) shows it.
pub struct Wired {
    plan: Plan,
    shared: Arc<RunShared>,
    edges: Vec<Arc<EdgeShared>>,
    counts: Vec<Arc<StageCounts>>,
    workers: Vec<WorkerParts>,
    judged: Arc<Vec<Judged>>,
    /// Handles not yet taken, by node.
    handles: HashMap<usize, NewHandle>,
    endpoints: Vec<(usize, DynArc<dyn AnyEndpoint>)>,
}

/// What one worker has to build.
struct WorkerParts {
    nodes: Vec<NodeParts>,
    ends: EdgeEnds,
}

impl std::fmt::Debug for Wired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wired").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// Everything needed to build a node on its thread.
struct NodeParts {
    node: usize,
    name: String,
    planned: Box<dyn PlannedNode>,
    ports: PlannedPorts,
    stage: StagePlan,
    links: Links,
    in_edges: Vec<usize>,
    outputs: Vec<OutputParts>,
    copies: Option<Pool>,
    blends: Vec<Option<(Pool, Option<usize>)>>,
}

struct OutputParts {
    name: String,
    emits: usize,
    rows: usize,
    forwards: bool,
    edges: Vec<usize>,
    /// Endpoints of taps, typed by the port's payload.
    taps: Vec<Box<dyn Any + Send>>,
    pool: Option<Pool>,
}

/// Endpoints of the edges of one worker, by edge; those of local edges are made on its thread.
#[derive(Default)]
struct EdgeEnds {
    producers: HashMap<usize, Box<dyn Any + Send>>,
    consumers: HashMap<usize, Box<dyn Any + Send>>,
    local: Vec<(usize, Params, crate::edge::Connect)>,
}

impl Plan {
    /// Allocates the rings and pools of the plan. Starts no threads.
    ///
    /// # Errors
    /// [`RunError::Refused`] if a pool cannot be allocated.
    pub fn wire(mut self) -> Result<Wired, RunError> {
        let bells: Vec<Arc<Bell>> = self.workers().iter().map(|_| Arc::default()).collect();
        let edges: Vec<Arc<EdgeShared>> = self.edges().iter().map(|_| Arc::default()).collect();
        let counts: Vec<Arc<StageCounts>> = self.nodes().iter().map(|_| Arc::default()).collect();
        let mut ends: Vec<EdgeEnds> = self.workers().iter().map(|_| EdgeEnds::default()).collect();
        for (i, edge) in self.edges().iter().enumerate() {
            let (from, to) = (self.nodes()[edge.from].worker, self.nodes()[edge.to].worker);
            let params = Params {
                index: i,
                name: format!("{} -> {}", edge.from_name, edge.to_name),
                capacity: edge.capacity,
                emits: self.nodes()[edge.from].outputs[edge.from_port].emits,
                buffer: edge.buffer,
                shared: edges[i].clone(),
                producer_bell: bells[from].clone(),
                consumer_bell: bells[to].clone(),
                policy: edge.policy,
                largest: edge.largest,
            };
            if edge.crossing {
                let (tx, rx) = (edge.ty.connect.crossing)(&params);
                ends[from].producers.insert(i, tx);
                ends[to].consumers.insert(i, rx);
            } else {
                ends[from].local.push((i, params, edge.ty.connect));
            }
        }
        let cpus = self.workers().first().map(|worker| worker.place.allowed.clone()).unwrap_or_default();
        let names = self.nodes().iter().map(|node| node.name.clone()).collect();
        let shared = Arc::new(RunShared::new(bells, cpus, self.watchdog, names, self.spans));
        let judged: Arc<Vec<Judged>> = Arc::new(self.paths().iter().map(|_| Judged::default()).collect());
        let mut workers = Vec::new();
        for (index, ends) in ends.into_iter().enumerate() {
            let members = self.workers()[index].nodes.clone();
            let nodes = members
                .iter()
                .map(|node| self.node_parts(*node, &counts, &edges, &judged))
                .collect::<Result<Vec<_>, _>>()?;
            workers.push(WorkerParts { nodes, ends });
        }
        let (handles, endpoints) = (HashMap::new(), Vec::new());
        let mut wired = Wired { plan: self, shared, edges, counts, workers, judged, handles, endpoints };
        let nodes = wired.workers.iter_mut().flat_map(|worker| &mut worker.nodes);
        for parts in nodes {
            if let Some(made) = attach(parts, &wired.plan, &wired.shared) {
                wired.endpoints.push((parts.node, made.endpoint.clone()));
                wired.handles.insert(parts.node, made);
            }
        }
        Ok(wired)
    }

    fn node_parts(
        &mut self,
        node: usize,
        counts: &[Arc<StageCounts>],
        edges: &[Arc<EdgeShared>],
        judged: &Arc<Vec<Judged>>,
    ) -> Result<NodeParts, RunError> {
        let ports = self.planned_ports(node);
        let planned =
            self.take_planned(node).ok_or_else(|| RunError::NoSuch("a plan must be wired only once".into()))?;
        let plan = &self.nodes()[node];
        let pool = |name: &str, spec: &PortSpec, out: &OutputPlan| {
            let made = match (spec.memory, &planned.ports().device) {
                (Memory::Device(_), Some(device)) => {
                    Pool::on_device(name, spec, out.slots, out.rows, &out.origins, &**device)
                }
                _ => Pool::with_origins(name, spec, out.slots, out.rows, &out.origins),
            };
            made.map_err(|why| RunError::Refused(format!("pool of `{name}`: {why}")))
        };
        let mut blends = Vec::new();
        for (at, (edge, (slots, _))) in plan.in_edges.iter().zip(&plan.blends).enumerate() {
            let edge = &self.edges()[*edge];
            let origins = &self.nodes()[edge.from].outputs[edge.from_port].origins;
            // Messages of the anchor are not interpolated.
            let spec = edge.spec.as_ref().filter(|_| plan.stage.rule.anchor != Some(at));
            let made =
                spec.map(|spec| Ok((Pool::with_origins(&edge.to_name, spec, *slots, 1, origins)?, spec.quaternion())));
            let refused = |why: String| RunError::Refused(format!("pool of `{}`: {why}", edge.to_name));
            blends.push(made.transpose().map_err(refused)?);
        }
        let mut copies = None;
        let mut outputs = Vec::new();
        for (out, declared) in plan.outputs.iter().zip(&planned.ports().outputs) {
            let name = format!("{}/{}", plan.name, out.name);
            let mut made = match &out.spec {
                Some(spec) if out.slots > 0 => Some(pool(&name, spec, out)?),
                _ => None,
            };
            if let (Some(pool), true) = (&mut made, out.stays) {
                pool.rewind();
            }
            if !declared.forwards.is_empty() && plan.copies.is_some() {
                copies = made.take();
            }
            outputs.push(OutputParts {
                name: out.name.clone(),
                emits: out.emits,
                rows: out.rows,
                forwards: !declared.forwards.is_empty(),
                edges: out.edges.clone(),
                taps: Vec::new(),
                pool: made,
            });
        }
        let live = plan.in_edges.iter().filter_map(|e| {
            let edge = &self.edges()[*e];
            let every = edge.policy.expect_every?.as_nanos();
            let name = format!("{} -> {}", edge.from_name, edge.to_name);
            Some(Liveness::new(edges[*e].clone(), *e, name, every, edge.policy.on_gap))
        });
        let behind = plan.outputs.iter().flat_map(|output| &output.edges);
        let links = Links {
            counts: counts[node].clone(),
            live: live.collect(),
            judged: judged.clone(),
            behind: behind.map(|edge| counts[self.edges()[*edge].to].clone()).collect(),
        };
        Ok(NodeParts {
            node,
            name: plan.name.clone(),
            planned,
            ports,
            stage: plan.stage.clone(),
            links,
            in_edges: plan.in_edges.clone(),
            outputs,
            copies,
            blends,
        })
    }
}

/// Builds a worker's nodes, on its thread.
fn build(
    nodes: Vec<NodeParts>,
    ends: EdgeEnds,
    folders: &Folders,
    cx: &mut Cx,
) -> Result<Vec<Box<dyn Stage>>, BuildError> {
    let EdgeEnds { producers, consumers, local } = ends;
    let mut producers: HashMap<usize, Box<dyn Any>> =
        producers.into_iter().map(|(i, e)| (i, e as Box<dyn Any>)).collect();
    let mut consumers: HashMap<usize, Box<dyn Any>> =
        consumers.into_iter().map(|(i, e)| (i, e as Box<dyn Any>)).collect();
    let mut buffers = EdgeBuffers::default();
    for (i, params, connect) in local {
        let (tx, rx) = (connect.local)(&params, &mut buffers);
        producers.insert(i, tx);
        consumers.insert(i, rx);
    }
    cx.footprint = buffers.footprint;
    let mut stages = Vec::new();
    for parts in nodes {
        let NodeParts { node, name, planned, ports, mut stage, links, in_edges, outputs, copies, blends } = parts;
        let take = |from: &mut HashMap<usize, Box<dyn Any>>, edges: &[usize]| -> Vec<Box<dyn Any>> {
            edges.iter().filter_map(|e| from.remove(e)).collect()
        };
        let sources = || stage.sources.iter().map(|(source, _)| *source).collect();
        let trace = stage.traced.then(|| Rc::new(RefCell::new(Trace::new(sources(), planned.ports().spans))));
        outputs.iter().filter_map(|o| o.pool.as_ref()).for_each(|pool| pool.footprint(&mut cx.footprint));
        let outputs = outputs.into_iter().map(|o| PortParts {
            name: o.name,
            emits: o.emits,
            rows: o.rows,
            forwards: o.forwards,
            // The last consumer gets the messages moved: put an edge there, if there is one.
            edges: o.taps.into_iter().map(|t| t as Box<dyn Any>).chain(take(&mut producers, &o.edges)).collect(),
            pool: o.pool,
            trace: trace.clone(),
        });
        let outputs = outputs.collect();
        let (clock, run_id, statistics) = (cx.clock().clone(), cx.run_id().to_string(), cx.statistics());
        let wall_offset = cx.wall_offset();
        let rule = JoinRule { clock: clock.clone(), ..stage.rule.clone() };
        let intake = IntakeParts { edges: take(&mut consumers, &in_edges), copies, blends, rule };
        let counts = links.counts.clone();
        cx.footprint.add(&*counts, 64);
        let common = Common::new(node, &mut stage, links, cx);
        let begin = Begin::new(stage.source, &common.policy);
        let descriptors = Descriptors::new(cx.poller.clone());
        let blueprint = stage.config.map(|config| Blueprint {
            name: name.clone(),
            descriptors: descriptors.clone(),
            folders: folders.clone(),
            clock: clock.clone(),
            ports: ports.clone(),
            config,
            run_id: run_id.clone(),
            statistics: statistics.clone(),
            counts: counts.clone(),
            wall_offset,
        });
        let (sources, wakes) = (stage.sources, stage.wakes);
        let parts = StageParts { common, intake, outputs, sources, begin, wakes, blueprint };
        let (clock, ports, descriptors) = (&clock, &ports, &descriptors);
        let mut building = Building {
            node: &name,
            folders,
            clock,
            ports,
            descriptors,
            run_id: &run_id,
            statistics: &statistics,
            live: &counts.live,
            wall_offset,
        };
        cx.enter(node);
        match crate::exec::stage::guarded("build", || planned.make(parts, &mut building, cx)) {
            Ok(stage) => stages.push(stage),
            Err(failure) => return Err(BuildError { node, text: failure.into_text() }),
        }
    }
    Ok(stages)
}

impl Wired {
    /// Starts the threads; returns once every node is built.
    ///
    /// Take handles before the start: a running graph cannot be changed.
    ///
    /// ```compile_fail,E0382
    /// # use limen::{Plan, Registry, RunError, Tensor, Wired};
    /// fn late(mut wired: Wired) -> Result<(), RunError> {
    ///     let running = wired.start()?;
    ///     let outlet = wired.outlet::<Tensor>("z")?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`RunError::Build`] names the first node that could not be built; [`RunError::Refused`] if
    /// the system refuses something that `strict` demands, or if an inlet or outlet was not taken;
    /// [`RunError::Thread`] if a thread cannot be started. No node has run then.
    pub fn start(self) -> Result<Running, RunError> {
        self.check_taken()?;
        let helpers: usize = self.plan.nodes().iter().map(|node| node.helpers).sum();
        // One more thread watches the others.
        let hosts = self.plan.workers().iter().filter(|worker| worker_host(&self.plan, worker).is_some()).count();
        let count = self.workers.len() + hosts + helpers + 1;
        let locked = if self.plan.mlock { cpu::lock_memory(self.plan.memory().total(), count) } else { Ok(()) };
        if let (Err(refused), true) = (&locked, self.plan.strict) {
            return Err(RunError::Refused(format!("{refused} (`strict` is set)")));
        }
        let (send, done) = std::sync::mpsc::sync_channel(self.workers.len().max(1));
        let (mut running, workers) = self.split(done, true);
        running.begin_by(Clock::Monotonic, false);
        let (plan, shared) = (&running.plan, &running.shared);
        let n = workers.len();
        let mut threads = Vec::with_capacity(n);
        let cpus = plan.workers().first().map(|worker| worker.place.allowed.clone()).unwrap_or_default();
        let sources = Arc::new(plan.sources.clone());
        let warmup = u64::try_from(plan.warmup.as_nanos()).unwrap_or(u64::MAX);
        for worker in workers {
            let index = worker.index;
            let (shared_too, sources) = (shared.clone(), sources.clone());
            let (telemetry, frames) = (plan.telemetry, plan.frames);
            // Made on its thread, because the poller stays there.
            let cx = move || {
                let poller = Poller::new(vec![shared_too.bell(index)]);
                Cx::new(index, Clock::Monotonic, shared_too, telemetry, frames, sources, poller)
            };
            match worker::spawn(worker, cx, warmup, send.clone()) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    shared.call_off();
                    running.threads = threads;
                    return Err(RunError::Thread { worker: index, source });
                }
            }
        }
        running.threads = threads;
        let (plan, shared) = (&running.plan, &running.shared);
        let strict = plan.strict;
        let refused = |pinned: &[Option<Pinned>]| {
            let first = pinned.iter().flatten().find_map(|p| p.refused.clone());
            first.filter(|_| strict)
        };
        let (pinned, begun) = match shared.begin(n, plan.start, refused) {
            Ok(begun) => begun,
            Err(error) => {
                let hangs = matches!(error, StartError::Build(_));
                let error = RunError::start(plan, error);
                if hangs {
                    // A node that hangs would not end within the normal time either.
                    running.stop_within = running.stop_within.min(GRACE);
                }
                return Err(error);
            }
        };
        let refused = pinned.iter().filter_map(|p| p.refused.clone());
        for refused in refused.chain(locked.err()) {
            shared.refuse(refused);
        }
        match spawn_watch(running.watcher.clone(), cpus) {
            Ok(watch) => running.watch = Some(watch),
            Err(error) => shared.refuse(format!("the watchdog thread could not be started: {error}")),
        }
        running.pinned = pinned;
        running.started = begun;
        Ok(running)
    }

    /// Splits it into the run and the workers still to be started.
    pub(crate) fn split(
        self,
        done: Receiver<worker::WorkerOutcome>,
        has_workers: bool,
    ) -> (Running, Vec<worker::WorkerStart>) {
        let Wired { plan, shared, edges, counts, workers, judged, handles, endpoints } = self;
        drop(handles);
        let worker = |(index, WorkerParts { nodes, ends }): (usize, WorkerParts)| {
            let (folders, worker) = (plan.folders.clone(), &plan.workers()[index]);
            worker::WorkerStart {
                index,
                name: worker.name.clone(),
                place: worker.place.clone(),
                is_helper: worker.is_helper,
                schedule: worker.schedule,
                nodes: worker.nodes.clone(),
                host: worker_host(&plan, worker),
                build: Box::new(move |cx: &mut Cx| build(nodes, ends, &folders, cx)),
            }
        };
        let workers: Vec<worker::WorkerStart> = workers.into_iter().enumerate().map(worker).collect();
        let watched_edges = plan.edges().iter().zip(&edges).map(|(edge, counters)| WatchedEdge {
            counters: counters.clone(),
            from: edge.from_name.clone(),
            to: edge.to_name.clone(),
            capacity: edge.capacity,
            max_bytes: edge.spec.as_ref().and_then(|spec| spec.max_bytes()),
            discards_unmatched: edge.discards_unmatched,
        });
        let ends: Vec<_> = plan.edges().iter().map(|edge| (edge.from, edge.to)).collect();
        let mut paths = Vec::new();
        for (sink, node) in plan.nodes().iter().enumerate().filter(|(_, node)| node.outputs.is_empty()) {
            paths.extend(node.stage.sources.iter().map(|(source, _)| (plan.sources[usize::from(*source)], sink)));
        }
        // The CPUs of workers first: there may be more than can be watched.
        let places = || plan.workers().iter().map(|worker| &worker.place);
        let mut cpus: Vec<usize> = places().filter_map(|place| place.cpu).collect();
        if let Some(free) = places().find(|place| place.cpu.is_none()) {
            cpus.extend(&free.allowed);
        }
        let mut seen = HashSet::new();
        cpus.retain(|cpu| seen.insert(*cpu));
        let throttling = if has_workers { Throttling::new(cpus) } else { Throttling::default() };
        let tails = Tails::new(plan.nodes().len(), &ends, paths, throttling);
        let watched = Watched {
            counts: counts.clone(),
            edges: watched_edges.collect(),
            paths: WatchedPaths::new(&plan, judged.clone()),
            joins: starving::joins(&plan),
            loops: Loops::new(&plan, &counts, &edges),
        };
        let watcher = Watcher::new(shared.clone(), watched, plan.watchdog, plan.drops_above, has_workers, tails);
        let running = Running {
            stop_within: plan.stop,
            plan,
            shared,
            edges,
            endpoints,
            counts,
            judged,
            pinned: Vec::new(),
            done,
            outcomes: workers.iter().map(|_| None).collect(),
            threads: Vec::new(),
            watch: None,
            started: Instant::now(),
            started_at: crate::host::clock::wall(),
            finished: false,
            watcher: DynArc::new(watcher),
        };
        (running, workers)
    }
}

/// How a worker is to be started, if the runtime of one of its models says so.
fn worker_host(plan: &Plan, worker: &WorkerPlan) -> Option<WorkerHost> {
    worker.nodes.iter().find_map(|node| plan.nodes()[*node].worker_host)
}
