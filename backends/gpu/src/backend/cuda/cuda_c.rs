//! CUDA C, as the compiler in NVIDIA's libraries takes it: without headers, so that only what the
//! language has is used.
//!
//! What C++ leaves open is written such that a compiler for the CPU gives the same numbers: no sum
//! of integers overflows, and no fraction is converted to an integer that cannot hold it.

use crate::lowering::{Dialect, EntryPoint, Half, KernelArguments, Number, Scalar, ShaderPlace, Storage};

/// The dialect of CUDA C.
#[derive(Clone, Copy, Debug)]
pub(super) struct CudaC {
    /// What fractions of 16 bits are.
    pub(super) half: Half,
}

/// The function that a device calls.
pub(super) const ENTRY: &str = "limen_kernel";

/// Not every coordinate is needed, nor every overload. `CUDASTUB` is set where a compiler for the
/// CPU takes the place of NVIDIA's.
const HEAD: &str = "\
#ifdef CUDASTUB
#pragma GCC diagnostic ignored \"-Wunused-variable\"
#else
#pragma nv_diag_suppress 177
#endif
";

/// Functions by their names. They begin with `limen_`: the language has others called `max` or
/// `round`.
const HELPERS: &[(&str, &str)] = &[
    (
        "limen_bits",
        "static __device__ inline unsigned limen_bits(float a) { return __float_as_uint(a); }
static __device__ inline unsigned limen_bits(int a) { return unsigned(a); }",
    ),
    ("limen_special", "static __device__ inline float limen_special(unsigned bits) { return __uint_as_float(bits); }"),
    (
        "limen_select",
        "template <class T> static __device__ inline T limen_select(T no, T yes, bool is) { return is ? yes : no; }",
    ),
    (
        "limen_f32",
        "static __device__ inline float limen_f32(float a) { return a; }
static __device__ inline float limen_f32(int a) { return float(a); }",
    ),
    // A conversion of NaN is 0, as in Rust; the others end at the first and the last integer.
    (
        "limen_i32",
        "static __device__ inline int limen_i32(int a) { return a; }
static __device__ inline int limen_i32(unsigned a) { return int(a); }
static __device__ inline int limen_i32(float a) {
if (!(a >= -2147483648.0f)) { return a != a ? 0 : -2147483647 - 1; }
return a < 2147483648.0f ? int(a) : 2147483647; }",
    ),
    // Of a number and NaN, the number.
    (
        "limen_max",
        "static __device__ inline float limen_max(float a, float b) { return fmaxf(a, b); }
static __device__ inline int limen_max(int a, int b) { return a > b ? a : b; }",
    ),
    (
        "limen_min",
        "static __device__ inline float limen_min(float a, float b) { return fminf(a, b); }
static __device__ inline int limen_min(int a, int b) { return a < b ? a : b; }
static __device__ inline unsigned limen_min(unsigned a, unsigned b) { return a < b ? a : b; }",
    ),
    // Overflow is not defined for integers with a sign.
    ("limen_add", "static __device__ inline int limen_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }"),
    ("limen_sub", "static __device__ inline int limen_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }"),
    ("limen_mul", "static __device__ inline int limen_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }"),
    ("limen_neg", "static __device__ inline int limen_neg(int a) { return int(0u - unsigned(a)); }"),
    (
        "limen_abs",
        "static __device__ inline float limen_abs(float a) { return fabsf(a); }
static __device__ inline int limen_abs(int a) { return a < 0 ? int(0u - unsigned(a)) : a; }",
    ),
    (
        "limen_sign",
        "static __device__ inline float limen_sign(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }
static __device__ inline int limen_sign(int a) { return int(a > 0) - int(a < 0); }",
    ),
    ("limen_sigmoid", "static __device__ inline float limen_sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }"),
    // The divisor is positive.
    (
        "limen_floor_div",
        "static __device__ inline int limen_floor_div(int a, int b) { return a / b - int(a % b < 0); }",
    ),
    (
        "limen_whole_div",
        "static __device__ inline int limen_whole_div(int a, int b) {
return b == 0 ? 0 : b == -1 ? int(0u - unsigned(a)) : a / b; }",
    ),
    (
        "limen_whole_rem",
        "static __device__ inline int limen_whole_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }",
    ),
    (
        "limen_shift_left",
        "static __device__ inline int limen_shift_left(int a, int b) {
return unsigned(b) > 31u ? 0 : int(unsigned(a) << unsigned(b)); }",
    ),
    (
        "limen_exact_add",
        "static __device__ inline int limen_exact_add(unsigned *fault, int a, int b) {
const long long c = (long long)a + b;
if (c != int(c)) { limen_fail(fault); }
return int(c); }",
    ),
    (
        "limen_exact_sub",
        "static __device__ inline int limen_exact_sub(unsigned *fault, int a, int b) {
const long long c = (long long)a - b;
if (c != int(c)) { limen_fail(fault); }
return int(c); }",
    ),
    (
        "limen_exact_mul",
        "static __device__ inline int limen_exact_mul(unsigned *fault, int a, int b) {
const long long c = (long long)a * b;
if (c != int(c)) { limen_fail(fault); }
return int(c); }",
    ),
    (
        "limen_exact_div",
        "static __device__ inline int limen_exact_div(unsigned *fault, int a, int b) {
const long long c = b == 0 ? 0 : (long long)a / b;
if (c != int(c)) { limen_fail(fault); }
return int(c); }",
    ),
    (
        "limen_exact_neg",
        "static __device__ inline int limen_exact_neg(unsigned *fault, int a) {
if (a == -2147483647 - 1) { limen_fail(fault); }
return int(0u - unsigned(a)); }",
    ),
    (
        "limen_exact_abs",
        "static __device__ inline int limen_exact_abs(unsigned *fault, int a) {
if (a == -2147483647 - 1) { limen_fail(fault); }
return a < 0 ? int(0u - unsigned(a)) : a; }",
    ),
    (
        "limen_exact_shift",
        "static __device__ inline int limen_exact_shift(unsigned *fault, int a, int b) {
const int s = unsigned(b) > 31u ? 0 : int(unsigned(a) << unsigned(b));
if (a != (unsigned(b) > 31u ? 0 : s >> b)) { limen_fail(fault); }
return s; }",
    ),
    (
        "limen_exact_cast",
        "static __device__ inline int limen_exact_cast(unsigned *fault, float a) {
if (!(a >= -2147483648.0f && a < 2147483648.0f)) { limen_fail(fault); return 0; }
return int(a); }",
    ),
    // The test stub of a device has these two of its own.
    (
        "limen_f16_to_f32",
        "#ifndef CUDASTUB
static __device__ inline float limen_f16_to_f32(unsigned short a) {
float b;
asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(b) : \"h\"(a));
return b; }
#endif",
    ),
    (
        "limen_f32_to_f16",
        "#ifndef CUDASTUB
static __device__ inline unsigned short limen_f32_to_f16(float a) {
unsigned short b;
asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(b) : \"f\"(a));
return b; }
#endif",
    ),
    (
        "limen_bf16_to_f32",
        "static __device__ inline float limen_bf16_to_f32(unsigned short a) { return __uint_as_float(unsigned(a) << 16); }",
    ),
    // To the nearest, halves to the even one; NaN stays NaN.
    (
        "limen_f32_to_bf16",
        "static __device__ inline unsigned short limen_f32_to_bf16(float a) {
const unsigned bits = __float_as_uint(a);
if ((bits & 0x7fffffffu) > 0x7f800000u) { return (unsigned short)(bits >> 16 | 0x40u); }
return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); }",
    ),
];

