//! Handles, taken from a graph before it starts.

use super::{NodeParts, OutputParts, Wired, WorkerParts};
use crate::base::error::suggest;
use crate::base::policy::{EdgePolicy, WhenFull};
use crate::base::unit::show_bytes;
use crate::edge::BURST;
use crate::edge::Params;
use crate::exec::endpoint::{EndpointParts, HandleKind, NewHandle};
use crate::exec::shared::RunShared;
use crate::handle::{Inlet, InletPlan, Outlet, TAP_HOLDS, Tap, Tapped};
use crate::host::sync::Arc;
use crate::message::payload::Payload;
use crate::message::pool::{Pool, pool_bytes};
use crate::message::port_spec::{Memory, PortSpec};
use crate::node::PortType;
use crate::node::ports::Ports;
use crate::plan::Plan;
use crate::run::error::RunError;

/// Messages that may wait for an inlet that replaces a source, and messages that the program may
/// have on loan.
const REPLACED_CAPACITY: usize = 16;
const REPLACED_HOLDS: usize = 2;
/// The maximum number of messages that may wait for a tap; beyond that, use an outlet.
const MAX_TAPPED: usize = 1 << 16;

/// Makes the handle of a node that connects the graph with the program.
pub(super) fn attach(parts: &mut NodeParts, plan: &Plan, run: &Arc<RunShared>) -> Option<NewHandle> {
    if parts.planned.outside() == 0 {
        return None;
    }
    let node = &plan.nodes()[parts.node];
    let when_full = node.in_edges.first().map_or(WhenFull::Block, |edge| plan.edges()[*edge].when_full());
    // The program fills the buffers it sends, so it gets the pool.
    let pool = parts.outputs.first_mut().and_then(|out| out.pool.take());
    let (name, run, bell) = (parts.name.clone(), run.clone(), run.bell(node.worker));
    parts.planned.attach(EndpointParts { name, when_full, pool, run, bell })
}

impl Wired {
    /// Takes the program's end of a node of `kind: inlet`, or of a kind added by
    /// [`Registry::inlet`](crate::Registry::inlet).
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if the node is no inlet, sends another payload, or its handle was
    /// already taken.
    pub fn inlet<T: Payload>(&mut self, node: &str) -> Result<Inlet<T>, RunError> {
        self.take_handle::<Inlet<T>, T>(node, HandleKind::Inlet)
    }

    /// Takes the program's end of a node of `kind: outlet`, or of a kind added by
    /// [`Registry::outlet`](crate::Registry::outlet).
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if the node is no outlet, takes another payload, or its handle was
    /// already taken.
    pub fn outlet<T: Payload>(&mut self, node: &str) -> Result<Outlet<T>, RunError> {
        self.take_handle::<Outlet<T>, T>(node, HandleKind::Outlet)
    }

    /// Makes a tap on an output: `node/port`, or `node` if it has one output. Holds four messages;
    /// a tap never slows the graph, whatever the program does with it.
    ///
    /// # Errors
    /// As [`Wired::tap_holding`].
    pub fn tap<T: Payload>(&mut self, port: &str) -> Result<Tap<T>, RunError> {
        self.tap_holding(port, TAP_HOLDS)
    }

