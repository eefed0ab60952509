//! What a node counts where others read it while the graph runs: messages that it loses or discards
//! on purpose, the connection to its device or peer, steps of a clock, and messages that are too
//! old.

use crate::host::sync::{AtomicBool, AtomicU64, Counter, DynArc, Ordering};
use crate::node::statistics::Statistics;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts messages that a node loses for one reason; see
/// [`Building::lost`](crate::node::Building::lost). Clones count together.
///
/// `+=` adds messages, and [`lose`](LossCounter::lose) also keeps the reason. A node counts only
/// when it loses something.
///
/// ```
/// use limen::node::LossCounter;
/// let mut malformed = LossCounter::default(); // in `build`: `cx.lost("malformed")`
/// malformed += 2;
/// malformed.lose(1, || "`gyro` is missing".into());
/// assert_eq!(malformed.get(), 3);
/// assert_eq!(malformed.first().as_deref(), Some("`gyro` is missing"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LossCounter(DynArc<Losses>);

#[derive(Debug, Default)]
struct Losses {
    messages: AtomicU64,
    recoveries: AtomicU64,
    why: Mutex<Why>,
}

/// What is wrong with lost messages.
#[derive(Debug, Default)]
struct Why {
    /// With the first of the run.
    first: Option<String>,
    /// With the first since the last check.
    latest: Option<String>,
}

impl AddAssign<u64> for LossCounter {
    fn add_assign(&mut self, messages: u64) {
        self.0.messages.fetch_add(messages, Ordering::Relaxed);
    }
}

impl LossCounter {
    /// Counts messages, and keeps what is wrong with them for the next event, and for the report if
    /// they are the first of the run. `why` is asked for the first in each second; its text is a
    /// line such as ``"`gyro` is missing"``. Zero messages change nothing.
    pub fn lose(&mut self, messages: u64, why: impl FnOnce() -> String) {
        if messages == 0 {
            return;
        }
        *self += messages;
        let mut kept = self.why();
        if kept.latest.is_none() {
            let why = why();
            kept.first.get_or_insert_with(|| why.clone());
            kept.latest = Some(why);
        }
    }

