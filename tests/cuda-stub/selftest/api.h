// The libraries under test as a program sees them that loads them at run time, and helpers for the cases.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using u64 = uint64_t;

void *open_library(const char *name);

// A function of a library, found at its first call.
template <class F> struct Symbol;
template <class R, class... A> struct Symbol<R(A...)> {
    const char *library;
    const char *name;
    R (*found)(A...) = nullptr;

    R operator()(A... arguments) {
        if (!found) {
            found = (R(*)(A...))dlsym(open_library(library), name);
            if (!found) {
                printf("missing symbol %s\n", name);
                exit(1);
            }
        }
        return found(arguments...);
    }
};

#define DRIVER(name, symbol, ...) inline Symbol<int(__VA_ARGS__)> name{"libcuda.so", symbol};
DRIVER(cuInit, "cuInit", unsigned)
DRIVER(cuDeviceGetCount, "cuDeviceGetCount", int *)
DRIVER(cuDeviceGetAttribute, "cuDeviceGetAttribute", int *, int, int)
DRIVER(cuDeviceGetName, "cuDeviceGetName", char *, int, int)
DRIVER(cuPrimaryRetain, "cuDevicePrimaryCtxRetain", void **, int)
DRIVER(cuPrimaryReset, "cuDevicePrimaryCtxReset_v2", int)
DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent", void *)
DRIVER(cuCtxSynchronize, "cuCtxSynchronize")
DRIVER(cuMemAlloc, "cuMemAlloc_v2", u64 *, size_t)
DRIVER(cuMemFree, "cuMemFree_v2", u64)
DRIVER(cuMemAllocAsync, "cuMemAllocAsync", u64 *, size_t, void *)
DRIVER(cuMemFreeAsync, "cuMemFreeAsync", u64, void *)
DRIVER(cuMemHostAlloc, "cuMemHostAlloc", void **, size_t, unsigned)
DRIVER(cuMemFreeHost, "cuMemFreeHost", void *)
DRIVER(cuMemGetInfo, "cuMemGetInfo_v2", size_t *, size_t *)
DRIVER(cuUp, "cuMemcpyHtoDAsync_v2", u64, const void *, size_t, void *)
DRIVER(cuDown, "cuMemcpyDtoHAsync_v2", void *, u64, size_t, void *)
DRIVER(cuAcross, "cuMemcpyDtoDAsync_v2", u64, u64, size_t, void *)
DRIVER(cuMemsetD8Async, "cuMemsetD8Async", u64, unsigned char, size_t, void *)
DRIVER(cuMemsetD32Async, "cuMemsetD32Async", u64, unsigned, size_t, void *)
DRIVER(cuStreamCreate, "cuStreamCreate", void **, unsigned)
DRIVER(cuStreamDestroy, "cuStreamDestroy_v2", void *)
DRIVER(cuStreamSynchronize, "cuStreamSynchronize", void *)
DRIVER(cuStreamQuery, "cuStreamQuery", void *)
DRIVER(cuStreamWaitEvent, "cuStreamWaitEvent", void *, void *, unsigned)
DRIVER(cuLaunchHostFunc, "cuLaunchHostFunc", void *, void (*)(void *), void *)
DRIVER(cuEventCreate, "cuEventCreate", void **, unsigned)
DRIVER(cuEventRecord, "cuEventRecord", void *, void *)
DRIVER(cuEventQuery, "cuEventQuery", void *)
DRIVER(cuEventSynchronize, "cuEventSynchronize", void *)
DRIVER(cuEventElapsedTime, "cuEventElapsedTime", float *, void *, void *)
DRIVER(cuModuleLoadData, "cuModuleLoadData", void **, const void *)
DRIVER(cuModuleUnload, "cuModuleUnload", void *)
DRIVER(cuModuleGetFunction, "cuModuleGetFunction", void **, void *, const char *)
DRIVER(cuModuleGetGlobal, "cuModuleGetGlobal_v2", u64 *, size_t *, void *, const char *)
DRIVER(cuFuncSetAttribute, "cuFuncSetAttribute", void *, int, int)
DRIVER(cuFuncGetAttribute, "cuFuncGetAttribute", int *, int, void *)
DRIVER(cuLaunchKernel, "cuLaunchKernel", void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
       void *, void **, void **)
