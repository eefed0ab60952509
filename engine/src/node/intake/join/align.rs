//! What belongs together: the heads of all sides are brought to a match, and what cannot be matched is lost.

use crate::base::policy::JoinPolicy;
use crate::edge::Reason;
use crate::message::MAX_PORTS;
use crate::node::intake::join::side::Choice;
use std::cmp::Reverse;

use super::JoinRule;
use super::side::AnySide;

/// Brings every side to what belongs together, losing what cannot be matched. True when there is a match, and `known` is when
/// that was clear, where it was later than the last of it came; otherwise `due` is when to look again although nothing comes.
pub(super) fn align(sides: &mut [&mut dyn AnySide], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    (*due, *known) = (u64::MAX, 0);
    match rule.policy {
        JoinPolicy::ByTime => align_by_time(sides, rule, due, known),
        JoinPolicy::Sample => align_newest(sides, rule.trigger),
        _ => align_by_sequence(sides, rule.patience),
    }
}

/// Gives up the oldest message of every side that has one, where a partner has ended or has been waited for too long.
fn give_up(
    sides: &mut [&mut dyn AnySide],
    missing: impl Fn(&mut dyn AnySide) -> bool,
    patience: Option<usize>,
) -> bool {
    // A partner that has ended sends no more; one that is merely late is waited for, but not for ever: until patience
    // is used up, or the edges hold no more, which may be what keeps the partner from coming.
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

/// By time: each input gives the message that `pick` names for a moment, which an input's head sets. Goes by when messages
/// began; only `hold`, and an edge that is full, end the wait for a better one by the clock.
fn align_by_time(sides: &mut [&mut dyn AnySide], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    let now = rule.clock.now().0;
    loop {
        let mut newest = None;
        for (at, side) in sides.iter_mut().enumerate() {
            let begun = side.begun(now);
            // Of those that began together the first.
            newest = newest.max(begun.map(|begun| (begun, Reverse(at))));
        }
        let moment = match rule.anchor {
            Some(anchor) => sides[anchor].begun(now).map(|begun| (begun, Reverse(anchor))),
            None => newest,
        };
        let Some((moment, Reverse(anchor))) = moment else {
            if newest.is_some() && give_up(sides, |side| side.begun(now).is_none(), rule.patience) {
                continue;
            }
            return false;
        };
        // Something earlier may still come to any side: what is held back is not yet decided on.
        let held_until = moment.saturating_add(rule.hold);
        let is_full = sides.iter().any(|side| side.is_full());
        if now < held_until && sides.iter().any(|side| side.is_open()) && !is_full {
            *due = held_until;
            return false;
        }
        let longest = sides.iter().map(|side| side.waiting()).max().unwrap_or(0);
        let is_final = rule.hold > 0 || is_full || rule.patience.is_some_and(|patience| longest > patience);
        *known = if rule.hold > 0 { held_until } else { 0 };
        let (mut chosen, mut has_open, mut has_nothing, mut has_passed) = ([0usize; MAX_PORTS], false, false, false);
        for (at, side) in sides.iter_mut().enumerate().filter(|(at, _)| *at != anchor) {
            match side.choose(moment, rule, now, is_final) {
                Choice::Found { behind, begun, known: at_once } => {
                    chosen[at] = behind;
                    *known = (*known).max(at_once);
                    // What was lost as too early uncovered one that is newer still: it sets the moment.
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
            // Without an anchor the input that has gone past the moment sets the next.
            sides[anchor].lose_head(Reason::Unmatched);
            continue;
        }
        if has_open || has_nothing {
            let complete = sides.iter_mut().all(|side| side.begun(now).is_some());
            if complete || !give_up(sides, |side| side.begun(now).is_none(), rule.patience) {
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

fn align_newest(sides: &mut [&mut dyn AnySide], trigger: Option<usize>) -> bool {
    let mut newer = false;
    for (at, side) in sides.iter_mut().enumerate() {
        if trigger != Some(at) {
            newer |= side.renew();
        }
    }
    let others = |sides: &[&mut dyn AnySide]| {
        sides.iter().enumerate().all(|(at, side)| trigger == Some(at) || side.has_newest())
    };
    let Some(trigger) = trigger else { return newer && others(sides) };
    // A message that nothing else has come before is nothing to be taken with anything.
    while sides[trigger].head().is_some() {
        if others(sides) {
            return true;
        }
        sides[trigger].lose_head(Reason::Unmatched);
    }
    false
}

fn align_by_sequence(sides: &mut [&mut dyn AnySide], patience: Option<usize>) -> bool {
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
