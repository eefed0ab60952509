//! What a full edge does with messages, by its `when_full`, in each form of an edge. [`WhenFull`]
//! says what else depends on a policy.

use super::admission::{AdmissionVerdict, Mark};
use super::local::{Local, split_runs};
use super::tx::EdgeFull;
use super::{Half, Params, Reason};
use crate::base::policy::{EdgePolicy, Qos, WhenFull};
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;

/// The reason with which evicted messages are counted.
pub(super) fn evicted(when_full: WhenFull) -> Reason {
    if when_full == WhenFull::Latest { Reason::Superseded } else { Reason::FullOldest }
}

/// Puts messages into the queue of an edge that evicts, between workers or to and from the program,
/// and counts what it evicts.
#[inline]
pub(super) fn put_evicting<M>(
    messages: impl Iterator<Item = M>,
    queue: &ArrayQueue<M>,
    when_full: WhenFull,
    producer: &Half,
) {
    let lost = messages.map(|message| u64::from(queue.force_push(message).is_some())).sum();
    if lost > 0 {
        producer.lose(evicted(when_full), lost);
    }
}

/// Sends messages into an edge within a worker that has no room for all of them.
#[cold]
pub(super) fn append_beyond<T: Payload>(
    params: &Params,
    local: &Local<T>,
    staged: &mut Vec<Message<T>>,
    runs: &[Run],
) -> Result<(), EdgeFull> {
    let excess = local.len.get() + staged.len() - params.capacity;
    local.append(params.capacity, staged, runs);
    let (mut items, mut runs) = (local.items.borrow_mut(), local.runs.borrow_mut());
    match params.policy.when_full {
        WhenFull::DropOldest | WhenFull::Latest => {
            drop(items.drain(..excess));
            split_runs(&mut runs, excess as u32, drop);
            params.shared.producer.lose(evicted(params.policy.when_full), excess as u64);
            Ok(())
        }
        // `block` never gets here: its producer checks for room first.
        WhenFull::Block | WhenFull::DropNewest | WhenFull::Fail => {
            items.truncate(params.capacity);
            let mut gone = excess as u32;
            while gone > 0 {
                let Some(back) = runs.last_mut() else { break };
                let n = back.n.min(gone);
                (back.n, gone) = (back.n - n, gone - n);
                if back.n == 0 {
                    runs.pop();
                }
            }
            params.shared.producer.lose(Reason::FullNewest, excess as u64);
            if params.policy.when_full == WhenFull::Fail { Err(EdgeFull) } else { Ok(()) }
        }
    }
}

/// Decides about a message of a class that finds its lane at a mark.
pub(super) fn verdict(params: &Params, class: Qos, mark: Mark, bytes: u64) -> AdmissionVerdict {
    let EdgePolicy { when_full, soft_evict, max_bytes, .. } = params.policy;
    match (when_full, mark) {
        // A blocking producer has checked for room first.
        (_, Mark::Below) | (WhenFull::Block, _) => AdmissionVerdict::Take,
        (_, Mark::Between) if class == Qos::Urgent => AdmissionVerdict::Take,
        // A background message must never cause the loss of a more important one.
        _ if class == Qos::Background && when_full.is_lossy() => AdmissionVerdict::Lose(Reason::FullNewest),
        (WhenFull::DropNewest, _) => AdmissionVerdict::Lose(Reason::FullNewest),
        (WhenFull::Fail, Mark::Between) => AdmissionVerdict::Take,
        (WhenFull::Fail, Mark::Hard) => AdmissionVerdict::Fail,
        (WhenFull::DropOldest | WhenFull::Latest, Mark::Between) => {
            AdmissionVerdict::Evict(Some(usize::from(soft_evict == Some(true))))
        }
        // No eviction could make room for it.
        (WhenFull::DropOldest | WhenFull::Latest, Mark::Hard) if max_bytes.is_some_and(|most| bytes >= most.0) => {
            AdmissionVerdict::Lose(Reason::TooLarge)
        }
        (WhenFull::DropOldest | WhenFull::Latest, Mark::Hard) => AdmissionVerdict::Evict(None),
    }
}
