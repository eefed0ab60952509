// Waits for a store that never happens: a shader that never ends.
struct Shape { n: u32, a: f32, b: f32, unused: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> shape: Shape;

@compute @workgroup_size(1)
fn main() {
    // All bindings are named so that every kernel has the same layout.
    let unused = x[0] + w[0] + f32(shape.n);
    while atomicLoad(&y[0]) != 12345u {
        atomicAdd(&y[1], 1u + u32(unused * 0.0));
    }
}
