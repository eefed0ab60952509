//! Calls of a session, for tests.

use std::fmt::Debug;

/// Calls a session with some items: in order, in the opposite order, and in order again. Returns
/// the answers, which must be the same each time: a runtime may keep something from one call to the
/// next that it should not.
pub(crate) fn answers<I: PartialEq, A: Debug + PartialEq>(items: &[I], mut call: impl FnMut(&I) -> A) -> Vec<A> {
    assert!(items.iter().any(|item| *item != items[0]), "items that do not differ prove nothing");
    let first: Vec<A> = items.iter().map(&mut call).collect();
    for at in (0..items.len()).rev().chain(0..items.len()) {
        assert_eq!(call(&items[at]), first[at], "item {at} gives something else when it comes again");
    }
    first
}
