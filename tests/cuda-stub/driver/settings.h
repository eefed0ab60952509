// The switches of the stub, read once from the environment, and its seeded random numbers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

enum class Policy {
    Eager,   // work is done when it is queued
    Lazy,    // only what somebody waits for is done
    Random,  // some work is done at any call
};

// CODE@WHAT:N of CUDA_STUB_FAULT.
struct Fault {
    int code;
    std::string what;
    uint64_t number;
};

struct Settings {
    uint64_t seed;
    Policy policy;
    bool trace;
    int devices;
    int arch;            // compute capability, major * 10 + minor
    int version;         // of CUDA, as cuDriverGetVersion gives it
    uint64_t memory;     // bytes of a device
    uint64_t steps;      // accesses and barriers that one launch may make
    long seconds;        // that one launch, or one wait, may take
    uint64_t preempt;    // a switch of threads every so many accesses on average; 0: never
    uint64_t drop_wait;  // this cuStreamWaitEvent is ignored; 0: none
    long idle_ms;        // work goes on by itself after so long without a call; 0: it does not
    bool pools;          // whether the device has memory pools
    bool sticky_process; // a sticky error outlives its context
    std::vector<Fault> faults;
    std::string report;
};

const Settings &settings();

// A number below `limit`, from the seed.
uint64_t random_below(uint64_t limit);

// The code that CUDA_STUB_FAULT asks for at the `number`-th `what`, or 0.
int fault_at(const char *what, uint64_t number);

// Prints a line to stderr, after "cuda stub: ".
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
