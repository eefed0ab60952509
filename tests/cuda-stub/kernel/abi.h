// What the driver stub and a compiled kernel file know of each other. Includes nothing: kernels are compiled without
// any system header.
#pragma once

#define CD_ABI_VERSION 3
#define CD_HOT_RANGES 4
#define CD_DYNAMIC_SHARED_BYTES 101376

struct cd_uint3 {
    unsigned x, y, z;
};

// Addresses [lo, hi).
struct cd_range {
    unsigned long lo, hi;
};

// One for each loaded kernel file, in that file's own data. The driver sets it before a thread of a block goes on.
struct cd_state {
    cd_uint3 thread, block, block_dim, grid_dim;
    // Ranges that this launch may access, found lately; so that most checks need no call into the driver.
    cd_range hot[CD_HOT_RANGES];
    // Accesses until the driver wants to be asked again: to switch threads, or because a launch has a budget.
    long fuel;
    void (*check)(const void *address, unsigned bytes, int write);
    void (*barrier)(unsigned line);
    // Meets the other lanes of the mask; gives their values and returns the lanes that came.
    unsigned (*exchange)(unsigned mask, unsigned long value, unsigned long *all);
    unsigned (*active)();
    void (*yield)();
    void (*trap)(int code);
    int (*print)(const char *format, ...);
};

struct cd_kernel {
    const char *name;
    void (*run)(const unsigned char *parameters);
    unsigned max_threads;
    unsigned parameters;
    const unsigned *offsets;
    const unsigned *sizes;
    // Static shared memory declared in the kernel's own body; empty when lo is null.
    char *shared_lo, *shared_hi;
};

struct cd_global {
    const char *name;
    void *address;
    unsigned long bytes;
};

struct cd_module {
    unsigned version;
    unsigned fibres;   // 0: no thread waits for another, so that a plain loop will do
    unsigned checked;  // accesses call cd_state::check
    cd_state *state;
    const cd_kernel *kernels;
    unsigned kernel_count;
    const cd_global *globals;
    unsigned global_count;
    char *dynamic_shared;
    char *image_lo, *image_hi;
    char *shared_lo, *shared_hi;  // static shared memory of device functions
};
