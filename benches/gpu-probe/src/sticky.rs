//! Sticky errors: which calls report a store to an illegal address, and how the process gets back to right results.
//!
//! Every experiment runs in a separate process, because it breaks its context. The device itself is never reset, only the
//! contexts of these processes.

use crate::Options;
use crate::check;
use crate::child::{self, End};
use crate::cuda::{self, Blas, Event, Gpu, Kind, Memory, Stream, code, failed};
use crate::environment;
use crate::report::{Attempt, Finding};
use cudarc::driver::{DriverError, result, sys};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The calls that may be the first to report the error, each tried in a separate process.
const CALLS: [&str; 14] = [
    "launch",
    "event record",
    "event query",
    "event synchronise",
    "stream query",
    "stream synchronise",
    "context synchronise",
    "copy to host",
    "copy to device",
    "asynchronous copy",
    "allocation",
    "memory information",
    "module load",
    "new stream",
];

/// Ways to get a working context back.
const WAYS: [&str; 5] = ["release", "reset", "held", "own", "beside"];

/// The number of repetitions in a row.
const CYCLES: usize = 10;

/// The time limit of a child of this section, which detects a hung device.
const LIMIT: Duration = Duration::from_secs(90);

/// The exit status of a worker that broke its context on purpose.
const BROKEN: i32 = 86;

pub fn section(options: &Options) -> Result<(), String> {
    let gpu_there = cuda::driver_present().and_then(|()| Gpu::open());
    Finding::fact("kernels", true).note(&gpu_there?.kernels_from).tell();

    for call in CALLS {
        let (findings, end) = run(options, &["child", "sticky", "first", call])?;
        pass_on(findings, end, &format!("first to be asked: {call}"));
    }
    for way in WAYS {
        for cublas in [None, Some("cublas")] {
            let words: Vec<&str> = ["child", "sticky", "rebuild", way].into_iter().chain(cublas).collect();
            let (findings, end) = run(options, &words)?;
            pass_on(findings, end, &rebuild_name(way, cublas.is_some()));
        }
    }
    for mebibytes in [16, 256] {
        restarts(options, mebibytes)?;
    }
    Ok(())
}

fn run(options: &Options, words: &[&str]) -> Result<(Vec<Finding>, End), String> {
    Ok(child::start(child::again(&options.child(words))?, LIMIT)?.findings())
}

/// Passes on the findings of a child; an abnormal end is a finding too.
fn pass_on(findings: Vec<Finding>, end: End, name: &str) {
    for finding in findings {
        finding.tell();
    }
    if end != End::Done {
        Finding::missing(name, end).tell();
    }
}

/// Breaks the context, makes one call first, then all the others.
pub fn first(asked: &str) -> Result<(), String> {
    let gpu = Gpu::open()?;
    gpu.works().map_err(|why| format!("before anything was broken: {why}"))?;
    let parts = Parts::new()?;
    let launched = gpu.launch_stray_store(&parts.stream);
    let recorded = parts.event.record(&parts.stream);
    // Long enough for the fault to happen, without a call of the driver in between.
    std::thread::sleep(Duration::from_millis(200));
    let answer = parts.ask(&gpu, asked);
    let mut later: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for call in CALLS {
        later.entry(parts.ask(&gpu, call)).or_default().push(call);
    }
    let later = match Vec::from_iter(&later).as_slice() {
        [(code, _)] => format!("every call {code}"),
        several => several
            .iter()
            .map(|(code, calls)| format!("{code} from {}", calls.join(", ")))
            .collect::<Vec<_>>()
            .join("; "),
    };
    Finding::fact(format!("first to be asked: {asked}"), answer)
        .note(format!("the bad launch itself: {}", code(launched)))
        .note(format!("an event recorded right behind it: {}", code(recorded)))
        .note(format!("afterwards: {later}"))
        .tell();
    child::leave(0)
}

/// The handles that the calls need, created before the context is broken.
struct Parts {
    stream: Stream,
    event: Event,
    other: Event,
    memory: Memory,
    host: std::cell::RefCell<Vec<f32>>,
}

impl Parts {
    fn new() -> Result<Self, String> {
        Ok(Self {
            stream: Stream::new()?,
            event: Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?,
            other: Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?,
            memory: Memory::poisoned(1024)?,
            host: std::cell::RefCell::new(check::random(1024)),
        })
    }

