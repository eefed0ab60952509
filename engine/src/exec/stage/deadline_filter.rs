//! The deadline filter: selects the messages still worth a call.
//!
//! A message is judged when its call would start. One that would be too late for every sink
//! downstream is lost (`expired`), and so is one that an injected fault drops (`gate`). A stage
//! without deadlines, ages or faults has no filter.

use super::{Common, StageCounts};
use crate::base::policy::OnError;
use crate::base::policy::OnMiss;
use crate::base::policy::Qos;
use crate::base::unit::show_ns;
use crate::edge::BURST;
use crate::edge::Reason;
use crate::exec::shared::Failure;
use crate::exec::worker::Cx;
use crate::host::sync::{Arc, Counter};
use crate::ledger::{Run, push_run};
use crate::message::origins::Origins;
use crate::message::payload::Header;
use crate::port::intake::{Intake, Lead, TakenBurst};

/// A sparse table by source number. It takes memory for every number from the first to the last one
/// set.
#[derive(Clone, Debug)]
pub(crate) struct BySource<T> {
    first: u16,
    values: Vec<Option<T>>,
}

impl<T> Default for BySource<T> {
    fn default() -> Self {
        BySource { first: 0, values: Vec::new() }
    }
}

impl<T> BySource<T> {
    pub(crate) fn get(&self, source: u16) -> Option<&T> {
        self.values.get(usize::from(source.wrapping_sub(self.first)))?.as_ref()
    }

    /// Sets the value of a source; numbers must be set in ascending order.
    pub(crate) fn set(&mut self, source: u16, value: T) {
        if self.values.is_empty() {
            self.first = source;
        }
        let at = usize::from(source.saturating_sub(self.first));
        self.values.resize_with(self.values.len().max(at + 1), || None);
        self.values[at] = Some(value);
    }

    /// The number of unset places between the last source set and this one.
    pub(crate) fn distance(&self, source: u16) -> usize {
        if self.values.is_empty() {
            0
        } else {
            usize::from(source.saturating_sub(self.first)).saturating_sub(self.values.len())
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// The deadlines and ages a node's messages must keep, known when the graph is planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// By source: how long after its origin a message may begin a call here, ns, and the policy for
    /// later ones.
    pub(crate) deadlines: BySource<(u64, OnMiss)>,
    /// By source: the earliest deadline of a downstream sink, ns after a message's origin. A batch
    /// does not wait beyond it.
    pub(crate) soonest: BySource<u64>,
    /// By input: the greatest age at which a message may begin a call, ns.
    pub(crate) max_age: Vec<Option<u64>>,
    /// For a sink, by source: the path's deadline, ns, the policy for a miss, and the path's index
    /// in the plan.
    pub(crate) paths: BySource<(u64, OnMiss, usize)>,
}

impl Rules {
    pub(crate) fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
            && self.soonest.is_empty()
            && self.max_age.iter().all(Option::is_none)
            && self.paths.is_empty()
    }

    /// The deadline of a message that a source began at `begun`, and the policy for a miss.
    fn due(&self, source: u16, begun: u64, own: u64) -> Option<(u64, OnMiss)> {
        let (deadline, on_miss) = *self.deadlines.get(source)?;
        Some((begun.saturating_add(deadline).min(own), on_miss))
    }
}

/// The most recent durations of one kind, and their 95th percentile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    samples: [u64; Tail::KEPT],
    n: usize,
    p95: u64,
}

impl Tail {
    /// Durations kept, and needed before an estimate is given.
    const KEPT: usize = 32;

    pub(crate) fn add(&mut self, ns: u64) {
        self.samples[self.n % Self::KEPT] = ns;
        self.n += 1;
        if self.n >= Self::KEPT && self.n.is_multiple_of(8) {
            // The second largest of 32: one in twenty may take longer.
            let (mut first, mut second) = (0, 0);
            for sample in self.samples {
                if sample > first {
                    (first, second) = (sample, first);
                } else {
                    second = second.max(sample);
                }
            }
            self.p95 = second;
        }
    }

    /// 0 until enough is known.
    pub(crate) fn p95(&self) -> u64 {
        self.p95
    }

    /// Replaces all samples by one measured when the others were in doubt.
    fn renew(&mut self, ns: u64) {
        *self = Tail { samples: [ns; Tail::KEPT], n: Tail::KEPT, p95: ns };
    }
}

