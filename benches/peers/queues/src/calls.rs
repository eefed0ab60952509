//! The baseline: every node a dynamic call, all on one thread, no queue at all.

use crate::payload::Payload;
use crate::*;

type Call<P> = Box<dyn FnMut(P) -> P + Send>;

pub fn run<P: Payload>(c: &Cfg) -> SinkStat {
    pin(0);
    let mut stages: Vec<Call<P>> = (0..c.k).map(|_| -> Call<P> { Box::new(|m| m) }).collect();
    let mut stat = SinkStat::new(c);
    let mut spare = Some(P::alloc(c.words));
    let (_, late) = drive(c, |seq, stamp| {
        let mut m = spare.take().unwrap();
        m.put(stamp, seq);
        for stage in &mut stages {
            m = std::hint::black_box(stage)(m);
        }
        let (t, q) = m.get();
        stat.take(t, q);
        spare = Some(m);
    });
    LATE.fetch_max(late, Ordering::Relaxed);
    stat
}
