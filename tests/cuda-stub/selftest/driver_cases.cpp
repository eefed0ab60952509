// Kernels, streams and events, copies, capture.
#include <cmath>
#include <thread>

#include "api.h"
#include "kernels.h"

static std::vector<float> numbers(size_t count, int step, int modulus) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
        values[i] = (float)((int)i * step % modulus);
    }
    return values;
}

static bool matmul_is_right(int n) {
    const auto a = numbers((size_t)n * n, 7, 13), b = numbers((size_t)n * n, 5, 11);
    const u64 da = on_device(a), db = on_device(b), dc = on_device(a);
    void *kernel = function(load(matmul_source), "matmul");
    void *arguments[] = {(void *)&da, (void *)&db, (void *)&dc, &n};
    OK(cuLaunchKernel(kernel, n / 16, n / 16, 1, 16, 16, 1, 0, nullptr, arguments, nullptr));
    const auto c = from_device<float>(dc, (size_t)n * n);
    for (int y = 0; y < n; ++y) {
        for (int x = 0; x < n; ++x) {
            float sum = 0;
            for (int k = 0; k < n; ++k) {
                sum += a[y * n + k] * b[k * n + x];
            }
            if (c[y * n + x] != sum) {
                return false;
            }
        }
    }
    return true;
}

CASE(vector_add, 20) {
    start();
    EQUAL(cuda_stub_is_stub(), 1);
    const int n = 1000;
    const auto a = numbers(n, 1, 5000);
    const u64 da = on_device(a), dc = on_device(a);
    OK(launch(function(load(basic_source), "add"), 4, 256, 0, nullptr, da, da, dc, n));
    const auto c = from_device<float>(dc, n);
    for (int i = 0; i < n; ++i) {
        CHECK(c[i] == 2 * a[i]);
    }
}

CASE(matmul, 20) {
    start();
    CHECK(matmul_is_right(64));
}

CASE(matmul_unchecked, 20, "CUDA_STUB_CHECK=0") {
    start();
    CHECK(matmul_is_right(64));
}

CASE(first_barrier_dropped, 20, "CUDA_STUB_DROP_BARRIER=1") {
    start();
    CHECK(!matmul_is_right(64));
}

CASE(second_barrier_dropped, 20, "CUDA_STUB_DROP_BARRIER=2") {
    start();
    CHECK(!matmul_is_right(64));
}

// One stream fills, another reads. How many of 20 rounds are right?
static int right_rounds(bool wait) {
    start();
    void *module = load(basic_source);
    void *fill = function(module, "fill"), *add = function(module, "add");
    void *one = new_stream(), *two = new_stream();
    const int n = 512;
    const u64 a = on_device(std::vector<float>(n)), c = on_device(std::vector<float>(n));
    int right = 0;
    for (int round = 0; round < 20; ++round) {
        const float value = (float)round + 1;
        OK(launch(fill, 1, 32, 0, one, a, value, n));
        if (wait) {
            void *event = new_event();
            OK(cuEventRecord(event, one));
            OK(cuStreamWaitEvent(two, event, 0));
        }
        OK(launch(add, 4, 128, 0, two, a, a, c, n));
        bool good = true;
        for (float x : from_device<float>(c, n, two)) {
            good &= x == 2 * value;
        }
        right += good;
        OK(cuCtxSynchronize());
    }
    return right;
}

CASE(event_wait, 20) { EQUAL(right_rounds(true), 20); }

CASE(wait_missing_lazy, 0, "CUDA_STUB_SEED=1") { EQUAL(right_rounds(false), 0); }

CASE(wait_missing_random, 0, "CUDA_STUB_SEED=2") {
    const int right = right_rounds(false);
    CHECK(right > 0 && right < 20);
}

CASE(wait_missing_eager, 0, "CUDA_STUB_SEED=0") { EQUAL(right_rounds(false), 20); }

CASE(wait_dropped, 0, "CUDA_STUB_SEED=1", "CUDA_STUB_DROP_WAIT=5") { EQUAL(right_rounds(true), 19); }

