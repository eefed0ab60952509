//! Restarts: a failed node is rebuilt, with exponential backoff and a limit.
//!
//! The node is built on its worker's own thread, because a node need not be `Send`. Nodes on the
//! same core wait meanwhile, and its inputs follow their edges' policies.

use crate::base::document::Tree;
use crate::base::error::Problems;
use crate::base::policy::RestartSpec;
use crate::base::unit::Span;
use crate::exec::stage::StageCounts;
use crate::host::clock::Clock;
use crate::host::descriptors::Descriptors;
use crate::host::folders::Folders;
use crate::host::sync::Arc;
use crate::node::planning::{Building, PlannedPorts};
use crate::node::{Node, Statistics};
use crate::port::error::NodeError;
use std::collections::VecDeque;

/// The restart state of one node.
#[derive(Debug)]
pub(crate) struct Restart {
    spec: RestartSpec,
    /// Times of its failures within the window.
    failed: VecDeque<u64>,
    /// Since when the node is missing.
    missing_since: Option<u64>,
}

/// Longest backoff, ns.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Restart {
    pub(crate) fn new(spec: RestartSpec) -> Self {
        Restart { spec, failed: VecDeque::new(), missing_since: None }
    }

    /// The number of restarts within the window.
    pub(crate) fn tries(&self) -> usize {
        self.failed.len()
    }

    /// Marks the node as there again; returns since when it was missing, through all attempts to
    /// build it.
    pub(crate) fn take_missing_since(&mut self) -> Option<u64> {
        self.missing_since.take()
    }

    /// Records a failure. Returns when to rebuild the node; `None` after too many failures.
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
        self.missing_since.get_or_insert(now);
        let backoff = self.spec.backoff.as_nanos().saturating_mul(1u64.checked_shl(tries).unwrap_or(u64::MAX));
        Some(now.saturating_add(backoff.min(LONGEST_NS)))
    }
}

/// Everything needed to rebuild a node.
pub(crate) struct Blueprint {
    pub(crate) name: String,
    pub(crate) folders: Folders,
    pub(crate) clock: Clock,
    pub(crate) ports: PlannedPorts,
    pub(crate) config: Tree,
    pub(crate) descriptors: Descriptors,
    pub(crate) run_id: String,
    pub(crate) statistics: Statistics,
    pub(crate) counts: Arc<StageCounts>,
    pub(crate) wall_offset: u64,
}

/// Builds a node again after a failure, with its first config.
pub(crate) type Rebuild<N> = Box<dyn FnMut() -> Result<N, NodeError>>;

/// Builds a node; compiled once for the first time and the later ones.
#[inline(never)]
pub(crate) fn build_node<N: Node>(config: N::Config, building: &mut Building<'_>) -> Result<N, NodeError> {
    N::build(config, building)
}

#[cold]
fn refused(problems: &Problems) -> NodeError {
    NodeError::input("config", problems.to_string())
}

impl Blueprint {
    pub(crate) fn again<N: Node>(self) -> Rebuild<N> {
        Box::new(move || {
            let mut problems = Problems::default();
            let config = self.config.read::<N::Config>(&mut problems);
            let config = config.ok_or_else(|| refused(&problems))?;
            let Blueprint { name, folders, clock, ports, descriptors, run_id, statistics, .. } = &self;
            let (wall_offset, live) = (self.wall_offset, &self.counts.live);
            build_node(
                config,
                &mut Building { node: name, folders, clock, ports, descriptors, run_id, statistics, live, wall_offset },
            )
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Promise (failures): The wait before a restart doubles with each failure, up to the limit on
    /// restarts.
    #[test]
    fn restarts_come_later_and_later_and_end() {
        let ms = |n: u64| Span(Duration::from_millis(n));
        let mut restart = Restart::new(RestartSpec { max: 3, backoff: ms(100), within: None });
        let at: Vec<Option<u64>> = (0..4).map(|_| restart.again_at(0)).collect();
        assert_eq!(at, [Some(100_000_000), Some(200_000_000), Some(400_000_000), None]);
        // Failures outside the window do not count.
        let mut restart = Restart::new(RestartSpec { max: 1, backoff: ms(1), within: Some(ms(10)) });
        assert_eq!(restart.again_at(0), Some(1_000_000));
        assert_eq!(restart.again_at(10_000_000), None);
        assert_eq!(restart.again_at(10_000_001), Some(11_000_001));
        // It was missing since its first failure.
        assert_eq!((restart.take_missing_since(), restart.take_missing_since()), (Some(0), None));
    }
}
