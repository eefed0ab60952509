//! What a node says of itself while planning: its ports, its cost, what may be set, what it claims of the machine.

use crate::base::unit::{Rate, Span};
use crate::message::tensor::PortSpec;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How long one call of a node takes, roughly; decides which nodes share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Cost {
    /// Below 1 µs.
    #[default]
    Light,
    /// Between.
    Medium,
    /// Above 50 µs: decoding, large resizes.
    Heavy,
    /// A model: a core of its own while cores last.
    Infer,
}

impl Cost {
    /// The word printed in plans.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Light => "light",
            Cost::Medium => "medium",
            Cost::Heavy => "heavy",
            Cost::Infer => "infer",
        }
    }
}

/// An input port as the node declares it.
#[derive(Clone, Debug)]
pub struct InPort {
    /// Its name in the graph file.
    pub name: String,
    /// What it takes; `None` takes any tensor, and is the only choice for plain payloads.
    pub spec: Option<PortSpec>,
    /// Messages the node keeps beyond a call.
    pub holds: usize,
}

/// An output port as the node declares it.
#[derive(Clone, Debug)]
pub struct OutPort {
    /// Its name in the graph file.
    pub name: String,
    /// What it gives; `None` for plain payloads.
    pub spec: Option<PortSpec>,
    /// Most messages one call emits.
    pub emits: usize,
    /// Messages that share a slot (a batch's outputs).
    pub rows: usize,
    /// The inputs whose very buffers come out here, so that this port needs no pool; none where it fills its own.
    pub forwards: Vec<String>,
}

/// What a node takes and gives.
///
/// ```
/// use limen::message::{DType, Dim, PortSpec};
/// use limen::node::{Cost, Ports};
/// let ports = Ports::new()
///     .input("in", PortSpec::fixed(DType::F32, [10]))
///     .output("out", PortSpec::fixed(DType::I32, []))
///     .cost(Cost::Light);
/// # let _ = ports;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ports {
    pub(crate) inputs: Vec<InPort>,
    pub(crate) outputs: Vec<OutPort>,
    pub(crate) cost: Cost,
    pub(crate) blocking: bool,
    pub(crate) helpers: usize,
    pub(crate) live: bool,
    pub(crate) endless: bool,
    pub(crate) total: Option<u64>,
    pub(crate) selective: bool,
    pub(crate) routes: bool,
    pub(crate) scatters: bool,
    pub(crate) gathers: bool,
    pub(crate) period: Option<u64>,
    pub(crate) waits: u64,
    pub(crate) spans: usize,
    pub(crate) memory: usize,
    pub(crate) takes: u64,
    pub(crate) measured: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) notes: Vec<String>,
    pub(crate) notices: Vec<String>,
    pub(crate) public: bool,
    pub(crate) settings: Vec<Setting>,
}

/// A number that may be changed while the graph runs, with `Running::set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// What it may be.
    pub range: RangeInclusive<f64>,
}

/// Something outside the process that two nodes must not both have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// A file that is written.
    File(PathBuf),
    /// A device or port, by any name that is unique on the machine.
    Device(String),
}

impl Ports {
    /// No ports.
    pub fn new() -> Self {
        Ports::default()
    }

    /// Adds an input that takes tensors of a spec.
    #[must_use]
    pub fn input(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.in_port(InPort { name: name.into(), spec: Some(spec), holds: 0 })
    }

    /// Adds an input that takes any tensor, or a plain payload.
    #[must_use]
    pub fn input_any(self, name: impl Into<String>) -> Self {
        self.in_port(InPort { name: name.into(), spec: None, holds: 0 })
    }

    /// Adds an input.
    #[must_use]
    pub fn in_port(mut self, port: InPort) -> Self {
        self.inputs.push(port);
        self
    }

