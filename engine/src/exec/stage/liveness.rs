//! Liveness: detects inputs that have been silent for longer than `expect_every`.

use crate::base::policy::OnGap;
use crate::base::unit::show_ns;
use crate::edge::{EdgeState, Shared};
use crate::host::sync::Arc;

/// A monitored input.
pub(crate) struct Liveness {
    edge: Arc<Shared>,
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

impl Liveness {
    pub(crate) fn new(edge: Arc<Shared>, index: usize, name: String, every: u64, on_gap: OnGap) -> Self {
        Liveness { edge, index, name, every, on_gap, sent: 0, last: 0, is_silent: false }
    }

    /// Checks the input. Returns when to check again and, once per gap, a description of it.
    pub(crate) fn look(&mut self, now: u64) -> (u64, Option<String>) {
        let sent = self.edge.producer.moved.get();
        if sent != self.sent || self.last == 0 {
            (self.sent, self.last, self.is_silent) = (sent, now, false);
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
        let text = format!("nothing came through {} for more than {}", self.name, show_ns(self.every));
        (u64::MAX, Some(text))
    }
}
