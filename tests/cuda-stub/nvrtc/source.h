// A preprocessed kernel source, rewritten for the CPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct Kernel {
    std::string name;
    std::string max_threads;  // an expression of the source
    bool c_name;              // extern "C": its name is not mangled
    bool is_template;
};

// Rewrites shared memory and barriers; finds kernels and variables of the device.
struct Source {
    std::string text;
    std::vector<Kernel> kernels;
    std::vector<std::string> globals;
    bool fibres = false;     // something in it lets one thread wait for another
    uint64_t barriers = 0;

    // `drop_barrier`: which __syncthreads() to leave out, counted in the text from 1; 0: none.
    Source(const std::string &preprocessed, uint64_t drop_barrier);

    // The table of the file's kernels, to follow the text. `expressions` are names like k<float>; `lowered` gets
    // the names to ask the module for.
    std::string table(const std::vector<std::string> &expressions, std::vector<std::string> *lowered,
                      bool checked) const;
};