    /// Reports that the cause of these losses is over, such as a full disk. It is an event.
    pub fn recovered(&self) {
        self.0.recoveries.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the messages lost so far, those before a restart of the node included.
    pub fn get(&self) -> u64 {
        self.0.messages.load(Ordering::Relaxed)
    }

    /// Returns what was wrong with the first message, if the node said so.
    pub fn first(&self) -> Option<String> {
        self.why().first.clone()
    }

    fn why(&self) -> MutexGuard<'_, Why> {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts messages with a defect that the node does not lose, such as a missing value; see
/// [`Building::incidents`](crate::node::Building::incidents). Clones count together.
///
/// ```
/// use limen::node::IncidentCounter;
/// let mut missing = IncidentCounter::default(); // in `build`: `cx.incidents("missing")`
/// missing.note(1, || "row 7 has no `speed`".into());
/// assert_eq!(missing.get(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct IncidentCounter(LossCounter);

impl IncidentCounter {
    /// Counts messages, and keeps what is wrong with them as [`LossCounter::lose`] does.
    pub fn note(&mut self, messages: u64, why: impl FnOnce() -> String) {
        self.0.lose(messages, why);
    }

    /// Returns the number so far, from before a restart of the node included.
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    /// Returns what was wrong with the first message.
    pub fn first(&self) -> Option<String> {
        self.0.first()
    }
}

/// Counts messages that a node discards on purpose for one reason; see
/// [`Building::discarded`](crate::node::Building::discarded).
///
/// `+=` adds messages. It costs as little as adding to a field of the node.
///
/// ```
/// use limen::node::DiscardCounter;
/// let mut paused = DiscardCounter::default(); // in `build`: `cx.discarded("paused")`
/// paused += 1;
/// assert_eq!(paused.get(), 1);
/// ```
#[derive(Debug, Default)]
pub struct DiscardCounter(DynArc<Counter>);

impl AddAssign<u64> for DiscardCounter {
    #[inline]
    fn add_assign(&mut self, messages: u64) {
        self.0.add(messages);
    }
}

impl DiscardCounter {
    /// Returns the messages discarded so far, those before a restart of the node included.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Reports whether a node is connected to its device or peer; see
/// [`Building::connection`](crate::node::Building::connection). Clones report for the same node.
///
/// ```
/// use limen::node::ConnectionStatus;
/// let connection = ConnectionStatus::default(); // in `build`: `cx.connection()`
/// connection.begun();
/// connection.ended_because("the peer closed the connection");
/// connection.failed("could not be opened again: no such file");
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConnectionStatus(DynArc<Connections>);

#[derive(Debug, Default)]
struct Connections {
    begun: AtomicU64,
    ended: AtomicU64,
    open: AtomicU64,
    /// Why the last attempt to connect failed, until one succeeds.
    failure: Mutex<Option<String>>,
    /// Why a connection ended, the last since the last check.
    ending: Mutex<Option<String>>,
}

/// How often connections of a node began and ended, and how many are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) open: u64,
}

impl ConnectionStatus {
    /// Counts the begin of a connection: a device was opened, or a peer was accepted.
    pub fn begun(&self) {
        *self.failure() = None;
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub fn ended(&self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        // One that was not told to have begun is not counted as open.
        let _ = self.0.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }

    /// Counts the end of a connection, with the reason that the event shows:
    /// `"the peer has closed the connection"`.
    pub fn ended_because(&self, why: impl Into<String>) {
        *self.ending() = Some(why.into());
        self.ended();
    }

    fn ending(&self) -> MutexGuard<'_, Option<String>> {
        self.0.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that an attempt to connect failed. `why` completes a sentence about the node:
    /// `"could not be opened again: no such file"`. It is an event if it differs from the last
    /// attempt, and a note of the report if no later attempt succeeds.
    pub fn failed(&self, why: impl Into<String>) {
        *self.failure() = Some(why.into());
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> ConnectionCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConnectionCounts { begun: count(&self.0.begun), ended: count(&self.0.ended), open: count(&self.0.open) }
    }
}

/// Counts how often the clock that a source takes its times from was set back; see
/// [`Building::clock_steps`](crate::node::Building::clock_steps). Clones count together.
///
/// ```
/// use limen::node::ClockSteps;
/// let steps = ClockSteps::default(); // in `build`: `cx.clock_steps()`
/// steps.stepped_back(2_000_000); // ns
/// assert_eq!(steps.get(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClockSteps(DynArc<Steps>);

#[derive(Debug, Default)]
struct Steps {
    count: AtomicU64,
    latest: AtomicU64,
}

impl ClockSteps {
    /// Counts one step back, `by` nanoseconds.
    pub fn stepped_back(&self, by: u64) {
        self.0.latest.store(by, Ordering::Relaxed);
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the clock was set back so far.
    pub fn get(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    fn latest(&self) -> u64 {
        self.0.latest.load(Ordering::Relaxed)
    }
}

/// Reports whether a node has messages that are young enough to act on; see
/// [`Building::staleness`](crate::node::Building::staleness). Clones report for the same node.
///
/// ```
/// use limen::node::StaleStatus;
/// use std::time::Duration;
/// let status = StaleStatus::default(); // in `build`: `cx.staleness()`
/// status.begun(Duration::from_millis(100));
/// status.ended(Duration::from_millis(230));
/// assert_eq!(status.get(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct StaleStatus {
    periods: DynArc<StalePeriods>,
    /// The node's name, and where its events go.
    events: Option<(String, Statistics)>,
}

#[derive(Debug, Default)]
struct StalePeriods {
    count: AtomicU64,
    is_stale: AtomicBool,
}

impl StaleStatus {
    /// Reports that the last message is older than `limit`. It is an event.
    pub fn begun(&self, limit: Duration) {
        self.periods.count.fetch_add(1, Ordering::Relaxed);
        self.report(true, limit);
    }

    /// Reports a young message after the time `after` without one. It is an event.
    pub fn ended(&self, after: Duration) {
        self.report(false, after);
    }

    /// Returns how often messages became too old so far.
    pub fn get(&self) -> u64 {
        self.periods.count.load(Ordering::Relaxed)
    }

    fn report(&self, is_stale: bool, time: Duration) {
        self.periods.is_stale.store(is_stale, Ordering::Relaxed);
        if let Some((node, statistics)) = &self.events {
            statistics.0.report_staleness(node, is_stale, time);
        }
    }
}

/// The counters that a node asked for when it was built. They stay when it is rebuilt.
#[derive(Debug, Default)]
pub(crate) struct LiveCounters(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    lost: Vec<(&'static str, LossCounter)>,
    discarded: Vec<(&'static str, DiscardCounter)>,
    incidents: Vec<(&'static str, IncidentCounter)>,
    connection: Option<ConnectionStatus>,
    steps: Option<ClockSteps>,
    stale: Option<DynArc<StalePeriods>>,
}

impl LiveCounters {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lost(&self, reason: &'static str) -> LossCounter {
        let lost = &mut self.lock().lost;
        if let Some((_, counter)) = lost.iter().find(|(one, _)| *one == reason) {
            return counter.clone();
        }
        let counter = LossCounter::default();
        lost.push((reason, counter.clone()));
        counter
    }

    pub(crate) fn discarded(&self, reason: &'static str) -> DiscardCounter {
        let discarded = &mut self.lock().discarded;
        let at = discarded.iter().position(|(one, _)| *one == reason).unwrap_or_else(|| {
            discarded.push((reason, DiscardCounter::default()));
            discarded.len() - 1
        });
        // The node adds, and this reads.
        DiscardCounter(discarded[at].1.0.clone())
    }

    pub(crate) fn incidents_of(&self, name: &'static str) -> IncidentCounter {
        let incidents = &mut self.lock().incidents;
        if let Some((_, counter)) = incidents.iter().find(|(one, _)| *one == name) {
            return counter.clone();
        }
        let counter = IncidentCounter::default();
        incidents.push((name, counter.clone()));
        counter
    }

    pub(crate) fn connection(&self) -> ConnectionStatus {
        let connection = self.lock().connection.get_or_insert_default().clone();
        // A node that failed has left what was open.
        connection.0.open.store(0, Ordering::Relaxed);
        connection
    }

    pub(crate) fn clock_steps(&self) -> ClockSteps {
        self.lock().steps.get_or_insert_default().clone()
    }

    pub(crate) fn staleness(&self, node: &str, statistics: &Statistics) -> StaleStatus {
        let periods = self.lock().stale.get_or_insert_default().clone();
        // A node that was rebuilt begins anew.
        periods.is_stale.store(false, Ordering::Relaxed);
        StaleStatus { periods, events: Some((node.into(), statistics.clone())) }
    }

    /// How often messages became too old, and whether they are now, if the node can tell.
    pub(crate) fn stale_periods(&self) -> Option<(u64, bool)> {
        let load = |stale: &DynArc<StalePeriods>| {
            (stale.count.load(Ordering::Relaxed), stale.is_stale.load(Ordering::Relaxed))
        };
        self.lock().stale.as_ref().map(load)
    }

    /// How often a clock was set back, and by how much the last time, in ns, if the node can tell.
    pub(crate) fn steps(&self) -> Option<(u64, u64)> {
        self.lock().steps.as_ref().map(|steps| (steps.get(), steps.latest()))
    }

    /// Every reason for which messages can be lost, with their number.
    pub(crate) fn losses(&self) -> Vec<(&'static str, u64)> {
        self.lock().lost.iter().map(|(reason, counter)| (*reason, counter.get())).collect()
    }

    /// Every reason for which messages can be discarded on purpose, with their number.
    pub(crate) fn discards(&self) -> Vec<(&'static str, u64)> {
        self.lock().discarded.iter().map(|(reason, counter)| (*reason, counter.get())).collect()
    }

    /// What can be wrong with messages that are not lost, with their number.
    pub(crate) fn incidents(&self) -> Vec<(&'static str, u64)> {
        self.lock().incidents.iter().map(|(name, counter)| (*name, counter.get())).collect()
    }

    /// Takes what was wrong with the first incident since this was asked before.
    pub(crate) fn take_incident(&self, name: &str) -> Option<String> {
        self.lock().incidents.iter().find(|(one, _)| *one == name)?.1.0.why().latest.take()
    }

    /// Takes what was wrong with the first message lost for a reason since this was asked before.
    pub(crate) fn take_why(&self, reason: &str) -> Option<String> {
        self.lock().lost.iter().find(|(one, _)| *one == reason)?.1.why().latest.take()
    }

    /// A reason for losses with its messages, and how often it was over.
    pub(crate) fn loss(&self, at: usize) -> Option<(&'static str, u64, u64)> {
        let counted = self.lock();
        let (reason, counter) = counted.lost.get(at)?;
        Some((reason, counter.get(), counter.0.recoveries.load(Ordering::Relaxed)))
    }

    /// What can be wrong with messages that are not lost, with their number.
    pub(crate) fn incident(&self, at: usize) -> Option<(&'static str, u64)> {
        self.lock().incidents.get(at).map(|(name, counter)| (*name, counter.get()))
    }

    pub(crate) fn connection_counts(&self) -> Option<ConnectionCounts> {
        self.lock().connection.as_ref().map(ConnectionStatus::counts)
    }

    /// Takes why a connection ended, the last since this was asked before.
    pub(crate) fn take_ending(&self) -> Option<String> {
        self.lock().connection.as_ref()?.ending().take()
    }

    /// Why the last attempt to connect failed, if the node is not connected since.
    pub(crate) fn connection_failure(&self) -> Option<String> {
        self.lock().connection.as_ref()?.failure().clone()
    }

    /// What the report notes: what was wrong with the first message lost for each reason, and why
    /// the node is not connected.
    pub(crate) fn notes(&self) -> Vec<String> {
        let first = |(reason, counter): &(&str, LossCounter)| {
            Some(format!("{} {reason}; the first: {}", counter.get(), counter.first()?))
        };
        let mut notes: Vec<String> = self.lock().lost.iter().filter_map(first).collect();
        notes.extend(self.connection_failure());
        notes
    }
}
