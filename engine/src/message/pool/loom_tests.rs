//! The protocol of the counts, in every order of the steps of its threads.

use super::orphans::{ORPHANS, sweep};
use super::*;
use crate::host::sync::thread;
use crate::message::origins::Origin;
use crate::message::port_spec::DType;
use crate::message::tensor::Tensor;

impl Inner {
    /// Checks that no thread uses the pool any more.
    pub(super) fn check_unused(&mut self) {
        // SAFETY: that is what is checked here.
        for row in unsafe { self.table.as_mut() } {
            row.header.writing();
            row.bytes.writing();
            row.refs.with_mut(|_| ());
        }
        self.alive.writing();
        self.lens.iter().for_each(|lens| _ = lens.writing());
        self.origins.iter().for_each(|origin| _ = origin.writing());
    }
}

/// A pool with run-time lengths and origins, so that every part of a row is written and read.
fn pool(slots: usize, rows: usize) -> Pool {
    Pool::with_origins("p", &PortSpec::new(DType::U8, [Dim::AtMost(4)]), slots, rows, &[3]).unwrap()
}

fn written(pool: &mut Pool, n: u8) -> Option<TensorMut> {
    let mut origins = Origins::default();
    origins.add(Origin { source: 3, reused: false, begun: n.into() });
    let mut tensor = pool.take_closely(&origins)?;
    tensor.set_len(0, n.into()).unwrap();
    tensor.bytes_mut().fill(n);
    *tensor.header_mut() = Header::new(n.into(), Time(n.into()));
    Some(tensor)
}

/// Retries until a slot is free: an early attempt finds none.
fn written_when_free(pool: &mut Pool, n: u8) -> TensorMut {
    loop {
        match written(pool, n) {
            Some(tensor) => return tensor,
            None => thread::yield_now(),
        }
    }
}

fn assert_reads(tensor: &Tensor, n: u8) {
    assert_eq!(tensor.bytes(), vec![n; n.into()]);
    assert_eq!(tensor.header().seq, u64::from(n));
    tensor.each_origin(&mut |origin| assert!(origin.source != 3 || origin.begun == u64::from(n)));
}

/// Frees orphans that no sweep has seen; none may be left. Loom reports memory that is never freed.
fn sweep_all() {
    let mut orphans = ORPHANS.lock().unwrap();
    sweep(&mut orphans);
    assert!(orphans.is_empty());
}

/// Promise (memory): No thread writes a buffer while another thread reads it.
///
/// A slot is written by its owner, shared to two readers on other threads, and taken again: no read
/// may overlap the second write, whatever the order of the drops.
#[test]
fn loom_a_slot_is_rewritten_only_after_its_last_reader() {
    loom::model(|| {
        let mut pool = pool(1, 1);
        let tensor = written(&mut pool, 1).unwrap().freeze();
        let readers = [tensor.share(), tensor].map(|tensor| thread::spawn(move || assert_reads(&tensor, 1)));
        assert_reads(&written_when_free(&mut pool, 2).freeze(), 2);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(pool.free(), 1);
    });
}

/// As that, with slots taken as a run.
#[test]
fn loom_a_slot_of_a_run_is_rewritten_only_after_its_last_reader() {
    loom::model(|| {
        let mut pool = Pool::new("p", &PortSpec::fixed(DType::U8, [1]), 2, 1).unwrap();
        let write = |pool: &mut Pool, n: u8| -> Vec<Tensor> {
            let write = |mut tensor: TensorMut| {
                tensor.bytes_mut().fill(n);
                *tensor.header_mut() = Header::new(n.into(), Time(n.into()));
                tensor.freeze()
            };
            pool.take_run(2).map(write).collect()
        };
        let first = write(&mut pool, 1);
        assert_eq!(first.len(), 2);
        let reader = thread::spawn(move || first.iter().for_each(|tensor| assert_eq!(tensor.bytes(), [1])));
        // Slots that are still read end the run.
        write(&mut pool, 2).iter().for_each(|tensor| assert_eq!(tensor.bytes(), [2]));
        reader.join().unwrap();
        assert_eq!(pool.free(), 2);
    });
}

/// The last holder writes in place, after every other has read.
#[test]
fn loom_a_last_handle_writes_after_all_others_have_read() {
    loom::model(|| {
        let mut pool = pool(1, 1);
        let tensor = written(&mut pool, 1).unwrap().freeze();
        let holders = [tensor.share(), tensor.share()].map(|tensor| {
            thread::spawn(move || {
                assert_reads(&tensor, 1);
                if let Ok(mut alone) = tensor.into_mut() {
                    alone.bytes_mut().fill(9);
                    alone.header_mut().seq = 9;
                }
            })
        });
        drop(tensor);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(pool.free(), 1);
    });
}

/// The rows of a batch share one slot, wherever they are dropped.
#[test]
fn loom_a_batch_is_written_again_after_its_last_row() {
    loom::model(|| {
        let mut pool = pool(1, 2);
        let mut slot = written(&mut pool, 1).unwrap();
        Pool::batch_bytes(&mut slot, 2).fill(1);
        let mut rows = Pool::rows(slot, (0..2).map(|n| Header::new(n, Time(n))), &[]);
        let (first, second) = (rows.next().unwrap(), rows.next().unwrap());
        let reader = thread::spawn(move || assert_eq!(first.header().seq, 0));
        let other = thread::spawn(move || assert_eq!(second.header().seq, 1));
        assert_reads(&written_when_free(&mut pool, 2).freeze(), 2);
        reader.join().unwrap();
        other.join().unwrap();
        assert_eq!(pool.free(), 1);
    });
}

/// Promise (memory): Tensors that outlive their graph keep their memory, which is freed once, after
/// the last of them.
#[test]
fn loom_an_orphan_is_freed_once_after_its_last_handle() {
    loom::model(|| {
        let mut pool = pool(2, 1);
        let tensors = [written(&mut pool, 1).unwrap().freeze(), written(&mut pool, 2).unwrap().freeze()];
        let mut n = 0;
        let holders = tensors.map(|tensor| {
            n += 1;
            thread::spawn(move || assert_reads(&tensor, n))
        });
        drop(pool);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        sweep_all();
    });
}

/// Promise (memory): Two pools that are dropped at the same time free each buffer once.
///
/// The same with one slot and two handles, while another pool is dropped and sweeps all orphans.
#[test]
fn loom_two_pools_go_at_once() {
    loom::model(|| {
        let (mut one, other) = (pool(1, 1), pool(1, 1));
        let tensor = written(&mut one, 1).unwrap().freeze();
        let shared = tensor.share();
        let holder = thread::spawn(move || assert_reads(&shared, 1));
        let owner = thread::spawn(move || drop(other));
        drop(one);
        drop(tensor);
        holder.join().unwrap();
        owner.join().unwrap();
        sweep_all();
    });
}
