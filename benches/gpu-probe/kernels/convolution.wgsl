// A 3 x 3 convolution with a border of zeros, channels first: y[o] = sum over i of w[o, i] * x[i].
// A workgroup computes 16 x 16 results of one output channel, and loads the 18 x 18 inputs under them once per channel.
struct Shape { inputs: u32, outputs: u32, height: u32, width: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> shape: Shape;

var<workgroup> tile: array<array<f32, 18>, 18>;

@compute @workgroup_size(16, 16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let top = i32(group.y * 16u) - 1;
    let left = i32(group.x * 16u) - 1;
    let height = i32(shape.height);
    let width = i32(shape.width);
    var sum = 0.0;
    for (var i = 0u; i < shape.inputs; i++) {
        for (var at = index; at < 324u; at += 256u) {
            let row = top + i32(at / 18u);
            let column = left + i32(at % 18u);
            var value = 0.0;
            if row >= 0 && row < height && column >= 0 && column < width {
                value = x[(i32(i) * height + row) * width + column];
            }
            tile[at / 18u][at % 18u] = value;
        }
        workgroupBarrier();
        let weights = (group.z * shape.inputs + i) * 9u;
        for (var r = 0u; r < 3u; r++) {
            for (var c = 0u; c < 3u; c++) {
                sum += w[weights + r * 3u + c] * tile[local.y + r][local.x + c];
            }
        }
        workgroupBarrier();
    }
    let row = group.y * 16u + local.y;
    let column = group.x * 16u + local.x;
    if row < shape.height && column < shape.width {
        y[(group.z * shape.height + row) * shape.width + column] = sum;
    }
}
