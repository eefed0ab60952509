//! Tests of slots, rows and handles; for Miri and the sanitizers, too.

use super::*;
use crate::message::port_spec::DType;
use crate::message::tensor::Tensor;

fn pool(slots: usize, rows: usize) -> Pool {
    Pool::new("p", &PortSpec::new(DType::I32, [Dim::AtMost(4), Dim::Fixed(2)]), slots, rows).unwrap()
}

/// Promise (memory): A buffer is reused only after all its handles are dropped.
#[test]
fn a_slot_is_taken_again_only_when_every_handle_is_gone() {
    let mut pool = pool(2, 1);
    let a = pool.take().unwrap().freeze();
    let b = a.share();
    let c = pool.take().unwrap();
    assert!(matches!(pool.take(), Err(TensorError::PoolEmpty { slots: 2, .. })));
    drop(a);
    assert!(pool.take().is_err() && !pool.has_free(1));
    drop(b);
    assert!(pool.has_free(1) && !pool.has_free(2));
    let d = pool.take().unwrap();
    drop((c, d));
    assert_eq!(pool.free(), 2);
}

#[test]
fn run_time_lengths_bound_the_elements() {
    let mut pool = pool(1, 1);
    let mut t = pool.take().unwrap();
    t.set_len(0, 3).unwrap();
    assert_eq!(t.as_mut_slice::<i32>().unwrap().len(), 6);
    assert_eq!(t.set_len(0, 5), Err(TensorError::TooLong { dim: 0, length: 5, bound: 4 }));
    assert_eq!(t.set_len(1, 1), Err(TensorError::FixedDim { dim: 1, length: 2 }));
    assert_eq!(&*t.freeze().shape(), [3, 2]);
}

#[test]
fn rows_of_a_batch_share_their_slot() {
    let mut pool = Pool::new("p", &PortSpec::fixed(DType::U8, [3]), 1, 4).unwrap();
    let mut slot = pool.take().unwrap();
    Pool::batch_bytes(&mut slot, 2).copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    let headers = (7..9).map(|n| Header::new(n, Time(n)));
    let rows: Vec<Tensor> = Pool::rows(slot, headers.collect::<Vec<_>>().into_iter(), &[]).collect();
    assert_eq!(rows[1].bytes(), [4, 5, 6]);
    assert_eq!(rows[1].header().seq, 8);
    assert_eq!(pool.free(), 0);
    drop(rows);
    assert_eq!(pool.free(), 1);
}

#[test]
fn tensors_outlive_their_pool() {
    let tensor = pool(1, 1).take().unwrap().freeze();
    assert_eq!(tensor.dtype(), DType::I32);
}

/// Promise (memory): A pool rejects a spec whose dimensions a shape cannot represent.
#[test]
fn a_spec_that_a_shape_cannot_represent_is_refused() {
    let long = 1 << 33;
    for (dims, fits) in [
        (vec![Dim::Fixed(2); 6], true),
        // A slot of 0 bytes, although the first six of these dims alone would be 4 MiB.
        ([vec![Dim::AtMost(1 << 11); 2], vec![Dim::Fixed(1); 4], vec![Dim::Fixed(0)]].concat(), false),
        (vec![Dim::Fixed(1); 7], false),
        (vec![Dim::AtMost(2); 4], true),
        (vec![Dim::AtMost(2); 5], false),
        (vec![Dim::AtMost(u32::MAX as usize), Dim::Fixed(0)], true),
        (vec![Dim::AtMost(long), Dim::Fixed(0)], false),
        (vec![Dim::Fixed(long), Dim::Fixed(0)], true),
        (vec![Dim::Symbol("n".into())], false),
    ] {
        let spec = PortSpec::new(DType::U8, dims);
        let pool = Pool::new("p", &spec, 1, 1);
        if let Ok(mut pool) = pool {
            let mut tensor = pool.take().unwrap();
            for (dim, length) in spec.shape.iter().enumerate() {
                tensor.set_len(dim, length.max().unwrap()).unwrap();
            }
            // A sanitizer sees what is written beyond the slot.
            tensor.bytes_mut().fill(1);
            assert!(fits, "{spec}");
            assert!(pool_bytes(&spec, 1, 1, 0).is_some(), "{spec}");
        } else {
            assert!(!fits, "{spec}: {pool:?}");
            assert_eq!(pool_bytes(&spec, 1, 1, 0), None, "{spec}");
        }
    }
}

