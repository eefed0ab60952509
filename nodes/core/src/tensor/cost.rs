//! Costs: how long a call takes, from the number of its elements.

use limen::message::PortSpec;
use limen::node::Cost;

/// Returns the cost of work of about a nanosecond for each of so many elements.
pub fn of(elements: usize) -> Cost {
    match elements {
        0..1_000 => Cost::Light,
        1_000..50_000 => Cost::Medium,
        _ => Cost::Heavy,
    }
}

/// Returns the cost of such work on the largest message of a spec, the least if that is unknown.
pub fn of_spec(spec: Option<&PortSpec>) -> Cost {
    of(spec.and_then(PortSpec::max_elements).unwrap_or(0))
}