    /// The result of one call.
    fn ask(&self, gpu: &Gpu, call: &str) -> String {
        let mut host = self.host.borrow_mut();
        // SAFETY: all handles live; sizes are those that were allocated; a broken context returns an error code.
        let answer = unsafe {
            match call {
                "launch" => result::launch_kernel(gpu.nothing, (1, 1, 1), (1, 1, 1), 0, self.stream.0, &mut []),
                "event record" => self.other.record(&self.stream),
                "event query" => self.event.query(),
                "event synchronise" => self.event.synchronize(),
                "stream query" => self.stream.query(),
                "stream synchronise" => self.stream.synchronize(),
                "context synchronise" => result::ctx::synchronize(),
                "copy to host" => result::memcpy_dtoh_sync(&mut host, self.memory.at),
                "copy to device" => result::memcpy_htod_sync(self.memory.at, &host),
                "asynchronous copy" => result::memcpy_htod_async(self.memory.at, &host, self.stream.0),
                "allocation" => result::malloc_sync(1 << 20).map(drop),
                "memory information" => result::mem_get_info().map(drop),
                "module load" => {
                    let image = c".version 6.0\n.target sm_50\n.address_size 64\n";
                    result::module::load_data(image.as_ptr().cast()).map(drop)
                }
                "new stream" => result::stream::create(result::stream::StreamKind::NonBlocking).map(drop),
                other => return format!("there is no call `{other}`"),
            }
        };
        code(answer)
    }
}

fn rebuild_name(way: &str, cublas: bool) -> String {
    let how = match way {
        "release" => "handles dropped, primary context released and retained",
        "reset" => "handles dropped, primary context reset",
        "held" => "primary context reset while a library still holds it",
        "own" => "context of its own, destroyed and created",
        "beside" => "broken context kept, another created beside it",
        other => other,
    };
    format!("{how}{}", if cublas { ", with cuBLAS" } else { "" })
}

/// Breaks the context and rebuilds it, ten times in a row, and checks the results each time.
pub fn rebuild(way: &str, with_cublas: bool) -> Result<(), String> {
    let kind = if matches!(way, "own") { Kind::Own } else { Kind::Primary };
    let first = Gpu::open_as(kind)?;
    let device = first.context.cu_device();
    verify(&first, with_cublas)
        .and_then(|checked| checked)
        .map_err(|why| format!("before anything was broken: {why}"))?;
    let mut gpu = Some(first);
    if way == "held" {
        // As another library in the process would.
        // SAFETY: the device was found above.
        unsafe { result::primary_ctx::retain(device) }.map_err(failed("context retained once more"))?;
    }
    let mut kept = Vec::new();
    let mut wrong = false;
    let (mut right, mut millis, mut notes) = (0, Vec::new(), Vec::<String>::new());
    for cycle in 1..=CYCLES {
        let Some(old) = gpu.take() else { break };
        let (stream, blas, seen) = match broken(&old, with_cublas) {
            Ok(broken) => broken,
            Err(why) => {
                notes.push(format!("cycle {cycle}: before it was broken again: {why}"));
                break;
            }
        };
        if seen.is_ok() {
            notes.push(format!("cycle {cycle}: the store outside of all memory was not noticed"));
        }
        let began = Instant::now();
        if let Some(blas) = blas {
            let destroyed = blas.destroy();
            if cycle == 1 {
                notes.push(format!("destroying the cuBLAS handle of the broken context: {destroyed}"));
            }
        }
        drop(stream);
        if way == "beside" {
            kept.push(old);
        } else {
            drop(old);
        }
        if cycle == 1 && kind == Kind::Primary && way != "beside" {
            notes.push(format!("primary context after all handles were dropped: {}", primary_state(device)));
        }
        if matches!(way, "reset" | "held") {
            // SAFETY: nothing of the context is in use any more. Resets this process's context, not the device.
            let reset = unsafe { sys::cuDevicePrimaryCtxReset_v2(device) }.result();
            if cycle == 1 || reset.is_err() {
                notes.push(format!("cycle {cycle}: reset {}", code(reset)));
            }
        }
        let next = if way == "beside" { Kind::Own } else { kind };
        match check::caught(|| {
            let fresh = Gpu::open_as(next)?;
            let checked = verify(&fresh, with_cublas)?;
            Ok((fresh, checked))
        }) {
            Ok((_, Err(wrong_value))) => {
                wrong = true;
                notes.push(format!("cycle {cycle}: WRONG: {wrong_value}"));
                break;
            }
            Ok((fresh, Ok(_))) => {
                right += 1usize;
                millis.push(began.elapsed().as_secs_f64() * 1e3);
                gpu = Some(fresh);
            }
            Err(why) => {
                notes.push(format!("cycle {cycle}: {why}"));
                break;
            }
        }
    }
    let name = rebuild_name(way, with_cublas);
    let mut finding =
        Finding { unit: format!("of {CYCLES}"), samples: CYCLES, ..Finding::fact(format!("{name}: right"), right) };
    // A failed rebuild is a finding, not a wrong result.
    finding.right = if wrong { Some(false) } else { (right == CYCLES).then_some(true) };
    for note in notes {
        finding = finding.note(note);
    }
    finding.tell();
    if !millis.is_empty() {
        Finding::median(format!("{name}: from error to right result"), millis, "ms").tell();
    }
    child::leave(0)
}

