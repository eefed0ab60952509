//! Places for clients that connect: a bound on their number that lets silent ones keep nobody out.

use std::time::Instant;

/// What a client that connects is compared by.
pub(crate) trait Rank {
    /// Whether it has asked for something, and when it last did, or when it connected.
    fn rank(&self) -> (bool, Instant);
}

/// Adds a client. If there are `most` already, the one with the lowest rank gives its place away:
/// of those that have asked for nothing, the one that has waited longest.
pub(crate) fn seat<T: Rank>(clients: &mut Vec<T>, one: T, most: usize) {
    if clients.len() >= most {
        let lowest = clients.iter().enumerate().min_by_key(|(_, client)| client.rank()).map(|(at, _)| at);
        lowest.map(|at| clients.remove(at));
    }
    clients.push(one);
}
