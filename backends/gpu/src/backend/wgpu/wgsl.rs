//! WGSL, the language of shaders that wgpu takes.

use crate::lowering::{Dialect, EntryPoint, KernelArguments, Number, Scalar, ShaderPlace, Storage};

/// The dialect of WGSL.
#[derive(Debug)]
pub(super) struct Wgsl;

/// Functions that WGSL does not have, or not as a model needs them, by their names.
const HELPERS: &[(&str, &str)] = &[
    // Literals of infinities and NaN are refused.
    ("special", "fn special(bits: u32) -> f32 { return bitcast<f32>(bits); }"),
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; absolute error below
    // 1.5e-7.
    (
        "error_function",
        "fn error_function(x: f32) -> f32 {
let t = 1.0 / (1.0 + 0.3275911 * abs(x));
let p = t * (0.2548296 + t * (-0.28449674 + t * (1.4214137 + t * (-1.4531521 + t * 1.0614054))));
return sign(x) * (1.0 - p * exp(-x * x)); }",
    ),
    // WGSL's `pow` is not defined for negative bases.
    (
        "power",
        "fn power(a: f32, b: f32) -> f32 {
if (b == 0.0) { return 1.0; }
let p = pow(abs(a), b);
if (a >= 0.0) { return p; }
if (trunc(b) != b) { return bitcast<f32>(bitcast<u32>(a) | 0x7fc00000u); }
return select(p, -p, abs(b % 2.0) == 1.0); }",
    ),
    (
        "round_away",
        "fn round_away(x: f32) -> f32 { let t = trunc(x); return select(t, t + sign(x), abs(x - t) >= 0.5); }",
    ),
    // WGSL's division truncates.
    (
        "exact_add",
        "fn exact_add(a: i32, b: i32) -> i32 { let s = a + b; if (((a ^ s) & (b ^ s)) < 0) { fail(); } return s; }",
    ),
    (
        "exact_sub",
        "fn exact_sub(a: i32, b: i32) -> i32 { let d = a - b; if (((a ^ b) & (a ^ d)) < 0) { fail(); } return d; }",
    ),
    (
        "exact_mul",
        "fn exact_mul(a: i32, b: i32) -> i32 {
let p = a * b;
if (a == -1 && p == b && b != 0) { fail(); }
if (a != 0 && a != -1 && p / a != b) { fail(); }
return p; }",
    ),
    (
        "exact_div",
        "fn exact_div(a: i32, b: i32) -> i32 {
if (b == -1 && a != 0 && a == -a) { fail(); }
return select(a / select(b, 1, b == 0), 0, b == 0); }",
    ),
    ("exact_neg", "fn exact_neg(a: i32) -> i32 { if (a != 0 && a == -a) { fail(); } return -a; }"),
    ("exact_abs", "fn exact_abs(a: i32) -> i32 { if (a != 0 && a == -a) { fail(); } return abs(a); }"),
    (
        "exact_shift",
        "fn exact_shift(a: i32, b: i32) -> i32 {
let n = bitcast<u32>(b);
let s = select(a << (n & 31u), 0, n > 31u);
if (a != select(s >> (n & 31u), 0, n > 31u)) { fail(); }
return s; }",
    ),
    (
        "exact_cast",
        "fn exact_cast(a: f32) -> i32 { if (!(a >= -2147483648.0 && a < 2147483648.0)) { fail(); } return i32(a); }",
    ),
    ("floor_div", "fn floor_div(a: i32, b: i32) -> i32 { return select(a / b, (a - (b - 1)) / b, a < 0); }"),
    ("whole_div", "fn whole_div(a: i32, b: i32) -> i32 { return select(a / select(b, 1, b == 0), 0, b == 0); }"),
    ("whole_rem", "fn whole_rem(a: i32, b: i32) -> i32 { return select(a % select(b, 1, b == 0), 0, b == 0); }"),
    (
        "shift_left",
        "fn shift_left(a: i32, b: i32) -> i32 { let n = bitcast<u32>(b); return select(a << (n & 31u), 0, n > 31u); }",
    ),
    (
        "byte_of",
        "fn byte_of(word: u32, at: i32) -> i32 { return i32((word >> ((bitcast<u32>(at) & 3u) * 8u)) & 0xffu); }",
    ),
    // The remainder of an infinite divisor is the dividend.
    ("remainder", "fn remainder(a: f32, b: f32) -> f32 { return select(a % b, a, abs(b) > 3.4028234e38); }"),
    // `tanh` of large numbers is NaN where it is computed of exponentials.
    ("flat_tanh", "fn flat_tanh(x: f32) -> f32 { return tanh(clamp(x, -15.0, 15.0)); }"),
    ("sigmoid", "fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-max(x, -87.0))); }"),
];

