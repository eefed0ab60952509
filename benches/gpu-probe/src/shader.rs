//! WGSL through Vulkan: the features of the adapter, the cost of a dispatch, the correctness and speed of results, and what
//! happens to the device when a shader never ends.

use crate::Options;
use crate::check::{self, micros, sampled};
use crate::child;
use crate::report::{Attempt, Finding};
use crate::yardsticks::{CONVOLUTIONS, SIDES};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wgpu::{BufferUsages, PollType};

const ELEMENTWISE: &str = include_str!("../kernels/elementwise.wgsl");
const MATMUL: &str = include_str!("../kernels/matmul.wgsl");
const CONVOLUTION: &str = include_str!("../kernels/convolution.wgsl");
const ENDLESS: &str = include_str!("../kernels/endless.wgsl");

const BUDGET: Duration = Duration::from_secs(1);

/// The time after which the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of results of a large computation that are checked on the CPU.
const PICKS: usize = 2000;

type Part = fn(&Computer) -> Result<(), String>;

pub fn section(options: &Options) -> Result<(), String> {
    let computer = Computer::open(options, true)?;
    let parts: [(&str, Part); 4] =
        [("elementwise", elementwise), ("dispatches", dispatches), ("errors", errors), ("work", work)];
    for (name, part) in parts {
        if let Err(why) = check::caught(|| part(&computer)) {
            Finding::missing(name, why).tell();
        }
        computer.tell_errors(name);
    }
    endings(&computer, options)
}

/// A device, its queue, and their errors.
struct Computer {
    device: wgpu::Device,
    queue: wgpu::Queue,
    software: bool,
    timestamps: bool,
    errors: Arc<Mutex<Vec<String>>>,
    lost: Arc<Mutex<Option<String>>>,
}

impl Computer {
    /// Opens the first Vulkan device that is a GPU, or with `--software` one that computes on the CPU.
    fn open(options: &Options, tells: bool) -> Result<Self, String> {
        check::caught(|| Self::open_first(options, tells))
    }

