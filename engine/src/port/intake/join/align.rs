//! Matching: advances the heads of all sides to a match; messages that cannot be matched are lost.

use crate::base::policy::JoinPolicy;
use crate::edge::Reason;
use crate::message::MAX_PORTS;
use crate::port::intake::join::side::Choice;
use std::cmp::Reverse;

use super::JoinRule;
use super::side::AnyJoinInput;

/// Advances every side to the next match, losing messages that cannot be matched. True if there is
/// a match; `known` is then when it became certain, if that was after the last of its messages
/// arrived. Otherwise `due` is when to check again although no message arrives.
pub(super) fn align(sides: &mut [&mut dyn AnyJoinInput], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    (*due, *known) = (u64::MAX, 0);
    match rule.policy {
        JoinPolicy::ByTime => align_by_time(sides, rule, due, known),
        JoinPolicy::Sample => align_newest(sides, rule.trigger),
        _ => align_by_sequence(sides, rule.patience),
    }
}

/// Gives up the oldest message of every side that has one, if a partner has ended or has been
/// waited for too long.
fn give_up(
    sides: &mut [&mut dyn AnyJoinInput],
    missing: impl Fn(&mut dyn AnyJoinInput) -> bool,
    patience: Option<usize>,
) -> bool {
    // A partner that has ended sends no more. A late one is waited for without limit, or with
    // `patience` until that is used up or an edge is full, which may itself be blocking the
    // partner.
    let ended = sides.iter_mut().any(|side| missing(&mut **side) && !side.is_open());
    let longest = sides.iter().map(|s| s.waiting()).max().unwrap_or(0);
    if !ended && !patience.is_some_and(|p| longest > p || sides.iter().any(|s| s.is_full())) {
        return false;
    }
    for side in sides.iter_mut().filter(|s| s.waiting() > 0) {
        side.lose_head(Reason::Unmatched);
    }
    true
}

/// A message whose origin is further in the future than this has an invalid clock, ns, unless a
/// source is ahead on purpose. Closer ones are waited for, so this also bounds how long a wrong
/// clock can delay a join.
const FUTURE_NS: u64 = 1_000_000_000;

/// By time: each input supplies the message that `pick` selects for a moment, which an input's head
/// sets. Matching uses the messages' origins; only `wait` and a full edge end the wait for a better
/// one by the clock.
fn align_by_time(sides: &mut [&mut dyn AnyJoinInput], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    let now = rule.clock.now().0;
    let latest = if rule.ahead { u64::MAX - 1 } else { now.saturating_add(FUTURE_NS) };
    loop {
        let mut newest = None;
        for (at, side) in sides.iter_mut().enumerate() {
            let begun = side.begun(latest);
            // On equal origins, the first input.
            newest = newest.max(begun.map(|begun| (begun, Reverse(at))));
        }
        let moment = match rule.anchor {
            Some(anchor) => sides[anchor].begun(latest).map(|begun| (begun, Reverse(anchor))),
            None => newest,
        };
        let Some((moment, Reverse(anchor))) = moment else {
            if newest.is_some() && give_up(sides, |side| side.begun(latest).is_none(), rule.patience) {
                continue;
            }
            return false;
        };
        // An earlier message may still arrive on any side, so messages held back are not matched
        // yet. Those of a source that is ahead are not waited for without need.
        let held_until = if rule.ahead && rule.wait == 0 { 0 } else { moment.saturating_add(rule.wait) };
        let is_full = sides.iter().any(|side| side.is_full());
        if now < held_until && sides.iter().any(|side| side.is_open()) && !is_full {
            *due = held_until;
            return false;
        }
        let longest = sides.iter().map(|side| side.waiting()).max().unwrap_or(0);
        let is_final = rule.wait > 0 || is_full || rule.patience.is_some_and(|patience| longest > patience);
        *known = if rule.wait > 0 { held_until } else { 0 };
        let (mut chosen, mut has_open, mut has_nothing, mut has_passed) = ([0usize; MAX_PORTS], false, false, false);
        for (at, side) in sides.iter_mut().enumerate().filter(|(at, _)| *at != anchor) {
            match side.choose(moment, rule, latest, is_final) {
                Choice::Found { behind, begun, known: at_once } => {
                    chosen[at] = behind;
                    *known = (*known).max(at_once);
                    // Dropping messages that were too early exposed a newer one: it sets the
                    // moment.
                    has_passed |= rule.anchor.is_none() && behind == 0 && begun > moment;
                }
                Choice::Open => has_open = true,
                Choice::Nothing => has_nothing = true,
            }
        }
        if has_passed {
            continue;
        }
        if has_nothing && sides.iter().all(|side| side.is_open()) {
            // Without an anchor, the input that is past the moment sets the next one.
            sides[anchor].lose_head(Reason::Unmatched);
            continue;
        }
        if has_open || has_nothing {
            let complete = sides.iter_mut().all(|side| side.begun(latest).is_some());
            if complete || !give_up(sides, |side| side.begun(latest).is_none(), rule.patience) {
                return false;
            }
            continue;
        }
        for (side, behind) in sides.iter_mut().zip(chosen) {
            (0..behind).for_each(|_| side.lose_head(Reason::Unmatched));
        }
        return true;
    }
}

fn align_newest(sides: &mut [&mut dyn AnyJoinInput], trigger: Option<usize>) -> bool {
    let mut newer = false;
    for (at, side) in sides.iter_mut().enumerate() {
        if trigger != Some(at) {
            newer |= side.renew();
        }
    }
    let others = |sides: &[&mut dyn AnyJoinInput]| {
        sides.iter().enumerate().all(|(at, side)| trigger == Some(at) || side.has_newest())
    };
    let Some(trigger) = trigger else { return newer && others(sides) };
    // A trigger that arrives before every other input has a message cannot be joined.
    while sides[trigger].head().is_some() {
        if others(sides) {
            return true;
        }
        sides[trigger].lose_head(Reason::Unmatched);
    }
    false
}

fn align_by_sequence(sides: &mut [&mut dyn AnyJoinInput], patience: Option<usize>) -> bool {
    loop {
        let mut newest = None;
        let mut complete = true;
        for side in sides.iter_mut() {
            let head = side.head();
            complete &= head.is_some();
            newest = newest.max(head);
        }
        let Some(newest) = newest else { return false };
        let mut lost = false;
        for side in sides.iter_mut() {
            while side.head().is_some_and(|head| head < newest) {
                side.lose_head(Reason::Unmatched);
                lost = true;
            }
        }
        if lost {
            continue;
        }
        if complete {
            return true;
        }
        if !give_up(sides, |side| side.head().is_none(), patience) {
            return false;
        }
    }
}
