// Comes before each kernel source: the part of CUDA C that the kernels may use, for one CPU thread. Includes no system
// header, for the speed of a compilation and because NVRTC has none either.
#pragma once
#include "abi.h"

#define CD_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#define CD_EXPORT extern "C" __attribute__((visibility("default")))

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef cd_uint3 uint3;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

// Kernels read the state through a constant of another name for the same place: it does not change while one thread
// runs, and reads of constants are not instrumented.
__attribute__((visibility("hidden"))) cd_state cd_state_written __asm__("cd_state_of_module");
extern "C" __attribute__((visibility("hidden"))) const cd_state cd_state_read __asm__("cd_state_of_module");
__attribute__((visibility("hidden"), aligned(256))) unsigned char cd_dynamic_shared[CD_DYNAMIC_SHARED_BYTES];

#define threadIdx (cd_state_read.thread)
#define blockIdx (cd_state_read.block)
#define blockDim (cd_state_read.block_dim)
#define gridDim (cd_state_read.grid_dim)
#define warpSize 32

#define __global__
#define __device__
#define __host__
#define __constant__
#define __restrict__ __restrict
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
// The NVRTC stub puts the kernel's name into the section's name where the array is in a kernel's body.
// Used, so that the compiler does not reason about what the array holds at the beginning of a block.
#define CD_SHARED(section_name) static __attribute__((section(section_name), used))

extern "C" char __ehdr_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));
extern "C" char __start_cd_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cd_shared[] __attribute__((weak, visibility("hidden")));

// ---------------------------------------------------------------- checks: every load and store arrives here
static inline __attribute__((always_inline)) void cd_check(const void *address, unsigned bytes, int write) {
    const unsigned long at = (unsigned long)address;
    if (--cd_state_written.fuel > 0) {
        for (int i = 0; i < CD_HOT_RANGES; ++i) {
            const cd_range &range = cd_state_written.hot[i];
            if (at >= range.lo && at + bytes <= range.hi && (at & (bytes - 1)) == 0) {
                return;
            }
        }
    }
    cd_state_written.check(address, bytes, write);
}

#ifdef CD_CHECKED
#define CD_CHECK(address, bytes, write) cd_check(address, bytes, write)
#define CD_TSAN(n)                                                                              \
    extern "C" CD_UNCHECKED void __tsan_read##n(void *p) { cd_check(p, n, 0); }                  \
    extern "C" CD_UNCHECKED void __tsan_write##n(void *p) { cd_check(p, n, 1); }                 \
    extern "C" CD_UNCHECKED void __tsan_unaligned_read##n(void *p) { cd_check(p, n, 0); }        \
    extern "C" CD_UNCHECKED void __tsan_unaligned_write##n(void *p) { cd_check(p, n, 1); }       \
    extern "C" CD_UNCHECKED void __tsan_volatile_read##n(void *p) { cd_check(p, n, 0); }         \
    extern "C" CD_UNCHECKED void __tsan_volatile_write##n(void *p) { cd_check(p, n, 1); }
CD_TSAN(1)
CD_TSAN(2)
CD_TSAN(4)
CD_TSAN(8)
CD_TSAN(16)
extern "C" CD_UNCHECKED void __tsan_read_range(void *p, unsigned long n) { cd_state_written.check(p, n, 0); }
extern "C" CD_UNCHECKED void __tsan_write_range(void *p, unsigned long n) { cd_state_written.check(p, n, 1); }
extern "C" CD_UNCHECKED void __tsan_func_entry(void *) {}
extern "C" CD_UNCHECKED void __tsan_func_exit() {}
extern "C" CD_UNCHECKED void __tsan_init() {}
extern "C" CD_UNCHECKED void __tsan_vptr_update(void **, void *) {}
#else
#define CD_CHECK(address, bytes, write) ((void)0)
#endif

// ---------------------------------------------------------------- a kernel's entry in the table
template <unsigned... I> struct cd_indices {};

template <class... A> struct cd_parameters {
    static constexpr unsigned count = sizeof...(A);
    unsigned offsets[count + 1] = {};
    unsigned sizes[count + 1] = {(unsigned)sizeof(A)..., 0};

    constexpr cd_parameters() {
        const unsigned alignments[count + 1] = {(unsigned)alignof(A)..., 1};
        unsigned at = 0;
        for (unsigned i = 0; i < count; ++i) {
            at = (at + alignments[i] - 1) / alignments[i] * alignments[i];
            offsets[i] = at;
            at += sizes[i];
        }
    }
};

template <auto F> struct cd_entry;
template <class... A, void (*F)(A...)> struct cd_entry<F> {
    static constexpr cd_parameters<A...> parameters{};
    static constexpr unsigned count = sizeof...(A);

    template <unsigned... I>
    static __attribute__((always_inline)) inline void call(const unsigned char *at, cd_indices<I...>) {
        F(*(const A *)(at + parameters.offsets[I])...);
    }
    CD_UNCHECKED static void run(const unsigned char *at) { call(at, cd_indices<__integer_pack(count)...>{}); }
};

#define CD_SECTION_OF(kernel)                                                                   \
    extern "C" char __start_cd_shared_##kernel[] __attribute__((weak, visibility("hidden")));    \
    extern "C" char __stop_cd_shared_##kernel[] __attribute__((weak, visibility("hidden")));
#define CD_KERNEL(name, function, max_threads, section)                                        \
    {name, &cd_entry<&function>::run, max_threads, cd_entry<&function>::count,                  \
     cd_entry<&function>::parameters.offsets, cd_entry<&function>::parameters.sizes,            \
     __start_cd_shared_##section, __stop_cd_shared_##section},
#define CD_GLOBAL(name) {#name, (void *)&name, sizeof(name)},
#define CD_MODULE(fibres, checked, kernels, kernel_count, globals, global_count)               \
    CD_EXPORT const cd_module cuda_stub_module = {                                            \
        CD_ABI_VERSION, fibres, checked, &cd_state_written, kernels, kernel_count, globals,     \
        global_count, (char *)cd_dynamic_shared, &__ehdr_start, &_end, __start_cd_shared,       \
        __stop_cd_shared};

#include "vector_types.h"
#include "builtins.h"
