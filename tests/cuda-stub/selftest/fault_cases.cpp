// What goes wrong, and what the stub says to it.
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "api.h"
#include "kernels.h"

// The error comes with the next call that waits, and with every call after it.
static void expect_sticky(int code) {
    EQUAL(cuCtxSynchronize(), code);
    u64 p = 0;
    EQUAL(cuMemAlloc(&p, 16), code);
    EQUAL(cuStreamSynchronize(nullptr), code);
    const char *name = nullptr;
    OK(cuGetErrorName(code, &name));
    CHECK(std::string(name).find("CUDA_ERROR_") == 0);
    OK(cuPrimaryReset(0));
    EQUAL(cuCtxSynchronize(), 709);
    start();
    OK(cuMemAlloc(&p, 16));
}

CASE(out_of_bounds, 6) {
    start();
    void *module = load(basic_source);
    const u64 p = on_device(std::vector<float>(100));
    OK(launch(function(module, "one_too_far"), 1, 128, 0, nullptr, p, 99));
    OK(cuCtxSynchronize());
    OK(launch(function(module, "one_too_far"), 1, 128, 0, nullptr, p, 100));
    expect_sticky(700);
}

CASE(use_after_free, 6) {
    start();
    void *module = load(basic_source);
    const u64 p = on_device(std::vector<float>(100));
    OK(cuMemFree(p));
    OK(launch(function(module, "fill"), 1, 32, 0, nullptr, p, 1.0f, 100));
    expect_sticky(700);
}

