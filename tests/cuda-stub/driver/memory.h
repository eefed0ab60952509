// Device memory and the host memory that the driver knows. Addresses of device memory are given once as long as there
// are any left, so that a use after a free is always seen.
#pragma once
#include <cstddef>
#include <cstdint>

struct Context;

struct Allocation {
    uint64_t base;
    uint64_t bytes;
    enum { Reserved, Live, Dead } state;
    Context *owner;
};

void start_memory();

// Reserves addresses and takes them from the device's bytes; the memory is not live yet. Null if there is no room.
Allocation *reserve_memory(uint64_t bytes, Context *owner);
void make_live(Allocation *allocation);
void make_dead(Allocation *allocation);
// The allocation that has, or had, this address. May be a dead one; null for none.
Allocation *allocation_at(uint64_t address);
uint64_t used_bytes(int device);
void end_allocations_of(Context *owner);

// Null if [address, address + bytes) may be used by work of `user` (null: by a copy of any context); else why not.
const char *why_not_device(uint64_t address, uint64_t bytes, const Context *user);
bool is_device_address(uint64_t address);

// Data of a loaded kernel file counts as device memory too.
void add_module_range(uint64_t address, uint64_t bytes);
void remove_module_range(uint64_t address);

struct Pinned {
    uint64_t bytes;
    unsigned flags;
    bool registered;  // by cuMemHostRegister: the memory is not ours
};
void add_pinned(uint64_t address, Pinned pinned);
// The entry that covers the range, or null.
const Pinned *pinned_at(uint64_t address, uint64_t bytes);
const Pinned *pinned_from(uint64_t address);
void remove_pinned(uint64_t address);
// Widest range around `address` that is one piece of known memory, for the quick checks of kernels.
void known_range(uint64_t address, uint64_t *lo, uint64_t *hi);