impl CudaC {
    fn half(self) -> &'static str {
        match self.half {
            Half::F16 => "f16",
            Half::Bf16 => "bf16",
        }
    }

    /// The parameters of a function that gets all arguments.
    fn parameters(self, arguments: &KernelArguments) -> Vec<String> {
        let last = arguments.arrays.len() - 1;
        let array = |(at, storage): (usize, &Storage)| {
            let of = match storage {
                Storage::Byte => "unsigned char",
                Storage::Half => "unsigned short",
                Storage::Word(scalar) => self.type_of(*scalar),
            };
            format!("{}{of} *__restrict__ a{at}", if at < last { "const " } else { "" })
        };
        let fault = arguments.fault.map(|_| "unsigned *fault".to_string());
        arguments.arrays.iter().enumerate().map(array).chain(fault).collect()
    }
}

impl Dialect for CudaC {
    fn type_of(&self, scalar: Scalar) -> &'static str {
        match scalar {
            Scalar::F32 => "float",
            Scalar::I32 => "int",
        }
    }

    fn number(&self, number: Number) -> String {
        match number {
            Number::F32(value) if value.is_finite() => format!("{value:?}f"),
            Number::F32(value) => format!("limen_special({:#x}u)", value.to_bits()),
            // A minus sign is an operator: the magnitude of this number does not fit.
            Number::I32(i32::MIN) => "(-2147483647 - 1)".into(),
            Number::I32(value) => value.to_string(),
        }
    }

    fn constant(&self, name: &str, value: &str) -> String {
        format!("const auto {name} = {value};")
    }

    fn variable(&self, name: &str, value: &str) -> String {
        format!("auto {name} = {value};")
    }

    fn call(&self, function: &str, arguments: &[&str]) -> String {
        let own = match function {
            "acos" => "acosf",
            "acosh" => "acoshf",
            "asin" => "asinf",
            "asinh" => "asinhf",
            "atan" => "atanf",
            "atanh" => "atanhf",
            "ceil" => "ceilf",
            "cos" => "cosf",
            "cosh" => "coshf",
            "error_function" => "erff",
            "exp" => "expf",
            "flat_tanh" => "tanhf",
            "floor" => "floorf",
            "log" => "logf",
            "power" => "powf",
            "remainder" => "fmodf",
            "round" => "rintf",
            "round_away" => "roundf",
            "sin" => "sinf",
            "sinh" => "sinhf",
            "sqrt" => "sqrtf",
            "tan" => "tanf",
            _ => return format!("limen_{function}({})", arguments.join(", ")),
        };
        format!("{own}({})", arguments.join(", "))
    }

    fn checked(&self, function: &str, arguments: &[&str]) -> String {
        format!("limen_{function}(fault, {})", arguments.join(", "))
    }

    fn whole(&self, operator: &str, a: &str, b: &str) -> String {
        let function = match operator {
            "+" => "limen_add",
            "-" => "limen_sub",
            _ => "limen_mul",
        };
        format!("{function}({a}, {b})")
    }

    fn negative(&self, a: &str) -> String {
        format!("limen_neg({a})")
    }

    fn bits(&self, a: &str) -> String {
        format!("limen_bits({a})")
    }

    fn element(&self, storage: Storage, array: usize, index: &str) -> String {
        match storage {
            Storage::Byte => format!("int(a{array}[{index}])"),
            Storage::Half => format!("limen_{}_to_f32(a{array}[{index}])", self.half()),
            Storage::Word(_) => format!("a{array}[{index}]"),
        }
    }

    fn stored(&self, storage: Storage, value: &str) -> String {
        if storage == Storage::Half { format!("limen_f32_to_{}({value})", self.half()) } else { value.into() }
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn uniform(&self, name: &str, element: &str) -> String {
        format!("const auto {name} = {element};\n__syncthreads();")
    }

    fn finish(&self, arguments: &KernelArguments) -> String {
        let parameters = self.parameters(arguments).join(", ");
        format!(
            "static __device__ __forceinline__ void limen_finish({parameters}, int b, int m, int n, float folded) {{"
        )
    }

    fn finished(&self, arguments: &KernelArguments, of: [&str; 4]) -> String {
        let mut given: Vec<String> = (0..arguments.arrays.len()).map(|at| format!("a{at}")).collect();
        given.extend(arguments.fault.map(|_| "fault".into()));
        format!("limen_finish({}, {});", given.join(", "), of.join(", "))
    }

    fn entry(&self, arguments: &KernelArguments, entry: &EntryPoint<'_>) -> String {
        let [x, y, z] = entry.block;
        let (threads, parameters) = (x * y * z, self.parameters(arguments).join(", "));
        let mut text = format!("extern \"C\" __global__ void __launch_bounds__({threads}) {ENTRY}({parameters}) {{");
        for (name, scalar, len) in entry.shared {
            text += &format!("\n__shared__ {} {name}[{len}];", self.type_of(*scalar));
        }
        for place in entry.places {
            text += "\n";
            text += &match place {
                ShaderPlace::Id => format!(
                    "const uint3 id = {{blockIdx.x * {x}u + threadIdx.x, blockIdx.y * {y}u + threadIdx.y, \
                     blockIdx.z * {z}u + threadIdx.z}};"
                ),
                ShaderPlace::Group => "const uint3 group = {blockIdx.x, blockIdx.y, blockIdx.z};".into(),
                ShaderPlace::Local => "const uint3 local = {threadIdx.x, threadIdx.y, threadIdx.z};".into(),
                ShaderPlace::Thread => "const unsigned thread = threadIdx.x;".into(),
            };
        }
        text
    }

    fn head(&self, arguments: &KernelArguments) -> String {
        let mut head = HEAD.to_string();
        if let Some(number) = arguments.fault {
            head += "static __device__ inline void limen_fail(unsigned *fault) ";
            head += &format!("{{ atomicMax(fault, {number}u); }}\n");
        }
        head
    }

    fn helpers(&self) -> &'static [(&'static str, &'static str)] {
        HELPERS
    }
}