CASE(async_use_after_free, 6) {
    start();
    void *module = load(basic_source), *stream = new_stream();
    u64 p = 0;
    OK(cuMemAllocAsync(&p, 400, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(launch(function(module, "fill"), 1, 32, 0, stream, p, 1.0f, 100));
    expect_sticky(700);
}

CASE(host_pointer, 6) {
    start();
    std::vector<float> host(100);
    OK(launch(function(load(basic_source), "fill"), 1, 32, 0, nullptr, host.data(), 1.0f, 100));
    expect_sticky(700);
}

CASE(pinned_pointer, 0) {
    start();
    float *pinned = nullptr;
    OK(cuMemHostAlloc((void **)&pinned, 400, 0));
    OK(launch(function(load(basic_source), "fill"), 1, 32, 0, nullptr, pinned, 1.0f, 100));
    OK(cuCtxSynchronize());
    CHECK(pinned[99] == 1.0f);
}

CASE(misaligned, 6) {
    start();
    const u64 p = on_device(std::vector<float>(100));
    OK(launch(function(load(basic_source), "misaligned"), 1, 1, 0, nullptr, p));
    expect_sticky(716);
}

CASE(bad_copy, 6) {
    start();
    const u64 p = on_device(std::vector<float>(100));
    OK(cuAcross(p, p + 4, 400, nullptr));
    expect_sticky(700);
}

CASE(trap, 0) {
    start();
    OK(launch(function(load(basic_source), "fail"), 1, 1, 0, nullptr, 0));
    expect_sticky(719);
}

CASE(assertion, 0) {
    start();
    OK(launch(function(load(basic_source), "fail"), 1, 1, 0, nullptr, 1));
    expect_sticky(710);
}

CASE(divergent_barrier, 6) {
    start();
    const u64 p = on_device(std::vector<int>(32));
    OK(launch(function(load(features_source), "divergent"), 1, 32, 0, nullptr, p));
    expect_sticky(702);
}

CASE(barrier_against_warp, 6) {
    start();
    const u64 p = on_device(std::vector<int>(32));
    OK(launch(function(load(features_source), "half_barrier"), 1, 32, 0, nullptr, p));
    expect_sticky(702);
}

CASE(past_dynamic_shared, 6) {
    start();
    const u64 p = on_device(std::vector<int>(32));
    void *kernel = function(load(features_source), "past_shared");
    OK(launch(kernel, 1, 32, 128, nullptr, p));
    OK(cuCtxSynchronize());
    OK(launch(kernel, 1, 32, 124, nullptr, p));
    expect_sticky(700);
}

CASE(endless_by_steps, 0, "CUDA_STUB_STEPS=100000") {
    start();
    const u64 p = on_device(std::vector<int>(32));
    OK(launch(function(load(basic_source), "endless"), 1, 32, 0, nullptr, p));
    expect_sticky(702);
}

CASE(endless_by_time, 0, "CUDA_STUB_SECONDS=1", "CUDA_STUB_CHECK=0") {
    start();
    const u64 p = on_device(std::vector<int>(32));
    OK(launch(function(load(basic_source), "endless"), 1, 32, 0, nullptr, p));
    expect_sticky(702);
}

CASE(guard_pages_unchecked, 0, "CUDA_STUB_CHECK=0") {
    start();
    const u64 p = on_device(std::vector<float>(100));
    OK(cuMemFree(p));
    OK(launch(function(load(basic_source), "fill"), 1, 32, 0, nullptr, p, 1.0f, 100));
    expect_sticky(700);
}

CASE(out_of_memory, 0, "CUDA_STUB_MEMORY=1000000") {
    start();
    u64 p = 0, q = 0;
    OK(cuMemAlloc(&p, 600000));
    EQUAL(cuMemAlloc(&q, 600000), 2);
    EQUAL(cuMemAllocAsync(&q, 600000, nullptr), 2);
    OK(cuMemFree(p));
    OK(cuMemAlloc(&q, 600000));
}

CASE(freed_in_time, 0, "CUDA_STUB_MEMORY=1000000", "CUDA_STUB_SEED=1") {
    start();
    void *stream = new_stream();
    for (int i = 0; i < 10; ++i) {
        u64 p = 0;
        OK(cuMemAllocAsync(&p, 600000, stream));
        OK(cuMemFreeAsync(p, stream));
    }
}

CASE(bad_launches, 0) {
    start();
    void *module = load(basic_source), *kernel = function(module, "fill");
    const u64 p = on_device(std::vector<float>(1024));
    EQUAL(launch(kernel, 1, 1025, 0, nullptr, p, 1.0f, 1), 1);
    EQUAL(launch(kernel, 0, 32, 0, nullptr, p, 1.0f, 1), 1);
    EQUAL(launch(kernel, 1, 0, 0, nullptr, p, 1.0f, 1), 1);
    EQUAL(launch(kernel, 0x80000000u, 32, 0, nullptr, p, 1.0f, 1), 1);
    EQUAL(cuLaunchKernel(kernel, 1, 65536, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), 1);
    EQUAL(launch(function(module, "small"), 1, 256, 0, nullptr, p), 701);
    EQUAL(launch(kernel, 1, 32, 49153, nullptr, p, 1.0f, 1), 1);
    OK(cuFuncSetAttribute(kernel, 8, 65536));
    OK(launch(kernel, 1, 32, 65536, nullptr, p, 1.0f, 1));
    EQUAL(cuFuncSetAttribute(kernel, 8, 101377), 1);
    void *missing = nullptr;
    EQUAL(cuModuleGetFunction(&missing, module, "nothing"), 500);
    OK(cuCtxSynchronize());  // none of these is sticky
}

CASE(fault_at_launch, 4, "CUDA_STUB_FAULT=719@launch:2") {
    start();
    void *kernel = function(load(basic_source), "fill");
    const u64 p = on_device(std::vector<float>(64));
    OK(launch(kernel, 1, 32, 0, nullptr, p, 1.0f, 64));
    OK(cuCtxSynchronize());
    OK(launch(kernel, 1, 32, 0, nullptr, p, 2.0f, 64));
    expect_sticky(719);
}

CASE(fault_at_alloc, 0, "CUDA_STUB_FAULT=2@alloc:3") {
    start();
    u64 p = 0;
    OK(cuMemAlloc(&p, 16));
    OK(cuMemAllocAsync(&p, 16, nullptr));
    EQUAL(cuMemAlloc(&p, 16), 2);
    OK(cuMemAlloc(&p, 16));
}

CASE(fault_at_copy, 0, "CUDA_STUB_FAULT=700@copy:2") {
    start();
    const u64 p = on_device(std::vector<float>(64));
    std::vector<float> host(64);
    EQUAL(cuDown(host.data(), p, 256, nullptr), 700);
    expect_sticky(700);
}

CASE(sticky_for_the_process, 0, "CUDA_STUB_FAULT=700@copy:1", "CUDA_STUB_STICKY_PROCESS=1") {
    start();
    u64 p = 0;
    OK(cuMemAlloc(&p, 16));
    OK(cuMemsetD8Async(p, 0, 16, nullptr));
    cuAcross(p, p + 8, 8, nullptr);
    EQUAL(cuCtxSynchronize(), 700);
    OK(cuPrimaryReset(0));
    void *context = nullptr;
    OK(cuPrimaryRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    EQUAL(cuMemAlloc(&p, 16), 700);
}

static void work_for_report() {
    start();
    const u64 p = on_device(std::vector<float>(64));
    OK(launch(function(load(basic_source), "fill"), 1, 32, 0, nullptr, p, 1.0f, 64));
    from_device<float>(p, 64);
}

CASE(counts, 0) {
    work_for_report();
    u64 counts[64] = {};
    CHECK(cuda_stub_counts(counts, 64) >= 30);
    EQUAL(counts[0], 1);    // launches
    EQUAL(counts[2], 1);    // copies up
    EQUAL(counts[3], 256);  // bytes up
    EQUAL(counts[5], 256);  // bytes down
    EQUAL(counts[20], 256); // live bytes
}

CASE(report, 0, "CUDA_STUB_REPORT=/dev/null") {
    const std::string path = "/tmp/cuda-stub-report." + std::to_string(getpid());
    const std::string command = "CUDA_STUB_REPORT=" + path + " /proc/" + std::to_string(getpid()) + "/exe counts";
    OK(system(command.c_str()));
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    unlink(path.c_str());
    CHECK(text.str().find("{\"launches\": 1, ") == 0);
    CHECK(text.str().find("\"bytes_up\": 256") != std::string::npos);
    CHECK(text.str().find("\"live\": 1") != std::string::npos);
}
