// cuInit, devices and contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "block.h"
#include "call.h"
#include "memory.h"
#include "settings.h"

namespace {

bool is_initialized;
thread_local Context *current;
auto &primaries = *new std::vector<Context *>;
auto &made = *new std::set<Context *>;  // by cuCtxCreate

struct Attribute {
    int number;
    int value;
};

const Attribute attributes[] = {
    {1, 1024},        // MAX_THREADS_PER_BLOCK
    {2, 1024},        // MAX_BLOCK_DIM_X
    {3, 1024},        // MAX_BLOCK_DIM_Y
    {4, 64},          // MAX_BLOCK_DIM_Z
    {5, 2147483647},  // MAX_GRID_DIM_X
    {6, 65535},       // MAX_GRID_DIM_Y
    {7, 65535},       // MAX_GRID_DIM_Z
    {8, 49152},       // MAX_SHARED_MEMORY_PER_BLOCK
    {9, 65536},       // TOTAL_CONSTANT_MEMORY
    {10, 32},         // WARP_SIZE
    {11, 2147483647}, // MAX_PITCH
    {12, 65536},      // MAX_REGISTERS_PER_BLOCK
    {13, 1000000},    // CLOCK_RATE
    {14, 512},        // TEXTURE_ALIGNMENT
    {15, 1},          // GPU_OVERLAP
    {16, 4},          // MULTIPROCESSOR_COUNT
    {19, 1},          // CAN_MAP_HOST_MEMORY
    {31, 1},          // CONCURRENT_KERNELS
    {36, 1000000},    // MEMORY_CLOCK_RATE
    {37, 64},         // GLOBAL_MEMORY_BUS_WIDTH
    {38, 4194304},    // L2_CACHE_SIZE
    {39, 2048},       // MAX_THREADS_PER_MULTIPROCESSOR
    {40, 2},          // ASYNC_ENGINE_COUNT
    {41, 1},          // UNIFIED_ADDRESSING
    {78, 1},          // STREAM_PRIORITIES_SUPPORTED
    {81, 102400},     // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    {82, 65536},      // MAX_REGISTERS_PER_MULTIPROCESSOR
    {90, 1},          // COMPUTE_PREEMPTION_SUPPORTED
    {91, 1},          // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    {95, 0},          // COOPERATIVE_LAUNCH
    {97, 101376},     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    {99, 1},          // HOST_REGISTER_SUPPORTED
    {106, 32},        // MAX_BLOCKS_PER_MULTIPROCESSOR
    {111, 1024},      // RESERVED_SHARED_MEMORY_PER_BLOCK
};

bool valid(int device) { return device >= 0 && device < settings().devices; }

int check_device(int device) { return !is_initialized ? NotInitialized : valid(device) ? Success : InvalidDevice; }

#define DEVICE(device)                       \
    if (int code = check_device(device)) {   \
        return code;                         \
    }

void fill_uuid(char *uuid, int device) {
    memcpy(uuid, "driver stub   ", 14);
    uuid[14] = 0;
    uuid[15] = (char)(device + 1);
}

}  // namespace

bool initialized() { return is_initialized; }

Context *current_context() { return current; }

void set_current_context(Context *context) { current = context; }

Call::Call() : lock(driver_mutex()), context(current) {
    if (!is_initialized) {
        error = NotInitialized;
    } else if (in_host_function()) {
        error = NotPermitted;
    } else if (!context) {
        error = InvalidContext;
    } else if (!context->active) {
        error = ContextIsDestroyed;
    } else {
        error = error_of(context);
    }
}

API cuInit(unsigned flags) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(flags == 0)
    if (is_initialized) {
        return Success;
    }
    say("driver stub, no GPU");
    if (settings().devices == 0) {
        return NoDevice;
    }
    start_memory();
    start_blocks();
    for (int i = 0; i < std::min(settings().devices, 64); ++i) {
        auto *context = new Context;
        context->device = i;
        context->primary = true;
        primaries.push_back(context);
    }
    is_initialized = true;
    return Success;
}

API cuDriverGetVersion(int *version) {
    NEED(version)
    *version = settings().version;
    return Success;
}

API cuDeviceGetCount(int *count) {
    NEED(count)
    *count = is_initialized ? settings().devices : 0;
    return is_initialized ? Success : NotInitialized;
}

API cuDeviceGet(int *device, int ordinal) {
    DEVICE(ordinal)
    NEED(device)
    *device = ordinal;
    return Success;
}

API cuDeviceGetName(char *name, int bytes, int device) {
    DEVICE(device)
    NEED(name && bytes > 0)
    snprintf(name, (size_t)bytes, "driver stub, no GPU");
    return Success;
}

API cuDeviceGetUuid(char *uuid, int device) {
    DEVICE(device)
    NEED(uuid)
    fill_uuid(uuid, device);
    return Success;
}

