//! How much may be followed from node to node while a graph is planned.
//!
//! What a graph is as a whole, which sources reach a node and where messages may be lost on the way to a join, takes a walk for each
//! node that asks. In a graph that hangs together throughout that grows with the square of it, so the steps of all walks are counted,
//! and a graph that needs more than any real one is refused.

use std::cell::Cell;

pub(super) struct Effort(Cell<usize>);

impl Effort {
    /// A thousand nodes that all depend on each other take about so many; planning spends less than a second on them.
    const ALL: usize = 3_000_000;

    pub(super) fn new() -> Self {
        Effort(Cell::new(Self::ALL))
    }

    /// Whether so many steps may still be made; what comes of a walk that was cut short means nothing.
    pub(super) fn allows(&self, steps: usize) -> bool {
        self.0.set(self.0.get().saturating_sub(steps));
        !self.is_spent()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}
