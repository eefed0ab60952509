// Memory of the device, memory of the host that the driver knows, copies and memsets.
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "call.h"
#include "counts.h"
#include "memory.h"
#include "settings.h"

namespace {

uint64_t allocations_asked;
uint64_t host_allocations_asked;

struct Pool {
    int device;
    std::map<int, uint64_t> attributes;
};
auto &pools = *new std::set<Pool *>;
auto &default_pools = *new std::map<int, Pool *>;
auto &chosen_pools = *new std::map<int, Pool *>;

Pool *default_pool(int device) {
    Pool *&pool = default_pools[device];
    if (!pool) {
        pool = new Pool{device, {}};
        pools.insert(pool);
    }
    return pool;
}

// Makes room by doing the work that may free memory, as the stream-ordered allocator of a driver does.
Allocation *reserve(Call &call, uint64_t bytes, int *code) {
    *code = fault_at("alloc", ++allocations_asked);
    if (*code) {
        return nullptr;
    }
    Allocation *allocation = reserve_memory(bytes, call.context);
    if (!allocation && bytes <= settings().memory && pending_operations() > 0) {
        *code = drain_context(call.context, call.lock);
        allocation = *code ? nullptr : reserve_memory(bytes, call.context);
    }
    if (!allocation && !*code) {
        *code = OutOfMemory;
    }
    return allocation;
}

int bad_access(const char *what, uint64_t address, uint64_t bytes, const char *why) {
    say("%s: %llu bytes at %p: %s", what, (unsigned long long)bytes, (void *)address, why);
    return IllegalAddress;
}

int check_range(const char *what, uint64_t address, uint64_t bytes) {
    const char *why = why_not_device(address, bytes, nullptr);
    return why ? bad_access(what, address, bytes, why) : Success;
}

int free_now(uint64_t address) {
    Allocation *allocation = allocation_at(address);
    if (!allocation || allocation->state != Allocation::Live || allocation->base != address) {
        say("a free of %p, which is not the address of live memory", (void *)address);
        return InvalidValue;
    }
    make_dead(allocation);
    return Success;
}

// A pinned buffer may be read and written at any time until the copy is done, so it must live until then.
int check_pinned(const char *what, const void *host, size_t bytes) {
    if (pinned_at((uint64_t)host, bytes)) {
        return Success;
    }
    return bad_access(what, (uint64_t)host, bytes, "pinned host memory that was freed before the copy was done");
}

int copy_up(Stream *stream, uint64_t to, const void *from, size_t bytes) {
    if (bytes == 0) {
        return Success;
    }
    NEED(from && is_device_address(to) && !is_device_address((uint64_t)from))
    counts.copies_up++;
    counts.bytes_up += bytes;
    if (pinned_at((uint64_t)from, bytes)) {
        return enqueue(stream, {Kind::Copy, "copy up, pinned", [=]() -> int {
                                    int code = check_pinned("copy up", from, bytes);
                                    code = code ? code : check_range("copy up", to, bytes);
                                    if (!code) {
                                        memcpy((void *)to, from, bytes);
                                    }
                                    return code;
                                }, nullptr});
    }
    if (stream->capture) {
        return invalidate(stream, CaptureUnsupported, "a copy from pageable memory");
    }
    auto staged = std::make_shared<std::string>((const char *)from, bytes);
    return enqueue(stream, {Kind::Copy, "copy up", [=]() -> int {
                                const int code = check_range("copy up", to, bytes);
                                if (!code) {
                                    memcpy((void *)to, staged->data(), bytes);
                                }
                                return code;
                            }, nullptr});
}

int copy_down(Stream *stream, void *to, uint64_t from, size_t bytes, std::unique_lock<std::mutex> &lock) {
    if (bytes == 0) {
        return Success;
    }
    NEED(to && is_device_address(from) && !is_device_address((uint64_t)to))
    const bool pinned = pinned_at((uint64_t)to, bytes);
    if (stream->capture && !pinned) {
        return invalidate(stream, CaptureUnsupported, "a copy to pageable memory");
    }
    counts.copies_down++;
    counts.bytes_down += bytes;
    const int code = enqueue(stream, {Kind::Copy, pinned ? "copy down, pinned" : "copy down", [=]() -> int {
                                          int failed = pinned ? check_pinned("copy down", to, bytes) : Success;
                                          failed = failed ? failed : check_range("copy down", from, bytes);
                                          if (!failed) {
                                              memcpy(to, (const void *)from, bytes);
                                          }
                                          return failed;
                                      }, nullptr});
    if (code || pinned) {
        return code;
    }
    counts.sync_copy++;
    return drain_stream(stream, lock);
}

int copy_device(Stream *stream, uint64_t to, uint64_t from, size_t bytes) {
    if (bytes == 0) {
        return Success;
    }
    counts.copies_device++;
    counts.bytes_device += bytes;
    return enqueue(stream, {Kind::Copy, "copy on the device", [=]() -> int {
                                int code = check_range("copy on the device, to", to, bytes);
                                code = code ? code : check_range("copy on the device, from", from, bytes);
                                if (!code) {
                                    memmove((void *)to, (const void *)from, bytes);
                                }
                                return code;
                            }, nullptr});
}

template <class T> int set_memory(Stream *stream, uint64_t to, T value, size_t count) {
    if (count == 0) {
        return Success;
    }
    NEED(to % sizeof(T) == 0)
    counts.memsets++;
    return enqueue(stream, {Kind::Memset, "memset", [=]() -> int {
                                const int code = check_range("memset", to, count * sizeof(T));
                                for (size_t i = 0; !code && i < count; ++i) {
                                    ((T *)to)[i] = value;
                                }
                                return code;
                            }, nullptr});
}

int wait_for_copy(Stream *stream, int code, std::unique_lock<std::mutex> &lock) {
    if (code) {
        return code;
    }
    counts.sync_copy++;
    return drain_stream(stream, lock);
}

}  // namespace

