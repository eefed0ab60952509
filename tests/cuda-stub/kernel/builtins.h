// CUDA's built-in functions: barriers, warp functions, atomics, mathematics, conversions.
#pragma once

#define assert(condition) ((condition) ? (void)0 : cd_state_read.trap(710))
#define __trap() cd_state_read.trap(719)
#define printf(...) cd_state_read.print(__VA_ARGS__)

// The line tells barriers apart: threads of a block that wait at different ones are an error.
#define __syncthreads() cd_state_read.barrier(__LINE__)
static inline void __threadfence() { cd_state_read.yield(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { cd_state_read.yield(); }
static inline void __nanosleep(unsigned) { cd_state_read.yield(); }
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline unsigned __activemask() { return cd_state_read.active(); }

// ---------------------------------------------------------------- warps
CD_UNCHECKED static void __syncwarp(unsigned mask = 0xffffffffu) {
    unsigned long all[32];
    cd_state_read.exchange(mask, 0, all);
}

CD_UNCHECKED static int cd_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}

template <class T> CD_UNCHECKED static T cd_shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    unsigned long bits = 0, all[32];
    __builtin_memcpy(&bits, &value, sizeof value);
    const unsigned came = cd_state_read.exchange(mask, bits, all);
    T result;
    if (came >> (source & 31) & 1) {
        __builtin_memcpy(&result, &all[source & 31], sizeof result);
    } else {
        __builtin_memset(&result, 0xff, sizeof result);  // the value of an absent lane is undefined
    }
    return result;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return cd_shuffle(mask, value, (cd_lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = cd_lane();
    return cd_shuffle(mask, value, (lane & (width - 1)) + (int)delta < width ? lane + (int)delta : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = cd_lane();
    return cd_shuffle(mask, value, (lane & (width - 1)) >= (int)delta ? lane - (int)delta : lane);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const int lane = cd_lane();
    const int source = lane ^ bits;
    return cd_shuffle(mask, value, source / width <= lane / width ? source : lane);
}

CD_UNCHECKED static unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned long all[32];
    const unsigned came = cd_state_read.exchange(mask, predicate != 0, all);
    unsigned result = 0;
    for (int i = 0; i < 32; ++i) {
        if ((came >> i & 1) && all[i]) {
            result |= 1u << i;
        }
    }
    return result;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

// ---------------------------------------------------------------- atomics: checked as a whole, so that none is torn
#define CD_ATOMIC(name, result)                                                                 \
    template <class T> CD_UNCHECKED static T cd_##name(T *p, T value) {                         \
        cd_state_read.yield();                                                                  \
        CD_CHECK(p, sizeof(T), 1);                                                              \
        const T old = *(volatile T *)p;                                                         \
        *(volatile T *)p = (result);                                                            \
        return old;                                                                             \
    }
CD_ATOMIC(atomicAdd, old + value)
CD_ATOMIC(atomicSub, old - value)
CD_ATOMIC(atomicExch, value)
CD_ATOMIC(atomicAnd, old & value)
CD_ATOMIC(atomicOr, old | value)
CD_ATOMIC(atomicXor, old ^ value)
CD_ATOMIC(atomicMax, old > value ? old : value)
CD_ATOMIC(atomicMin, old < value ? old : value)

template <class T> CD_UNCHECKED static T cd_atomicCAS(T *p, T expected, T value) {
    cd_state_read.yield();
    CD_CHECK(p, sizeof(T), 1);
    const T old = *(volatile T *)p;
    if (old == expected) {
        *(volatile T *)p = value;
    }
    return old;
}

#define CD_ATOMIC_OF(name, type) \
    static inline type name(type *p, type value) { return cd_##name<type>(p, value); }
#define CD_ATOMIC_OF_INTEGERS(name)         \
    CD_ATOMIC_OF(name, int)                 \
    CD_ATOMIC_OF(name, unsigned)            \
    CD_ATOMIC_OF(name, unsigned long long)
CD_ATOMIC_OF_INTEGERS(atomicAdd)
CD_ATOMIC_OF(atomicAdd, float)
CD_ATOMIC_OF(atomicAdd, double)
CD_ATOMIC_OF(atomicSub, int)
CD_ATOMIC_OF(atomicSub, unsigned)
CD_ATOMIC_OF_INTEGERS(atomicExch)
CD_ATOMIC_OF(atomicExch, float)
CD_ATOMIC_OF_INTEGERS(atomicAnd)
CD_ATOMIC_OF_INTEGERS(atomicOr)
CD_ATOMIC_OF_INTEGERS(atomicXor)
CD_ATOMIC_OF_INTEGERS(atomicMax)
CD_ATOMIC_OF(atomicMax, long long)
CD_ATOMIC_OF_INTEGERS(atomicMin)
CD_ATOMIC_OF(atomicMin, long long)
#define CD_CAS_OF(type) \
    static inline type atomicCAS(type *p, type expected, type value) { return cd_atomicCAS<type>(p, expected, value); }
CD_CAS_OF(int)
CD_CAS_OF(unsigned)
CD_CAS_OF(unsigned short)
CD_CAS_OF(unsigned long long)

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T value) { *p = value; }

// ---------------------------------------------------------------- integers
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; ++i) {
        result |= (x >> i & 1) << (31 - i);
    }
    return result;
}
extern "C" int abs(int);