/// The most recent durations of one kind, and the largest of the last 128 to 255.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    now: u64,
    before: u64,
    /// Samples and idle steps since `before` was set, and how many of them were samples.
    n: u32,
    times: u32,
    /// All samples, saturating.
    all: u32,
}

impl Peak {
    const KEPT: u32 = 128;

    pub(crate) fn add(&mut self, ns: u64) {
        self.now = self.now.max(ns);
        (self.times, self.all) = (self.times + 1, self.all.saturating_add(1));
        self.step();
    }

    /// Steps without a sample: the remembered maximum decays, so that one long duration does not
    /// count for ever.
    pub(crate) fn decay(&mut self) {
        self.step();
    }

    fn step(&mut self) {
        self.n += 1;
        if self.n == Self::KEPT {
            self.before = if self.times > 0 { self.now } else { self.before / 2 };
            (self.now, self.n, self.times) = (0, 0, 0);
        }
    }

    /// The maximum, if there was any sample.
    pub(crate) fn most(&self) -> Option<u64> {
        (self.all > 0).then(|| self.now.max(self.before))
    }

    /// Whether there were enough samples for an estimate.
    pub(crate) fn is_known(&self) -> bool {
        self.all >= 32
    }
}

/// Selects the messages still worth a call, by a node's rules.
pub(crate) struct DeadlineFilter {
    rules: Rules,
    /// How long messages waited before their call, and how long their call took.
    waits: Tail,
    calls: Tail,
    /// The counters of the downstream nodes.
    behind: Vec<Arc<StageCounts>>,
    /// The runs of the messages kept; swapped with the burst's.
    kept: Vec<Run>,
    /// When each message of the turn is due at this sink, for every path that ends here.
    dues: Vec<Due>,
    /// Deadlines met and missed at this sink, by path.
    judged: Arc<Vec<Judged>>,
    /// Whether the origins of its input messages are tracked.
    traced: bool,
    /// Consecutive messages given up because of the estimated duration of a call, and whether a
    /// message is passed on to measure it.
    guessed: u32,
    is_probe: bool,
}

/// When a message is due on a path.
#[derive(Clone, Copy)]
struct Due {
    /// Which message of the turn.
    at: usize,
    time: u64,
    path: usize,
    on_miss: OnMiss,
}

/// Messages of a path whose deadline was checked.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// All that reached the sink.
    pub(crate) all: Counter,
    /// Those that came after their deadline.
    pub(crate) missed: Counter,
}

/// Consecutive messages that may be given up on the strength of an estimate. The next one is called
/// anyway, or a wrong estimate would never be corrected.
const GUESSES: u32 = 8;

/// Most bursts skipped in one turn: a faster producer must not keep its consumer from ever working.
const SKIPS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadlineVerdict {
    Keep,
    Late,
    Skip,
    Drop,
}

impl DeadlineFilter {
    pub(crate) fn new(
        rules: Rules,
        most: usize,
        judged: Arc<Vec<Judged>>,
        behind: Vec<Arc<StageCounts>>,
        traced: bool,
    ) -> Self {
        let most = most.max(BURST) + 1;
        let each = if traced { rules.paths.iter().count().max(1) } else { 1 };
        let (kept, dues) = (Vec::with_capacity(most), Vec::with_capacity(most * each));
        DeadlineFilter {
            rules,
            waits: Tail::default(),
            calls: Tail::default(),
            behind,
            kept,
            dues,
            judged,
            traced,
            guessed: 0,
            is_probe: false,
        }
    }

    /// How long messages need downstream of this node.
    fn behind(&self) -> u64 {
        self.behind.iter().map(|counts| counts.remaining.get()).max().unwrap_or(0)
    }

    /// Records how long messages waited for a call and how long it took, and updates the estimate
    /// for the upstream nodes.
    pub(crate) fn learn(&mut self, waited: Option<u64>, call: u64, counts: &StageCounts) {
        waited.into_iter().for_each(|waited| self.waits.add(waited));
        self.calls.add(call);
        if std::mem::take(&mut self.is_probe) && call < self.calls.p95() {
            self.calls.renew(call);
        }
        counts.remaining.set(self.waits.p95() + self.calls.p95() + self.behind());
    }