DRIVER(cuBeginCapture, "cuStreamBeginCapture_v2", void *, int)
DRIVER(cuEndCapture, "cuStreamEndCapture", void *, void **)
DRIVER(cuGraphInstantiate, "cuGraphInstantiateWithFlags", void **, void *, unsigned long long)
DRIVER(cuGraphLaunch, "cuGraphLaunch", void *, void *)
DRIVER(cuGetErrorName, "cuGetErrorName", int, const char **)
inline Symbol<u64(u64 *, u64)> cuda_stub_counts{"libcuda.so", "cuda_stub_counts"};
inline Symbol<int()> cuda_stub_is_stub{"libcuda.so", "cuda_stub_is_stub"};

#define NVRTC(name, ...) inline Symbol<int(__VA_ARGS__)> name{"libnvrtc.so", #name};
NVRTC(nvrtcCreateProgram, void **, const char *, const char *, int, const char *const *, const char *const *)
NVRTC(nvrtcCompileProgram, void *, int, const char *const *)
NVRTC(nvrtcAddNameExpression, void *, const char *)
NVRTC(nvrtcGetLoweredName, void *, const char *, const char **)
NVRTC(nvrtcGetPTXSize, void *, size_t *)
NVRTC(nvrtcGetPTX, void *, char *)
NVRTC(nvrtcGetCUBINSize, void *, size_t *)
NVRTC(nvrtcGetCUBIN, void *, char *)
NVRTC(nvrtcGetProgramLogSize, void *, size_t *)
NVRTC(nvrtcGetProgramLog, void *, char *)

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            printf("    %s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

// Also says what came instead.
#define EQUAL(value, expected)                                                                             \
    do {                                                                                                   \
        const long long got_ = (long long)(value), want_ = (long long)(expected);                          \
        if (got_ != want_) {                                                                               \
            printf("    %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #value, got_, want_);           \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

#define OK(call) EQUAL(call, 0)

void start();
std::string compile_ptx(const char *source, std::vector<const char *> options = {}, int expected = 0,
                        std::string *log = nullptr);
void *load(const char *source);
void *function(void *module, const char *name);
void *new_stream();
void *new_event();

// Copies of these lie on the device.
template <class T> u64 on_device(const std::vector<T> &values, void *stream = nullptr) {
    u64 address = 0;
    OK(cuMemAlloc(&address, values.size() * sizeof(T)));
    OK(cuUp(address, values.data(), values.size() * sizeof(T), stream));
    OK(cuStreamSynchronize(stream));
    return address;
}

template <class T> std::vector<T> from_device(u64 address, size_t count, void *stream = nullptr) {
    std::vector<T> values(count);
    OK(cuDown(values.data(), address, count * sizeof(T), stream));
    return values;
}

template <class... A>
int launch(void *kernel, unsigned blocks, unsigned threads, unsigned dynamic, void *stream, A... arguments) {
    void *pointers[] = {&arguments..., nullptr};
    return cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, dynamic, stream, pointers, nullptr);
}

struct Case {
    const char *name;
    void (*run)();
    std::vector<std::string> environment;  // NAME=value
    int seeds = 0;                         // run once for each seed below it; 0: once
};
std::vector<Case> &cases();

struct AddCase {
    AddCase(const char *name, void (*run)(), std::vector<std::string> environment, int seeds) {
        cases().push_back({name, run, environment, seeds});
    }
};

#define CASE(name, seeds, ...)                                                      \
    static void name();                                                             \
    static AddCase add_##name(#name, name, std::vector<std::string>{__VA_ARGS__}, seeds); \
    static void name()
