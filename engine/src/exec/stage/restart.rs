//! Restarts: a node that failed is built again, later and later, and not for ever.
//!
//! It is built on its worker's own thread, because a node need not be able to move to another one; the nodes that share its
//! core wait for that. Until then its inputs do what their edges' policies say.

use crate::base::document::Tree;
use crate::base::error::Problems;
use crate::base::policy::RestartSpec;
use crate::base::unit::Span;
use crate::host::clock::Clock;
use crate::host::descriptors::Descriptors;
use crate::host::folders::Folders;
use crate::node::Node;
use crate::node::error::NodeError;
use crate::node::planning::{Building, PlannedPorts};
use std::collections::VecDeque;

/// Restarts of one node.
#[derive(Debug)]
pub(crate) struct Restart {
    spec: RestartSpec,
    /// When it failed, not forgetting too soon.
    failed: VecDeque<u64>,
}

/// A restart further in the future than this is one too many, ns.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Restart {
    pub(crate) fn new(spec: RestartSpec) -> Self {
        Restart { spec, failed: VecDeque::new() }
    }

    /// How often it has been tried of late.
    pub(crate) fn tries(&self) -> usize {
        self.failed.len()
    }

    /// It failed. When it is to be built again; not at all, after too many failures.
    pub(crate) fn again_at(&mut self, now: u64) -> Option<u64> {
        let within = self.spec.within.map_or(u64::MAX, Span::as_nanos);
        while self.failed.front().is_some_and(|failed| now.saturating_sub(*failed) > within) {
            self.failed.pop_front();
        }
        let tries = self.failed.len() as u32;
        if tries >= self.spec.max {
            return None;
        }
        self.failed.push_back(now);
        let backoff = self.spec.backoff.as_nanos().saturating_mul(1u64.checked_shl(tries).unwrap_or(u64::MAX));
        Some(now.saturating_add(backoff.min(LONGEST_NS)))
    }
}

/// What it takes to build a node once more.
pub(crate) struct Blueprint {
    pub(crate) name: String,
    pub(crate) folders: Folders,
    pub(crate) clock: Clock,
    pub(crate) ports: PlannedPorts,
    pub(crate) config: Tree,
    pub(crate) descriptors: Descriptors,
}

/// Builds a node once more.
pub(crate) type Again<N> = Box<dyn FnMut() -> Result<N, NodeError>>;

impl Blueprint {
    pub(crate) fn again<N: Node>(self) -> Again<N> {
        Box::new(move || {
            let mut problems = Problems::default();
            let config = self.config.read::<N::Config>(&mut problems);
            let config = config.ok_or_else(|| NodeError::input("config", problems.to_string()))?;
            let Blueprint { name, folders, clock, ports, descriptors, .. } = &self;
            N::build(config, &mut Building { node: name, folders, clock, ports, descriptors })
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn restarts_come_later_and_later_and_end() {
        let ms = |n: u64| Span(Duration::from_millis(n));
        let mut restart = Restart::new(RestartSpec { max: 3, backoff: ms(100), within: None });
        let at: Vec<Option<u64>> = (0..4).map(|_| restart.again_at(0)).collect();
        assert_eq!(at, [Some(100_000_000), Some(200_000_000), Some(400_000_000), None]);
        // What was long ago is forgotten.
        let mut restart = Restart::new(RestartSpec { max: 1, backoff: ms(1), within: Some(ms(10)) });
        assert_eq!(restart.again_at(0), Some(1_000_000));
        assert_eq!(restart.again_at(10_000_000), None);
        assert_eq!(restart.again_at(10_000_001), Some(11_000_001));
    }
}
