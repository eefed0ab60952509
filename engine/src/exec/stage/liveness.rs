//! Liveness: detects inputs that have been silent for longer than `expect_every`.

use crate::base::policy::OnGap;
use crate::base::unit::show_ns;
use crate::edge::{EdgeShared, EdgeState};
use crate::host::sync::Arc;

/// A monitored input.
pub(crate) struct Liveness {
    edge: Arc<EdgeShared>,
    /// Its index in the plan.
    pub(crate) index: usize,
    /// `node/port`, for messages.
    name: String,
    pub(crate) every: u64,
    pub(crate) on_gap: OnGap,
    /// Messages sent at the last check.
    sent: u64,
    /// When a new message was last seen; 0 before the first check.
    last: u64,
    is_silent: bool,
}

/// A silence that has become too long, with its description, or has ended after so many ns.
pub(super) enum GapChange {
    Begun(String),
    Ended(u64),
}

impl Liveness {
    pub(crate) fn new(edge: Arc<EdgeShared>, index: usize, name: String, every: u64, on_gap: OnGap) -> Self {
        Liveness { edge, index, name, every, on_gap, sent: 0, last: 0, is_silent: false }
    }

    /// Checks the input. Returns when to check again, and once per gap its beginning and its end.
    pub(super) fn look(&mut self, now: u64) -> (u64, Option<GapChange>) {
        let sent = self.edge.producer.moved.get();
        if sent != self.sent || self.last == 0 {
            let ended = self.is_silent.then(|| GapChange::Ended(now - self.last));
            (self.sent, self.last, self.is_silent) = (sent, now, false);
            if ended.is_some() {
                return (now.saturating_add(self.every) + 1, ended);
            }
        }
        // An ended input is allowed to be silent.
        if self.is_silent || self.edge.state(|| true) != EdgeState::Open {
            return (u64::MAX, None);
        }
        let due = self.last.saturating_add(self.every);
        if now <= due {
            return (due + 1, None);
        }
        self.is_silent = true;
        let text = format!("no message arrived on {} for more than {}", self.name, show_ns(self.every));
        (u64::MAX, Some(GapChange::Begun(text)))
    }
}
