#include "block.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "counts.h"
#include "error.h"
#include "fibre.h"
#include "memory.h"
#include "scheduler.h"
#include "settings.h"
#include "watch.h"

namespace {

enum class Lane { Fresh, Ready, Barrier, Warp, Done };

struct Thread {
    Lane state;
    FibreContext fibre;
    cd_uint3 index;
    unsigned mask;           // of the warp function that it waits in
    unsigned came;
    unsigned long value;
    unsigned long *all;
    unsigned line;           // of the barrier that it waits at
};

auto &threads = *new std::vector<Thread>;
unsigned thread_count;
int running = -1;
FibreContext scheduler;

const Launch *launch;
cd_state *state;
bool fibres;          // else one fibre runs the threads one after another
unsigned live;        // threads that have not ended
unsigned at_barrier;
unsigned next_hot;
uint64_t steps_left;
long fuel_given;
unsigned first_thread;
unsigned thread_step;

int fault;
char reason[256];

void leave() {
    switch_fibre(&threads[running].fibre, &scheduler);
    state->thread = threads[running].index;
}

__attribute__((noreturn)) void die(int code, const char *why) {
    if (!fault) {
        fault = code;
        snprintf(reason, sizeof reason, "%s", why);
    }
    threads[running].state = Lane::Done;
    leave();
    abort();
}

void set_hot(unsigned index, uint64_t lo, uint64_t hi) {
    state->hot[index].lo = lo;
    state->hot[index].hi = hi;
}

// Accounts for the accesses since the last call, and grants the next ones.
void refuel() {
    const uint64_t used = (uint64_t)(fuel_given - state->fuel);
    counts.accesses += used;
    steps_left = steps_left > used ? steps_left - used : 0;
    const uint64_t interval = settings().preempt && fibres ? 1 + random_below(2 * settings().preempt) : 1 << 20;
    fuel_given = (long)std::min(interval, steps_left + 1);
    state->fuel = fuel_given;
}

void spend(uint64_t steps) {
    if (steps_left < steps) {
        die(LaunchTimeout, "the launch has used up CUDA_STUB_STEPS");
    }
    steps_left -= steps;
}

void give_way() {
    if (fibres) {
        threads[running].state = Lane::Ready;
        leave();
    }
}

void check(const void *address, unsigned bytes, int write) {
    if (running < 0) {
        return;
    }
    if (state->fuel <= 0) {
        refuel();
        if (steps_left == 0) {
            die(LaunchTimeout, "the launch has used up CUDA_STUB_STEPS");
        }
        if (settings().preempt) {
            give_way();
        }
    }
    const uint64_t at = (uint64_t)address;
    const bool aligned = (bytes & (bytes - 1)) != 0 || bytes > 16 || at % bytes == 0;
    char text[160];
    const char *const verb = write ? "write" : "read";
    if (!aligned) {
        snprintf(text, sizeof text, "a %s of %u bytes at %p is misaligned", verb, bytes, address);
        die(MisalignedAddress, text);
    }
    for (const cd_range &range : state->hot) {
        if (at >= range.lo && at + bytes <= range.hi) {
            return;
        }
    }
    const cd_module *info = launch->image->info;
    const uint64_t dynamic = (uint64_t)info->dynamic_shared;
    if (at >= dynamic && at < dynamic + CD_DYNAMIC_SHARED_BYTES) {
        if (at + bytes <= dynamic + launch->dynamic_shared) {
            return;
        }
        snprintf(text, sizeof text, "a %s of %u bytes past the %u of dynamic shared memory", verb, bytes,
                 launch->dynamic_shared);
        die(IllegalAddress, text);
    }
    const uint64_t image_lo = (uint64_t)info->image_lo;
    const uint64_t image_hi = (uint64_t)info->image_hi;
    if (at >= image_lo && at + bytes <= image_hi) {
        return;  // static shared memory, __device__ and __constant__ data, literals
    }
    if (const char *why = why_not_device(at, bytes, working_context())) {
        snprintf(text, sizeof text, "a %s of %u bytes at %p: %s", verb, bytes, address, why);
        die(IllegalAddress, text);
    }
    uint64_t lo, hi;
    known_range(at, &lo, &hi);
    set_hot(next_hot, lo, hi);
    next_hot = (next_hot + 1) % (CD_HOT_RANGES - 1);
}

void release_barrier() {
    if (at_barrier == 0 || at_barrier < live) {
        return;
    }
    at_barrier = 0;
    unsigned line = 0;
    for (unsigned i = 0; i < thread_count; ++i) {
        Thread &thread = threads[i];
        if (thread.state != Lane::Barrier) {
            continue;
        }
        if (line && thread.line != line && !fault) {
            fault = LaunchTimeout;
            snprintf(reason, sizeof reason, "divergent barrier: threads wait at the one of line %u and of line %u",
                     line, thread.line);
        }
        line = thread.line;
        thread.state = Lane::Ready;
    }
}

void barrier(unsigned line) {
    spend(1);
    if (!fibres) {
        die(LaunchFailed, "a barrier in a kernel file that was compiled without");
    }
    threads[running].state = Lane::Barrier;
    threads[running].line = line;
    at_barrier++;
    release_barrier();
    leave();
}

// Lets the lanes of a warp go on once all of the mask that live have come.
void release_warp(unsigned any) {
    const unsigned first = any & ~31u;
    const unsigned mask = threads[any].mask;
    unsigned came = 0;
    for (unsigned i = 0; i < 32 && first + i < thread_count; ++i) {
        const Thread &thread = threads[first + i];
        if (!(mask >> i & 1) || thread.state == Lane::Done) {
            continue;
        }
        if (thread.state != Lane::Warp || thread.mask != mask) {
            return;
        }
        came |= 1u << i;
    }
    for (unsigned i = 0; i < 32; ++i) {
        if (!(came >> i & 1)) {
            continue;
        }
        for (unsigned j = 0; j < 32; ++j) {
            if (came >> j & 1) {
                threads[first + i].all[j] = threads[first + j].value;
            }
        }
        threads[first + i].came = came;
    }
    for (unsigned i = 0; i < 32; ++i) {
        if (came >> i & 1) {
            threads[first + i].state = Lane::Ready;
        }
    }
}

unsigned exchange(unsigned mask, unsigned long value, unsigned long *all) {
    spend(1);
    if (!fibres) {
        die(LaunchFailed, "a warp function in a kernel file that was compiled without");
    }
    if (!(mask >> (running & 31) & 1)) {
        die(LaunchFailed, "a warp function whose mask lacks the calling lane");
    }
    Thread &thread = threads[running];
    thread.mask = mask;
    thread.value = value;
    thread.all = all;
    thread.state = Lane::Warp;
    release_warp(running);
    leave();
    return threads[running].came;
}

unsigned active() {
    unsigned mask = 0;
    const unsigned first = (unsigned)running & ~31u;
    for (unsigned i = 0; i < 32 && first + i < thread_count; ++i) {
        mask |= (threads[first + i].state != Lane::Done ? 1u : 0u) << i;
    }
    return mask;
}

void yield() {
    spend(1);
    give_way();
}

void trap(int code) { die(code, code == Assert ? "an assertion failed" : "a trap"); }

int print(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    line[strcspn(line, "\n")] = 0;
    say("kernel: %s", line);
    return written;
}

cd_uint3 index_of(unsigned i, cd_uint3 size) { return {i % size.x, i / size.x % size.y, i / size.x / size.y}; }

void run_thread() {
    launch->kernel->run(launch->parameters.data());
    threads[running].state = Lane::Done;
    leave();
    abort();
}

// The thread after this one, or before it; the first follows the last.
cd_uint3 neighbour(cd_uint3 at, bool forward) {
    const cd_uint3 size = launch->block;
    auto move = [forward](unsigned &place, unsigned limit) {
        place = forward ? (place + 1 == limit ? 0 : place + 1) : (place == 0 ? limit - 1 : place - 1);
        return place;
    };
    // Goes on with the next dimension where one begins again.
    if (move(at.x, size.x) == (forward ? 0 : size.x - 1) && move(at.y, size.y) == (forward ? 0 : size.y - 1)) {
        move(at.z, size.z);
    }
    return at;
}

// All threads of the block, one after another on one stack.
void run_threads() {
    cd_uint3 at = index_of(first_thread, launch->block);
    for (unsigned n = 0; n < thread_count; ++n, at = neighbour(at, thread_step == 1)) {
        threads[running].index = at;
        state->thread = at;
        launch->kernel->run(launch->parameters.data());
    }
    threads[running].state = Lane::Done;
    leave();
    abort();
}

void resume(unsigned i) {
    Thread &thread = threads[i];
    if (thread.state == Lane::Fresh) {
        make_fibre(&thread.fibre, i, fibres ? run_thread : run_threads);
        thread.state = Lane::Ready;
    }
    running = (int)i;
    state->thread = thread.index;
    set_hot(CD_HOT_RANGES - 1, fibre_stack_lo(i), fibre_stack_hi(i));
    switch_fibre(&scheduler, &thread.fibre);
}

void after_end_of(unsigned i) {
    live--;
    release_barrier();
    const unsigned first = i & ~31u;
    for (unsigned lane = first; lane < first + 32 && lane < thread_count; ++lane) {
        if (threads[lane].state == Lane::Warp) {
            release_warp(lane);
        }
    }
}

void run_fibres(unsigned count) {
    live = count;
    at_barrier = 0;
    const unsigned first = fibres ? first_thread : 0;
    const unsigned step = fibres ? thread_step : 1;
    while (true) {
        bool moved = false;
        for (unsigned n = 0, i = first; n < count; ++n, i = (i + step) % count) {
            if (threads[i].state != Lane::Fresh && threads[i].state != Lane::Ready) {
                continue;
            }
            moved = true;
            resume(i);
            if (fault) {
                return;
            }
            if (threads[i].state == Lane::Done) {
                after_end_of(i);
            }
            if (fault) {
                return;
            }
        }
        if (live == 0) {
            return;
        }
        if (!moved) {
            fault = LaunchTimeout;
            snprintf(reason, sizeof reason, "threads wait for each other for ever: a divergent barrier, or the mask "
                                            "of a warp function that not all its lanes call");
            return;
        }
    }
}

// Poison, as nothing may rely on what a block before left there.
void poison_shared() {
    const cd_module *info = launch->image->info;
    memset(info->dynamic_shared, 0xFF, launch->dynamic_shared);
    if (info->shared_lo) {
        memset(info->shared_lo, 0xFF, (size_t)(info->shared_hi - info->shared_lo));
    }
    const cd_kernel *kernel = launch->kernel;
    if (kernel->shared_lo) {
        memset(kernel->shared_lo, 0xFF, (size_t)(kernel->shared_hi - kernel->shared_lo));
    }
}

void run_block(cd_uint3 index) {
    state->block = index;
    poison_shared();
    const bool shuffle = settings().policy != Policy::Eager;
    first_thread = shuffle ? (unsigned)random_below(thread_count) : 0;
    thread_step = shuffle && random_below(2) ? thread_count - 1 : 1;
    if (thread_step == 0) {
        thread_step = 1;
    }
    const unsigned count = fibres ? thread_count : 1;
    for (unsigned i = 0; i < count; ++i) {
        threads[i].state = Lane::Fresh;
        threads[i].index = index_of(i, launch->block);
    }
    run_fibres(count);
}

void begin(const Launch &wanted) {
    launch = &wanted;
    const cd_module *info = launch->image->info;
    state = info->state;
    fibres = info->fibres != 0;
    thread_count = launch->block.x * launch->block.y * launch->block.z;
    fault = 0;
    reason[0] = 0;
    next_hot = 0;
    steps_left = settings().steps;
    state->block_dim = launch->block;
    state->grid_dim = launch->grid;
    state->check = check;
    state->barrier = barrier;
    state->exchange = exchange;
    state->active = active;
    state->yield = yield;
    state->trap = trap;
    state->print = print;
    for (unsigned i = 0; i < CD_HOT_RANGES; ++i) {
        set_hot(i, 1, 0);
    }
    fuel_given = 0;
    state->fuel = 0;
    refuel();
}

// The blocks in an order drawn from the seed: a step through all of them that shares no factor with their number.
void run_blocks() {
    const uint64_t blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
    const bool shuffle = settings().policy != Policy::Eager && blocks > 1;
    uint64_t at = shuffle ? random_below(blocks) : 0;
    uint64_t step = 1;
    if (shuffle) {
        auto shares_factor = [blocks](uint64_t a) {
            uint64_t b = blocks;
            while (b) {
                const uint64_t rest = a % b;
                a = b;
                b = rest;
            }
            return a != 1;
        };
        do {
            step = 1 + random_below(blocks);
        } while (shares_factor(step));
    }
    for (uint64_t n = 0; n < blocks && !fault; ++n) {
        const uint64_t plane = (uint64_t)launch->grid.x * launch->grid.y;
        run_block({(unsigned)(at % launch->grid.x), (unsigned)(at / launch->grid.x % launch->grid.y),
                   (unsigned)(at / plane)});
        at = (at + step) % blocks;
    }
}

}  // namespace

void start_blocks() {
    start_fibres();
    threads.resize(max_fibres);
}

int run_launch(const Launch &wanted) {
    begin(wanted);
    const int signalled = run_watched(run_blocks, reason, sizeof reason);
    if (signalled) {
        fault = signalled;
    }
    counts.accesses += (uint64_t)(fuel_given - state->fuel);
    if (fault) {
        const cd_uint3 thread = running >= 0 ? threads[running].index : cd_uint3{0, 0, 0};
        say("kernel %s, block (%u,%u,%u), thread (%u,%u,%u): error %d, %s", launch->name.c_str(), state->block.x,
            state->block.y, state->block.z, thread.x, thread.y, thread.z, fault, reason);
    }
    running = -1;
    return fault;
}
