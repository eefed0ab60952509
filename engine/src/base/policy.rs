//! Policies: what a graph file may ask of an edge, a node, a worker or a run. Plain data, which every folder may name. A node's
//! and an edge's are one struct each, from the file to the stage.

use crate::base::unit::{Bytes, Span};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// What happens when a message finds its edge full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The producer is not called until there is room. Nothing is lost.
    #[default]
    Block,
    /// The message that found no room is counted lost.
    DropNewest,
    /// The oldest message is counted lost and makes room.
    DropOldest,
    /// One fresh message; the one it supersedes is counted.
    Latest,
    /// The producing node fails.
    Fail,
}

impl WhenFull {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            WhenFull::Block => "block",
            WhenFull::DropNewest => "drop_newest",
            WhenFull::DropOldest => "drop_oldest",
            WhenFull::Latest => "latest",
            WhenFull::Fail => "fail",
        }
    }

    /// Whether messages can be lost on a healthy edge.
    pub fn is_lossy(self) -> bool {
        matches!(self, WhenFull::DropNewest | WhenFull::DropOldest | WhenFull::Latest)
    }
}

/// Which messages of several inputs are taken together, or which is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinPolicy {
    /// Of a join: those of one sequence; of a merge: whatever has come, in turn.
    #[default]
    Zip,
    /// Of a join: those that began within a time of each other.
    ByTime,
    /// Of a join: the newest of each input.
    Sample,
    /// Of a merge: one of each input after the other, however long that takes.
    InTurn,
    /// Of a merge: the one that began first, once every input has one.
    OldestFirst,
    /// Of a merge: the first input that has one, in the order of the graph.
    Priority,
}

impl JoinPolicy {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            JoinPolicy::Zip => "zip",
            JoinPolicy::ByTime => "by_time",
            JoinPolicy::Sample => "sample",
            JoinPolicy::InTurn => "in_turn",
            JoinPolicy::OldestFirst => "oldest_first",
            JoinPolicy::Priority => "priority",
        }
    }

    /// Whether it says which message of several inputs is taken next, and not which are taken together.
    pub(crate) fn merges(self) -> bool {
        matches!(self, JoinPolicy::InTurn | JoinPolicy::OldestFirst | JoinPolicy::Priority)
    }
}

/// Which message of an input is taken for a moment, of a join by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The one that began nearest to it.
    #[default]
    Nearest,
    /// The first within the window, as soon as there is one.
    Oldest,
    /// The last within the window.
    Newest,
    /// Between the last before it and the first after it, element by element, what lies at the moment on the line between them.
    /// Of tensors of `f32` or `f64`, with an `anchor`.
    Interpolate,
}

impl Pick {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Pick::Nearest => "nearest",
            Pick::Oldest => "oldest",
            Pick::Newest => "newest",
            Pick::Interpolate => "interpolate",
        }
    }
}

/// `join:` of a node with several inputs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct JoinSpec {
    /// Which messages are taken together, or which is taken next.
    #[serde(default)]
    pub(crate) policy: JoinPolicy,
    /// Unmatched messages one input may pile up while a partner is missing.
    pub(crate) patience: Option<usize>,
    /// By time: how far from the moment a message may have begun.
    pub(crate) within: Option<Span>,
    /// How long a message that others may still overtake is held back.
    pub(crate) hold: Option<Span>,
    /// The input whose messages are each taken with the newest of the others.
    pub(crate) trigger: Option<String>,
    /// By time: which message of an input is taken for a moment.
    pub(crate) pick: Option<Pick>,
    /// By time: the input that sets the moments.
    pub(crate) anchor: Option<String>,
}

/// How much a message matters beside others. Only edges with marks or lanes ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Qos {
    /// As usual.
    #[default]
    Normal,
    /// Taken beyond soft marks, and before others where an edge has a lane for it.
    Urgent,
    /// Lost first: never evicts anything, nor passes a soft mark of an edge that may lose messages.
    Background,
}

impl Qos {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Qos::Normal => "normal",
            Qos::Urgent => "urgent",
            Qos::Background => "background",
        }
    }
}

/// How times of a source's own clock become times of the run's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockOffset {
    /// They are.
    #[default]
    None,
    /// So much is to be added, ns.
    By(i64),
    /// By how much they were behind at least, lately: a message that took no time to get here is taken to have been among
    /// the last ones.
    Auto,
}

