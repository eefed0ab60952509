#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "counts.h"
#include "scheduler.h"
#include "settings.h"

namespace {

const uint64_t arena_bytes = 1ull << 40;
const uint64_t page = 4096;

char *arena;
uint32_t *page_owner;  // 1 + index of the allocation; 0: none
uint64_t arena_top = page;
// Never destroyed, as threads may call until the very end.
auto &allocations = *new std::deque<Allocation>;
auto &dead = *new std::deque<uint32_t>;  // oldest first, for when the addresses run out
auto &pinned = *new std::map<uint64_t, Pinned>;
auto &module_ranges = *new std::map<uint64_t, uint64_t>;
uint64_t used[64];

uint64_t pages_of(uint64_t bytes) { return (bytes + page - 1) / page * page; }

template <class Map> typename Map::const_iterator covering(const Map &map, uint64_t address) {
    auto next = map.upper_bound(address);
    return next == map.begin() ? map.end() : --next;
}

void *map_nothing(uint64_t bytes, int protection) {
    void *at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        say("cannot reserve addresses for device memory");
        abort();
    }
    return at;
}

}  // namespace

void start_memory() {
    arena = (char *)map_nothing(arena_bytes, PROT_NONE);
    page_owner = (uint32_t *)map_nothing(arena_bytes / page * sizeof(uint32_t), PROT_READ | PROT_WRITE);
}

static uint64_t take_addresses(uint64_t span) {
    if (arena_top + span + page <= arena_bytes) {
        const uint64_t at = arena_top;
        arena_top += span + page;  // a page of nothing between two allocations
        return (uint64_t)arena + at;
    }
    for (auto it = dead.begin(); it != dead.end(); ++it) {
        Allocation &old = allocations[*it];
        if (pages_of(old.bytes) >= span && allocation_at(old.base) == &old) {
            const uint64_t at = old.base;
            dead.erase(it);
            return at;
        }
    }
    return 0;
}

Allocation *reserve_memory(uint64_t bytes, Context *owner) {
    if (bytes > settings().memory || used[owner->device] + bytes > settings().memory) {
        return nullptr;
    }
    const uint64_t span = pages_of(bytes);
    const uint64_t base = take_addresses(span);
    if (base == 0) {
        return nullptr;
    }
    used[owner->device] += bytes;
    allocations.push_back({base, bytes, Allocation::Reserved, owner});
    const uint64_t first = (base - (uint64_t)arena) / page;
    for (uint64_t i = first; i < first + span / page; ++i) {
        page_owner[i] = (uint32_t)allocations.size();
    }
    counts.allocations++;
    counts.live++;
    counts.live_bytes += bytes;
    if (counts.live_bytes > counts.peak_bytes) {
        counts.peak_bytes = counts.live_bytes;
    }
    return &allocations.back();
}

void make_live(Allocation *allocation) {
    if (mprotect((void *)allocation->base, pages_of(allocation->bytes), PROT_READ | PROT_WRITE) != 0) {
        say("the host gives no memory for an allocation of %llu bytes", (unsigned long long)allocation->bytes);
        abort();
    }
    memset((void *)allocation->base, 0xFF, allocation->bytes);
    allocation->state = Allocation::Live;
}

void make_dead(Allocation *allocation) {
    const uint64_t span = pages_of(allocation->bytes);
    allocation->state = Allocation::Dead;
    used[allocation->owner->device] -= allocation->bytes;
    madvise((void *)allocation->base, span, MADV_DONTNEED);
    mprotect((void *)allocation->base, span, PROT_NONE);
    dead.push_back(page_owner[(allocation->base - (uint64_t)arena) / page] - 1);
    counts.frees++;
    counts.live--;
    counts.live_bytes -= allocation->bytes;
}

Allocation *allocation_at(uint64_t address) {
    const uint64_t offset = address - (uint64_t)arena;
    if (offset >= arena_bytes) {
        return nullptr;
    }
    const uint32_t owner = page_owner[offset / page];
    return owner ? &allocations[owner - 1] : nullptr;
}

uint64_t used_bytes(int device) { return used[device]; }

void end_allocations_of(Context *owner) {
    for (Allocation &allocation : allocations) {
        if (allocation.state != Allocation::Dead && allocation.owner == owner) {
            make_dead(&allocation);
        }
    }
}

bool is_device_address(uint64_t address) {
    if (address - (uint64_t)arena < arena_bytes) {
        return true;
    }
    auto range = covering(module_ranges, address);
    return range != module_ranges.end() && address < range->first + range->second;
}

const char *why_not_device(uint64_t address, uint64_t bytes, const Context *user) {
    if (address - (uint64_t)arena >= arena_bytes) {
        auto range = covering(module_ranges, address);
        if (range != module_ranges.end() && address + bytes <= range->first + range->second) {
            return nullptr;
        }
        return pinned_at(address, bytes) ? nullptr : "not device memory";
    }
    const Allocation *allocation = allocation_at(address);
    if (!allocation) {
        return "outside every allocation";
    }
    if (allocation->state != Allocation::Live) {
        return "memory that is not live (freed, or allocated by work that has not been done)";
    }
    if (address + bytes > allocation->base + allocation->bytes) {
        return "past the end of an allocation";
    }
    if (user && allocation->owner != user) {
        return "memory of another context";
    }
    return nullptr;
}

void add_module_range(uint64_t address, uint64_t bytes) { module_ranges[address] = bytes; }

void remove_module_range(uint64_t address) { module_ranges.erase(address); }

void add_pinned(uint64_t address, Pinned entry) {
    pinned[address] = entry;
    counts.host_live++;
    counts.host_bytes += entry.bytes;
}

const Pinned *pinned_at(uint64_t address, uint64_t bytes) {
    auto range = covering(pinned, address);
    return range != pinned.end() && address + bytes <= range->first + range->second.bytes ? &range->second : nullptr;
}

const Pinned *pinned_from(uint64_t address) {
    auto range = pinned.find(address);
    return range == pinned.end() ? nullptr : &range->second;
}

void remove_pinned(uint64_t address) {
    auto range = pinned.find(address);
    counts.host_live--;
    counts.host_bytes -= range->second.bytes;
    pinned.erase(range);
}

void known_range(uint64_t address, uint64_t *lo, uint64_t *hi) {
    *lo = 1;
    *hi = 0;
    const Allocation *allocation = allocation_at(address);
    if (allocation && allocation->state == Allocation::Live) {
        *lo = allocation->base;
        *hi = allocation->base + allocation->bytes;
        return;
    }
    auto range = covering(pinned, address);
    if (range != pinned.end() && address < range->first + range->second.bytes) {
        *lo = range->first;
        *hi = range->first + range->second.bytes;
    }
}
