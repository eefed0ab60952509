//! Policies: what a graph file may set for an edge, a node, a worker or a run. Plain data that
//! every folder may use. A node's and an edge's policies are one struct each, from the file to the
//! stage.

use crate::base::json::by_name;
use crate::base::unit::{Bytes, Span};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The names of graphs, nodes and ports, as a pattern.
pub const NAME: &str = "^[a-z][a-z0-9_-]{0,63}$";

/// What happens to a message when its edge is full.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    Deserialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhenFull {
    /// The producer is not called until there is room. Nothing is lost.
    #[default]
    Block,
    /// The new message is dropped and counted as lost.
    DropNewest,
    /// The oldest message is dropped and counted as lost.
    DropOldest,
    /// The edge holds one message; a newer one supersedes it, which is counted.
    Latest,
    /// The producing node fails.
    Fail,
}

impl WhenFull {
    /// Every value.
    pub const ALL: &[WhenFull] = <WhenFull as strum::VariantArray>::VARIANTS;

    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether messages can be lost while all nodes are healthy.
    pub fn is_lossy(self) -> bool {
        match self {
            WhenFull::DropNewest | WhenFull::DropOldest | WhenFull::Latest => true,
            WhenFull::Block | WhenFull::Fail => false,
        }
    }

    /// Returns whether a full edge takes the new message and loses older ones.
    pub(crate) fn evicts(self) -> bool {
        match self {
            WhenFull::DropOldest | WhenFull::Latest => true,
            WhenFull::Block | WhenFull::DropNewest | WhenFull::Fail => false,
        }
    }
}

/// Which messages of several inputs are taken together (joins), or which is taken next (merges).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JoinPolicy {
    /// Join: messages of the same sequence number. Merge: whatever has arrived, round robin.
    #[default]
    Zip,
    /// Join: messages whose times lie within a window.
    ByTime,
    /// Join: the newest message of each input.
    Sample,
    /// Merge: one message of each input in turn, waiting as long as necessary.
    InTurn,
    /// Merge: the message with the oldest time, once every input has one.
    OldestFirst,
    /// Merge: the first input that has a message, in the order of the graph.
    Priority,
}

impl JoinPolicy {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether this is a policy of merges, not of joins.
    pub(crate) fn merges(self) -> bool {
        matches!(self, JoinPolicy::InTurn | JoinPolicy::OldestFirst | JoinPolicy::Priority)
    }
}

/// Which message of an input a join by time takes for a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pick {
    /// The one nearest in time.
    #[default]
    Nearest,
    /// The first within the window, as soon as it arrives.
    Oldest,
    /// The last within the window.
    Newest,
    /// Linear interpolation, element by element, between the last message before the moment and the
    /// first after it. Needs tensors of `f32` or `f64`, and an `anchor`.
    Interpolate,
}

impl Pick {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// `join:` of a node with several inputs.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
pub(crate) struct JoinSpec {
    /// Which messages of several inputs are combined, or which is taken next; `zip` by default.
    #[serde(default)]
    pub(crate) policy: JoinPolicy,
    /// Unmatched messages after which a partner counts as lost.
    pub(crate) patience: Option<usize>,
    /// By time: how far from the reference time a message may have begun.
    pub(crate) within: Option<Span>,
    /// By time: how long a message waits after it began, so that late ones can be put in order.
    pub(crate) wait: Option<Span>,
    /// With `sample`: the input whose every message triggers a call.
    #[schemars(regex(pattern = NAME))]
    pub(crate) trigger: Option<String>,
    /// By time: which message of an input is taken for a reference time; `nearest` by default.
    pub(crate) pick: Option<Pick>,
    /// By time: the input whose messages set the reference times; the newest head by default.
    #[schemars(regex(pattern = NAME))]
    pub(crate) anchor: Option<String>,
}

/// How important a message is. Only edges with watermarks or lanes use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Qos {
    /// The default.
    #[default]
    Normal,
    /// Passes the soft watermark, and is taken first where an edge has a lane for urgent messages.
    Urgent,
    /// Dropped first: never evicts a message, and does not pass the soft watermark of a lossy edge.
    Background,
}

impl Qos {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a source's timestamps are converted to the run's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockOffset {
    /// They are already on the run's clock.
    #[default]
    None,
    /// Adds a fixed offset, ns.
    By(i64),
    /// Adds the smallest recent difference between arrival and timestamp, assuming that some recent
    /// message arrived without delay.
    Auto,
}

/// What happens when a call of a node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnError {
    /// The run drains and ends with exit code 1.
    #[default]
    Stop,
    /// The call's inputs count as failed; the node continues.
    Skip,
    /// The node is removed; the rest of the graph continues.
    Detach,
    /// The call's inputs count as failed; the node is rebuilt after a backoff and continues.
    Restart,
}

impl OnError {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether the node continues after a failed call.
    pub(crate) fn continues(self) -> bool {
        matches!(self, OnError::Skip | OnError::Restart)
    }
}