#define CD_MIN_MAX(type)                                            \
    static inline type min(type a, type b) { return b < a ? b : a; } \
    static inline type max(type a, type b) { return a < b ? b : a; }
CD_MIN_MAX(int)
CD_MIN_MAX(unsigned)
CD_MIN_MAX(long)
CD_MIN_MAX(unsigned long)
CD_MIN_MAX(long long)
CD_MIN_MAX(unsigned long long)

// ---------------------------------------------------------------- floating point
#define CD_MATH1(name)                                                   \
    extern "C" float name##f(float);                                     \
    extern "C" double name(double);                                      \
    static inline float name(float x) { return __builtin_##name##f(x); }
#define CD_MATH2(name)                                                                    \
    extern "C" float name##f(float, float);                                               \
    extern "C" double name(double, double);                                               \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
CD_MATH1(sqrt)
CD_MATH1(cbrt)
CD_MATH1(exp)
CD_MATH1(exp2)
CD_MATH1(expm1)
CD_MATH1(log)
CD_MATH1(log2)
CD_MATH1(log10)
CD_MATH1(log1p)
CD_MATH1(sin)
CD_MATH1(cos)
CD_MATH1(tan)
CD_MATH1(asin)
CD_MATH1(acos)
CD_MATH1(atan)
CD_MATH1(sinh)
CD_MATH1(cosh)
CD_MATH1(tanh)
CD_MATH1(asinh)
CD_MATH1(acosh)
CD_MATH1(atanh)
CD_MATH1(erf)
CD_MATH1(erfc)
CD_MATH1(floor)
CD_MATH1(ceil)
CD_MATH1(round)
CD_MATH1(trunc)
CD_MATH1(rint)
CD_MATH1(nearbyint)
CD_MATH1(fabs)
CD_MATH2(pow)
CD_MATH2(fmod)
CD_MATH2(atan2)
CD_MATH2(fmin)
CD_MATH2(fmax)
CD_MATH2(copysign)
CD_MATH2(hypot)
CD_MATH2(remainder)
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
extern "C" float ldexpf(float, int);
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline float min(float a, float b) { return __builtin_fminf(a, b); }
static inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
static inline double min(double a, double b) { return __builtin_fmin(a, b); }
static inline double max(double a, double b) { return __builtin_fmax(a, b); }
static inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
static inline bool isnan(float x) { return __builtin_isnan(x); }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }
static inline bool signbit(float x) { return __builtin_signbit(x); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __expf(float x) { return __builtin_expf(x); }
static inline float __logf(float x) { return __builtin_logf(x); }
static inline float __sinf(float x) { return __builtin_sinf(x); }
static inline float __cosf(float x) { return __builtin_cosf(x); }
static inline float __powf(float x, float y) { return __builtin_powf(x, y); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __int2float_rn(int x) { return (float)x; }

// Conversions to integers saturate on a GPU, and a NaN becomes 0.
static inline int cd_to_int(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : (int)x;
}
static inline unsigned cd_to_unsigned(float x) {
    return !(x > 0.0f) ? 0u : x >= 4294967296.0f ? 4294967295u : (unsigned)x;
}
static inline int __float2int_rn(float x) { return cd_to_int(__builtin_rintf(x)); }
static inline int __float2int_rz(float x) { return cd_to_int(__builtin_truncf(x)); }
static inline int __float2int_rd(float x) { return cd_to_int(__builtin_floorf(x)); }
static inline int __float2int_ru(float x) { return cd_to_int(__builtin_ceilf(x)); }
static inline unsigned __float2uint_rn(float x) { return cd_to_unsigned(__builtin_rintf(x)); }
static inline unsigned __float2uint_rz(float x) { return cd_to_unsigned(__builtin_truncf(x)); }
static inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
static inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

// Half precision by its bits; in the sources these are instructions of a GPU, left out where CUDASTUB is defined.
static inline float limen_f16_to_f32(unsigned short half) {
    const unsigned sign = (half & 0x8000u) << 16;
    const unsigned exponent = half >> 10 & 31;
    const unsigned fraction = half & 1023;
    if (exponent == 31) {
        return __uint_as_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    }
    if (exponent != 0) {
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    }
    const float value = (float)fraction * 5.9604644775390625e-8f;  // a multiple of 2^-24
    return sign ? -value : value;
}

static inline unsigned short limen_f32_to_f16(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned sign = bits >> 16 & 0x8000u;
    const unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fff;  // the NaN that a GPU gives
    }
    if (magnitude >= 0x477ff000u) {
        return (unsigned short)(sign | 0x7c00u);  // rounds to infinity
    }
    if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the multiple of 2^-24 in the last bits, rounded to nearest even.
        const float shifted = __uint_as_float(magnitude) + 0.5f;
        return (unsigned short)(sign | (__float_as_uint(shifted) - 0x3f000000u));
    }
    const unsigned rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (unsigned short)(sign | (rounded - 0x38000000u) >> 13);
}