CASE(features, 20) {
    start();
    void *module = load(features_source);
    const int n = 10000;
    const u64 x = on_device(numbers(n, 1, 10)), out = on_device(std::vector<float>(64));
    OK(launch(function(module, "reduce"), 40, 256, 32, nullptr, x, out, n));
    CHECK(from_device<float>(out, 1)[0] == 45000.0f);
    OK(launch(function(module, "reverse"), 1, 64, 0, nullptr, x, out));
    CHECK(from_device<float>(out, 64)[0] == 3.0f);
    OK(launch(function(module, "votes"), 1, 32, 0, nullptr, out));
    EQUAL(from_device<unsigned>(out, 32)[9], 0xaaaaaaaau + 2);
    OK(launch(function(module, "maths"), 1, 1, 0, nullptr, out, 4.0f));
    const auto m = from_device<float>(out, 8);
    CHECK(m[0] == 0.5f && m[2] == 4.0f / 3.0f && m[3] == 4.0f && m[4] == 20.0f && m[6] == 8.0f && m[7] == 37.0f);
    OK(launch(function(module, "poison"), 3, 32, 128, nullptr, out));
    EQUAL(from_device<unsigned>(out, 32)[31], 0xffffffffu);
}

CASE(globals, 0) {
    start();
    void *module = load(features_source), *again = load(features_source);
    u64 address = 0, hits = 0, other = 0;
    size_t bytes = 0;
    OK(cuModuleGetGlobal(&address, &bytes, module, "coefficients"));
    EQUAL(bytes, 16);
    EQUAL(cuModuleGetGlobal(&address, nullptr, module, "nothing"), 500);
    OK(cuModuleGetGlobal(&address, &bytes, module, "coefficients"));
    OK(cuModuleGetGlobal(&hits, &bytes, module, "hits"));
    OK(cuModuleGetGlobal(&other, &bytes, again, "hits"));
    const float c[4] = {1, 2, 3, 4};
    OK(cuUp(address, c, sizeof c, nullptr));
    const u64 x = on_device(std::vector<float>(64, 1.0f));
    OK(launch(function(module, "scale"), 1, 16, 0, nullptr, x));
    const auto scaled = from_device<float>(x, 64);
    CHECK(scaled[0] == 1 && scaled[1] == 2 && scaled[62] == 3 && scaled[63] == 4);
    EQUAL(from_device<int>(hits, 1)[0], 19);
    EQUAL(from_device<int>(other, 1)[0], 3);  // each module has data of its own
    OK(cuModuleUnload(module));
    OK(cuModuleUnload(again));
    void *fresh = load(features_source);
    OK(cuModuleGetGlobal(&hits, &bytes, fresh, "hits"));
    EQUAL(from_device<int>(hits, 1)[0], 3);
}

CASE(half_precision, 0) {
    start();
    std::vector<unsigned short> all(65536);
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = (unsigned short)i;
    }
    const u64 in = on_device(all), wide = on_device(std::vector<float>(65536)), out = on_device(all);
    OK(launch(function(load(features_source), "halves"), 256, 256, 0, nullptr, in, wide, out));
    const auto back = from_device<unsigned short>(out, 65536);
    const auto floats = from_device<float>(wide, 65536);
    for (unsigned i = 0; i < 65536; ++i) {
        const bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
        CHECK(nan ? back[i] == 0x7fff && std::isnan(floats[i]) : back[i] == i);
    }
    CHECK(floats[0x3c00] == 1.0f && floats[1] == std::ldexp(1.0f, -24) && floats[0xc000] == -2.0f);
}

CASE(pinned_copies, 0, "CUDA_STUB_SEED=1") {
    start();
    void *stream = new_stream();
    int *pinned = nullptr;
    OK(cuMemHostAlloc((void **)&pinned, 16, 0));
    const u64 d = on_device(std::vector<int>{1, 2, 3, 4});
    pinned[0] = 5;
    OK(cuUp(d, pinned, 4, stream));
    pinned[0] = 6;  // too early: the copy reads when it is done
    OK(cuStreamSynchronize(stream));
    EQUAL(from_device<int>(d, 1)[0], 6);
    int pageable = 7;
    OK(cuUp(d, &pageable, 4, stream));
    pageable = 8;
    OK(cuDown(pinned, d, 4, stream));
    EQUAL(pinned[0], 6);  // not copied yet
    OK(cuStreamSynchronize(stream));
    EQUAL(pinned[0], 7);
}

CASE(pinned_freed_too_early, 0, "CUDA_STUB_SEED=1") {
    start();
    void *stream = new_stream();
    int *pinned = nullptr;
    OK(cuMemHostAlloc((void **)&pinned, 16, 0));
    const u64 d = on_device(std::vector<int>(4));
    OK(cuUp(d, pinned, 16, stream));
    OK(cuMemFreeHost(pinned));
    EQUAL(cuStreamSynchronize(stream), 700);
}