    fn open_first(options: &Options, tells: bool) -> Result<Self, String> {
        let began = Instant::now();
        let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
        description.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(description);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let opened = micros(began) / 1e3;
        let is_software = |adapter: &wgpu::Adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let names: Vec<String> = adapters.iter().map(|adapter| adapter.get_info().name).collect();
        let chosen = adapters.iter().find(|a| !is_software(a)).or_else(|| adapters.iter().find(|_| options.software));
        let adapter = match chosen {
            Some(adapter) => adapter,
            None if names.is_empty() => return Err("no Vulkan adapter: no loader, or no driver that it finds".into()),
            None => {
                return Err(format!(
                    "only adapters that compute on the CPU ({}); --software uses them",
                    names.join(", ")
                ));
            }
        };
        let features = adapter.features();
        let wanted = wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::SHADER_F16
            | wgpu::Features::SUBGROUP
            | wgpu::Features::PIPELINE_CACHE;
        let began = Instant::now();
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: features & wanted,
            required_limits: adapter.limits(),
            ..Default::default()
        }))
        .map_err(|e| format!("device: {e}"))?;
        let made = micros(began) / 1e3;
        if tells {
            Finding::fact("adapters", names.join(", ")).tell();
            Self::tell_adapter(adapter);
            Finding::number("instance and adapters", opened, "ms", 1).tell();
            Finding::number("device", made, "ms", 1).tell();
        }
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        // Without a handler, wgpu panics.
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }));
        let lost = Arc::new(Mutex::new(None));
        let told = lost.clone();
        device.set_device_lost_callback(move |reason, message| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{reason:?}: {message}"));
        });
        let timestamps = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        Ok(Self { device, queue, software: is_software(adapter), timestamps, errors, lost })
    }

    fn tell_adapter(adapter: &wgpu::Adapter) {
        let info = adapter.get_info();
        Finding::fact("adapter", info.name)
            .note(format!("{:?}, {:?}", info.device_type, info.backend))
            .note(format!("driver {} {}", info.driver, info.driver_info))
            .tell();
        let limits = adapter.limits();
        let numbers: [(&str, u64, &str); 9] = [
            ("largest buffer", limits.max_buffer_size, "bytes"),
            ("largest storage binding", limits.max_storage_buffer_binding_size, "bytes"),
            ("storage buffers a stage", limits.max_storage_buffers_per_shader_stage.into(), ""),
            ("storage of a workgroup", limits.max_compute_workgroup_storage_size.into(), "bytes"),
            ("invocations of a workgroup", limits.max_compute_invocations_per_workgroup.into(), ""),
            ("width of a workgroup", limits.max_compute_workgroup_size_x.into(), ""),
            ("workgroups in a dimension", limits.max_compute_workgroups_per_dimension.into(), ""),
            ("alignment of a storage buffer's offset", limits.min_storage_buffer_offset_alignment.into(), "bytes"),
            ("bind groups", limits.max_bind_groups.into(), ""),
        ];
        for (name, value, unit) in numbers {
            let mut finding = Finding::fact(format!("limit: {name}"), value);
            finding.unit = unit.into();
            finding.tell();
        }
        let features: Vec<&str> = adapter.features().iter_names().map(|(name, _)| name).collect();
        Finding::fact("features", features.len()).note(features.join(" ")).tell();
    }

    fn tell_errors(&self, what: &str) {
        let errors: Vec<String> = self.errors.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        if !errors.is_empty() {
            Finding::missing(format!("errors of the device during {what}"), errors.join("; ")).tell();
        }
    }

    fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait(&self, index: wgpu::SubmissionIndex, patience: Duration) -> Result<(), String> {
        match self.device.poll(PollType::Wait { submission_index: Some(index), timeout: Some(patience) }) {
            Ok(_) => match self.lost() {
                None => Ok(()),
                Some(how) => Err(format!("the device was lost: {how}")),
            },
            Err(error) => Err(format!("waiting: {error}")),
        }
    }

    fn buffer(&self, bytes: usize, usage: BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage,
            mapped_at_creation: false,
        })
    }

    /// Compiles a kernel. With `checks` accesses are bounds-checked, which is wgpu's default.
    fn pipeline(&self, source: &str, checks: bool) -> Result<wgpu::ComputePipeline, String> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let description = wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(source.into()) };
        let module = if checks {
            self.device.create_shader_module(description)
        } else {
            // SAFETY: the probe's kernels stay within their buffers, and their loops end.
            unsafe { self.device.create_shader_module_trusted(description, wgpu::ShaderRuntimeChecks::unchecked()) }
        };
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        match pollster::block_on(scope.pop()) {
            None => Ok(pipeline),
            Some(error) => Err(error.to_string()),
        }
    }

    /// Creates the buffers of a kernel, with the results filled with poison.
    fn job(
        &self,
        pipeline: wgpu::ComputePipeline,
        x: &[f32],
        w: &[f32],
        results: usize,
        shape: [u32; 4],
        groups: [u32; 3],
    ) -> Job {
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let filled = |values: &[f32]| {
            let buffer = self.buffer(values.len() * 4, storage);
            self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(values));
            buffer
        };
        let (x, w, y) = (filled(x), filled(w), filled(&check::poisoned(results)));
        let uniform = self.buffer(16, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
        self.queue.write_buffer(&uniform, 0, bytemuck::cast_slice(&shape));
        let bindings = (0u32..).zip([&x, &w, &y, &uniform]);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = bindings
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let layout = pipeline.get_bind_group_layout(0);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &entries,
        });
        let back = self.buffer(results * 4, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        Job { pipeline, group, x, y, back, groups }
    }

    /// Dispatches a job a number of times in one submission; optionally reads its results back.
    fn submit(&self, job: &Job, times: usize, reads: bool, stamps: Option<&Stamps>) -> wgpu::SubmissionIndex {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let timestamp_writes = stamps.map(|stamps| wgpu::ComputePassTimestampWrites {
                query_set: &stamps.set,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            });
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            pass.set_pipeline(&job.pipeline);
            pass.set_bind_group(0, &job.group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(job.groups[0], job.groups[1], job.groups[2]);
            }
        }
        if let Some(stamps) = stamps {
            encoder.resolve_query_set(&stamps.set, 0..2, &stamps.resolved, 0);
            encoder.copy_buffer_to_buffer(&stamps.resolved, 0, &stamps.back, 0, Some(16));
        }
        if reads {
            encoder.copy_buffer_to_buffer(&job.y, 0, &job.back, 0, Some(job.y.size()));
        }
        self.queue.submit([encoder.finish()])
    }

    fn read<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer, index: wgpu::SubmissionIndex) -> Result<Vec<T>, String> {
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        buffer.map_async(wgpu::MapMode::Read, .., move |mapped| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(mapped.map_err(|e| e.to_string()));
        });
        self.wait(index, PATIENCE)?;
        // The buffer is mapped in a poll after the work has ended.
        let _ = self.device.poll(PollType::Poll);
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.ok_or("the results were not mapped")??;
        let values = {
            let view = buffer.get_mapped_range(..).map_err(|e| format!("mapping: {e}"))?;
            bytemuck::pod_collect_to_vec::<u8, T>(&view)
        };
        buffer.unmap();
        Ok(values)
    }

    fn stamps(&self) -> Option<Stamps> {
        self.timestamps.then(|| Stamps {
            set: self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: self.buffer(16, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
            back: self.buffer(16, BufferUsages::MAP_READ | BufferUsages::COPY_DST),
        })
    }

    /// Runs a small computation on fresh buffers, and compares with the CPU.
    fn computes(&self) -> Attempt {
        let n = 10_007;
        let (a, b, w) = (fastrand::f32() + 0.5, fastrand::f32(), fastrand::f32());
        let x = check::random(n);
        let job = self.job(
            self.pipeline(ELEMENTWISE, true)?,
            &x,
            &[w],
            n,
            [n as u32, a.to_bits(), b.to_bits(), 0],
            [8, 1, 1],
        );
        let index = self.submit(&job, 1, true, None);
        let want: Vec<f32> = x.iter().map(|x| a * x + b + w).collect();
        Ok(check::compare(&self.read(&job.back, index)?, &want, 1e-5, 1e-5))
    }
}