/// Promise (memory): Leaked handles never free a buffer: at 2³¹ handles the process aborts.
///
/// In a process of its own, because it aborts.
#[cfg_attr(miri, ignore = "starts a process")]
#[test]
fn a_count_that_would_wrap_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const CHILD: &str = "LIMEN_TEST_FORGETS_HANDLES";
    if std::env::var_os(CHILD).is_some() {
        let mut pool = pool(1, 1);
        let tensor = pool.take().unwrap().freeze();
        // As if `mem::forget(tensor.share())` had been called that often.
        pool.inner().refs(0).store(u32::MAX, Ordering::Relaxed);
        std::mem::forget(tensor.share());
        // The count is 0: the slot could be taken again and written while `tensor` reads it.
        assert!(pool.take().is_err(), "a slot that is held was taken");
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "message::pool::tests::a_count_that_would_wrap_ends_the_process"]).env(CHILD, "1");
    let ended = again.output().unwrap();
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
}

/// Promise (memory): A row of a batch gives access to the rest of its slot, and to nothing beyond
/// it.
#[test]
fn a_row_in_the_middle_of_its_slot_reaches_to_its_end_and_no_further() {
    let mut pool = Pool::new("p", &PortSpec::fixed(DType::U8, [64]), 1, 4).unwrap();
    let headers = |n| (0..n).map(|n| Header::new(n, Time(n))).collect::<Vec<_>>().into_iter();
    let rows: Vec<Tensor> = Pool::rows(pool.take().unwrap(), headers(4), &[]).collect();
    let row = rows.into_iter().nth(2).unwrap();
    let mut row = row.into_mut().unwrap();
    assert_eq!(row.header().seq, 2);
    for (asked, had) in [(1, 64), (2, 128), (4, 128)] {
        let bytes = Pool::batch_bytes(&mut row, asked);
        bytes.fill(7);
        assert_eq!(bytes.len(), had);
    }
    let seqs: Vec<u64> = Pool::rows(row, headers(4), &[]).map(|row| row.header().seq).collect();
    assert_eq!(seqs, [0, 1]);
    assert_eq!(pool.free(), 1);
}

/// Promise (memory): A batch buffer is reused even if some of its rows were never read.
#[test]
fn rows_not_taken_are_released() {
    let mut pool = Pool::new("p", &PortSpec::fixed(DType::U8, [3]), 1, 4).unwrap();
    for taken in 0..=4 {
        let headers = vec![Header::new(7, Time(7)); 4];
        let mut rows = Pool::rows(pool.take().unwrap(), headers.into_iter(), &[]);
        let kept: Vec<Tensor> = rows.by_ref().take(taken).collect();
        drop(rows);
        assert_eq!(pool.free(), usize::from(taken == 0), "{taken}");
        drop(kept);
        assert_eq!(pool.free(), 1, "{taken}");
    }
    drop(Pool::rows(pool.take().unwrap(), std::iter::empty::<Header>(), &[]));
    assert_eq!(pool.free(), 1);
}