    /// When a message must leave this node to be in time at every sink; `u64::MAX` if nothing is
    /// due. With several sources upstream, the earliest deadline counts.
    pub(crate) fn done_by(&self, header: &Header, origins: Option<&Origins>) -> u64 {
        let due = |source: u16, begun: u64| match self.rules.soonest.get(source) {
            Some(deadline) => begun.saturating_add(*deadline).min(header.deadline.0),
            _ => u64::MAX,
        };
        let due = match origins {
            Some(all) => all.iter().filter(|one| !one.reused).map(|one| due(one.source, one.begun)).min(),
            None => Some(due(header.source, header.origin.0)),
        };
        match due {
            None | Some(u64::MAX) => u64::MAX,
            Some(due) => due.saturating_sub(self.behind()),
        }
    }

    /// Judges a message; `end` is when a call that begins now reaches the last sink.
    fn judge<I: Intake>(&self, taken: &I::Taken, lead: Lead, fresh: u16, now: u64, end: u64) -> DeadlineVerdict {
        let mut verdict = DeadlineVerdict::Keep;
        self.each_origin::<I>(taken, lead, fresh, &mut |source, begun, own| match self.rules.due(source, begun, own) {
            Some((due, OnMiss::SkipToLatest)) if end > due => verdict = DeadlineVerdict::Skip,
            Some((due, _)) if end > due && verdict == DeadlineVerdict::Keep => verdict = DeadlineVerdict::Late,
            _ => {}
        });
        if verdict == DeadlineVerdict::Keep && !self.rules.max_age.is_empty() {
            I::each_header(taken, &mut |input, header| {
                let age = self.rules.max_age.get(input).copied().flatten();
                if age.is_some_and(|age| now.saturating_sub(header.origin.0) > age) {
                    verdict = DeadlineVerdict::Late;
                }
            });
        }
        verdict
    }

    /// Lets a message through now and then that is late only by estimate.
    fn reconsider<I: Intake>(
        &mut self,
        verdict: DeadlineVerdict,
        taken: &I::Taken,
        lead: Lead,
        fresh: u16,
        now: u64,
    ) -> DeadlineVerdict {
        match verdict {
            DeadlineVerdict::Keep => self.guessed = 0,
            _ if self.judge::<I>(taken, lead, fresh, now, now) == DeadlineVerdict::Keep => self.guessed += 1,
            _ => {}
        }
        if self.guessed <= GUESSES {
            return verdict;
        }
        (self.guessed, self.is_probe) = (0, true);
        DeadlineVerdict::Keep
    }

    /// Visits source, origin and own deadline of each origin that is judged: all sources of the
    /// message that were not judged before, or the one its header names.
    fn each_origin<I: Intake>(&self, taken: &I::Taken, lead: Lead, fresh: u16, see: &mut dyn FnMut(u16, u64, u64)) {
        let header = I::header(taken, lead);
        if !self.traced {
            return see(header.source, header.origin.0, header.deadline.0);
        }
        let mut origins = Origins::default();
        I::each_origin(taken, fresh, &mut |origin| origins.add(origin));
        for origin in origins.iter().filter(|origin| !origin.reused) {
            see(origin.source, origin.begun, header.deadline.0);
        }
    }

    fn note<I: Intake>(&mut self, at: usize, taken: &I::Taken, lead: Lead, fresh: u16) {
        let mut dues = std::mem::take(&mut self.dues);
        self.each_origin::<I>(taken, lead, fresh, &mut |source, begun, own| {
            if let Some((deadline, on_miss, path)) = self.rules.paths.get(source) {
                let time = begun.saturating_add(*deadline).min(own);
                dues.push(Due { at, time, path: *path, on_miss: *on_miss });
            }
        });
        self.dues = dues;
    }
}

