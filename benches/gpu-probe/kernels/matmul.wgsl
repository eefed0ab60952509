// y = x w for square matrices whose side is a multiple of 64. A workgroup computes 64 x 64 results, each thread 4 x 4 of them.
struct Shape { n: u32, unused0: u32, unused1: u32, unused2: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> shape: Shape;

const TILE = 64u;
const DEPTH = 16u;
// Both tiles have the summed index first, so that a thread's four values are adjacent.
var<workgroup> left: array<array<f32, 64>, 16>;
var<workgroup> right: array<array<f32, 64>, 16>;

@compute @workgroup_size(16, 16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let n = shape.n;
    let row = group.y * TILE;
    let column = group.x * TILE;
    var sums: array<vec4<f32>, 4>;
    for (var k = 0u; k < n; k += DEPTH) {
        for (var part = 0u; part < 4u; part++) {
            let at = index + part * 256u;
            left[at % DEPTH][at / DEPTH] = x[(row + at / DEPTH) * n + k + at % DEPTH];
            right[at / TILE][at % TILE] = w[(k + at / TILE) * n + column + at % TILE];
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let c = local.x * 4u;
            let b = vec4(right[d][c], right[d][c + 1u], right[d][c + 2u], right[d][c + 3u]);
            for (var r = 0u; r < 4u; r++) {
                sums[r] += left[d][local.y * 4u + r] * b;
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        let at = (row + local.y * 4u + r) * n + column + local.x * 4u;
        for (var c = 0u; c < 4u; c++) {
            y[at + c] = sums[r][c];
        }
    }
}
