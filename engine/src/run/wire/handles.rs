//! Handles, taken from a graph before it starts.

use super::{NodeParts, OutputParts, Wired, WorkerParts};
use crate::base::error::suggest;
use crate::base::policy::{EdgePolicy, WhenFull};
use crate::edge::BURST;
use crate::edge::Params;
use crate::exec::endpoint::{EndpointParts, HandleKind, NewHandle};
use crate::exec::shared::RunShared;
use crate::handle::{Inlet, InletPlan, Outlet, TAP_HOLDS, Tap, Tapped};
use crate::host::sync::Arc;
use crate::message::payload::Payload;
use crate::message::pool::{Pool, pool_bytes};
use crate::message::tensor::PortSpec;
use crate::node::PortType;
use crate::node::ports::Ports;
use crate::plan::Plan;
use crate::run::error::RunError;

/// Messages that may wait for an inlet that stands in for a source, and those the program may have on loan.
const REPLACED_CAPACITY: usize = 16;
const REPLACED_HOLDS: usize = 2;
/// The most that may wait for a tap: who wants more wants an outlet.
const MOST_TAPPED: usize = 1 << 16;

/// Makes the handle of a node that is the program's end of the graph.
pub(super) fn attach(parts: &mut NodeParts, plan: &Plan, run: &Arc<RunShared>) -> Option<NewHandle> {
    if parts.planned.outside() == 0 {
        return None;
    }
    let node = &plan.nodes()[parts.node];
    let when_full = node.in_edges.first().map_or(WhenFull::Block, |edge| plan.edges()[*edge].when_full());
    // The program fills what it sends, so the buffers are its own to give.
    let pool = parts.outputs.first_mut().and_then(|out| out.pool.take());
    let (name, run, bell) = (parts.name.clone(), run.clone(), run.bell(node.worker));
    parts.planned.attach(EndpointParts { name, when_full, pool, run, bell })
}

impl Wired {
    /// The program's end of a node of `kind: inlet`, or of a kind added by [`Registry::inlet`](crate::Registry::inlet).
    ///
    /// # Errors
    /// [`RunError::NoSuch`] where the node is no inlet, sends another payload, or was taken already.
    pub fn inlet<T: Payload>(&mut self, node: &str) -> Result<Inlet<T>, RunError> {
        self.take_handle::<Inlet<T>, T>(node, HandleKind::In)
    }

    /// The program's end of a node of `kind: outlet`, or of a kind added by [`Registry::outlet`](crate::Registry::outlet).
    ///
    /// # Errors
    /// [`RunError::NoSuch`] where the node is no outlet, takes another payload, or was taken already.
    pub fn outlet<T: Payload>(&mut self, node: &str) -> Result<Outlet<T>, RunError> {
        self.take_handle::<Outlet<T>, T>(node, HandleKind::Out)
    }

    /// A look at what a node sends: `node/port`, or `node` where it has one output. Holds four messages; nothing that the
    /// program does with a tap can slow the graph.
    ///
    /// # Errors
    /// As [`Wired::tap_holding`].
    pub fn tap<T: Payload>(&mut self, port: &str) -> Result<Tap<T>, RunError> {
        self.tap_holding(port, TAP_HOLDS)
    }

