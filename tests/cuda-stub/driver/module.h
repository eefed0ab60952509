// Loaded kernel files and their functions.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../kernel/abi.h"

struct Context;
struct Module;

struct Function {
    Module *module;
    const cd_kernel *kernel;
    unsigned max_dynamic_shared;

    unsigned static_shared() const;
};

struct Image;

struct Module {
    Context *context;
    std::shared_ptr<Image> image;
    const cd_module *info;
    std::vector<std::unique_ptr<Function>> functions;
};

// The shared library of a module; stays loaded as long as a queued launch or a graph needs it.
struct Image {
    void *library = nullptr;
    int file = -1;  // of a copy that is only in memory; open as long as its name is in use
    const cd_module *info = nullptr;
    ~Image();
};