/// What happens to a message that misses its path's deadline. A miss at the sink is always counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnMiss {
    /// Only counted.
    #[default]
    Count,
    /// The message is dropped (`expired`) at the next node once it can no longer reach any sink in
    /// time.
    Drop,
    /// As `drop`; older messages waiting at that node are dropped too (`superseded`), except the
    /// newest.
    SkipToLatest,
    /// A miss at the sink ends the run, with exit code 1.
    Stop,
}

impl OnMiss {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What happens when an input is silent for longer than `expect_every`. A gap is always counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnGap {
    /// Only counted.
    #[default]
    Count,
    /// The node's state is reset.
    Reset,
    /// The run drains and ends with exit code 1.
    Stop,
}

impl OnGap {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How much a run depends on a node or a path: what a failure, a loss or a miss there means for
/// the result of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Criticality {
    /// The run fails, with exit code 1.
    Critical,
    /// The run is degraded.
    #[default]
    Normal,
    /// Nothing. A node has `on_error: detach` by default.
    BestEffort,
}

impl Criticality {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// `on_error: { restart: { max: 3, backoff: 100ms, within: 1min } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub(crate) struct RestartSpec {
    /// The most restarts; 3 by default.
    #[serde(default = "RestartSpec::default_max")]
    #[schemars(range(min = 1))]
    pub(crate) max: u32,
    /// The delay after the first failure; it doubles with each further one. 100ms by default.
    #[serde(default = "RestartSpec::default_backoff")]
    pub(crate) backoff: Span,
    /// Failures longer ago are not counted.
    pub(crate) within: Option<Span>,
}

impl RestartSpec {
    fn default_max() -> u32 {
        3
    }

    fn default_backoff() -> Span {
        Span(Duration::from_millis(100))
    }
}

impl Default for RestartSpec {
    fn default() -> Self {
        RestartSpec { max: Self::default_max(), backoff: Self::default_backoff(), within: None }
    }
}

/// `fault:` of a node. Calls count from 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, schemars::JsonSchema)]
pub(crate) struct FaultSpec {
    /// This call panics.
    #[schemars(range(min = 1))]
    pub(crate) panic_at: Option<u64>,
    /// This call returns an error.
    #[schemars(range(min = 1))]
    pub(crate) error_at: Option<u64>,
    /// Every n-th call returns an error.
    #[schemars(range(min = 1))]
    pub(crate) error_every: Option<u64>,
    /// This call never returns.
    #[schemars(range(min = 1))]
    pub(crate) hang_at: Option<u64>,
    /// Every call takes this much longer.
    pub(crate) delay: Option<Span>,
    /// Every call takes longer by a random time from `delay` to this.
    pub(crate) delay_to: Option<Span>,
    /// The fraction of messages that is lost.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) drop: f64,
    /// The fraction of calls that send twice.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) duplicate: f64,
    /// The seed of the random numbers.
    #[serde(default)]
    pub(crate) seed: u64,
}

impl FaultSpec {
    /// Returns what is wrong with it, if anything, and a way out.
    pub(crate) fn problem(&self) -> Option<(String, &'static str)> {
        let calls = [
            ("panic_at", self.panic_at),
            ("error_at", self.error_at),
            ("error_every", self.error_every),
            ("hang_at", self.hang_at),
        ];
        let fractions = [("drop", self.drop), ("duplicate", self.duplicate)];
        if let Some((key, _)) = calls.into_iter().find(|(_, call)| *call == Some(0)) {
            Some((format!("`{key}` must be at least 1, got 0"), "write `1` for the first call"))
        } else if let Some((key, p)) = fractions.into_iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            Some((format!("`{key}` must be 0 to 1, got {p}"), "write a fraction, such as `0.05`"))
        } else if self.delay_to.is_some_and(|to| self.delay.is_none_or(|from| to.0 < from.0)) {
            Some(("`delay_to` requires a shorter `delay`".into(), "write `delay: 1ms, delay_to: 5ms`"))
        } else {
            None
        }
    }
}

/// What a graph file sets for a node: parsed with the file, checked while planning, and moved whole
/// into the node's stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePolicy {
    /// What happens when a call fails.
    pub(crate) on_error: OnError,
    /// With `on_error: restart`: how often and how soon.
    pub(crate) restart: RestartSpec,
    /// How much the run depends on the node.
    pub(crate) criticality: Criticality,
    /// The longest time a call may take.
    pub(crate) budget: Option<Span>,
    /// Faults injected on purpose.
    pub(crate) fault: Option<FaultSpec>,
    /// How messages of several inputs are combined.
    pub(crate) join: Option<JoinSpec>,
    /// The importance of messages that a source begins.
    pub(crate) qos: Option<Qos>,
    /// How a source's timestamps are converted to the run's clock.
    pub(crate) clock: ClockOffset,
}

impl NodePolicy {
    /// The longest time a call may take, ns.
    pub(crate) fn budget_ns(&self) -> Option<u64> {
        self.budget.map(Span::as_nanos)
    }

    /// Returns whether faults are injected that satisfy `with`.
    pub(crate) fn has_fault(&self, with: impl FnOnce(&FaultSpec) -> bool) -> bool {
        self.fault.as_ref().is_some_and(with)
    }
}