impl Dialect for Wgsl {
    fn type_of(&self, scalar: Scalar) -> &'static str {
        match scalar {
            Scalar::F32 => "f32",
            Scalar::I32 => "i32",
        }
    }

    fn number(&self, number: Number) -> String {
        match number {
            Number::F32(value) if value.is_finite() => format!("{value:?}f"),
            Number::F32(value) => format!("special({:#x}u)", value.to_bits()),
            // A minus sign is an operator: the magnitude of this number does not fit.
            Number::I32(i32::MIN) => "(-2147483647i - 1i)".into(),
            Number::I32(value) => format!("{value}i"),
        }
    }

    fn constant(&self, name: &str, value: &str) -> String {
        format!("let {name} = {value};")
    }

    fn variable(&self, name: &str, value: &str) -> String {
        format!("var {name} = {value};")
    }

    fn call(&self, function: &str, arguments: &[&str]) -> String {
        format!("{function}({})", arguments.join(", "))
    }

    fn checked(&self, function: &str, arguments: &[&str]) -> String {
        self.call(function, arguments)
    }

    fn whole(&self, operator: &str, a: &str, b: &str) -> String {
        format!("{a} {operator} {b}")
    }

    fn negative(&self, a: &str) -> String {
        format!("-({a})")
    }

    fn bits(&self, a: &str) -> String {
        format!("bitcast<u32>({a})")
    }

    fn element(&self, storage: Storage, array: usize, index: &str) -> String {
        match storage {
            Storage::Byte => format!("byte_of(a{array}[({index}) / 4], {index})"),
            Storage::Half => format!("f32(a{array}[{index}])"),
            Storage::Word(_) => format!("a{array}[{index}]"),
        }
    }

    fn stored(&self, storage: Storage, value: &str) -> String {
        if storage == Storage::Half { format!("f16({value})") } else { value.into() }
    }

    fn barrier(&self) -> &'static str {
        "workgroupBarrier();"
    }

    fn uniform(&self, name: &str, element: &str) -> String {
        format!("let {name} = workgroupUniformLoad(&{element});")
    }

    fn finish(&self, _: &KernelArguments) -> String {
        "fn finish(b: i32, m: i32, n: i32, folded: f32) {".into()
    }

    fn finished(&self, _: &KernelArguments, of: [&str; 4]) -> String {
        format!("finish({});", of.join(", "))
    }

    fn entry(&self, _: &KernelArguments, entry: &EntryPoint<'_>) -> String {
        let mut text = String::new();
        for (name, scalar, len) in entry.shared {
            text += &format!("var<workgroup> {name}: array<{}, {len}>;\n", self.type_of(*scalar));
        }
        let dims = entry.block.iter().rposition(|threads| *threads > 1).map_or(1, |last| last + 1);
        let block: Vec<String> = entry.block[..dims].iter().map(usize::to_string).collect();
        let places = entry.places.iter().map(|place| match place {
            ShaderPlace::Id => "@builtin(global_invocation_id) id: vec3<u32>",
            ShaderPlace::Group => "@builtin(workgroup_id) group: vec3<u32>",
            ShaderPlace::Local => "@builtin(local_invocation_id) local: vec3<u32>",
            ShaderPlace::Thread => "@builtin(local_invocation_index) thread: u32",
        });
        let places: Vec<&str> = places.collect();
        text + &format!("@compute @workgroup_size({})\nfn main({}) {{", block.join(", "), places.join(", "))
    }

    fn head(&self, arguments: &KernelArguments) -> String {
        let KernelArguments { arrays, fault } = arguments;
        let mut head = String::new();
        if arrays.contains(&Storage::Half) {
            head += "enable f16;\n";
        }
        for (at, storage) in arrays.iter().enumerate() {
            let access = if at + 1 == arrays.len() { "read_write" } else { "read" };
            let of = match storage {
                Storage::Byte => "u32",
                Storage::Half => "f16",
                Storage::Word(scalar) => self.type_of(*scalar),
            };
            head += &format!("@group(0) @binding({at}) var<storage, {access}> a{at}: array<{of}>;\n");
        }
        if let Some(number) = fault {
            head += &format!("@group(0) @binding({}) var<storage, read_write> fault: atomic<u32>;\n", arrays.len());
            head += &format!("fn fail() {{ atomicMax(&fault, {number}u); }}\n");
        }
        head
    }

    fn helpers(&self) -> &'static [(&'static str, &'static str)] {
        HELPERS
    }
}