// ---------------------------------------------------------------- device memory
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER;
    *total = settings().memory;
    *free_bytes = settings().memory - used_bytes(context->device);
    return Success;
}

API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ENTER;
    NEED(address && bytes)
    REFUSE_IN_CAPTURE("cuMemAlloc")
    int code = Success;
    Allocation *allocation = reserve(call, bytes, &code);
    if (allocation) {
        make_live(allocation);
        *address = allocation->base;
    }
    return code;
}

API cuMemFree_v2(uint64_t address) {
    ENTER;
    if (address == 0) {
        return Success;
    }
    REFUSE_IN_CAPTURE("cuMemFree")
    counts.sync_free++;
    const int code = drain_context(context, call.lock);
    return code ? code : free_now(address);
}

API cuMemAllocAsync(uint64_t *address, size_t bytes, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    NEED(address)
    if (bytes == 0) {
        *address = 0;
        return Success;
    }
    if (stream->capture) {
        return enqueue(stream, {Kind::Memory, "alloc", nullptr, nullptr});
    }
    int code = Success;
    Allocation *allocation = reserve(call, bytes, &code);
    if (!allocation) {
        return code;
    }
    *address = allocation->base;
    return enqueue(stream, {Kind::Memory, "alloc", [allocation]() -> int {
                                make_live(allocation);
                                return Success;
                            }, nullptr});
}

API cuMemFreeAsync(uint64_t address, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    if (address == 0) {
        return Success;
    }
    const Allocation *allocation = allocation_at(address);
    NEED(allocation && allocation->base == address && allocation->state != Allocation::Dead)
    return enqueue(stream, {Kind::Memory, "free", [address] { return free_now(address); }, nullptr});
}

API cuMemAllocManaged(uint64_t *, size_t, unsigned) { return NotSupported; }

// ---------------------------------------------------------------- pools: only their attributes are kept
API cuDeviceGetDefaultMemPool(Pool **pool, int device) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pool && device >= 0 && device < settings().devices)
    *pool = default_pool(device);
    return settings().pools ? Success : NotSupported;
}

API cuDeviceGetMemPool(Pool **pool, int device) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pool && device >= 0 && device < settings().devices)
    *pool = chosen_pools.count(device) ? chosen_pools[device] : default_pool(device);
    return Success;
}

API cuDeviceSetMemPool(int device, Pool *pool) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pools.count(pool))
    chosen_pools[device] = pool;
    return Success;
}

// The properties begin with the type of allocation, of handle, of location, and the location's number.
API cuMemPoolCreate(Pool **pool, const int *properties) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pool && properties)
    *pool = new Pool{properties[3], {}};
    pools.insert(*pool);
    return Success;
}

API cuMemPoolDestroy(Pool *pool) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pools.erase(pool))
    delete pool;
    return Success;
}

API cuMemPoolSetAttribute(Pool *pool, int attribute, void *value) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pools.count(pool) && value && attribute >= 1 && attribute <= 8)
    // The first three are switches, the others sizes.
    pool->attributes[attribute] = attribute <= 3 ? (uint64_t)*(int *)value : *(uint64_t *)value;
    return Success;
}

API cuMemPoolGetAttribute(Pool *pool, int attribute, void *value) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pools.count(pool) && value && attribute >= 1 && attribute <= 8)
    const uint64_t now = attribute > 4 ? used_bytes(pool->device) : pool->attributes[attribute];
    if (attribute <= 3) {
        *(int *)value = (int)now;
    } else {
        *(uint64_t *)value = now;
    }
    return Success;
}

API cuMemPoolTrimTo(Pool *pool, size_t) {
    std::lock_guard<std::mutex> lock(driver_mutex());
    NEED(pools.count(pool))
    return Success;
}

API cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, Pool *pool, Stream *handle) {
    {
        std::lock_guard<std::mutex> lock(driver_mutex());
        NEED(pools.count(pool))
    }
    return cuMemAllocAsync(address, bytes, handle);
}

// ---------------------------------------------------------------- host memory
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    ENTER;
    NEED(address && bytes && flags <= 7)
    REFUSE_IN_CAPTURE("cuMemHostAlloc")
    if (int code = fault_at("hostalloc", ++host_allocations_asked)) {
        return code;
    }
    const size_t page = 4096;
    void *memory = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!memory) {
        return OutOfMemory;
    }
    memset(memory, 0xFF, bytes);
    add_pinned((uint64_t)memory, {bytes, flags, false});
    *address = memory;
    return Success;
}

API cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

API cuMemFreeHost(void *address) {
    ENTER;
    REFUSE_IN_CAPTURE("cuMemFreeHost")
    const Pinned *pinned = pinned_from((uint64_t)address);
    NEED(pinned && !pinned->registered)
    memset(address, 0xFD, pinned->bytes);  // who still reads it shall notice
    remove_pinned((uint64_t)address);
    free(address);
    return Success;
}

API cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
    ENTER;
    NEED(address && bytes)
    REFUSE_IN_CAPTURE("cuMemHostRegister")
    uint64_t lo, hi;
    known_range((uint64_t)address, &lo, &hi);
    if (lo < hi) {
        return HostMemoryAlreadyRegistered;
    }
    add_pinned((uint64_t)address, {bytes, flags, true});
    return Success;
}

API cuMemHostUnregister(void *address) {
    ENTER;
    const Pinned *pinned = pinned_from((uint64_t)address);
    if (!pinned || !pinned->registered) {
        return HostMemoryNotRegistered;
    }
    remove_pinned((uint64_t)address);
    return Success;
}

API cuMemHostGetDevicePointer_v2(uint64_t *device, void *address, unsigned) {
    ENTER;
    NEED(device && pinned_at((uint64_t)address, 1))
    *device = (uint64_t)address;
    return Success;
}

API cuMemHostGetFlags(unsigned *flags, void *address) {
    ENTER;
    const Pinned *pinned = pinned_at((uint64_t)address, 1);
    NEED(flags && pinned)
    *flags = pinned->flags;
    return Success;
}

API cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    ENTER;
    const Allocation *allocation = allocation_at(address);
    const bool device = allocation && allocation->state == Allocation::Live;
    const Pinned *pinned = device ? nullptr : pinned_at(address, 1);
    NEED(value && (device || pinned))
    switch (attribute) {
        case 1:  // CONTEXT
            *(Context **)value = device ? allocation->owner : context;
            return Success;
        case 2:  // MEMORY_TYPE: host 1, device 2
            *(unsigned *)value = device ? 2 : 1;
            return Success;
        case 3:  // DEVICE_POINTER
        case 4:  // HOST_POINTER
            NEED(attribute == 3 || pinned)
            *(uint64_t *)value = address;
            return Success;
        case 8:  // IS_MANAGED
            *(bool *)value = false;
            return Success;
        case 9:  // DEVICE_ORDINAL
            *(int *)value = device ? allocation->owner->device : context->device;
            return Success;
        default:
            return NotSupported;
    }
}

// ---------------------------------------------------------------- copies
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    return copy_up(stream, to, from, bytes);
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    return copy_down(stream, to, from, bytes, call.lock);
}

API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    return copy_device(stream, to, from, bytes);
}

API cuMemcpyPeerAsync(uint64_t to, Context *, uint64_t from, Context *, size_t bytes, Stream *handle) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, handle);
}

API cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    ENTER;
    REFUSE_IN_CAPTURE("cuMemcpyHtoD")
    return wait_for_copy(context->legacy(), copy_up(context->legacy(), to, from, bytes), call.lock);
}

API cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    ENTER;
    REFUSE_IN_CAPTURE("cuMemcpyDtoH")
    return wait_for_copy(context->legacy(), copy_down(context->legacy(), to, from, bytes, call.lock), call.lock);
}

API cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
    ENTER;
    REFUSE_IN_CAPTURE("cuMemcpyDtoD")
    return copy_device(context->legacy(), to, from, bytes);
}

#define MEMSET(name, type)                                                  \
    API name##Async(uint64_t to, type value, size_t count, Stream *handle) { \
        ENTER;                                                              \
        FIND_STREAM(handle)                                                 \
        return set_memory<type>(stream, to, value, count);                  \
    }                                                                       \
    API name##_v2(uint64_t to, type value, size_t count) {                   \
        ENTER;                                                              \
        REFUSE_IN_CAPTURE(#name)                                            \
        return set_memory<type>(context->legacy(), to, value, count);       \
    }
MEMSET(cuMemsetD8, unsigned char)
MEMSET(cuMemsetD16, unsigned short)
MEMSET(cuMemsetD32, unsigned)
