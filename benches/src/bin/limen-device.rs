//! What a node adds to a call on a device: a kernel in a graph, with its copies to and from the
//! device, beside the same upload, dispatch and read-back written by hand against wgpu, in one
//! process and in turns. Then whether many calls make the process grow.
//!
//!     limen-device [ROUNDS] [CALLS]
//!
//! Takes an adapter that computes on the CPU, too.

#![allow(clippy::disallowed_methods, reason = "the shader is its own")]

use hdrhistogram::Histogram;
use limen::message::Header;
use limen::{Clock, Driven, Folders, Inlet, Outlet, Plan, Registry, Spec, Tensor, Time, Turned};
use limen_infer::{BackendOptions, register_with};
use std::time::{Duration, Instant};

const LENGTH: usize = 4096;

/// Adds, as often as `TIMES` says.
const SHADER: &str = "override TIMES: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = x[id.x];
    for (var n = 0u; n < TIMES; n++) { sum = sum * 1.0000001 + 0.5; }
    y[id.x] = sum;
}";

/// `x * 0.5 + 0.5` of `[n, 4096]` as ONNX, and by hand.
const MODEL: &[u8] = b"\x08\x08:^\x0a\x0e\x0a\x01x\x0a\x01c\x12\x01m\x22\x03Mul\x0a\x0e\x0a\x01m\x0a\x01c\x12\x01y\x22\x03Add\x12\x01g*\x0b\x10\x01\x22\x04\x00\x00\x00?B\x01cZ\x15\x0a\x01x\x12\x10\x0a\x0e\x08\x01\x12\x0a\x0a\x03\x12\x01n\x0a\x03\x08\x80 b\x15\x0a\x01y\x12\x10\x0a\x0e\x08\x01\x12\x0a\x0a\x03\x12\x01n\x0a\x03\x08\x80 B\x04\x0a\x00\x10\x12";
const HALVES: &str = "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x] * 0.5 + 0.5; }";

struct Graph {
    driven: Driven,
    inlet: Inlet<Tensor>,
    outlet: Outlet<Tensor>,
    seq: u64,
}

impl Graph {
    fn kernel(times: u32) -> Graph {
        Graph::new(&format!(
            "k:\n    kind: kernel\n    config: {{ source: k.wgsl, inputs: {{ x: [n] }}, outputs: {{ y: {{ dtype: f32, shape: [n] }} }}, grid: ['n / 64'], \
             constants: {{ TIMES: {times} }}, allow_kernels: true }}"
        ))
    }

    fn model(batch: usize) -> Graph {
        Graph::new(&format!(
            "k:\n    kind: infer\n    config: {{ model: 'mem:halves', backend: wgpu, batch: {{ max: {batch} }}, buckets: [{batch}] }}"
        ))
    }

    fn new(node: &str) -> Graph {
        let folder = std::env::temp_dir().join(format!("limen-device-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("k.wgsl"), SHADER).expect("a shader");
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: 'f32[{LENGTH}]', capacity: 16 }} }}\n  {node}\n    from: a\n  \
             z: {{ kind: outlet, config: {{ hold: 16 }}, from: k }}\n"
        );
        let options = BackendOptions { allow_software: true, allow_kernels: true, ..BackendOptions::default() };
        let registry = Registry::new()
            .with(register_with(options))
            .with(limen_gpu::register)
            .inlet::<Tensor>("inlet")
            .outlet::<Tensor>("outlet");
        let mut spec = Spec::from_text(&text, "device.yaml").expect("a graph").with_file("halves", MODEL);
        spec.folders = Folders { graph: folder, ..spec.folders };
        let mut wired =
            Plan::new(spec, &registry).unwrap_or_else(|problems| panic!("{problems}")).wire().expect("pools");
        let (inlet, outlet) = (wired.inlet("a").expect("an inlet"), wired.outlet("z").expect("an outlet"));
        Graph { driven: wired.drive(Clock::Monotonic).expect("a graph"), inlet, outlet, seq: 0 }
    }

    /// Sends messages of the values, all before the first turn, and takes as many results. Returns
    /// the last number.
    fn call(&mut self, values: &[f32]) -> f32 {
        values.chunks_exact(LENGTH).for_each(|values| self.send(values));
        let mut last = 0.0;
        values.chunks_exact(LENGTH).for_each(|_| last = self.take());
        last
    }

    fn send(&mut self, values: &[f32]) {
        let mut tensor = self.inlet.loan(&Header::new(self.seq, Time::ZERO)).expect("a slot");
        tensor.as_mut_slice::<f32>().expect("numbers").copy_from_slice(values);
        self.seq += 1;
        assert!(self.inlet.try_send(tensor).is_ok());
    }

    fn take(&mut self) -> f32 {
        loop {
            if let Ok(message) = self.outlet.try_recv() {
                return message.body.as_slice::<f32>().expect("numbers")[LENGTH - 1];
            }
            // Sleeps where there is nothing to do, as the call by hand does: the cores may be those
            // of the device.
            if let Turned::Idle(_) = self.driven.turn() {
                self.driven.wait(Duration::from_millis(100));
            }
        }
    }
}

