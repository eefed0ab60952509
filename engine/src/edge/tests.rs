//! Every policy in every form of an edge, all with the same tests.

use super::rx::RxKind;
use super::tx::HYSTERESIS_NS;
use super::*;
use crate::base::policy::WhenFull;
use crate::base::unit::Bytes;
use crate::host::clock::Time;
use crate::ledger::Run;
use crate::message::payload::{Header, Plain};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(u64);
impl Plain for Number {}

/// Every policy in every form of an edge, all with the same tests.
fn every_form(when_full: &[WhenFull], capacity: usize, test: impl Fn(&str, Tx<Number>, Rx<Number>, Arc<EdgeShared>)) {
    for when_full in when_full {
        let capacity = if *when_full == WhenFull::Latest { 1 } else { capacity };
        for form in ["local", "crossing", "inspecting local", "inspecting crossing"] {
            // A cap that is never reached.
            let max_bytes = form.starts_with("inspecting").then_some(Bytes(u64::MAX));
            let policy = EdgePolicy { when_full: *when_full, max_bytes, ..EdgePolicy::default() };
            let params = Params {
                index: 0,
                name: "a/out -> b/in".into(),
                capacity,
                buffer: capacity.max(64),
                emits: 1,
                policy,
                largest: 1,
                shared: Arc::default(),
                producer_bell: Arc::default(),
                consumer_bell: Arc::default(),
            };
            let shared = params.shared.clone();
            let (a, b) = if form.ends_with("local") {
                local(&params, &mut EdgeBuffers::default())
            } else {
                let (a, b) = crossing(&params);
                (Tx::from_cross(a), Rx::from_cross(b))
            };
            test(&format!("{} {form}", when_full.name()), a, b, shared);
        }
    }
}

fn send(tx: &mut Tx<Number>, numbers: std::ops::Range<u64>) -> Result<(), EdgeFull> {
    let mut staged: Vec<_> = numbers.map(|n| Message::new(Header::new(n, Time(n)), Number(n))).collect();
    let run = Run { sent: 7, accounted: 7, n: staged.len() as u32, weight: 1, ..Run::default() };
    tx.publish(&mut staged, &[run])
}

fn take(rx: &mut Rx<Number>, n: usize) -> (Vec<u64>, u32) {
    let (mut items, mut runs) = (Vec::new(), Vec::<Run>::new());
    rx.fill(n, &mut items, &mut runs);
    rx.received(items.len() as u64);
    (items.into_iter().map(|m| m.body.0).collect(), runs.iter().map(|r| r.n).sum())
}

fn is_balanced(shared: &EdgeShared, left: u64) {
    let lost: u64 = Reason::ALL.iter().map(|r| shared.lost(*r)).sum();
    assert_eq!(shared.producer.moved.get(), shared.consumer.moved.get() + lost + left);
}

/// Promise (edges): An edge delivers messages in the order in which they were sent.
#[test]
fn order_is_kept_and_every_run_is_whole() {
    every_form(WhenFull::ALL, 8, |name, mut tx, mut rx, shared| {
        let mut seen = Vec::new();
        for n in 0..20 {
            send(&mut tx, n..n + 1).unwrap();
            let (items, in_runs) = take(&mut rx, 1);
            assert_eq!(items.len() as u32, in_runs, "{name}");
            seen.extend(items);
        }
        assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{name}");
        is_balanced(&shared, 0);
    });
}

/// Promise (edges): A full edge follows its `when_full` policy, within a core and across cores.
#[test]
fn a_full_edge_does_what_its_policy_says() {
    for when_full in WhenFull::ALL {
        // What is left of ten messages, and why the others are lost.
        let (expected, reason) = match when_full {
            WhenFull::Block => (vec![0, 1, 2, 3], None),
            WhenFull::DropNewest | WhenFull::Fail => (vec![0, 1, 2, 3], Some(Reason::FullNewest)),
            WhenFull::DropOldest => (vec![6, 7, 8, 9], Some(Reason::FullOldest)),
            WhenFull::Latest => (vec![9], Some(Reason::Superseded)),
        };
        every_form(&[*when_full], 4, |name, mut tx, mut rx, shared| {
            let sent = if reason.is_none() { tx.room(1, || 0) as u64 } else { 10 };
            assert_eq!(send(&mut tx, 0..sent).is_err(), *when_full == WhenFull::Fail, "{name}");
            let (items, in_runs) = take(&mut rx, 64);
            assert_eq!(items.len() as u32, in_runs, "{name}");
            assert_eq!(items, expected, "{name}");
            if let Some(reason) = reason {
                assert_eq!(shared.lost(reason), 10 - expected.len() as u64, "{name}");
            }
            is_balanced(&shared, 0);
        });
    }
}

