//! The shader of a suppression: one workgroup, which chooses a box in each turn of a loop.

use super::shader::Shader;
use crate::lowering::{BOX, Kernel, Suppression};

/// Threads of the workgroup.
const THREADS: usize = 64;

/// Writes the shader of a suppression.
///
/// Each thread looks after some boxes, 32 in a word of bits: those that are chosen, removed, or no candidates.
pub(super) fn suppression(kernel: &Kernel, rule: &Suppression) -> Shader {
    let Suppression { boxes, is_counted, most, iou, across_classes } = rule;
    let words = boxes.div_ceil(32).max(1);
    let count = if *is_counted { format!("min({boxes}, i32(a0[{}]))", boxes * BOX) } else { format!("{boxes}") };
    let is_rival = if *across_classes { "true" } else { "a0[n * 6 + 5] == a0[chosen * 6 + 5]" };
    let text = format!(
        "\
@group(0) @binding(0) var<storage, read> a0: array<f32>;
@group(0) @binding(1) var<storage, read_write> a1: array<f32>;
var<workgroup> gone: array<u32, {words}>;
var<workgroup> scores: array<f32, {THREADS}>;
var<workgroup> places: array<i32, {THREADS}>;
fn is_nan(x: f32) -> bool {{ return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }}
fn side(low: f32, high: f32) -> f32 {{ return max(high - low, 0.0); }}
fn area(n: i32) -> f32 {{ return side(a0[n * 6], a0[n * 6 + 2]) * side(a0[n * 6 + 1], a0[n * 6 + 3]); }}
fn overlap(m: i32, n: i32) -> f32 {{
for (var c = 0; c < 4; c++) {{ if (is_nan(a0[m * 6 + c]) || is_nan(a0[n * 6 + c])) {{ return 0.0; }} }}
let wide = side(max(a0[m * 6], a0[n * 6]), min(a0[m * 6 + 2], a0[n * 6 + 2]));
let both = wide * side(max(a0[m * 6 + 1], a0[n * 6 + 1]), min(a0[m * 6 + 3], a0[n * 6 + 3]));
let whole = area(m) + area(n) - both;
if (whole > 0.0) {{ return both / whole; }}
return 0.0; }}
@compute @workgroup_size({THREADS})
fn main(@builtin(local_invocation_index) index: u32) {{
let thread = i32(index);
let count = {count};
for (var w = thread; w < {words}; w += {THREADS}) {{
var bits = 0u;
for (var b = 0; b < 32; b++) {{
let n = w * 32 + b;
if (n >= count) {{ bits |= 1u << u32(b); }} else if (is_nan(a0[n * 6 + 4])) {{ bits |= 1u << u32(b); }} }}
gone[w] = bits; }}
var kept = 0;
for (var turn = 0; turn < {most}; turn++) {{
var best = -1;
var score = 0.0f;
for (var w = thread; w < {words}; w += {THREADS}) {{
let bits = gone[w];
if (bits == 0xffffffffu) {{ continue; }}
for (var b = 0; b < 32; b++) {{
let n = w * 32 + b;
if ((bits & (1u << u32(b))) == 0u) {{
let own = a0[n * 6 + 4];
if (best < 0 || own > score) {{ best = n; score = own; }} }} }} }}
scores[thread] = score;
places[thread] = best;
workgroupBarrier();
for (var half = {}; half > 0; half /= 2) {{
if (thread < half) {{
let p = places[thread]; let q = places[thread + half];
let s = scores[thread]; let r = scores[thread + half];
if (q >= 0 && (p < 0 || r > s || (r == s && q < p))) {{ places[thread] = q; scores[thread] = r; }} }}
workgroupBarrier(); }}
let chosen = workgroupUniformLoad(&places[0]);
if (chosen < 0) {{ break; }}
if (thread < 6) {{ a1[turn * 6 + thread] = a0[chosen * 6 + thread]; }}
kept = turn + 1;
for (var w = thread; w < {words}; w += {THREADS}) {{
var bits = gone[w];
if (bits == 0xffffffffu) {{ continue; }}
for (var b = 0; b < 32; b++) {{
let n = w * 32 + b;
if ((bits & (1u << u32(b))) == 0u) {{
if (n == chosen) {{ bits |= 1u << u32(b); }}
else if ({is_rival}) {{ if (overlap(chosen, n) > {iou:?}f) {{ bits |= 1u << u32(b); }} }} }} }}
gone[w] = bits; }} }}
for (var e = kept * 6 + thread; e < {}; e += {THREADS}) {{ a1[e] = 0.0; }}
if (thread == 0) {{ a1[{}] = f32(kept); }} }}
",
        THREADS / 2,
        most * BOX,
        most * BOX,
    );
    // Of the loop over the boxes, twice in each turn.
    let turns = most.saturating_mul(words.div_ceil(THREADS) * 2 * 32);
    let arrays = vec![kernel.reads[0].array, kernel.write.array];
    Shader { text, arrays, exact: false, groups: [1, 1, 1], turns }
}