    /// Adds an output that gives one tensor of a spec per call.
    #[must_use]
    pub fn output(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.out_port(OutPort { name: name.into(), spec: Some(spec), emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output that gives one plain payload per call.
    #[must_use]
    pub fn output_plain(self, name: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec: None, emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output on which the messages of an input go on as they are.
    #[must_use]
    pub fn output_forwarding(self, name: impl Into<String>, spec: Option<PortSpec>, input: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec, emits: 1, rows: 1, forwards: vec![input.into()] })
    }

    /// Adds an output.
    #[must_use]
    pub fn out_port(mut self, port: OutPort) -> Self {
        self.outputs.push(port);
        self
    }

    /// How long a call takes.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Calls may wait in the kernel (disks, devices without a descriptor): the node runs on a helper thread. What waits for
    /// a descriptor does not have to: [`Next::WhenReady`](crate::node::Next::WhenReady), [`Sink::progress`](crate::node::Sink::progress).
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// The node starts so many threads for its calls ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)), which need a
    /// core that does not spin.
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.helpers = threads;
        self
    }

    /// A source that cannot be slowed down.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// A source that never ends by itself.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// A source that begins so many messages and then ends: what progress is reckoned by.
    #[must_use]
    pub fn total(mut self, messages: u64) -> Self {
        self.total = Some(messages);
        self
    }

    /// The node passes on some messages and not others, so that a join behind it misses those.
    #[must_use]
    pub fn selective(mut self) -> Self {
        self.selective = true;
        self
    }

    /// The node sends each message by one of its outputs and not by the others, so that a join of two of them misses those.
    #[must_use]
    pub fn routes(mut self) -> Self {
        self.routes = true;
        self
    }

    /// The node takes messages apart: what one call sends are the parts of what it was given.
    #[must_use]
    pub fn scatters(mut self) -> Self {
        self.scatters = true;
        self
    }

    /// The node puts parts together again, so that there must be one before it that took them apart.
    #[must_use]
    pub fn gathers(mut self) -> Self {
        self.gathers = true;
        self
    }

    /// What a call sends may be made from messages of so many calls before it, and then has the header of one of those: its
    /// latency is counted from theirs, also where several sources are behind them.
    #[must_use]
    pub fn spans(mut self, calls: usize) -> Self {
        self.spans = calls;
        self
    }

    /// The node takes so many bytes for itself when it is built: what it puts messages together in, buffers of sockets. What all
    /// calls of this add up to counts against `run.max_memory`. Not the pools of its outputs: those the plan knows.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = self.memory.saturating_add(bytes);
        self
    }

    /// In the ordinary course no message leaves the node sooner than so long after it began, however fast everything is.
    #[must_use]
    pub fn waits(mut self, time: Span) -> Self {
        self.waits = time.as_nanos();
        self
    }

    /// A source that begins so many messages a second, if it is given: what it is taken together with by number has to as well.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<Option<Rate>>) -> Self {
        self.period = rate.into().map(|rate| rate.period_ns() as u64);
        self
    }

    /// No call takes less than this. A deadline that it exceeds is refused.
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.takes = time.as_nanos();
        self
    }

    /// What a call took when it was measured on this machine. A deadline that it exceeds is noted in the plan.
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.measured = time.as_nanos();
        self
    }

    /// Claims something outside the process for this node alone.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Adds a setting: what is set from outside is held against its range before the node hears of it.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, range: RangeInclusive<f64>) -> Self {
        self.settings.push(Setting { name: name.into(), range });
        self
    }

    /// A line for `--plan`.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// A line that nobody who runs the graph may miss, such as that other machines reach it: it stands among the notes of the
    /// plan and of the report, and `limen-run` prints it before it starts.
    #[must_use]
    pub fn notice(mut self, notice: impl Into<String>) -> Self {
        self.notices.push(notice.into());
        self
    }

    /// The node listens where other machines reach it, which is planned only with
    /// [`Options::allow_public`](crate::Options::allow_public). `how` is a notice, such as `listens on 0.0.0.0:9000`.
    #[must_use]
    pub fn public(mut self, how: impl Into<String>) -> Self {
        self.public = true;
        self.notice(how)
    }
}