/// What happens when a call of a node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run drains and ends with exit code 1.
    #[default]
    Stop,
    /// The call's inputs count as failed; the node goes on.
    Skip,
    /// The node is taken out; the rest goes on.
    Detach,
    /// The call's inputs count as failed; the node is built again, after a while, and goes on.
    Restart,
}

impl OnError {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            OnError::Stop => "stop",
            OnError::Skip => "skip",
            OnError::Detach => "detach",
            OnError::Restart => "restart",
        }
    }

    /// Whether a failed call is all that is lost.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, OnError::Skip | OnError::Restart)
    }
}

/// What becomes of a message that misses its path's deadline. A miss at the sink is counted in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMiss {
    /// It is late, and that is all.
    #[default]
    Count,
    /// It is lost (`expired`) at the next node, once no sink it can reach would get it in time.
    Drop,
    /// As `drop`, and whatever waits at that node with it is lost too (`superseded`), but the newest.
    SkipToLatest,
    /// A miss at the sink ends the run, with exit code 1.
    Stop,
}

impl OnMiss {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            OnMiss::Count => "count",
            OnMiss::Drop => "drop",
            OnMiss::SkipToLatest => "skip_to_latest",
            OnMiss::Stop => "stop",
        }
    }
}

/// What follows when an input is silent for longer than `expect_every`. It is counted in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnGap {
    /// Nothing else.
    #[default]
    Count,
    /// The node is told to forget what it saw.
    Reset,
    /// The run drains and ends with exit code 1.
    Stop,
}

impl OnGap {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            OnGap::Count => "count",
            OnGap::Reset => "reset",
            OnGap::Stop => "stop",
        }
    }
}

/// `on_error: { restart: { max: 3, backoff: 100ms, within: 1min } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct RestartSpec {
    /// How often.
    #[serde(default = "RestartSpec::default_max")]
    pub(crate) max: u32,
    /// How long after a failure it is built again; twice as long after each further one.
    #[serde(default = "RestartSpec::default_backoff")]
    pub(crate) backoff: Span,
    /// Failures longer ago than this are forgotten; none without.
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct FaultSpec {
    /// This call panics.
    pub(crate) panic_at: Option<u64>,
    /// This call returns an error.
    pub(crate) error_at: Option<u64>,
    /// Every so-many-th call returns an error.
    pub(crate) error_every: Option<u64>,
    /// This call never returns.
    pub(crate) hang_at: Option<u64>,
    /// Every call takes so much longer.
    pub(crate) delay: Option<Span>,
    /// With `delay`: every call takes longer by a time drawn from between them.
    pub(crate) delay_to: Option<Span>,
    /// The part of messages that is lost before the node gets them, 0 to 1.
    #[serde(default)]
    pub(crate) drop: f64,
    /// The part of calls whose messages are sent twice, 0 to 1.
    #[serde(default)]
    pub(crate) duplicate: f64,
    /// What is drawn is drawn from it.
    #[serde(default)]
    pub(crate) seed: u64,
}

impl FaultSpec {
    /// What is wrong with it, if anything, and what would be right.
    pub(crate) fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let calls = [self.panic_at, self.error_at, self.error_every, self.hang_at];
        let is_part = |p: f64| (0.0..=1.0).contains(&p);
        if calls.contains(&Some(0)) {
            Some(("calls count from 1, there is none numbered 0", "write 1 for the first call"))
        } else if !is_part(self.drop) || !is_part(self.duplicate) {
            Some(("`drop` and `duplicate` are parts of the whole, from 0 to 1", "write `0.05` for one in twenty"))
        } else if self.delay_to.is_some_and(|to| self.delay.is_none_or(|from| to.0 < from.0)) {
            Some(("`delay_to` without a shorter `delay`", "write `delay: 1ms, delay_to: 5ms`"))
        } else {
            None
        }
    }
}

/// What a graph file asks of a node: read with the file, checked while planning, and moved whole into the node's stage. Whoever
/// acts on a part of it reads it from here.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePolicy {
    /// What happens when a call fails.
    pub(crate) on_error: OnError,
    /// With `on_error: restart`: how often, and how soon.
    pub(crate) restart: RestartSpec,
    /// How long a call may take.
    pub(crate) budget: Option<Span>,
    /// What goes wrong on purpose.
    pub(crate) fault: Option<FaultSpec>,
    /// What of several inputs is taken together.
    pub(crate) join: Option<JoinSpec>,
    /// How much what a source begins matters.
    pub(crate) qos: Option<Qos>,
    /// How a source's times become times of the run's clock.
    pub(crate) clock: ClockOffset,
}