/// Removes messages that are not worth a call from a burst and counts them as lost.
pub(crate) fn filter_burst<I: Intake>(
    intake: &mut I,
    burst: &mut TakenBurst<I::Taken>,
    common: &mut Common,
    cx: &mut Cx,
) {
    let lead = common.lead;
    let Common { filter: Some(filter), fault, .. } = common else { return };
    let now = cx.read();
    let end = now + filter.calls.p95() + filter.behind();
    let (mut kept, mut skip) = (0, false);
    let TakenBurst { items, runs } = burst;
    let (mut at, mut passed) = (0, 0);
    items.retain(|item| {
        while runs.get(at).is_some_and(|run| passed >= run.n) {
            (at, passed) = (at + 1, 0);
        }
        passed += 1;
        let fresh = intake.fresh_at(kept);
        let mut verdict = filter.judge::<I>(item, lead, fresh, now, end);
        verdict = filter.reconsider::<I>(verdict, item, lead, fresh, now);
        if verdict == DeadlineVerdict::Keep && fault.as_mut().is_some_and(|fault| fault.drops()) {
            verdict = DeadlineVerdict::Drop;
        }
        match verdict {
            DeadlineVerdict::Keep => {
                let run = runs.get(at).copied().unwrap_or_default();
                match filter.kept.last_mut() {
                    // Adjacent messages of one run stay one run.
                    Some(last) if Run { n: 0, ..*last } == Run { n: 0, ..run } => last.n += 1,
                    _ => push_run(&mut filter.kept, Run { n: 1, ..run }),
                }
            }
            DeadlineVerdict::Late => intake.lose_at(kept, Reason::Expired),
            DeadlineVerdict::Skip => {
                skip = true;
                intake.lose_at(kept, Reason::Expired);
            }
            DeadlineVerdict::Drop => intake.lose_at(kept, Reason::Gate),
        }
        kept += usize::from(verdict == DeadlineVerdict::Keep);
        verdict == DeadlineVerdict::Keep
    });
    std::mem::swap(runs, &mut filter.kept);
    filter.kept.clear();
    if skip {
        skip_to_latest(intake, items, runs, lead);
    }
    if !filter.rules.paths.is_empty() {
        items.iter().enumerate().for_each(|(at, item)| filter.note::<I>(at, item, lead, intake.fresh_at(at)));
    }
}

/// Keeps only the newest message available: those before it would be late as well.
fn skip_to_latest<I: Intake>(intake: &mut I, items: &mut Vec<I::Taken>, runs: &mut Vec<Run>, lead: Lead) {
    let mut more = TakenBurst { items: std::mem::take(items), runs: std::mem::take(runs) };
    let mut superseded = 0;
    // Urgent messages were taken first and are not given up for later ones.
    let urgent = |taken: &I::Taken| I::header(taken, lead).qos == Qos::Urgent;
    for _ in 0..SKIPS {
        let ready = intake.ready(BURST);
        if ready == 0 || more.items.iter().any(urgent) {
            break;
        }
        superseded += more.items.len() as u64;
        more.items.clear();
        more.runs.clear();
        // The messages just dropped have freed room for as many copies.
        let room = intake.room(ready);
        intake.fill(room, &mut more);
    }
    let newest = more.items.iter().rposition(urgent).unwrap_or(more.items.len().saturating_sub(1));
    let mut before = newest as u32;
    let run = more.runs.iter().find(|run| {
        let is_in = before < run.n;
        before = before.saturating_sub(run.n);
        is_in
    });
    let run = run.map(|run| Run { n: 1, ..*run });
    superseded += more.items.len().saturating_sub(1) as u64;
    more.items.truncate(newest + 1);
    more.items.drain(..newest.min(more.items.len()));
    more.runs.clear();
    more.runs.extend(run);
    (*items, *runs) = (more.items, more.runs);
    if superseded > 0 {
        intake.lose(Reason::Superseded, superseded);
    }
}

/// Counts a sink's messages in this turn, of which `given` reached the node, and those that missed
/// their deadline.
pub(crate) fn count_misses(common: &mut Common, given: usize, cx: &mut Cx) {
    let Some(filter) = &mut common.filter else { return };
    if filter.dues.is_empty() {
        return;
    }
    let end = cx.mark();
    let mut stop = None;
    for Due { time, path, on_miss, .. } in filter.dues.drain(..).filter(|due| due.at < given) {
        filter.judged[path].all.add(1);
        if end > time {
            filter.judged[path].missed.add(1);
            if on_miss == OnMiss::Stop {
                stop = Some(end - time);
            }
        }
    }
    if let Some(late) = stop {
        let text = format!("a message arrived {} after its deadline (`on_miss: stop`)", show_ns(late));
        let number = common.counts.done.get();
        let failure = Failure { node: common.node, call: "deadline", number, text, panicked: false };
        cx.shared.fail(failure, OnError::Stop);
    }
}