CASE(polling, 12) {
    start();
    void *module = load(basic_source), *stream = new_stream();
    const u64 a = on_device(std::vector<float>(64));
    for (int i = 0; i < 10; ++i) {
        OK(launch(function(module, "fill"), 1, 32, 0, stream, a, 1.0f, 64));
    }
    void *event = new_event();
    OK(cuEventRecord(event, stream));
    int polls = 0;
    int code;
    while ((code = cuEventQuery(event)) == 600) {
        CHECK(++polls < 100);
    }
    OK(code);
    OK(launch(function(module, "fill"), 1, 32, 0, stream, a, 1.0f, 64));
    while ((code = cuStreamQuery(stream)) == 600) {
        CHECK(++polls < 100);
    }
    OK(code);
    void *later = new_event();
    OK(cuEventRecord(later, stream));
    OK(cuEventSynchronize(later));
    float ms = -1;
    OK(cuEventElapsedTime(&ms, event, later));
    CHECK(ms >= 0 && ms < 10000);
}

static void *seen_stream;
static int host_calls;
static int code_inside;
static void on_host(void *data) {
    ++*(int *)data;
    code_inside = cuStreamQuery(seen_stream);
}

CASE(host_functions, 12) {
    start();
    void *stream = new_stream();
    seen_stream = stream;
    const u64 d = on_device(std::vector<int>(4));
    for (int i = 0; i < 5; ++i) {
        OK(cuMemsetD32Async(d, (unsigned)i, 4, stream));
        OK(cuLaunchHostFunc(stream, on_host, &host_calls));
    }
    OK(cuStreamSynchronize(stream));
    EQUAL(host_calls, 5);
    EQUAL(code_inside, 800);
    EQUAL(from_device<int>(d, 1)[0], 4);
}

CASE(async_memory, 12) {
    start();
    void *stream = new_stream(), *module = load(basic_source);
    for (int i = 0; i < 50; ++i) {
        u64 p = 0;
        OK(cuMemAllocAsync(&p, 4096, stream));
        OK(launch(function(module, "fill"), 1, 32, 0, stream, p, 1.0f, 1024));
        OK(cuMemFreeAsync(p, stream));
    }
    OK(cuStreamSynchronize(stream));
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo(&free_bytes, &total));
    EQUAL(free_bytes, total);
}

