// What the driver stub offers to the library stubs and to tests, beyond CUDA's own functions.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

struct DeviceRange {
    const void *address;
    uint64_t bytes;
    bool write;
};

extern "C" {
int cuda_stub_is_stub();
uint64_t cuda_stub_counts(uint64_t *out, uint64_t n);
// Queues host code on a stream of the current context, as asynchronous as a kernel; at its time the ranges are checked
// first. May be captured, and then runs once for each launch of the graph. Gives an error code of the driver API.
int cuda_stub_enqueue(void *stream, const char *name, std::function<void()> work, std::vector<DeviceRange> ranges);
}