API cuDeviceGetUuid_v2(char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

API cuDeviceTotalMem_v2(size_t *bytes, int device) {
    DEVICE(device)
    NEED(bytes)
    *bytes = settings().memory;
    return Success;
}

API cuDeviceGetPCIBusId(char *text, int bytes, int device) {
    DEVICE(device)
    NEED(text && bytes > 0)
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", device + 1);
    return Success;
}

API cuDeviceGetAttribute(int *value, int attribute, int device) {
    DEVICE(device)
    NEED(value && attribute > 0 && attribute < 1000)
    *value = 0;
    for (const Attribute &entry : attributes) {
        if (entry.number == attribute) {
            *value = entry.value;
        }
    }
    if (attribute == 75) {
        *value = settings().arch / 10;
    } else if (attribute == 76) {
        *value = settings().arch % 10;
    } else if (attribute == 33) {
        *value = device + 1;
    } else if (attribute == 115) {
        *value = settings().pools;
    }
    return Success;
}

API cuDeviceComputeCapability(int *major, int *minor, int device) {
    DEVICE(device)
    *major = settings().arch / 10;
    *minor = settings().arch % 10;
    return Success;
}

API cuDeviceCanAccessPeer(int *can, int device, int peer) {
    DEVICE(device)
    DEVICE(peer)
    *can = 0;
    return Success;
}

// ---------------------------------------------------------------- contexts
API cuDevicePrimaryCtxRetain(Context **context, int device) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    DEVICE(device)
    NEED(context)
    Context *primary = primaries[device];
    if (!primary->active) {
        start_context(primary);
    }
    primary->references++;
    *context = primary;
    return Success;
}

API cuDevicePrimaryCtxRelease_v2(int device) {
    std::unique_lock<std::mutex> lock(driver_mutex());
    DEVICE(device)
    Context *primary = primaries[device];
    if (primary->references == 0) {
        return InvalidContext;
    }
    if (--primary->references == 0) {
        end_context(primary, lock);
    }
    return Success;
}

API cuDevicePrimaryCtxReset_v2(int device) {
    std::unique_lock<std::mutex> lock(driver_mutex());
    DEVICE(device)
    Context *primary = primaries[device];
    primary->references = 0;
    if (primary->active) {
        end_context(primary, lock);
    }
    return Success;
}

API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    DEVICE(device)
    *flags = primaries[device]->flags;
    *active = primaries[device]->active;
    return Success;
}

API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    DEVICE(device)
    primaries[device]->flags = flags;
    return Success;
}

API cuCtxCreate_v2(Context **out, unsigned flags, int device) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    DEVICE(device)
    NEED(out)
    auto *context = new Context;
    context->device = device;
    context->flags = flags;
    start_context(context);
    made.insert(context);
    *out = current = context;
    return Success;
}

API cuCtxCreate_v3(Context **out, void *, int, unsigned flags, int device) {
    return cuCtxCreate_v2(out, flags, device);
}

API cuCtxCreate_v4(Context **out, void *, unsigned flags, int device) { return cuCtxCreate_v2(out, flags, device); }

API cuCtxDestroy_v2(Context *context) {
    std::unique_lock<std::mutex> lock(driver_mutex());
    if (!made.erase(context)) {
        return InvalidContext;
    }
    end_context(context, lock);  // the object stays, so that a stale handle is known
    if (current == context) {
        current = nullptr;
    }
    return Success;
}

API cuCtxGetCurrent(Context **context) {
    NEED(context)
    *context = current;
    return is_initialized ? Success : NotInitialized;
}

API cuCtxSetCurrent(Context *context) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    if (!is_initialized) {
        return NotInitialized;
    }
    const bool known = std::count(primaries.begin(), primaries.end(), context) || made.count(context);
    if (context && !known) {
        return InvalidContext;
    }
    current = context;
    return Success;
}

API cuCtxPushCurrent_v2(Context *) { return NotSupported; }

API cuCtxGetDevice(int *device) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(device)
    if (!current) {
        return InvalidContext;
    }
    *device = current->device;
    return Success;
}

API cuCtxGetApiVersion(Context *, unsigned *version) {
    *version = (unsigned)settings().version;
    return Success;
}

API cuCtxGetFlags(unsigned *flags) {
    ENTER;
    *flags = context->flags;
    return Success;
}

API cuCtxSetFlags(unsigned flags) {
    ENTER;
    context->flags = flags;
    return Success;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER;
    if (least) {
        *least = 0;
    }
    if (greatest) {
        *greatest = -5;
    }
    return Success;
}

API cuCtxGetLimit(size_t *value, int) {
    ENTER;
    *value = 1024;
    return Success;
}

API cuCtxSetLimit(int, size_t) {
    ENTER;
    return Success;
}

API cuCtxGetCacheConfig(int *config) {
    ENTER;
    *config = 0;
    return Success;
}

API cuCtxSetCacheConfig(int) {
    ENTER;
    return Success;
}

API cuGetErrorName(int code, const char **text) {
    NEED(text)
    *text = error_name(code);
    return *text ? Success : InvalidValue;
}

API cuGetErrorString(int code, const char **text) {
    NEED(text)
    *text = error_description(code);
    return *text ? Success : InvalidValue;
}

API cuProfilerStart() { return Success; }

API cuProfilerStop() { return Success; }
