//! The cost of the calls that a backend makes for each message: launches, events, waits, copies, graphs, allocation.
//!
//! Host times are those of the call alone unless the name says otherwise; device times are between events.

use crate::check::{self, micros, sampled};
use crate::cuda::{Event, Gpu, Memory, Pinned, Stream, THREADS, Timer, argument, failed};
use crate::report::Finding;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time limit for sampling one cost.
const BUDGET: Duration = Duration::from_millis(700);

type Cost = fn(&Gpu) -> Result<(), String>;
type Work<'a> = dyn Fn() -> Result<(), String> + 'a;

pub fn section() -> Result<(), String> {
    let gpu = Gpu::open()?;
    Finding::fact("kernels", true).note(&gpu.kernels_from).tell();
    gpu.works()?;
    let costs: [(&str, Cost); 9] = [
        ("launches", launches),
        ("events", events),
        ("waits", waits),
        ("callbacks", callbacks),
        ("copies", copies),
        ("write-combined memory", write_combined),
        ("overlap", overlap),
        ("graphs", graphs),
        ("allocation", allocation),
    ];
    for (name, cost) in costs {
        if let Err(why) = check::caught(|| cost(&gpu)) {
            Finding::missing(name, why).tell();
        }
    }
    Ok(())
}

/// Takes samples; errors are texts.
fn samples(most: usize, once: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    sampled(50, most, BUDGET, once)
}

fn synchronise(stream: &Stream) -> Result<(), String> {
    stream.synchronize().map_err(failed("stream synchronise"))
}

fn launches(gpu: &Gpu) -> Result<(), String> {
    let stream = Stream::new()?;
    let mut since = 0;
    let empty = samples(5000, || {
        let began = Instant::now();
        gpu.launch(gpu.nothing, 1, &stream, &mut []).map_err(failed("launch"))?;
        let took = micros(began);
        // A full queue would make launches wait, which is another cost.
        since += 1;
        if since == 100 {
            since = 0;
            synchronise(&stream)?;
        }
        Ok(took)
    })?;
    Finding::median("launch of an empty kernel", empty, "us").note("queue never full").tell();

    let (x, y) = (Memory::of(&check::random(1024))?, Memory::poisoned(1024)?);
    let with_arguments = samples(5000, || {
        let began = Instant::now();
        gpu.launch_affine(&stream, &y, &x, 1.0, 2.0, 1024).map_err(failed("launch"))?;
        let took = micros(began);
        since += 1;
        if since == 100 {
            since = 0;
            synchronise(&stream)?;
        }
        Ok(took)
    })?;
    synchronise(&stream)?;
    Finding::median("launch with five arguments", with_arguments, "us").tell();

    let round = samples(5000, || {
        let began = Instant::now();
        gpu.launch(gpu.nothing, 1, &stream, &mut []).map_err(failed("launch"))?;
        synchronise(&stream)?;
        Ok(micros(began))
    })?;
    Finding::median("launch and stream synchronise", round, "us").tell();

    let batch = 1000;
    let sustained = samples(100, || {
        let began = Instant::now();
        for _ in 0..batch {
            gpu.launch(gpu.nothing, 1, &stream, &mut []).map_err(failed("launch"))?;
        }
        synchronise(&stream)?;
        Ok(micros(began) / f64::from(batch))
    })?;
    Finding::median("launch, one after the other, a thousand", sustained, "us").note("to the end of the last").tell();
    Ok(())
}