/// Uses a context, breaks it, and returns its handles with the result of the call that should report the error.
#[allow(clippy::type_complexity, reason = "for one caller")]
fn broken(gpu: &Gpu, with_cublas: bool) -> Result<(Stream, Option<Blas>, Result<(), DriverError>), String> {
    let stream = Stream::new()?;
    let blas = if with_cublas { Some(Blas::new(&stream)?) } else { None };
    if let Some(blas) = &blas {
        blas.computes(&stream)??;
    }
    gpu.launch_stray_store(&stream).map_err(failed("the bad launch"))?;
    let seen = stream.synchronize();
    Ok((stream, blas, seen))
}

/// Computes with fresh memory, random inputs and poisoned outputs; once through cuBLAS too.
fn verify(gpu: &Gpu, with_cublas: bool) -> Attempt {
    let checked = gpu.computes()?;
    if !with_cublas {
        return Ok(checked);
    }
    let stream = Stream::new()?;
    let blas = Blas::new(&stream)?;
    let product = blas.computes(&stream)?;
    match blas.destroy().as_str() {
        "success" => Ok(checked.and(product)),
        destroyed => Err(format!("destroying a cuBLAS handle: {destroyed}")),
    }
}

fn primary_state(device: sys::CUdevice) -> String {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: stores two numbers.
    match unsafe { sys::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) }.result() {
        Ok(()) => if active == 0 { "inactive" } else { "still active" }.into(),
        error => code(error),
    }
}

/// A model file of random numbers, removed after the experiment.
struct Model(PathBuf);

