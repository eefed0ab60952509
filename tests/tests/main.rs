//! One binary for all integration tests: linking is most of the cost of a test binary.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod admission;
mod batch;
mod bursts;
mod checking_cost;
mod deadlines;
mod delivery;
mod devices;
mod events;
mod fail_safe;
mod failed_starts;
mod faults;
mod handles;
mod in_flight;
mod joins;
mod kinds;
mod layers;
mod ledger;
mod lineage;
mod live;
mod loops;
mod loss_accounting;
mod old_keys;
mod overload;
mod paced;
mod policies;
mod random_graphs;
mod refused_graphs;
mod refused_joins;
mod schedule;
mod streams;
mod stress;
mod window_stats;