struct Job {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    x: wgpu::Buffer,
    y: wgpu::Buffer,
    back: wgpu::Buffer,
    groups: [u32; 3],
}

/// Two device timestamps.
struct Stamps {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    back: wgpu::Buffer,
}

impl Stamps {
    /// Microseconds between them.
    fn micros(&self, computer: &Computer, index: wgpu::SubmissionIndex) -> Result<f64, String> {
        let ticks: Vec<u64> = computer.read(&self.back, index)?;
        let [start, stop] = ticks[..] else { return Err("there are not two timestamps".into()) };
        if stop < start {
            return Err(format!("the later timestamp is {} ticks before the earlier", start - stop));
        }
        Ok((stop - start) as f64 * f64::from(computer.queue.get_timestamp_period()) / 1e3)
    }
}

/// Upload, dispatch and readback, as for one message.
fn elementwise(computer: &Computer) -> Result<(), String> {
    Finding::attempt("first result", &computer.computes()).tell();
    for (n, size) in [(1usize << 12, "4 Ki"), (1 << 20, "1 Mi")] {
        let (a, b, w) = (fastrand::f32() + 0.5, fastrand::f32(), fastrand::f32());
        let x = check::random(n);
        let began = Instant::now();
        let pipeline = computer.pipeline(ELEMENTWISE, true)?;
        let made = micros(began) / 1e3;
        let groups = [(n as u32).div_ceil(256).min(1024), 1, 1];
        let job = computer.job(pipeline, &x, &[w], n, [n as u32, a.to_bits(), b.to_bits(), 0], groups);
        let began = Instant::now();
        let got: Vec<f32> = computer.read(&job.back, computer.submit(&job, 1, true, None))?;
        let first = micros(began) / 1e3;
        let want: Vec<f32> = x.iter().map(|x| a * x + b + w).collect();
        let checked = check::compare(&got, &want, 1e-5, 1e-5);
        Finding::number(format!("elementwise, {size} floats: pipeline"), made, "ms", 1).tell();
        Finding::number(format!("elementwise, {size} floats: first run"), first, "ms", 1).checked(&checked).tell();
        let mut last = Vec::new();
        let whole = sampled(30, 1000, BUDGET, || {
            let began = Instant::now();
            computer.queue.write_buffer(&job.x, 0, bytemuck::cast_slice(&x));
            last = computer.read::<f32>(&job.back, computer.submit(&job, 1, true, None))?;
            Ok::<f64, String>(micros(began))
        })?;
        let checked = check::compare(&last, &want, 1e-5, 1e-5);
        Finding::median(format!("elementwise, {size} floats: upload, dispatch, readback"), whole, "us")
            .checked(&checked)
            .tell();
        let read = sampled(30, 1000, BUDGET, || {
            let began = Instant::now();
            last = computer.read::<f32>(&job.back, computer.submit(&job, 1, true, None))?;
            Ok::<f64, String>(micros(began))
        })?;
        Finding::median(format!("elementwise, {size} floats: dispatch, readback"), read, "us").tell();
        let waited = sampled(30, 1000, BUDGET, || {
            let began = Instant::now();
            computer.wait(computer.submit(&job, 1, false, None), PATIENCE)?;
            Ok::<f64, String>(micros(began))
        })?;
        Finding::median(format!("elementwise, {size} floats: dispatch, wait"), waited, "us").tell();
    }
    Ok(())
}