CASE(capture, 12) {
    start();
    void *stream = new_stream(), *module = load(basic_source);
    const int n = 64;
    const u64 a = on_device(std::vector<float>(n)), b = on_device(std::vector<float>(n));
    OK(cuBeginCapture(stream, 0));
    OK(launch(function(module, "fill"), 1, 32, 0, stream, a, 3.0f, n));
    OK(cuAcross(b, a, n * 4, stream));
    OK(launch(function(module, "add"), 1, 64, 0, stream, a, b, a, n));
    OK(cuMemsetD8Async(b, 0, 4, stream));
    void *graph = nullptr, *executable = nullptr;
    OK(cuEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(from_device<float>(a, n, stream)[0] == 0.0f);
    for (int i = 0; i < 3; ++i) {
        OK(cuUp(a, std::vector<float>(n, 9.0f).data(), n * 4, stream));
        OK(cuGraphLaunch(executable, stream));
        CHECK(from_device<float>(a, n, stream)[n - 1] == 6.0f);
        CHECK(from_device<float>(b, n, stream)[0] == 0.0f);
        CHECK(from_device<float>(b, n, stream)[1] == 3.0f);
    }
}

CASE(capture_refuses, 4) {
    start();
    void *stream = new_stream(), *graph = nullptr;
    u64 p = 0;
    OK(cuBeginCapture(stream, 0));
    EQUAL(cuStreamSynchronize(stream), 900);
    EQUAL(cuEndCapture(stream, &graph), 901);
    OK(cuBeginCapture(stream, 0));
    EQUAL(cuMemAlloc(&p, 16), 900);
    EQUAL(cuEndCapture(stream, &graph), 901);
    OK(cuBeginCapture(stream, 1));
    std::thread([&p] {
        void *context = nullptr;
        OK(cuPrimaryRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        OK(cuMemAlloc(&p, 16));  // another thread's call, in the mode for one thread
    }).join();
    EQUAL(cuCtxSynchronize(), 900);
    EQUAL(cuEndCapture(stream, &graph), 901);
    EQUAL(cuEndCapture(stream, &graph), 903);
    OK(cuStreamSynchronize(stream));
}

CASE(capture_of_others, 4) {
    start();
    void *stream = new_stream(), *other = new_stream(), *event = new_event(), *graph = nullptr, *blocking = nullptr;
    const u64 p = on_device(std::vector<int>(4));
    OK(cuEventRecord(event, other));
    OK(cuBeginCapture(stream, 0));
    EQUAL(cuStreamWaitEvent(stream, event, 0), 905);
    EQUAL(cuMemsetD32Async(p, 1, 4, stream), 901);
    EQUAL(cuEndCapture(stream, &graph), 901);
    OK(cuStreamCreate(&blocking, 0));
    OK(cuBeginCapture(blocking, 2));
    EQUAL(cuMemsetD32Async(p, 1, 4, nullptr), 906);
    EQUAL(cuEndCapture(blocking, &graph), 901);
    OK(cuBeginCapture(stream, 0));
    OK(cuEventRecord(event, stream));
    EQUAL(cuEventQuery(event), 907);
    EQUAL(cuEndCapture(stream, &graph), 901);
}

CASE(legacy_stream, 20) {
    start();
    void *blocking = nullptr, *module = load(basic_source);
    OK(cuStreamCreate(&blocking, 0));
    const int n = 256;
    const u64 a = on_device(std::vector<float>(n)), b = on_device(std::vector<float>(n));
    for (int i = 1; i < 10; ++i) {
        OK(launch(function(module, "fill"), 1, 32, 0, blocking, a, (float)i, n));
        OK(launch(function(module, "add"), 2, 128, 0, nullptr, a, a, b, n));
        OK(cuMemsetD8Async(a, 0, n * 4, blocking));
        CHECK(from_device<float>(b, n, blocking)[n - 1] == 2.0f * (float)i);
    }
}

CASE(ends_before_its_work, 12) {
    start();
    void *stream = new_stream(), *event = new_event(), *module = load(basic_source);
    const u64 a = on_device(std::vector<float>(64));
    OK(launch(function(module, "fill"), 1, 32, 0, stream, a, 2.0f, 64));
    OK(cuEventRecord(event, stream));
    OK(cuModuleUnload(module));
    OK(cuStreamDestroy(stream));
    EQUAL(cuStreamSynchronize(stream), 400);
    OK(cuEventSynchronize(event));
    CHECK(from_device<float>(a, 64)[63] == 2.0f);
}

CASE(goes_on_when_idle, 0, "CUDA_STUB_SEED=1", "CUDA_STUB_IDLE_MS=2") {
    start();
    void *stream = new_stream();
    volatile int *pinned = nullptr;
    OK(cuMemHostAlloc((void **)&pinned, 4, 0));
    const u64 p = on_device(std::vector<int>{7});
    OK(cuDown((void *)pinned, p, 4, stream));
    while (*pinned != 7) {
        std::this_thread::yield();
    }
}

CASE(without_pools, 0, "CUDA_STUB_POOLS=0", "CUDA_STUB_TRACE=1", "CUDA_STUB_PREEMPT=3") {
    start();
    int value = 1;
    OK(cuDeviceGetAttribute(&value, 115, 0));
    EQUAL(value, 0);
    CHECK(matmul_is_right(32));
}

CASE(threads, 6) {
    start();
    const std::string ptx = compile_ptx(basic_source);
    std::vector<std::thread> all;
    for (int t = 0; t < 4; ++t) {
        all.emplace_back([&ptx, t] {
            start();
            void *module = nullptr, *stream = new_stream();
            OK(cuModuleLoadData(&module, ptx.c_str()));
            const u64 a = on_device(std::vector<float>(256), stream);
            for (int i = 0; i < 20; ++i) {
                const float value = (float)(t * 100 + i);
                OK(launch(function(module, "fill"), 1, 32, 0, stream, a, value, 256));
                CHECK(from_device<float>(a, 256, stream)[255] == value);
            }
        });
    }
    for (auto &one : all) {
        one.join();
    }
}

CASE(devices, 0, "CUDA_STUB_DEVICES=2", "CUDA_STUB_ARCH=75") {
    start();
    int value = 0;
    OK(cuDeviceGetCount(&value));
    EQUAL(value, 2);
    OK(cuDeviceGetAttribute(&value, 75, 1));
    EQUAL(value, 7);
    char name[64];
    OK(cuDeviceGetName(name, sizeof name, 1));
    CHECK(std::string(name) == "driver stub, no GPU");
    const u64 p = on_device(std::vector<float>(16));
    void *second = nullptr;
    OK(cuPrimaryRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    EQUAL(launch(function(load(basic_source), "fill"), 1, 32, 0, nullptr, p, 1.0f, 16), 0);
    EQUAL(cuCtxSynchronize(), 700);  // memory of the other device
}

CASE(no_devices, 0, "CUDA_STUB_DEVICES=0") { EQUAL(cuInit(0), 100); }