#[test]
fn a_run_is_of_free_slots_that_follow_each_other() {
    for rows in [1, 3] {
        let mut pool = Pool::new("p", &PortSpec::fixed(DType::U64, [2]), 5, rows).unwrap();
        let mut held = Vec::new();
        let take = |pool: &mut Pool, most: usize, wanted: usize, held: &mut Vec<TensorMut>| {
            let before = held.len();
            held.extend(pool.take_run(most).take(wanted));
            for tensor in &mut held[before..] {
                assert_eq!(Pool::batch_bytes(tensor, rows).len(), rows * 16);
                Pool::batch_bytes(tensor, rows).fill(1);
            }
            held.len() - before
        };
        assert_eq!(take(&mut pool, 2, 9, &mut held), 2, "as many as are wanted");
        assert_eq!(take(&mut pool, 9, 1, &mut held), 1, "what is not taken of a run stays free");
        assert_eq!(take(&mut pool, 9, 9, &mut held), 2, "up to the end of the pool");
        assert_eq!(take(&mut pool, 9, 9, &mut held), 0, "all are held");
        drop(held.drain(..2));
        assert_eq!(take(&mut pool, 9, 9, &mut held), 2, "from its beginning on, up to one that is held");
        assert_eq!(pool.free(), 0);
        held.clear();
        // The next slot is wherever the run ended.
        assert_eq!((take(&mut pool, 9, 9, &mut held), take(&mut pool, 9, 9, &mut held)), (3, 2));
    }
    let mut traced = Pool::with_origins("p", &PortSpec::fixed(DType::U64, []), 2, 1, &[3]).unwrap();
    assert_eq!(traced.take_run(9).count(), 0, "origins are set one by one");
}

/// For Miri and the thread sanitizer: slots are written, shared, dropped elsewhere and taken again.
#[test]
fn a_slot_shared_across_threads_is_read_before_it_is_rewritten() {
    let mut pool = Pool::new("p", &PortSpec::fixed(DType::U64, [4]), 2, 2).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    std::thread::scope(|scope| {
        let (lanes, readers): (Vec<_>, Vec<_>) = (0..2).map(|_| std::sync::mpsc::sync_channel::<Tensor>(4)).unzip();
        for reader in readers {
            scope.spawn(move || {
                for tensor in reader {
                    let seq = tensor.header().seq;
                    assert_eq!(tensor.as_slice::<u64>().unwrap(), [seq; 4]);
                    if let Ok(mut alone) = tensor.into_mut() {
                        alone.header_mut().seq = 0;
                        alone.bytes_mut().fill(0);
                    }
                }
            });
        }
        for round in 0..rounds {
            let Ok(mut slot) = pool.take() else {
                std::thread::yield_now();
                continue;
            };
            let words: &mut [u64] = bytemuck::cast_slice_mut(Pool::batch_bytes(&mut slot, 2));
            words.fill(round);
            let headers = vec![Header::new(round, Time(round)); 2];
            for row in Pool::rows(slot, headers.into_iter(), &[]) {
                for lane in &lanes {
                    lane.send(row.share()).unwrap();
                }
            }
        }
    });
    assert_eq!(pool.free(), 2);
}

/// Promise (memory): If the system refuses memory for a pool, the start fails with an error.
#[cfg_attr(miri, ignore = "it ends where the memory does")]
#[test]
fn memory_that_the_system_refuses_is_an_error() {
    let largest = PortSpec::new(DType::U8, [Dim::Fixed(1 << 42)]);
    let why = Pool::new("p", &largest, 1 << 20, 1).unwrap_err();
    assert!(why.contains("out of memory"), "{why}");
}

#[test]
fn a_pool_goes_while_its_tensors_are_dropped_elsewhere() {
    for _ in 0..if cfg!(miri) { 10 } else { 200 } {
        let mut pool = pool(2, 1);
        let tensors = [pool.take().unwrap().freeze(), pool.take().unwrap().freeze()];
        let shared = [tensors[0].share(), tensors[1].share()];
        std::thread::scope(|scope| {
            scope.spawn(move || drop(tensors));
            scope.spawn(move || shared.map(|tensor| assert_eq!(tensor.shape()[1], 2)));
            drop(pool);
        });
    }
}