    /// As [`Wired::tap`], with `hold` messages that may wait for the program, and as many that it
    /// may keep.
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if there is no such output, or it has another payload;
    /// [`RunError::Refused`] if the tap's buffers exceed `run.max_memory`, or `hold` is out of
    /// range.
    pub fn tap_holding<T: Payload>(&mut self, port: &str, hold: usize) -> Result<Tap<T>, RunError> {
        let (node, output) = self.output(port)?;
        let plan = &self.plan.nodes()[node];
        let out = &plan.outputs[output];
        let name = format!("{}/{}", plan.name, out.name);
        let (emits, worker) = (out.emits, plan.worker);
        if out.spec.as_ref().is_some_and(|spec| spec.memory != Memory::Host) {
            let why = "the messages must be in host memory, got device memory: tap the downstream `to_host` node";
            return Err(RunError::Refused(format!("a tap on `{name}`: {why}")));
        }
        let parts =
            parts_of(&mut self.workers, node).ok_or_else(|| RunError::NoSuch(format!("unknown node of `{name}`")))?;
        same_payload::<T>(&name, parts.planned.output_types().get(output).copied())?;
        if !(1..=MAX_TAPPED).contains(&hold) {
            return Err(RunError::Refused(format!("a tap on `{name}`: `hold` must be 1 to {MAX_TAPPED}, got {hold}")));
        }
        // Messages that wait, messages that the program keeps, and the one being written.
        let pool = out.spec.as_ref().map(|spec| self.plan.unplanned_pool(&name, spec, 2 * hold + 1)).transpose()?;
        let Tapped { tap, tx, endpoint, bell } = Tap::<T>::made(name.clone(), hold, pool, self.shared.clone());
        let params = Params {
            // Not an edge of the plan; the tap counts its own messages.
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
        // A replaced source has fewer outputs wired than planned.
        if let Some(wired) = parts.outputs.iter_mut().find(|wired| wired.name == out.name) {
            wired.taps.push(Box::new(tx.into_cross(&params)));
        }
        self.endpoints.push((node, endpoint));
        Ok(tap)
    }

    /// Replaces a source by an inlet, so that a test can send what a camera would. The source is
    /// not built. At most one of its outputs may be connected; the inlet's messages go there.
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if there is no such source, or it has another payload;
    /// [`RunError::Refused`] if several of its outputs are connected, or the inlet's buffers do not
    /// fit.
    pub fn replace_with_inlet<T: Payload>(&mut self, node: &str) -> Result<Inlet<T>, RunError> {
        let at = self.node(node)?;
        let plan = &self.plan.nodes()[at];
        let connected: Vec<usize> = (0..plan.outputs.len()).filter(|o| !plan.outputs[*o].edges.is_empty()).collect();
        let [output] = connected[..] else {
            let n = connected.len();
            return Err(RunError::Refused(format!("expected one connected output of `{node}`, found {n}")));
        };
        let parts = parts_of(&mut self.workers, at).filter(|parts| parts.planned.input_types().is_empty());
        let parts = parts.ok_or_else(|| RunError::NoSuch(format!("`{node}` is not a source")))?;
        if parts.planned.outside() > 0 {
            return Err(RunError::NoSuch(format!("`{node}` is already an inlet")));
        }
        same_payload::<T>(node, parts.planned.output_types().get(output).copied())?;
        let out = &plan.outputs[output];
        let mut ports = Ports::new();
        ports.outputs.push(parts.planned.ports().outputs[output].clone());
        let mut pool = None;
        if let Some(spec) = &out.spec {
            // The slots planned for the graph, and those waiting to enter it.
            let slots = out.slots * out.rows + REPLACED_HOLDS + REPLACED_CAPACITY;
            pool = Some(self.plan.unplanned_pool(node, spec, slots)?);
        }
        let kept = parts.outputs.swap_remove(output);
        parts.outputs = vec![OutputParts { pool, rows: 1, ..kept }];
        parts.planned = Box::new(InletPlan::<T>::instead_of(ports, REPLACED_CAPACITY, REPLACED_HOLDS));
        // Without a config it cannot be restarted.
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
            RunError::NoSuch(format!("unknown node `{name}`: {}", suggest(name, names)))
        })
    }

    /// Finds the output named by `node/port`, or by `node` alone.
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
            let help = match all.is_empty() {
                true => format!("`{node}` has no outputs"),
                false => format!("write one of {}", all.join(", ")),
            };
            RunError::NoSuch(format!("unknown output `{name}`: {help}"))
        });
        Ok((at, output?))
    }

    fn take_handle<H: 'static, T: Payload>(&mut self, name: &str, kind: HandleKind) -> Result<H, RunError> {
        let node = self.node(name)?;
        let Some(made) = self.handles.get(&node) else {
            let kind = kind.name();
            return Err(RunError::NoSuch(match self.endpoints.iter().any(|(at, _)| *at == node) {
                true => format!("{kind} `{name}` is already taken"),
                false => format!("unknown {kind} `{name}`"),
            }));
        };
        if made.handle.is::<H>() {
            let handle = self.handles.remove(&node).and_then(|made| made.handle.downcast().ok());
            return handle.map(|handle| *handle).ok_or_else(|| RunError::NoSuch(format!("unknown handle `{name}`")));
        }
        same_payload::<T>(name, Some(made.ty))?;
        let other = if kind == HandleKind::Inlet { HandleKind::Outlet } else { HandleKind::Inlet };
        Err(RunError::NoSuch(format!("`{name}`: expected an {}, found an {}", kind.name(), other.name())))
    }

    /// Refuses to start while an inlet or outlet has not been taken.
    pub(crate) fn check_taken(&self) -> Result<(), RunError> {
        let untaken = self.plan.nodes().iter().enumerate().filter(|(at, _)| self.handles.contains_key(at));
        let names: Vec<String> = untaken.map(|(_, node)| format!("`{}`", node.name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(RunError::Refused(format!(
            "no program is connected to the inlets and outlets {}: run the graph from the program that embeds the \
             graph",
            names.join(", ")
        )))
    }
}

impl Plan {
    /// Allocates a pool that was not planned, within the memory limit.
    fn unplanned_pool(&self, name: &str, spec: &PortSpec, slots: usize) -> Result<Pool, RunError> {
        let memory = self.memory();
        let (bytes, left) = (pool_bytes(spec, slots, 1, 0), memory.limit.saturating_sub(memory.total()));
        let fitting = bytes.filter(|bytes| *bytes <= left).ok_or_else(|| {
            let got = bytes.map_or_else(|| "more".to_string(), |bytes| show_bytes(bytes as u64));
            let left = show_bytes(left as u64);
            format!("{slots} buffers of {spec} must have at most {left} (left of `run.max_memory`), got {got}")
        });
        let pool = fitting.and_then(|_| Pool::new(name, spec, slots, 1));
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
            Err(RunError::NoSuch(format!("`{name}`: expected {}, found {have}", want.name)))
        }
    }
}
