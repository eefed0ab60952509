// Kernel sources of the cases.
#pragma once

inline const char *const basic_source = R"(
extern "C" __global__ void add(const float *__restrict__ a, const float *__restrict__ b, float *c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void fill(float *p, float value, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = value;
}
extern "C" __global__ void one_too_far(float *p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) p[i] = 1.0f;
}
extern "C" __global__ void misaligned(char *p) { *(float *)(p + 2) = 1.0f; }
extern "C" __global__ void __launch_bounds__(128) small(float *p) { p[threadIdx.x] = 1.0f; }
extern "C" __global__ void fail(int which) {
    if (which == 0) __trap();
    assert(which != 1);
}
extern "C" __global__ void endless(volatile int *p) { while (*p != 7) {} }
)";

inline const char *const matmul_source = R"(
#define TILE 16
template <typename T> __device__ __forceinline__ T step(T a, T b, T c) { return a * b + c; }
extern "C" __global__ void __launch_bounds__(TILE * TILE) matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE];
    __shared__ float right[TILE][TILE];
    const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; t++) {
        left[threadIdx.y][threadIdx.x] = a[y * n + t * TILE + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + x];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum = step(left[threadIdx.y][k], right[k][threadIdx.x], sum);
        __syncthreads();
    }
    c[y * n + x] = sum;
}
)";

inline const char *const features_source = R"(
__constant__ float coefficients[4];
__device__ int hits = 3;
template <int W> __device__ float warp_sum(float v) {
    for (int d = W / 2; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}
extern "C" __global__ void reduce(const float *x, float *out, int n) {
    extern __shared__ __align__(16) float part[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float v = warp_sum<32>(i < n ? x[i] : 0.0f);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = warp_sum<32>(lane < (int)(blockDim.x >> 5) ? part[lane] : 0.0f);
        if (lane == 0) atomicAdd(out, v);
    }
}
template <typename T> __device__ T reversed(T v) {
    __shared__ T s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    return s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void reverse(const float *x, float *y) { y[threadIdx.x] = reversed<float>(x[threadIdx.x]); }
extern "C" __global__ void scale(float *x) {
    const float4 v = ((const float4 *)x)[threadIdx.x];
    ((float4 *)x)[threadIdx.x] = make_float4(v.x * coefficients[0], v.y * coefficients[1], v.z * coefficients[2],
                                             v.w * coefficients[3]);
    atomicAdd(&hits, 1);
}
extern "C" __global__ void halves(const unsigned short *in, float *wide, unsigned short *out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    wide[i] = limen_f16_to_f32(in[i]);
    out[i] = limen_f32_to_f16(wide[i]);
}
extern "C" __global__ void maths(float *out, float x) {
    out[0] = rsqrtf(x); out[1] = __expf(x); out[2] = __fdividef(x, 3.0f); out[3] = fmaxf(x, fminf(1.0f, 2.0f));
    out[4] = __fmaf_rn(x, x, x); out[5] = tanhf(x) + erff(x) + sqrt(x) + exp(x) + pow(x, 2.0f);
    out[6] = __uint_as_float(__float_as_uint(x)) + __int_as_float(__float_as_int(x));
    out[7] = isnan(x) + isinf(x) + min(1, 2) + max(1u, 2u) + __popc(7u) + __clz(1) + __ldg(&out[0]) * 0.0f;
}
extern "C" __global__ void votes(unsigned *out) {
    out[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x & 1) + __any_sync(0xffffffffu, threadIdx.x == 5) +
                       __all_sync(0xffffffffu, 1);
}
extern "C" __global__ void divergent(int *x) {
    if (threadIdx.x < 16) {
        x[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}
extern "C" __global__ void half_barrier(int *x) {
    if (threadIdx.x < 16) {
        __shfl_sync(0xffffffffu, 1, 0);
    } else {
        __syncthreads();
    }
    x[0] = 1;
}
extern "C" __global__ void past_shared(int *x) {
    extern __shared__ int words[];
    words[threadIdx.x] = 1;
    x[threadIdx.x] = words[threadIdx.x];
}
extern "C" __global__ void poison(unsigned *out) {
    extern __shared__ unsigned words[];
    __shared__ unsigned still[32];
    out[threadIdx.x] = words[threadIdx.x] & still[threadIdx.x];
    words[threadIdx.x] = still[threadIdx.x] = 0;
    __syncthreads();
}
template <typename T, int N> __global__ void typed(T *p) { p[threadIdx.x] = (T)N; }
)";
