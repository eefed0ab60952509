// What the process did, for tests: by cuda_stub_counts and CUDA_STUB_REPORT.
#pragma once
#include <cstdint>

// In the order of cuda_stub_counts. New ones go to the end.
#define COUNTS(of)      \
    of(launches)        \
    of(library_calls)   \
    of(copies_up)       \
    of(bytes_up)        \
    of(copies_down)     \
    of(bytes_down)      \
    of(copies_device)   \
    of(bytes_device)    \
    of(memsets)         \
    of(waits)           \
    of(records)         \
    of(sync_stream)     \
    of(sync_event)      \
    of(sync_context)    \
    of(sync_copy)       \
    of(sync_free)       \
    of(queries)         \
    of(allocations)     \
    of(frees)           \
    of(live)            \
    of(live_bytes)      \
    of(peak_bytes)      \
    of(host_live)       \
    of(host_bytes)      \
    of(graph_launches)  \
    of(captures)        \
    of(streams)         \
    of(events)          \
    of(modules)         \
    of(host_functions)  \
    of(pending)         \
    of(accesses)

struct Counts {
#define COUNT_FIELD(name) uint64_t name = 0;
    COUNTS(COUNT_FIELD)
#undef COUNT_FIELD
};

extern Counts counts;