impl NodePolicy {
    /// How long a call may take, ns.
    pub(crate) fn budget_ns(&self) -> Option<u64> {
        self.budget.map(Span::as_nanos)
    }

    /// Whether it has faults planted for which this holds.
    pub(crate) fn is_planted(&self, with: impl FnOnce(&FaultSpec) -> bool) -> bool {
        self.fault.as_ref().is_some_and(with)
    }
}

/// What a graph file asks of an edge, written at its consumer: read with the file, checked while planning, and moved whole into the
/// edge's ends and its consumer's stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EdgePolicy {
    /// What happens when it is full.
    pub(crate) when_full: WhenFull,
    /// Messages it holds, where the graph says so.
    pub(crate) capacity: Option<usize>,
    /// Messages from which it is between its marks.
    pub(crate) soft_capacity: Option<usize>,
    /// Bytes that it holds, in messages that have not been taken.
    pub(crate) max_bytes: Option<Bytes>,
    /// Bytes from which it is between its marks.
    pub(crate) soft_bytes: Option<Bytes>,
    /// Whether `drop_oldest` evicts one message for each that comes between the marks; it does not without.
    pub(crate) soft_evict: Option<bool>,
    /// Urgent messages that a lane of their own holds; there is none without.
    pub(crate) urgent_capacity: Option<usize>,
    /// The greatest age at which a message may begin a call.
    pub(crate) max_age: Option<Span>,
    /// The longest silence.
    pub(crate) expect_every: Option<Span>,
    /// What follows a longer one.
    pub(crate) on_gap: OnGap,
}

impl EdgePolicy {
    /// Whether messages are looked at one by one.
    pub(crate) fn looks(&self) -> bool {
        self.soft_capacity.is_some() || self.max_bytes.is_some() || self.lane() > 0
    }

    /// Places in the lane of urgent messages; 0 where there is none.
    #[inline]
    pub(crate) fn lane(&self) -> usize {
        self.urgent_capacity.unwrap_or(0)
    }
}

/// Which passes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Telemetry {
    /// Sixteen bursts after idleness, then one in sixteen until there is nothing to do again; every burst where they follow
    /// each other by 20 µs or more.
    #[default]
    Auto,
    /// Everything.
    Full,
    /// One burst in sixteen.
    Sampled,
    /// Nothing; counters and laws stay exact.
    Off,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Never sleeps. For a core of its own.
    Spin,
    /// Spins when the next message is expected sooner than a wake would take, sleeps otherwise.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Park,
}

impl Wait {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Adaptive => "adaptive",
            Wait::Park => "park",
        }
    }
}

/// Which of the stages that share a core is turned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// One after the other, in the order of the graph.
    #[default]
    RoundRobin,
    /// The one whose next message is due first, by the deadlines of `paths` and of messages.
    Deadline,
    /// Those whose outputs have room first, each as long as it has work and room.
    Throughput,
}

impl Schedule {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::RoundRobin => "round_robin",
            Schedule::Deadline => "deadline",
            Schedule::Throughput => "throughput",
        }
    }
}

/// A policy of the kernel's real-time scheduler: `{ policy: fifo, priority: 40 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct RealTime {
    /// Which.
    #[serde(default)]
    pub policy: RtPolicy,
    /// From 1 to 99; whatever has more runs first.
    pub priority: u8,
}

/// What happens among threads of one real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RtPolicy {
    /// Each runs until it waits.
    #[default]
    Fifo,
    /// They take turns.
    Rr,
}

impl std::fmt::Display for RealTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = match self.policy {
            RtPolicy::Fifo => "fifo",
            RtPolicy::Rr => "rr",
        };
        write!(f, "{policy} {}", self.priority)
    }
}

/// How the models of a graph are tried before it starts. The engine hands this to the kinds that run models
/// ([`Planning::trials`](crate::node::Planning::trials)); it starts no process itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The program that is started for each trial. By default the one that runs now, where it answers trials.
    pub program: Option<PathBuf>,
    /// Whether models are tried in this process, which ends with a model that ends its process.
    pub here: bool,
    /// Most memory of a trial, in bytes, beyond what the program takes by itself. By default it follows from the model's size, as
    /// the other two do.
    pub memory: Option<u64>,
    /// Most processor time of a trial, in whole seconds, rounded up.
    pub cpu: Option<Duration>,
    /// When a trial that has not ended is ended.
    pub wall: Option<Duration>,
}
