// y = a x + b, for any number of values: a grid is at most 65,535 workgroups wide.
struct Shape { n: u32, a: f32, b: f32, unused: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> shape: Shape;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < shape.n; i += groups.x * 256u) {
        y[i] = shape.a * x[i] + shape.b + w[0];
    }
}
