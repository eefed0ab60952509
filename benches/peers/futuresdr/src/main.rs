//! Source -> K copy blocks -> sink on FutureSDR: a stream of items (one item is one
//! message) or Pmt messages. One configuration per process; one JSON line.

use anyhow::Result;
use peers_common::*;
use futuresdr::blocks::{Copy as CopyBlock, MessageBurst, MessageCopy, MessageSink};
use futuresdr::runtime::dev::prelude::*;
use futuresdr::runtime::scheduler::{FlowScheduler, SmolScheduler};
use std::sync::Mutex;

#[derive(Clone, Copy, Debug)]
pub struct Item<const W: usize>([u64; W]);
impl<const W: usize> Default for Item<W> {
    fn default() -> Self {
        Item([0; W])
    }
}

pub struct Stat {
    n: u64,
    lat: Lat,
    skip: u64,
}
static STAT: Mutex<Option<Stat>> = Mutex::new(None);

#[derive(Block)]
pub struct Src<const W: usize> {
    #[output]
    output: DefaultCpuWriter<Item<W>>,
    end: u64,
    start: u64,
    period: u64,
    n: u64,
}

impl<const W: usize> Kernel for Src<W> {
    async fn work(&mut self, io: &mut WorkIo, _: &mut MessageOutputs, _: &BlockMeta) -> Result<()> {
        let now = now_ns();
        if now >= self.end {
            io.finished = true;
            return Ok(());
        }
        if self.period > 0 {
            let due = self.start + (self.n + 1) * self.period;
            if due > now {
                Timer::after(std::time::Duration::from_nanos(due - now)).await;
            }
            let o = self.output.slice();
            if !o.is_empty() {
                o[0].0[0] = now_ns();
                o[0].0[1] = self.n;
                self.n += 1;
                self.output.produce(1);
                io.call_again = true;
            }
            return Ok(());
        }
        let o = self.output.slice();
        let k = o.len();
        for m in o.iter_mut() {
            m.0[1] = self.n;
            self.n += 1;
        }
        if k > 0 {
            self.output.produce(k);
        }
        Ok(())
    }
}

#[derive(Block)]
pub struct Snk<const W: usize> {
    #[input]
    input: DefaultCpuReader<Item<W>>,
    n: u64,
    sum: u64,
    skip: u64,
    paced: bool,
    lat: Option<Lat>,
}

impl<const W: usize> Kernel for Snk<W> {
    async fn work(&mut self, io: &mut WorkIo, _: &mut MessageOutputs, _: &BlockMeta) -> Result<()> {
        let i = self.input.slice();
        let k = i.len();
        for m in i {
            self.sum = self.sum.wrapping_add(m.0[1]);
            if self.paced && self.n >= self.skip {
                self.lat.as_mut().unwrap().rec(now_ns() - m.0[0]);
            }
            self.n += 1;
        }
        if k > 0 {
            self.input.consume(k);
        }
        if self.input.finished() {
            io.finished = true;
            std::hint::black_box(self.sum);
            if let Some(lat) = self.lat.take() {
                *STAT.lock().unwrap() = Some(Stat {
                    n: self.n,
                    lat,
                    skip: self.skip,
                });
            }
        }
        Ok(())
    }
}

fn stream<const W: usize>(
    rt: impl FnOnce(Vec<BlockId>) -> Box<dyn FnOnce(Flowgraph) -> Result<()>>,
    k: usize,
    secs: f64,
    rate: f64,
) -> Result<u64> {
    let mut fg = Flowgraph::new();
    let now = now_ns();
    let src = fg.add(Src::<W> {
        output: Default::default(),
        start: now,
        end: now + (secs * 1e9) as u64,
        period: if rate > 0.0 { (1e9 / rate) as u64 } else { 0 },
        n: 0,
    })?;
    let snk = fg.add(Snk::<W> {
        input: Default::default(),
        n: 0,
        sum: 0,
        skip: (rate * secs * 0.1) as u64,
        paced: rate > 0.0,
        lat: Some(Lat::default()),
    })?;
    let mut ids = vec![src.id()];
    if k == 0 {
        connect!(fg, src > snk);
    } else {
        let mut last = fg.add(CopyBlock::<Item<W>>::new())?;
        ids.push(last.id());
        {
            connect!(fg, src > last);
        }
        for _ in 1..k {
            let b = fg.add(CopyBlock::<Item<W>>::new())?;
            ids.push(b.id());
            {
                connect!(fg, last > b);
            }
            last = b;
        }
        connect!(fg, last > snk);
    }
    ids.push(snk.id());
    rt(ids)(fg)?;
    Ok(STAT.lock().unwrap().as_ref().map_or(0, |s| s.n))
}

fn main() -> Result<()> {
    let a = Args::parse();
    let k = a.usize("k", 1);
    let payload = a.usize("payload", 64);
    let rate = a.num("rate", 0.0);
    let secs = a.num("secs", 1.0);
    let sched = a.str("sched", "smol2");
    let mode = a.str("mode", "stream");
    let s2 = sched.clone();
    let rt = move |ids: Vec<BlockId>| -> Box<dyn FnOnce(Flowgraph) -> Result<()>> {
        match s2.as_str() {
            "smol1" => Box::new(|fg| {
                Ok(drop(
                    Runtime::with_scheduler(SmolScheduler::with_config(1, true)).run(fg)?,
                ))
            }),
            "smol2" => Box::new(|fg| {
                Ok(drop(
                    Runtime::with_scheduler(SmolScheduler::with_config(cores(), true)).run(fg)?,
                ))
            }),
            "flow" => {
                let half = ids.len().div_ceil(2);
                let map = vec![ids[..half].to_vec(), ids[half..].to_vec()];
                Box::new(|fg| {
                    Ok(drop(
                        Runtime::with_scheduler(FlowScheduler::with_pinned_blocks(map)).run(fg)?,
                    ))
                })
            }
            s => panic!("sched={s}"),
        }
    };
    let mut row = Row::new();
    row.str("bench", if rate > 0.0 { "latency" } else { "throughput" })
        .str(
            "engine",
            if mode == "stream" {
                "futuresdr stream"
            } else {
                "futuresdr message"
            },
        )
        .num("k", k as f64)
        .num("payload", payload as f64)
        .str("mode", "copy")
        .str("policy", &sched)
        .num("rate", rate);
    let m = Meter::start();
    let n = if mode == "stream" {
        match payload {
            64 => stream::<8>(rt, k, secs, rate)?,
            4096 => stream::<512>(rt, k, secs, rate)?,
            p => panic!("payload={p}"),
        }
    } else {
        let n = a.num("n", 300_000.0) as u64;
        let mut fg = Flowgraph::new();
        let src = fg.add(MessageBurst::new(Pmt::U64(1), n))?;
        let mut ids = vec![src.id()];
        let snk = fg.add(MessageSink::new())?;
        if k == 0 {
            fg.message(src, "out", snk, "in")?;
        } else {
            let mut last = fg.add(MessageCopy::new())?;
            ids.push(last.id());
            fg.message(src, "out", last, "in")?;
            for _ in 1..k {
                let b = fg.add(MessageCopy::new())?;
                ids.push(b.id());
                fg.message(last, "out", b, "in")?;
                last = b;
            }
            fg.message(last, "out", snk, "in")?;
        }
        ids.push(snk.id());
        rt(ids)(fg)?;
        n
    };
    m.stop(n, &mut row);
    if let (true, Some(s)) = (rate > 0.0, STAT.lock().unwrap().take()) {
        let _ = s.skip;
        s.lat.into_row(&mut row);
    }
    row.emit();
    Ok(())
}