    /// As [`Wired::tap`], for so many messages that may wait for the program, and as many that it may keep.
    ///
    /// # Errors
    /// [`RunError::NoSuch`] where there is no such output, or it gives another payload; [`RunError::Refused`] where the
    /// tap's buffers do not fit into `run.max_memory`, or there would be none.
    pub fn tap_holding<T: Payload>(&mut self, port: &str, hold: usize) -> Result<Tap<T>, RunError> {
        let (node, output) = self.output(port)?;
        let plan = &self.plan.nodes()[node];
        let out = &plan.outputs[output];
        let name = format!("{}/{}", plan.name, out.name);
        let (emits, worker) = (out.emits, plan.worker);
        let parts =
            parts_of(&mut self.workers, node).ok_or_else(|| RunError::NoSuch(format!("no node of `{name}`")))?;
        same_payload::<T>(&name, parts.planned.output_types().get(output).copied())?;
        if !(1..=MOST_TAPPED).contains(&hold) {
            return Err(RunError::Refused(format!(
                "a tap on `{name}` that holds {hold} messages: 1 to {MOST_TAPPED} fit"
            )));
        }
        // What waits, what the program keeps, and what is being written.
        let pool = out.spec.as_ref().map(|spec| self.plan.beyond(&name, spec, 2 * hold + 1)).transpose()?;
        let Tapped { tap, tx, endpoint, bell } = Tap::<T>::made(name.clone(), hold, pool, self.shared.clone());
        let params = Params {
            // No edge of the plan; its books are the tap's own.
            index: usize::MAX,
            name: format!("{name} -> tap"),
            capacity: hold,
            emits,
            buffer: BURST * emits,
            shared: Arc::default(),
            producer_bell: self.shared.bell(worker),
            consumer_bell: bell,
            policy: EdgePolicy { when_full: WhenFull::DropNewest, ..EdgePolicy::default() },
            largest: 0,
        };
        // After a source was replaced, fewer outputs are wired than were planned.
        if let Some(wired) = parts.outputs.iter_mut().find(|wired| wired.name == out.name) {
            wired.taps.push(Box::new(tx.into_cross(&params)));
        }
        self.endpoints.push((node, endpoint));
        Ok(tap)
    }

    /// Puts an inlet in the place of a source, so that a test can send what a camera would. The source is not built. Of its
    /// outputs one at most may be connected: what the inlet sends goes there.
    ///
    /// # Errors
    /// [`RunError::NoSuch`] where there is no such source, or it gives another payload; [`RunError::Refused`] where several of
    /// its outputs are connected, or the inlet's buffers do not fit.
    pub fn replace_with_inlet<T: Payload>(&mut self, node: &str) -> Result<Inlet<T>, RunError> {
        let at = self.node(node)?;
        let plan = &self.plan.nodes()[at];
        let connected: Vec<usize> = (0..plan.outputs.len()).filter(|o| !plan.outputs[*o].edges.is_empty()).collect();
        let [output] = connected[..] else {
            let n = connected.len();
            return Err(RunError::Refused(format!("{n} outputs of `{node}` are connected; an inlet has one")));
        };
        let parts = parts_of(&mut self.workers, at).filter(|parts| parts.planned.input_types().is_empty());
        let parts = parts.ok_or_else(|| RunError::NoSuch(format!("`{node}` is no source")))?;
        if parts.planned.outside() > 0 {
            return Err(RunError::NoSuch(format!("`{node}` is an inlet already")));
        }
        same_payload::<T>(node, parts.planned.output_types().get(output).copied())?;
        let out = &plan.outputs[output];
        let mut ports = Ports::new();
        ports.outputs.push(parts.planned.ports().outputs[output].clone());
        let mut pool = None;
        if let Some(spec) = &out.spec {
            // What was planned for the graph, and what waits to enter it.
            let slots = out.slots * out.rows + REPLACED_HOLDS + REPLACED_CAPACITY;
            pool = Some(self.plan.beyond(node, spec, slots)?);
        }
        let kept = parts.outputs.swap_remove(output);
        parts.outputs = vec![OutputParts { pool, rows: 1, ..kept }];
        parts.planned = Box::new(InletPlan::<T>::instead_of(ports, REPLACED_CAPACITY, REPLACED_HOLDS));
        // Built from no config, so not built again.
        parts.stage.config = None;
        if let Some(made) = attach(parts, &self.plan, &self.shared) {
            self.endpoints.push((at, made.endpoint.clone()));
            self.handles.insert(at, made);
        }
        self.inlet(node)
    }