#[test]
fn a_blocked_producer_continues_at_a_quarter_or_after_20_us() {
    every_form(&[WhenFull::Block], 32, |name, mut tx, mut rx, _| {
        let now = std::cell::Cell::new(1_000_000);
        send(&mut tx, 0..32).unwrap();
        assert_eq!(tx.room(1, || now.get()), 0, "{name}");
        take(&mut rx, 1);
        if name == "block crossing" {
            assert_eq!(tx.room(1, || now.get()), 0, "{name}");
            assert!(tx.is_settling(), "{name}");
            now.set(now.get() + HYSTERESIS_NS);
        }
        assert_eq!(tx.room(1, || now.get()), 1, "{name}");
        send(&mut tx, 32..33).unwrap();
        assert_eq!(tx.room(1, || now.get()), 0, "{name}");
        take(&mut rx, 8);
        assert_eq!(tx.room(1, || now.get()), 8, "{name}");
    });
}

/// Promise (edges): A consumer receives every message that was sent before its producer ended.
#[test]
fn messages_sent_before_closing_are_never_missed() {
    every_form(WhenFull::ALL, 4, |name, mut tx, mut rx, shared| {
        send(&mut tx, 0..1).unwrap();
        tx.close(name.starts_with("fail"));
        assert_eq!(rx.state(), EdgeState::Open, "{name}");
        assert_eq!(take(&mut rx, 4).0, [0], "{name}");
        let expected = if name.starts_with("fail") { EdgeState::Failed } else { EdgeState::Finished };
        assert_eq!(rx.state(), expected, "{name}");
        is_balanced(&shared, 0);
    });
}

#[test]
fn messages_left_are_counted_by_emptying() {
    every_form(WhenFull::ALL, 4, |name, mut tx, rx, shared| {
        send(&mut tx, 0..1).unwrap();
        let left = match rx.into_remains() {
            Ok(remains) => remains.count(),
            Err(n) => n,
        };
        assert_eq!(left, 1, "{name}");
        is_balanced(&shared, left);
    });
}

#[test]
fn a_partial_take_splits_its_run() {
    every_form(&[WhenFull::Block, WhenFull::DropNewest], 8, |name, mut tx, mut rx, _| {
        send(&mut tx, 0..5).unwrap();
        send(&mut tx, 5..8).unwrap();
        let (mut items, mut runs) = (Vec::new(), Vec::new());
        rx.fill(2, &mut items, &mut runs);
        rx.fill(4, &mut items, &mut runs);
        // In an edge that inspects messages, each message has a run of its own.
        let whole = if name.contains("inspecting") { vec![1; 6] } else { vec![2, 3, 1] };
        assert_eq!(runs.iter().map(|r| r.n).collect::<Vec<_>>(), whole, "{name}");
        assert_eq!(items.iter().map(|m| m.body.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "{name}");
    });
}

/// An edge keeps the memory reserved for its runs, whatever capacity the taker has: nothing grows
/// while messages move.
#[test]
fn a_taker_with_small_buffers_leaves_the_edge_its_capacity() {
    every_form(&[WhenFull::Block], 64, |name, mut tx, mut rx, _| {
        for from in [0, 3] {
            (from..from + 3).for_each(|n| send(&mut tx, n..n + 1).expect("there is room"));
            let (mut items, mut runs) = (Vec::new(), Vec::with_capacity(3));
            rx.fill(3, &mut items, &mut runs);
            assert_eq!((items.len(), runs.len()), (3, 3), "{name}");
        }
        if let RxKind::Local(local) = &rx.kind {
            assert!(local.runs.borrow().capacity() > 64, "{name}");
        }
    });
}

/// Promise (edges): A message keeps its timestamps, whatever the speed of producer and consumer.
///
/// Between two threads: a producer that fills each slot as soon as it is free never finds the run
/// ring full, because the consumer takes the run of a message before it frees the message's slot.
#[test]
fn between_threads_every_message_keeps_its_own_run() {
    const ALL: u64 = if cfg!(miri) { 300 } else { 50_000 };
    let params = Params {
        index: 0,
        name: "a/out -> b/in".into(),
        capacity: 4,
        buffer: 64,
        emits: 1,
        policy: EdgePolicy::default(),
        largest: 1,
        shared: Arc::default(),
        producer_bell: Arc::default(),
        consumer_bell: Arc::default(),
    };
    let (tx, rx) = crossing::<Number>(&params);
    let producer = std::thread::spawn(move || {
        let mut tx = Tx::from_cross(tx);
        let mut staged = Vec::with_capacity(1);
        for n in 1..=ALL {
            while tx.room(1, || 0) == 0 {
                std::thread::yield_now();
            }
            staged.push(Message::new(Header::new(n, Time(n)), Number(n)));
            tx.publish(&mut staged, &[Run { sent: n, accounted: n, n: 1, weight: 1, ..Run::default() }]).unwrap();
        }
        tx.close(false);
    });
    let mut rx = Rx::from_cross(rx);
    let (mut items, mut runs) = (Vec::new(), Vec::new());
    let mut wrong = 0;
    while rx.state() == EdgeState::Open {
        rx.fill(64, &mut items, &mut runs);
        let sent = runs.iter().flat_map(|run: &Run| std::iter::repeat_n(run.sent, run.n as usize));
        wrong += items.iter().zip(sent).filter(|(message, sent)| message.body.0 != *sent).count();
        rx.received(items.len() as u64);
        if items.is_empty() {
            std::thread::yield_now();
        }
        items.clear();
        runs.clear();
    }
    producer.join().unwrap();
    assert_eq!(wrong, 0);
    is_balanced(&params.shared, 0);
}