/// The cost of one more dispatch, in the same submission and in a separate one.
fn dispatches(computer: &Computer) -> Result<(), String> {
    let n = 256;
    let job = computer.job(
        computer.pipeline(ELEMENTWISE, true)?,
        &check::random(n),
        &[0.0],
        n,
        [n as u32, 0, 0, 0],
        [1, 1, 1],
    );
    for times in [1usize, 10, 100] {
        let mut queued = Vec::new();
        let whole = sampled(30, 500, BUDGET, || {
            let began = Instant::now();
            let index = computer.submit(&job, times, false, None);
            queued.push(micros(began));
            computer.wait(index, PATIENCE)?;
            Ok::<f64, String>(micros(began))
        })?;
        Finding::median(format!("{times} dispatches in one submission: encode and submit"), queued, "us").tell();
        Finding::median(format!("{times} dispatches in one submission: with wait"), whole, "us").tell();
    }
    match computer.stamps() {
        None => Finding::missing("timestamp queries", "the adapter has none").tell(),
        Some(stamps) => {
            let period = computer.queue.get_timestamp_period();
            Finding::number("timestamp period", f64::from(period), "ns", 1).tell();
            let times =
                sampled(30, 500, BUDGET, || stamps.micros(computer, computer.submit(&job, 1, false, Some(&stamps))))?;
            Finding::median("one empty dispatch between timestamps", times, "us").tell();
        }
    }
    Ok(())
}

/// A wrong kernel or buffer must give an error, not a panic or a crash.
fn errors(computer: &Computer) -> Result<(), String> {
    let answer = computer.pipeline("@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }", true);
    let (refused, words) = match answer {
        Ok(_) => (false, String::new()),
        Err(why) => (true, why.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_string()),
    };
    Finding::fact("a kernel with an error is refused", refused).note(words).tell();
    let limit = computer.device.limits().max_buffer_size;
    let scope = computer.device.push_error_scope(wgpu::ErrorFilter::Validation);
    let size = (limit & !3).saturating_add(4);
    let _ = computer.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let refused = pollster::block_on(scope.pop());
    Finding::fact("a buffer larger than the limit is refused", refused.is_some()).tell();
    Ok(())
}

/// Matrix products and convolutions of three sizes, with and without wgpu's bounds checks.
fn work(computer: &Computer) -> Result<(), String> {
    // With a software driver only correctness matters, not speed.
    let sides = if computer.software { [64, 128, 192] } else { [SIDES[0], SIDES[2], SIDES[4]] };
    for n in sides {
        let (x, w) = (check::random(n * n), check::random(n * n));
        let tiles = (n / 64) as u32;
        let shape = [n as u32, 0, 0, 0];
        let name = format!("matmul {n}");
        let check = |y: &[f32]| check::product(y, &x, &w, n, PICKS, 1e-5, 0.0);
        compute(computer, &name, MATMUL, &x, &w, n * n, shape, [tiles, tiles, 1], 2.0 * (n as f64).powi(3), &check)?;
    }
    let shapes = if computer.software { [(4, 8, 20), (8, 8, 28), (16, 16, 28)] } else { CONVOLUTIONS };
    for (inputs, outputs, side) in shapes {
        let (x, w) = (check::random(inputs * side * side), check::random(inputs * outputs * 9));
        let tiles = side.div_ceil(16) as u32;
        let shape = [inputs as u32, outputs as u32, side as u32, side as u32];
        let name = format!("convolution {inputs}x{side}x{side} to {outputs}");
        let results = outputs * side * side;
        let check = |y: &[f32]| convolved(y, &x, &w, inputs, side);
        compute(
            computer,
            &name,
            CONVOLUTION,
            &x,
            &w,
            results,
            shape,
            [tiles, tiles, outputs as u32],
            18.0 * (inputs * results) as f64,
            &check,
        )?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "two callers, and nothing else in common")]
fn compute(
    computer: &Computer,
    name: &str,
    source: &str,
    x: &[f32],
    w: &[f32],
    results: usize,
    shape: [u32; 4],
    groups: [u32; 3],
    operations: f64,
    check: &dyn Fn(&[f32]) -> Result<f64, String>,
) -> Result<(), String> {
    for checks in [true, false] {
        let name = format!("{name}, {}", if checks { "checked accesses" } else { "unchecked" });
        let job = computer.job(computer.pipeline(source, checks)?, x, w, results, shape, groups);
        let checked = check(&computer.read::<f32>(&job.back, computer.submit(&job, 1, true, None))?);
        let waited = sampled(10, 500, BUDGET, || {
            let began = Instant::now();
            computer.wait(computer.submit(&job, 1, false, None), PATIENCE)?;
            Ok::<f64, String>(micros(began))
        })?;
        Finding::median(format!("{name}: dispatch, wait"), waited, "us").checked(&checked).tell();
        if let Some(stamps) = computer.stamps() {
            let times =
                sampled(10, 500, BUDGET, || stamps.micros(computer, computer.submit(&job, 1, false, Some(&stamps))))?;
            let (median, _) = check::median_and_p99(&mut times.clone());
            let rate = check::rate(operations, median);
            Finding::median(format!("{name}: between timestamps"), times, "us").note(rate).checked(&checked).tell();
        }
    }
    Ok(())
}