impl Model {
    fn new(mebibytes: usize) -> Result<Self, String> {
        let model =
            Self(std::env::temp_dir().join(format!("{}{mebibytes}", model_name(std::os::unix::process::parent_id()))));
        let values = check::random(mebibytes << 18);
        let written = std::fs::write(&model.0, bytemuck::cast_slice::<f32, u8>(&values));
        written.map_err(|e| format!("{}: {e}", model.0.display()))?;
        Ok(model)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The prefix of the names of model files for the probe with this process id.
fn model_name(probe: u32) -> String {
    format!("gpu-probe-{probe}-model-")
}

/// Removes the files of a killed section.
pub fn remove_models() {
    let name = model_name(std::process::id());
    for file in environment::entries(&std::env::temp_dir()) {
        if environment::file_name(&file).starts_with(&name) {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Workers that crash one after the other: the time until the next one has its first right result.
fn restarts(options: &Options, mebibytes: usize) -> Result<(), String> {
    let name = |what: &str| format!("restart with a model of {mebibytes} MiB: {what}");
    let model = Model::new(mebibytes)?;
    let path = model.0.to_string_lossy().into_owned();
    let (mut to_gone, mut to_right, mut total) = (Vec::new(), Vec::new(), Vec::new());
    let mut steps: Vec<(String, Vec<f64>)> = Vec::new();
    let mut crash: Option<(Instant, Instant)> = None;
    // No crash precedes the first one.
    for _ in 0..=CYCLES {
        let words = ["child", "sticky", "worker", &path, "break"];
        let mut worker = child::start(child::again(&options.child(&words))?, LIMIT)?;
        let mut broke = None;
        while let Some(line) = worker.line() {
            let Some(finding) = Finding::from_line(&line.text) else { continue };
            match finding.name.as_str() {
                "right" if finding.right != Some(true) => {
                    Finding::missing(name("a worker's results"), finding.note).tell();
                    return Ok(());
                }
                "right" => {
                    if let Some((error, gone)) = crash {
                        to_right.push(line.at.duration_since(gone).as_secs_f64() * 1e3);
                        total.push(line.at.duration_since(error).as_secs_f64() * 1e3);
                    }
                }
                "broke" => broke = Some(line.at),
                _ => {
                    let value = finding.value.as_f64().unwrap_or_default();
                    match steps.iter_mut().find(|(step, _)| *step == finding.name) {
                        Some((_, values)) => values.push(value),
                        None => steps.push((finding.name, vec![value])),
                    }
                }
            }
        }
        let (end, gone) = worker.end();
        let Some(error) = broke else {
            Finding::missing(name("a worker did not get as far as its error"), end).tell();
            return Ok(());
        };
        to_gone.push(gone.duration_since(error).as_secs_f64() * 1e3);
        crash = Some((error, gone));
    }
    Finding::median(name("from the error to the process's end"), to_gone, "ms").tell();
    Finding::median(name("from the process's end to a right result"), to_right, "ms").tell();
    Finding::median(name("from the error to a right result"), total, "ms").tell();
    for (step, values) in steps {
        Finding::median(name(&step), values, "ms").tell();
    }
    Ok(())
}

/// A worker: reads its model, uploads it, computes, and optionally breaks its context.
pub fn worker(model: &Path, breaks: bool) -> Result<(), String> {
    let mut last = Instant::now();
    let mut step = |name: &str| {
        let now = Instant::now();
        Finding::number(name, now.duration_since(last).as_secs_f64() * 1e3, "ms", 1).tell();
        last = Instant::now();
    };
    cuda::driver_present()?;
    cudarc::driver::result::init().map_err(failed("driver"))?;
    step("step: driver");
    let context = cudarc::driver::CudaContext::new(0).map_err(failed("context"))?;
    step("step: context");
    let gpu = Gpu::in_context(context)?;
    step("step: kernels");
    let read = || -> std::io::Result<Vec<f32>> {
        let mut file = std::fs::File::open(model)?;
        let mut values = vec![0f32; file.metadata()?.len() as usize / 4];
        file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    };
    let values = read().map_err(|e| format!("{}: {e}", model.display()))?;
    step("step: model read");
    let x = Memory::of(&values)?;
    step("step: model uploaded");
    let n = values.len();
    let y = Memory::poisoned(n)?;
    let stream = Stream::new()?;
    let (a, b) = (fastrand::f32() + 0.5, fastrand::f32());
    gpu.launch_affine(&stream, &y, &x, a, b, n as u32).map_err(failed("launch"))?;
    stream.synchronize().map_err(failed("stream synchronise"))?;
    // Compares only a part of the results: comparing all would dominate the time.
    let part = fastrand::usize(..=n - CHECKED);
    let mut got = check::poisoned(CHECKED);
    // SAFETY: the part lies within the memory.
    unsafe { result::memcpy_dtoh_sync(&mut got, y.at + 4 * part as u64) }.map_err(failed("copy to host"))?;
    let want: Vec<f32> = values[part..part + CHECKED].iter().map(|&x| a.mul_add(x, b)).collect();
    let checked = check::compare(&got, &want, 0.0, 0.0);
    step("step: first result, checked");
    Finding::fact("right", checked.is_ok()).checked(&checked).tell();
    if breaks {
        gpu.launch_stray_store(&stream).map_err(failed("the bad launch"))?;
        let seen = stream.synchronize();
        Finding::fact("broke", code(seen)).tell();
        child::leave(BROKEN);
    }
    Ok(())
}

/// The number of results that a worker compares.
const CHECKED: usize = 1 << 16;