/// The same by hand.
struct Raw {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    bound: wgpu::BindGroup,
    input: wgpu::Buffer,
    output: wgpu::Buffer,
    readback: wgpu::Buffer,
    items: usize,
}

impl Raw {
    fn new(shader: &str, times: Option<u32>, items: usize) -> Raw {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).expect("an adapter");
        let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).expect("a device");
        let source = wgpu::ShaderSource::Wgsl(shader.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let constants: Vec<(&str, f64)> = times.map(|times| ("TIMES", f64::from(times))).into_iter().collect();
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() },
            cache: None,
        });
        let buffer = |usage: wgpu::BufferUsages| {
            let size = 4 * (items * LENGTH) as u64;
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        use wgpu::BufferUsages as U;
        let (input, output) = (buffer(U::STORAGE | U::COPY_DST), buffer(U::STORAGE | U::COPY_SRC));
        let readback = buffer(U::MAP_READ | U::COPY_DST);
        fn entry(binding: u32, buffer: &wgpu::Buffer) -> wgpu::BindGroupEntry<'_> {
            wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() }
        }
        let bound = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[entry(0, &input), entry(1, &output)],
        });
        Raw { device, queue, pipeline, bound, input, output, readback, items }
    }

    fn call(&mut self, values: &[f32]) -> f32 {
        self.queue.write_buffer(&self.input, 0, bytemuck::cast_slice(values));
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.bound, &[]);
            pass.dispatch_workgroups((self.items * LENGTH) as u32 / 64, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&self.output, 0, &self.readback, 0, self.readback.size());
        self.queue.submit([encoder.finish()]);
        self.readback.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.expect("mapped"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device");
        let view = self.readback.slice(..).get_mapped_range().expect("mapped");
        let values: Vec<f32> = bytemuck::cast_slice(&view).to_vec();
        drop(view);
        self.readback.unmap();
        values[values.len() - 1]
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (rounds, calls) = (words.first().copied().unwrap_or(2000), words.get(1).copied().unwrap_or(100_000));
    let all_values: Vec<f32> = (0..8 * LENGTH).map(|n| n as f32 / 64.0).collect();
    let values = &all_values[..LENGTH];
    println!(
        "| a call of | by hand, p50 / p99 / max µs | node, p50 / p99 / max µs | ratio of p50 | more at p50 |\n|---|---|---|---|---|"
    );
    for (name, times, items, rounds) in [
        ("a model alone, a few µs of work", None, 1, rounds),
        ("a model alone, a batch of 8 messages", None, 8, rounds),
        ("a kernel with its copies, a few µs of work", Some(1), 1, rounds),
        ("a kernel with its copies, some ms of work", Some(6000), 1, rounds / 10),
    ] {
        let (mut graph, mut raw) = match times {
            Some(times) => (Graph::kernel(times), Raw::new(SHADER, Some(times), items)),
            None => (Graph::model(items), Raw::new(HALVES, None, items)),
        };
        let values = &all_values[..items * LENGTH];
        let mut seen = [Histogram::<u64>::new(3).expect("digits"), Histogram::new(3).expect("digits")];
        for round in 0..rounds + rounds / 10 {
            let begun = Instant::now();
            let by_hand = raw.call(values);
            let between = Instant::now();
            let by_node = graph.call(values);
            let ended = Instant::now();
            assert_eq!(by_hand.to_bits(), by_node.to_bits());
            // The first tenth warms up.
            if round >= rounds / 10 {
                for (seen, took) in seen.iter_mut().zip([between - begun, ended - between]) {
                    seen.record(took.as_nanos() as u64).expect("below a limit");
                }
            }
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let show = |seen: &Histogram<u64>| {
            let [p50, p99] = [50.0, 99.0].map(|p| us(seen.value_at_percentile(p)));
            format!("{p50:.1} / {p99:.1} / {:.1}", us(seen.max()))
        };
        let [by_hand, by_node] = [0, 1].map(|at| us(seen[at].value_at_percentile(50.0)));
        let (ratio, more) = (by_node / by_hand, by_node - by_hand);
        println!("| {name} | {} | {} | {ratio:.3} | {more:.1} µs |", show(&seen[0]), show(&seen[1]));
    }
    let mut graph = Graph::kernel(1);
    (0..calls / 10).for_each(|_| _ = graph.call(values));
    let before = resident_kib();
    (0..calls).for_each(|_| _ = graph.call(values));
    println!("\n{calls} calls: resident memory grew by {} KiB", resident_kib().saturating_sub(before));
}