fn events(gpu: &Gpu) -> Result<(), String> {
    let stream = Stream::new()?;
    for (flags, kind) in [
        (sys::CUevent_flags::CU_EVENT_DEFAULT, "with timing"),
        (sys::CUevent_flags::CU_EVENT_DISABLE_TIMING, "without timing"),
    ] {
        let event = Event::new(flags)?;
        let mut since = 0;
        let record = samples(5000, || {
            let began = Instant::now();
            event.record(&stream).map_err(failed("event record"))?;
            let took = micros(began);
            since += 1;
            if since == 100 {
                since = 0;
                synchronise(&stream)?;
            }
            Ok(took)
        })?;
        Finding::median(format!("event record, {kind}"), record, "us").tell();
        synchronise(&stream)?;
        let done = samples(5000, || {
            let began = Instant::now();
            event.query().map_err(failed("event query"))?;
            Ok(micros(began))
        })?;
        Finding::median(format!("event query, done, {kind}"), done, "us").tell();
    }
    let create = samples(2000, || {
        let began = Instant::now();
        drop(Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        Ok(micros(began))
    })?;
    Finding::median("event created and destroyed", create, "us").tell();

    let event = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
    let done = Memory::of(&[0u32])?;
    let (mut pending, mut began) = (Vec::new(), Instant::now());
    gpu.launch_busy(&stream, 20_000, &done).map_err(failed("launch"))?;
    event.record(&stream).map_err(failed("event record"))?;
    let start = Instant::now();
    loop {
        let answer = event.query();
        let took = micros(began);
        match answer {
            Ok(()) => break,
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => pending.push(took),
            Err(error) => return Err(failed("event query")(error)),
        }
        if start.elapsed() > Duration::from_secs(5) {
            return Err("20 ms of work are not done after 5 s".into());
        }
        began = Instant::now();
    }
    synchronise(&stream)?;
    let written = done.read(0u32)?[0] == 1;
    let finding = Finding::median("event query, not done", pending, "us")
        .note(format!("20 ms of work took {:.1} ms", start.elapsed().as_secs_f64() * 1e3));
    finding.checked(&if written { Ok(0.0) } else { Err("the kernel wrote nothing".into()) }).tell();

    let other = Stream::new()?;
    let wait = samples(5000, || {
        let began = Instant::now();
        // SAFETY: both live.
        unsafe { result::stream::wait_event(other.0, event.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
            .map_err(failed("stream wait"))?;
        Ok(micros(began))
    })?;
    synchronise(&other)?;
    Finding::median("stream told to wait for an event", wait, "us").tell();
    Ok(())
}

/// How soon the host notices the end of work, and the CPU time of waiting.
fn waits(gpu: &Gpu) -> Result<(), String> {
    let stream = Stream::new()?;
    let done = Memory::of(&[0u32])?;
    let flags = |blocking: bool| {
        if blocking { sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC } else { sys::CUevent_flags::CU_EVENT_DEFAULT }
    };
    for work in [50u64, 2000] {
        for way in ["event, spinning", "event, blocking", "event, polled", "stream"] {
            let event = Event::new(flags(way == "event, blocking"))?;
            let cpu = cpu_micros();
            let mut waited = 0.0;
            let over = samples(400, || {
                let began = Instant::now();
                gpu.launch_busy(&stream, work, &done).map_err(failed("launch"))?;
                event.record(&stream).map_err(failed("event record"))?;
                match way {
                    "event, polled" => {
                        while let Err(error) = event.query() {
                            if error.0 != sys::CUresult::CUDA_ERROR_NOT_READY {
                                return Err(failed("event query")(error));
                            }
                            std::hint::spin_loop();
                        }
                    }
                    "stream" => synchronise(&stream)?,
                    _ => event.synchronize().map_err(failed("event synchronise"))?,
                }
                let took = micros(began);
                waited += took;
                Ok(took - work as f64)
            })?;
            let share = (cpu_micros() - cpu) / waited * 100.0;
            Finding::median(format!("wait of {work} us: {way}: beyond the work"), over, "us")
                .note(format!("launch and record included; processor time {share:.0} % of the wait"))
                .tell();
        }
    }
    for (flag, name) in [
        (sys::CUctx_flags::CU_CTX_SCHED_SPIN, "spin"),
        (sys::CUctx_flags::CU_CTX_SCHED_YIELD, "yield"),
        (sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC, "blocking"),
    ] {
        if let Err(error) = gpu.context.set_flags(flag) {
            Finding::missing(format!("stream synchronise, context set to {name}"), failed("context flags")(error))
                .tell();
            continue;
        }
        let cpu = cpu_micros();
        let mut waited = 0.0;
        let over = samples(400, || {
            let began = Instant::now();
            gpu.launch_busy(&stream, 50, &done).map_err(failed("launch"))?;
            synchronise(&stream)?;
            let took = micros(began);
            waited += took;
            Ok(took - 50.0)
        })?;
        let share = (cpu_micros() - cpu) / waited * 100.0;
        let name = format!("wait of 50 us: stream, context set to {name}: beyond the work");
        Finding::median(name, over, "us").note(format!("processor time {share:.0} % of the wait")).tell();
    }
    gpu.context.set_flags(sys::CUctx_flags::CU_CTX_SCHED_AUTO).map_err(failed("context flags"))
}

/// CPU time of this process so far.
fn cpu_micros() -> f64 {
    // SAFETY: fills the structure given to it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    micros(usage.ru_utime) + micros(usage.ru_stime)
}

/// When the callback ran, in nanoseconds since `BEGAN`.
static CALLED: AtomicU64 = AtomicU64::new(0);
static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

unsafe extern "C" fn called(_: *mut std::ffi::c_void) {
    let since = BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    CALLED.store(since.max(1), Ordering::Release);
}

fn callbacks(gpu: &Gpu) -> Result<(), String> {
    let began = *BEGAN.get_or_init(Instant::now);
    let now = || began.elapsed().as_nanos() as u64;
    let stream = Stream::new()?;
    let (mut calls, mut reached) = (Vec::new(), Vec::new());
    samples(2000, || {
        CALLED.store(0, Ordering::Release);
        gpu.launch(gpu.nothing, 1, &stream, &mut []).map_err(failed("launch"))?;
        let start = now();
        // SAFETY: the function is valid for the program's life and touches only atomics.
        unsafe { result::stream::launch_host_function(stream.0, called, std::ptr::null_mut()) }
            .map_err(failed("host function"))?;
        let queued = now();
        while CALLED.load(Ordering::Acquire) == 0 {
            if now() - queued > 2_000_000_000 {
                return Err("the callback did not run within 2 s".into());
            }
            std::hint::spin_loop();
        }
        calls.push((queued - start) as f64 / 1e3);
        reached.push(CALLED.load(Ordering::Acquire).saturating_sub(start) as f64 / 1e3);
        synchronise(&stream)?;
        Ok(0.0)
    })?;
    Finding::median("callback queued behind an empty kernel: the call", calls, "us").tell();
    Finding::median("callback queued behind an empty kernel: until it ran", reached, "us").tell();
    Ok(())
}

/// Copies of powers of four from 1 KiB to 64 MiB.
fn copies(_: &Gpu) -> Result<(), String> {
    let most = 16 << 20;
    let stream = Stream::new()?;
    let timer = Timer::new()?;
    let inputs = check::random(most);
    let device = Memory::new(most * 4)?;
    let mut ordinary = Pinned::new(most, false)?;
    let mut combined = Pinned::new(most, true)?;
    ordinary.copy_from_slice(&inputs);
    combined.copy_from_slice(&inputs);
    let mut back = Pinned::new(most, false)?;
    let mut pageable = check::poisoned(most);
    for n in (0..9).map(|power| 256usize << (2 * power)) {
        let bytes = n * 4;
        let size = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        for (kind, from) in [("pageable", &inputs[..n]), ("pinned", &ordinary[..n]), ("write-combined", &combined[..n])]
        {
            device.write(&vec![check::POISON; n])?;
            let (host, gpu) = copy_times(&stream, &timer, || {
                // SAFETY: source and target are as large and live until the stream is synchronised.
                unsafe { result::memcpy_htod_async(device.at, from, stream.0) }.map_err(failed("copy to the device"))
            })?;
            let mut got = check::poisoned(n);
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_sync(&mut got, device.at) }.map_err(failed("copy to the host"))?;
            tell_copy(
                &format!("copy of {size} to the device, {kind}"),
                bytes,
                host,
                gpu,
                &check::compare(&got, &inputs[..n], 0.0, 0.0),
            );
        }
        device.write(&inputs[..n])?;
        for kind in ["pageable", "pinned"] {
            let into: &mut [f32] = if kind == "pinned" { &mut back[..n] } else { &mut pageable[..n] };
            into.fill(check::POISON);
            let (host, gpu) = copy_times(&stream, &timer, || {
                // SAFETY: as above; the target is not read before the stream is synchronised.
                unsafe { result::memcpy_dtoh_async(into, device.at, stream.0) }.map_err(failed("copy to the host"))
            })?;
            tell_copy(
                &format!("copy of {size} to the host, {kind}"),
                bytes,
                host,
                gpu,
                &check::compare(into, &inputs[..n], 0.0, 0.0),
            );
        }
    }
    Ok(())
}

/// Host times from the call to the end of the copy, and device times between events.
fn copy_times(
    stream: &Stream,
    timer: &Timer,
    mut copy: impl FnMut() -> Result<(), String>,
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let host = sampled(20, 1000, BUDGET / 4, || {
        let began = Instant::now();
        copy()?;
        synchronise(stream)?;
        Ok::<f64, String>(micros(began))
    })?;
    let device = sampled(20, 1000, BUDGET / 4, || timer.time(stream, &mut copy))?;
    Ok((host, device))
}

fn tell_copy(name: &str, bytes: usize, host: Vec<f64>, device: Vec<f64>, check: &Result<f64, String>) {
    for (whose, mut times) in [("with synchronise", host), ("between events", device)] {
        let (median, _) = check::median_and_p99(&mut times);
        let rate = bytes as f64 / median / 1e3;
        Finding::median(format!("{name}, {whose}"), times, "us").note(format!("{rate:.2} GB/s")).checked(check).tell();
    }
}

/// The host's cost of reading and writing each kind of memory that the device copies from and to.
fn write_combined(_: &Gpu) -> Result<(), String> {
    let n = 4 << 20;
    let inputs = check::random(n);
    let want: f64 = inputs.iter().map(|&v| f64::from(v)).sum();
    let mut pageable = check::poisoned(n);
    let mut ordinary = Pinned::new(n, false)?;
    let mut combined = Pinned::new(n, true)?;
    let kinds: [(&str, &mut [f32]); 3] =
        [("pageable", &mut pageable), ("pinned", &mut ordinary), ("write-combined", &mut combined)];
    for (kind, memory) in kinds {
        let rate = |times: &[f64]| {
            let (median, _) = check::median_and_p99(&mut times.to_vec());
            format!("{:.2} GB/s", (n * 4) as f64 / median / 1e3)
        };
        let writes = sampled(10, 200, BUDGET, || {
            let began = Instant::now();
            memory.copy_from_slice(std::hint::black_box(&inputs));
            Ok::<f64, String>(micros(began))
        })?;
        let note = rate(&writes);
        Finding::median(format!("host writes 16 MiB, {kind}"), writes, "us").note(note).tell();
        let mut copy = check::poisoned(n);
        let reads = sampled(5, 200, BUDGET, || {
            let began = Instant::now();
            copy.copy_from_slice(std::hint::black_box(&*memory));
            Ok::<f64, String>(micros(began))
        })?;
        let sum: f64 = copy.iter().map(|&v| f64::from(v)).sum();
        let check = if sum == want { Ok(0.0) } else { Err(format!("the sum is {sum} instead of {want}")) };
        let note = rate(&reads);
        Finding::median(format!("host reads 16 MiB, {kind}"), reads, "us").note(note).checked(&check).tell();
    }
    Ok(())
}

/// Upload, computation and download of many chunks, over one, two and three streams.
fn overlap(gpu: &Gpu) -> Result<(), String> {
    // 8 MiB: large enough that the cost of calls does not matter.
    let (n, chunks) = (2usize << 20, 24usize);
    let timer = Timer::new()?;
    let stream = Stream::new()?;
    let inputs = check::random(n);
    // Close to one, so that results still depend on their inputs after thousands of steps.
    let (a, b) = (0.9999 + fastrand::f32() * 5e-5, fastrand::f32() * 1e-4);
    let mut from = Vec::new();
    let mut into = Vec::new();
    let mut device = Vec::new();
    for _ in 0..3 {
        let mut pinned = Pinned::new(n, false)?;
        pinned.copy_from_slice(&inputs);
        from.push(pinned);
        into.push(Pinned::new(n, false)?);
        device.push((Memory::poisoned(n)?, Memory::poisoned(n)?));
    }
    let up = |slot: usize, stream: &Stream, from: &[Pinned]| {
        // SAFETY: as large, and alive until synchronised.
        unsafe { result::memcpy_htod_async(device[slot].0.at, &from[slot], stream.0) }
            .map_err(failed("copy to the device"))
    };
    let compute = |slot: usize, stream: &Stream, rounds: u32| {
        let count = n as u32;
        let (x, y) = &device[slot];
        let mut arguments =
            [argument(&y.at), argument(&x.at), argument(&a), argument(&b), argument(&rounds), argument(&count)];
        gpu.launch(gpu.steps, 2048, stream, &mut arguments).map_err(failed("launch"))
    };
    let down = |slot: usize, stream: &Stream, into: &mut [Pinned]| {
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(&mut into[slot], device[slot].1.at, stream.0) }
            .map_err(failed("copy to the host"))
    };
    let median = |times: Vec<f64>| check::median_and_p99(&mut { times }).0;
    let upload = median(sampled(10, 50, BUDGET, || timer.time(&stream, || up(0, &stream, &from)))?);
    let download = median(sampled(10, 50, BUDGET, || timer.time(&stream, || down(0, &stream, &mut into)))?);
    // As much work as the slower copy.
    let mut rounds = 64u32;
    let mut work = 0.0;
    for _ in 0..12 {
        work = median(sampled(5, 10, BUDGET, || timer.time(&stream, || compute(0, &stream, rounds)))?);
        if work >= upload.max(download) * 0.9 || rounds > 1 << 22 {
            break;
        }
        let wanted = f64::from(rounds) * upload.max(download) / work;
        rounds = wanted.clamp(f64::from(rounds) * 1.1, f64::from(rounds) * 8.0) as u32;
    }
    let slowest = upload.max(download).max(work);
    Finding::number("overlap: upload of 8 MiB alone", upload, "us", 10).tell();
    Finding::number("overlap: computation alone", work, "us", 10).note(format!("{rounds} rounds a value")).tell();
    Finding::number("overlap: download of 8 MiB alone", download, "us", 10).tell();
    let mut known = HashMap::new();
    let mut stepped = |value: f32| {
        *known.entry(value.to_bits()).or_insert_with(|| (0..rounds).fold(value, |value, _| a.mul_add(value, b)))
    };
    for count in 1..=3usize {
        let streams: Vec<Stream> = (0..count).map(|_| Stream::new()).collect::<Result<_, _>>()?;
        for pinned in &mut into {
            pinned.fill(check::POISON);
        }
        let times = sampled(10, 50, BUDGET * 2, || {
            let began = Instant::now();
            for chunk in 0..chunks {
                let slot = chunk % count;
                up(slot, &streams[slot], &from)?;
                compute(slot, &streams[slot], rounds)?;
                down(slot, &streams[slot], &mut into)?;
            }
            for stream in &streams {
                synchronise(stream)?;
            }
            Ok::<f64, String>(micros(began) / chunks as f64)
        })?;
        // Checks only some values: each takes as many steps on the CPU as on the device.
        let mut checked = Ok(0.0);
        for pinned in into.iter().take(count) {
            let picks: Vec<usize> = (0..200).map(|_| fastrand::usize(..n)).collect();
            let got: Vec<f32> = picks.iter().map(|&i| pinned[i]).collect();
            let want: Vec<f32> = picks.iter().map(|&i| stepped(inputs[i])).collect();
            checked = checked.and(check::compare(&got, &want, 0.0, 0.0));
        }
        let per_chunk = median(times.clone());
        Finding::median(format!("overlap: a chunk over {count} streams"), times, "us")
            .note(format!("{:.2} of the slowest stage's rate", slowest / per_chunk))
            .checked(&checked)
            .tell();
    }
    Ok(())
}

/// Chains of small kernels, launched one by one, and replayed as a graph.
fn graphs(gpu: &Gpu) -> Result<(), String> {
    let n = 4096u32;
    let stream = Stream::new()?;
    let timer = Timer::new()?;
    let inputs = check::random(n as usize);
    let memory = Memory::of(&inputs)?;
    let (a, b) = (0.9 + fastrand::f32() * 0.05, fastrand::f32() * 0.1);
    for length in [1usize, 10, 50] {
        let chain = || -> Result<(), String> {
            for _ in 0..length {
                let mut arguments = [argument(&memory.at), argument(&a), argument(&b), argument(&n)];
                gpu.launch(gpu.step, n.div_ceil(THREADS), &stream, &mut arguments).map_err(failed("launch"))?;
            }
            Ok(())
        };
        let began = Instant::now();
        let graph = Graph::captured(&stream, chain)?;
        let made = micros(began);
        Finding::number(format!("graph of {length} kernels: captured and instantiated"), made, "us", 1).tell();
        let replay = || graph.launch(&stream);
        let ways: [(&str, &Work); 2] = [("eager", &chain), ("replayed", &replay)];
        for (way, run) in ways {
            memory.write(&inputs)?;
            run()?;
            synchronise(&stream)?;
            let want: Vec<f32> = inputs.iter().map(|&x| (0..length).fold(x, |x, _| a.mul_add(x, b))).collect();
            let checked = check::compare(&memory.floats()?, &want, 0.0, 0.0);
            let mut queued = Vec::new();
            let whole = samples(3000, || {
                let began = Instant::now();
                run()?;
                queued.push(micros(began));
                synchronise(&stream)?;
                Ok(micros(began))
            })?;
            let device = samples(1000, || timer.time(&stream, run))?;
            Finding::median(format!("chain of {length} kernels, {way}: the host's calls"), queued, "us").tell();
            Finding::median(format!("chain of {length} kernels, {way}: with synchronise"), whole, "us")
                .checked(&checked)
                .tell();
            Finding::median(format!("chain of {length} kernels, {way}: between events"), device, "us").tell();
        }
    }
    Ok(())
}

struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Graph {
    fn captured(stream: &Stream, work: impl Fn() -> Result<(), String>) -> Result<Self, String> {
        // SAFETY: the stream lives, and everything that is captured lives as long as the graph is launched.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(stream.0, mode).map_err(failed("capture"))?;
            let worked = work();
            let graph = result::stream::end_capture(stream.0).map_err(failed("end of capture"))?;
            worked?;
            let mut exec = std::ptr::null_mut();
            let made = sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result();
            if let Err(error) = made {
                let _ = result::graph::destroy(graph);
                return Err(failed("graph instantiation")(error));
            }
            Ok(Self { graph, exec })
        }
    }

    fn launch(&self, stream: &Stream) -> Result<(), String> {
        // SAFETY: both live.
        unsafe { result::graph::launch(self.exec, stream.0) }.map_err(failed("graph launch"))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `captured` and not destroyed before.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

/// Allocation and release: by the driver, in stream order, and from a free list.
fn allocation(gpu: &Gpu) -> Result<(), String> {
    let stream = Stream::new()?;
    if !gpu.context.has_async_alloc() {
        Finding::missing("stream-ordered allocation", "the device has no memory pools").tell();
    }
    for bytes in [4usize << 10, 1 << 20, 64 << 20] {
        let size = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        let direct = samples(500, || {
            let began = Instant::now();
            drop(Memory::new(bytes)?);
            Ok(micros(began))
        })?;
        Finding::median(format!("{size} allocated and freed"), direct, "us").tell();
        if gpu.context.has_async_alloc() {
            for (threshold, kept) in [(0u64, "pool that keeps nothing"), (u64::MAX, "pool that keeps all")] {
                // SAFETY: the process's default pool; the attribute is one u64.
                unsafe {
                    let pool = result::device::get_mem_pool(gpu.context.cu_device()).map_err(failed("pool"))?;
                    let mut threshold = threshold;
                    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                    result::mem_pool::set_attribute(pool, attribute, (&raw mut threshold).cast())
                        .map_err(failed("pool attribute"))?;
                }
                let ordered = samples(1000, || {
                    let began = Instant::now();
                    // SAFETY: freed in the order of the same stream, and not used.
                    unsafe {
                        let at = result::malloc_async(stream.0, bytes).map_err(failed("stream-ordered allocation"))?;
                        result::free_async(at, stream.0).map_err(failed("stream-ordered free"))?;
                    }
                    let took = micros(began);
                    // A pool releases memory when the stream is synchronised.
                    synchronise(&stream)?;
                    Ok(took)
                })?;
                Finding::median(format!("{size} in the order of a stream, {kept}"), ordered, "us").tell();
            }
        }
        let mut list: Vec<Memory> = (0..8).map(|_| Memory::new(bytes)).collect::<Result<_, _>>()?;
        let batch = 1000;
        let own = samples(500, || {
            let began = Instant::now();
            for _ in 0..batch {
                let memory = std::hint::black_box(&mut list).pop().ok_or("the list is empty")?;
                list.push(std::hint::black_box(memory));
            }
            Ok(micros(began) / f64::from(batch))
        })?;
        Finding::median(format!("{size} from a list of its own"), own, "us").tell();
    }
    Ok(())
}