    fn node(&self, name: &str) -> Result<usize, RunError> {
        let nodes = self.plan.nodes();
        nodes.iter().position(|n| n.name == name).ok_or_else(|| {
            let names = nodes.iter().map(|n| n.name.as_str());
            RunError::NoSuch(format!("there is no node `{name}`; {}", suggest(name, names)))
        })
    }

    /// The output that `node/port`, or `node` alone, names.
    fn output(&self, name: &str) -> Result<(usize, usize), RunError> {
        let (node, port) = name.split_once('/').map_or((name, None), |(node, port)| (node, Some(port)));
        let at = self.node(node)?;
        let outputs = &self.plan.nodes()[at].outputs;
        let found = match port {
            None if outputs.len() == 1 => Some(0),
            None => None,
            Some(port) => outputs.iter().position(|out| out.name == port),
        };
        let output = found.ok_or_else(|| {
            let all: Vec<String> = outputs.iter().map(|out| format!("`{node}/{}`", out.name)).collect();
            let all = if all.is_empty() { "none".into() } else { all.join(", ") };
            RunError::NoSuch(format!("`{name}` is no output; those of `{node}`: {all}"))
        });
        Ok((at, output?))
    }

    fn take_handle<H: 'static, T: Payload>(&mut self, name: &str, way: HandleKind) -> Result<H, RunError> {
        let node = self.node(name)?;
        let Some(made) = self.handles.get(&node) else {
            let was = if self.endpoints.iter().any(|(at, _)| *at == node) { "was taken already" } else { "is none" };
            return Err(RunError::NoSuch(format!("{} `{name}` {was}", way.name())));
        };
        if made.handle.is::<H>() {
            let handle = self.handles.remove(&node).and_then(|made| made.handle.downcast().ok());
            return handle.map(|handle| *handle).ok_or_else(|| RunError::NoSuch(format!("no `{name}`")));
        }
        same_payload::<T>(name, Some(made.ty))?;
        let other = if way == HandleKind::In { HandleKind::Out } else { HandleKind::In };
        Err(RunError::NoSuch(format!("`{name}` is an {}, not an {}", other.name(), way.name())))
    }

    /// Every inlet and every outlet has somebody at its other end.
    pub(crate) fn check_taken(&self) -> Result<(), RunError> {
        let names: Vec<String> =
            self.handles.keys().map(|node| format!("`{}`", self.plan.nodes()[*node].name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (names, are) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
        Err(RunError::Refused(format!(
            "{names} {are} no program at the other end: inlets and outlets are for programs that embed the graph, and are \
             taken before the start"
        )))
    }
}

impl Plan {
    /// A pool that was not planned, of what the plan leaves of the memory it may take.
    fn beyond(&self, name: &str, spec: &PortSpec, slots: usize) -> Result<Pool, RunError> {
        let memory = self.memory();
        let fits = |bytes: &usize| memory.total().saturating_add(*bytes) <= memory.limit;
        let bytes = pool_bytes(spec, slots, 1, 0).filter(fits);
        let bytes = bytes.ok_or_else(|| format!("{slots} buffers of {spec} are more than `run.max_memory` leaves"));
        let pool = bytes.and_then(|_| Pool::new(name, spec, slots, 1));
        pool.map_err(|why| RunError::Refused(format!("buffers for a handle at `{name}`: {why}")))
    }
}

fn parts_of(workers: &mut [WorkerParts], node: usize) -> Option<&mut NodeParts> {
    workers.iter_mut().flat_map(|worker| &mut worker.nodes).find(|parts| parts.node == node)
}

fn same_payload<T: Payload>(name: &str, have: Option<PortType>) -> Result<(), RunError> {
    let want = PortType::of::<T>();
    match have {
        Some(have) if have == want => Ok(()),
        have => {
            let have = have.map_or("nothing", |have| have.name);
            Err(RunError::NoSuch(format!("`{name}` carries {have}, not {}", want.name)))
        }
    }
}
