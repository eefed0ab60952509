//! A limit on the work spent following edges while a graph is planned.
//!
//! Properties of the whole graph, such as which sources reach a node and where messages may be lost
//! on the way to a join, take a traversal per node. In a densely connected graph that is quadratic,
//! so the steps of all traversals are counted, and a graph that exceeds the limit, far above that
//! of any real graph, is refused.

use std::cell::Cell;

pub(super) struct Effort(Cell<usize>);

impl Effort {
    /// About what a thousand nodes that all depend on each other take; planning spends less than a
    /// second on it.
    const ALL: usize = 3_000_000;

    pub(super) fn new() -> Self {
        Effort(Cell::new(Self::ALL))
    }

    /// Takes steps from the limit and returns whether any are left; the result of a traversal cut
    /// short is meaningless.
    pub(super) fn allows(&self, steps: usize) -> bool {
        self.0.set(self.0.get().saturating_sub(steps));
        !self.is_spent()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}