/// No result may be NaN; some random ones are compared with the CPU.
fn convolved(y: &[f32], x: &[f32], w: &[f32], inputs: usize, side: usize) -> Result<f64, String> {
    if let Some(i) = y.iter().position(|value| !value.is_finite()) {
        return Err(format!("value {i} is not a number"));
    }
    let mut largest = 0f64;
    for _ in 0..PICKS {
        let at = fastrand::usize(..y.len());
        let (output, row, column) = (at / (side * side), at / side % side, at % side);
        let (mut sum, mut magnitude) = (0f64, 0f64);
        for i in 0..inputs {
            for (r, c) in (0..9).map(|k| (k / 3, k % 3)) {
                let (up, left) = (row + r, column + c);
                if (1..=side).contains(&up) && (1..=side).contains(&left) {
                    let weight = w[(output * inputs + i) * 9 + r * 3 + c];
                    let term = f64::from(weight) * f64::from(x[(i * side + up - 1) * side + left - 1]);
                    sum += term;
                    magnitude += term.abs();
                }
            }
        }
        let error = (f64::from(y[at]) - sum).abs();
        // Written so that NaN fails.
        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "a comparison with NaN is false")]
        if !(error <= 1e-5 * magnitude + 1e-6) {
            return Err(format!("value {at} is {} instead of {sum}", y[at]));
        }
        largest = largest.max(error);
    }
    Ok(largest)
}

/// A shader that never ends, in a separate process; checks whether this process's device still works.
fn endings(computer: &Computer, options: &Options) -> Result<(), String> {
    let running =
        child::start(child::again(&options.child(&["child", "shader", "endless"]))?, Duration::from_secs(180))?;
    let began = running.started;
    let (findings, end) = running.findings();
    let took = began.elapsed().as_secs_f64();
    for finding in findings {
        finding.tell();
    }
    Finding::number("endless shader: the process ended after", took, "s", 1).note(end).tell();
    let after = check::caught(|| computer.computes());
    Finding::attempt("endless shader: another process's device, afterwards", &after).tell();
    Ok(())
}

/// Submits a shader that never ends, waits for the device's reaction, and tries to continue in the same process.
pub fn endless(options: &Options) -> Result<(), String> {
    let computer = Computer::open(options, false)?;
    computer.computes().and_then(|checked| checked).map_err(|why| format!("before the endless shader: {why}"))?;
    let pipeline = computer.pipeline(ENDLESS, true)?;
    let job = computer.job(pipeline, &[0.0], &[0.0], 2, [1, 0, 0, 0], [1, 1, 1]);
    let limit = Duration::from_secs(if computer.software { 3 } else { 40 });
    let began = Instant::now();
    let answer = check::caught(|| computer.wait(computer.submit(&job, 1, false, None), limit));
    let outcome = answer.err().unwrap_or_else(|| "it ended".into());
    let errors = computer.errors.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
    Finding::number("endless shader: waited", began.elapsed().as_secs_f64(), "s", 1)
        .note(outcome)
        .note(format!("device lost: {}", computer.lost().unwrap_or_else(|| "no".into())))
        .note(format!("errors: {}", if errors.is_empty() { "none" } else { &errors }))
        .tell();
    let began = Instant::now();
    let second = check::caught(|| {
        let second = Computer::open(options, false)?;
        within(Duration::from_secs(60), move || second.computes())
    });
    Finding::attempt("endless shader: a new device in the same process", &second)
        .note(format!("after {:.1} s", began.elapsed().as_secs_f64()))
        .tell();
    // Dropping a device would wait for its work, which does not end.
    child::leave(0)
}

/// Runs a call that may never return, on another thread.
fn within(limit: Duration, work: impl FnOnce() -> Attempt + Send + 'static) -> Attempt {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let done = check::caught(work);
        let _ = send.send(done);
    });
    receive.recv_timeout(limit).unwrap_or_else(|_| Err(format!("no answer within {limit:.0?}")))
}