/// What a graph file sets for an edge, written at its consumer: parsed with the file, checked while
/// planning, and moved whole into the edge's endpoints and its consumer's stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(default)]
pub(crate) struct EdgePolicy {
    /// What happens when a message finds the edge full; `block` by default.
    pub(crate) when_full: WhenFull,
    /// Messages it holds; by default 64 within a core and 256 between two, fewer if they are large,
    /// and at least 4.
    #[schemars(range(min = 1))]
    pub(crate) capacity: Option<usize>,
    /// Soft watermark: the number of messages from which the edge is under pressure.
    #[schemars(range(min = 1))]
    pub(crate) soft_capacity: Option<usize>,
    /// Bytes it holds.
    pub(crate) max_bytes: Option<Bytes>,
    /// Soft watermark: the number of bytes from which the edge is under pressure.
    pub(crate) soft_bytes: Option<Bytes>,
    /// `drop_oldest` evicts from the soft watermark on.
    pub(crate) soft_evict: Option<bool>,
    /// Messages in a separate lane for urgent ones.
    #[schemars(range(min = 1))]
    pub(crate) urgent_capacity: Option<usize>,
    /// A message that began longer ago is lost.
    pub(crate) max_age: Option<Span>,
    /// The longest gap between messages that is not an error.
    pub(crate) expect_every: Option<Span>,
    /// What happens after a longer gap.
    pub(crate) on_gap: OnGap,
    /// A model with several inputs keeps its state for the sources of this one.
    pub(crate) stream: bool,
}

impl EdgePolicy {
    /// Returns whether every message is checked on its way, by watermarks, bytes or lanes.
    pub(crate) fn checks_each_message(&self) -> bool {
        self.soft_capacity.is_some() || self.max_bytes.is_some() || self.lane_capacity() > 0
    }

    /// Capacity of the lane for urgent messages; 0 if there is none.
    #[inline]
    pub(crate) fn lane_capacity(&self) -> usize {
        self.urgent_capacity.unwrap_or(0)
    }
}

/// Which bursts are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Telemetry {
    /// Sixteen bursts after idling, then one in sixteen until the source idles again; every burst
    /// if bursts are 20 µs or more apart.
    #[default]
    Auto,
    /// Every burst.
    Full,
    /// One burst in sixteen.
    Sampled,
    /// None; counters and the message accounting stay exact.
    Off,
}

/// Where devices are used that may end the process that uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// In this process.
    #[default]
    None,
    /// In a process of their own, which is started again if it ends.
    Process,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wait {
    /// Never sleeps. For a dedicated core.
    Spin,
    /// Spins if the next message is expected before a sleeping worker would be awake; sleeps
    /// otherwise. Wakes up before a timer is due by as much as the kernel usually wakes it too
    /// late, at most by a tenth of the time left.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Park,
}

impl Wait {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which of the stages that share a core gets the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Schedule {
    /// Round robin, in the order of the graph.
    #[default]
    RoundRobin,
    /// The stage whose next message has the earliest deadline, by `paths` and deadlines of
    /// messages.
    Deadline,
    /// Stages whose outputs have room first, each for as long as it has work and room.
    Throughput,
}

impl Schedule {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A policy of the kernel's real-time scheduler: `{ policy: fifo, priority: 40 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct RealTime {
    /// The kernel's real-time policy; `fifo` by default.
    #[serde(default)]
    pub policy: RtPolicy,
    /// From 1 to 99; a higher priority runs first.
    #[schemars(range(min = 1, max = 99))]
    pub priority: u8,
}

/// How threads of the same real-time priority share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RtPolicy {
    /// Each runs until it blocks.
    #[default]
    Fifo,
    /// Round robin by time slices.
    Rr,
}

by_name!(Criticality, OnMiss, Wait, WhenFull);

impl serde::Serialize for RealTime {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl std::fmt::Display for RealTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", <&str>::from(self.policy), self.priority)
    }
}

/// How the models of a graph are tried before it starts. The engine passes this to the kinds that
/// run models ([`Planning::trials`](crate::node::Planning::trials)); it starts no process itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The program started for each trial. Default: the current program, if it handles trials.
    pub program: Option<PathBuf>,
    /// Whether models are tried in this process. A model that crashes then crashes this process.
    pub here: bool,
    /// The most bytes of a model's file and the files of its weights; 1 GiB by default, and no
    /// limit with `here`.
    pub size: Option<u64>,
    /// Memory limit of a trial, in bytes, beyond what the program itself uses. The default follows
    /// from the model's size, as for the other two limits.
    pub memory: Option<u64>,
    /// Limit of processor time of a trial, rounded up to whole seconds.
    pub cpu: Option<Duration>,
    /// Limit of wall-clock time of a trial.
    pub wall: Option<Duration>,
}

impl Trials {
    /// Returns the most bytes of a model's files: larger ones are refused before they are read,
    /// because a path may name a disk image.
    pub fn max_size(&self) -> u64 {
        let default = if self.here { u64::MAX } else { Self::MAX_SIZE };
        self.size.unwrap_or(default)
    }

    /// The most bytes of a model's files, unless more are allowed.
    pub const MAX_SIZE: u64 = 1 << 30;
}
