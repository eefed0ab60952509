// Modules, functions and launches.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "block.h"
#include "call.h"
#include "counts.h"
#include "../image.h"
#include "memory.h"
#include "settings.h"

namespace {

const unsigned shared_without_asking = 49152;
// Never destroyed, as threads may call until the very end.
auto &modules = *new std::set<Module *>;
auto &functions = *new std::map<Function *, Module *>;
auto &paths_in_use = *new std::set<std::string>;  // a second dlopen of one would share its data
auto &path_of = *new std::map<void *, std::string>;

bool read_file(const std::string &path, std::string *out) {
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) {
        return false;
    }
    char buffer[65536];
    size_t got;
    out->clear();
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) {
        out->append(buffer, got);
    }
    fclose(file);
    return true;
}

// Gives the open file too, whose number must not be used again while the loader knows the library by it.
void *open_copy(const std::string &path, int *file) {
    std::string bytes;
    if (!read_file(path, &bytes)) {
        return nullptr;
    }
    *file = memfd_create("cuda-stub", MFD_CLOEXEC);
    if (*file < 0 || write(*file, bytes.data(), bytes.size()) != (ssize_t)bytes.size()) {
        return nullptr;
    }
    const std::string name = "/proc/self/fd/" + std::to_string(*file);
    return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::shared_ptr<Image> open_image(const std::string &path) {
    const bool again = paths_in_use.count(path);
    auto image = std::make_shared<Image>();
    void *library = again ? open_copy(path, &image->file) : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    image->library = library;
    if (!library) {
        const char *why = dlerror();
        say("%s: %s", path.c_str(), why ? why : "cannot be copied");
        return nullptr;
    }
    auto *info = (const cd_module *)dlsym(library, "cuda_stub_module");
    if (!info || info->version != CD_ABI_VERSION) {
        say("%s is not a kernel file of this stub", path.c_str());
        return nullptr;
    }
    if (!again) {
        paths_in_use.insert(path);
        path_of[library] = path;
    }
    image->info = info;
    for (unsigned i = 0; i < info->global_count; ++i) {
        add_module_range((uint64_t)info->globals[i].address, info->globals[i].bytes);
    }
    return image;
}

// Real code for a GPU is known by the hash of its bytes, if a twin was registered for it.
int find_image(const char *bytes, ImageText *text) {
    if (parse_image(bytes, text)) {
        return Success;
    }
    const std::string hash = hash_text(bytes, image_bytes(bytes));
    const std::string path = cache_directory() + "/" + hash + ".twin";
    std::string twin;
    if (!read_file(path, &twin)) {
        say("an image that is not of this stub, and no twin %s", path.c_str());
        return InvalidImage;
    }
    text->library = twin.substr(0, twin.find('\n'));
    text->arch = 0;
    text->binary = false;
    return Success;
}

// Code for one architecture runs on that and on later ones of the same generation; PTX on all later ones.
int check_arch(const ImageText &text) {
    const int have = settings().arch;
    if (text.arch == 0) {
        return Success;
    }
    if (text.binary && (text.arch / 10 != have / 10 || text.arch % 10 > have % 10)) {
        say("code for sm_%d on a device of compute capability %d.%d", text.arch, have / 10, have % 10);
        return NoBinaryForGpu;
    }
    if (!text.binary && text.arch > have) {
        say("PTX for %d on a device of compute capability %d.%d", text.arch, have / 10, have % 10);
        return InvalidPtx;
    }
    return Success;
}

int load(Context *context, Module **out, const char *bytes) {
    ImageText text;
    int code = find_image(bytes, &text);
    code = code ? code : check_arch(text);
    if (code) {
        return code;
    }
    const std::string path = cache_directory() + "/" + text.library + ".so";
    if (access(path.c_str(), R_OK) != 0) {
        say("the image's library %s is not there", path.c_str());
        return InvalidImage;
    }
    auto module = std::make_unique<Module>();
    module->context = context;
    module->image = open_image(path);
    if (!module->image) {
        return InvalidImage;
    }
    module->info = module->image->info;
    for (unsigned i = 0; i < module->info->kernel_count; ++i) {
        auto function = std::make_unique<Function>();
        function->module = module.get();
        function->kernel = &module->info->kernels[i];
        function->max_dynamic_shared = shared_without_asking;
        if (function->static_shared() > shared_without_asking) {
            say("kernel %s uses too much shared data (%u bytes, %u at most)", function->kernel->name,
                function->static_shared(), shared_without_asking);
            return text.binary ? InvalidImage : InvalidPtx;
        }
        module->functions.push_back(std::move(function));
    }
    *out = module.release();
    modules.insert(*out);
    for (auto &function : (*out)->functions) {
        functions[function.get()] = *out;
    }
    counts.modules++;
    return Success;
}

int launch(Context *context, Function *function, cd_uint3 grid, cd_uint3 block, unsigned dynamic, Stream *handle,
           void **parameters, void **extra) {
    FIND_STREAM(handle)
    if (!functions.count(function) || function->module->context != context) {
        return InvalidHandle;
    }
    const uint64_t thread_count = (uint64_t)block.x * block.y * block.z;
    NEED(grid.x && grid.y && grid.z && thread_count)
    NEED(grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535)
    NEED(block.x <= 1024 && block.y <= 1024 && block.z <= 64 && thread_count <= 1024)
    if (thread_count > function->kernel->max_threads) {
        return LaunchOutOfResources;
    }
    const unsigned shared = dynamic + function->static_shared();
    NEED(dynamic <= CD_DYNAMIC_SHARED_BYTES && shared <= CD_DYNAMIC_SHARED_BYTES)
    NEED(dynamic <= function->max_dynamic_shared)
    NEED(function->max_dynamic_shared > shared_without_asking || shared <= shared_without_asking)
    const cd_kernel &kernel = *function->kernel;
    NEED(!extra && (parameters || kernel.parameters == 0))
    auto wanted = std::make_shared<Launch>();
    wanted->image = function->module->image;
    wanted->kernel = &kernel;
    wanted->name = kernel.name;
    wanted->grid = grid;
    wanted->block = block;
    wanted->dynamic_shared = dynamic;
    for (unsigned i = 0; i < kernel.parameters; ++i) {
        wanted->parameters.resize(kernel.offsets[i] + kernel.sizes[i]);
        memcpy(wanted->parameters.data() + kernel.offsets[i], parameters[i], kernel.sizes[i]);
    }
    counts.launches++;
    return enqueue(stream, {Kind::Launch, wanted->name, [wanted] { return run_launch(*wanted); }, nullptr});
}

}  // namespace

Image::~Image() {
    for (unsigned i = 0; info && i < info->global_count; ++i) {
        remove_module_range((uint64_t)info->globals[i].address);
    }
    auto path = path_of.find(library);
    if (path != path_of.end()) {
        paths_in_use.erase(path->second);
        path_of.erase(path);
    }
    if (library) {
        dlclose(library);
    }
    if (file >= 0) {
        close(file);
    }
}

unsigned Function::static_shared() const {
    const cd_module *info = module->info;
    return (unsigned)(kernel->shared_hi - kernel->shared_lo) + (unsigned)(info->shared_hi - info->shared_lo);
}

API cuModuleLoadData(Module **out, const char *bytes) {
    ENTER;
    NEED(out && bytes)
    REFUSE_IN_CAPTURE("cuModuleLoadData")
    return load(context, out, bytes);
}

API cuModuleLoadDataEx(Module **out, const char *bytes, unsigned, int *, void **) {
    return cuModuleLoadData(out, bytes);
}

API cuModuleLoadFatBinary(Module **, const char *) { return InvalidImage; }

API cuModuleLoad(Module **out, const char *path) {
    ENTER;
    NEED(out && path)
    std::string bytes;
    if (!read_file(path, &bytes)) {
        return FileNotFound;
    }
    bytes.append(64, '\0');
    return load(context, out, bytes.data());
}

API cuModuleUnload(Module *module) {
    ENTER;
    if (!modules.erase(module)) {
        return InvalidHandle;
    }
    for (auto &function : module->functions) {
        functions.erase(function.get());
    }
    delete module;
    return Success;
}

API cuModuleGetFunction(Function **out, Module *module, const char *name) {
    ENTER;
    NEED(out && name)
    if (!modules.count(module)) {
        return InvalidHandle;
    }
    for (auto &function : module->functions) {
        if (strcmp(function->kernel->name, name) == 0) {
            *out = function.get();
            return Success;
        }
    }
    return NotFound;
}

API cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, Module *module, const char *name) {
    ENTER;
    NEED(name)
    if (!modules.count(module)) {
        return InvalidHandle;
    }
    for (unsigned i = 0; i < module->info->global_count; ++i) {
        const cd_global &global = module->info->globals[i];
        if (strcmp(global.name, name) == 0) {
            if (address) {
                *address = (uint64_t)global.address;
            }
            if (bytes) {
                *bytes = global.bytes;
            }
            return Success;
        }
    }
    return NotFound;
}

// ---------------------------------------------------------------- functions
API cuFuncGetAttribute(int *value, int attribute, Function *function) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    NEED(value)
    switch (attribute) {
        case 0:  // MAX_THREADS_PER_BLOCK
            *value = (int)function->kernel->max_threads;
            return Success;
        case 1:  // SHARED_SIZE_BYTES
            *value = (int)function->static_shared();
            return Success;
        case 4:  // NUM_REGS
            *value = 32;
            return Success;
        case 5:  // PTX_VERSION
        case 6:  // BINARY_VERSION
            *value = settings().arch;
            return Success;
        case 8:  // MAX_DYNAMIC_SHARED_SIZE_BYTES
            *value = (int)function->max_dynamic_shared;
            return Success;
        default:
            NEED(attribute >= 0 && attribute < 20)
            *value = 0;
            return Success;
    }
}

API cuFuncSetAttribute(Function *function, int attribute, int value) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    if (attribute == 8) {
        NEED(value >= 0 && value + (int)function->static_shared() <= CD_DYNAMIC_SHARED_BYTES)
        function->max_dynamic_shared = (unsigned)value;
    }
    return Success;
}

API cuFuncSetCacheConfig(Function *function, int) {
    ENTER;
    return functions.count(function) ? Success : InvalidHandle;
}

API cuFuncGetModule(Module **module, Function *function) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    *module = function->module;
    return Success;
}

API cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *bytes) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    NEED(index < function->kernel->parameters)
    *offset = function->kernel->offsets[index];
    if (bytes) {
        *bytes = function->kernel->sizes[index];
    }
    return Success;
}

API cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned dynamic, Stream *handle, void **parameters, void **extra) {
    ENTER;
    return launch(context, function, {gx, gy, gz}, {bx, by, bz}, dynamic, handle, parameters, extra);
}

struct LaunchConfig {
    cd_uint3 grid;
    cd_uint3 block;
    unsigned dynamic;
    Stream *stream;
    void *attributes;
    unsigned attribute_count;
};

API cuLaunchKernelEx(const LaunchConfig *config, Function *function, void **parameters, void **extra) {
    ENTER;
    NEED(config && config->attribute_count == 0)
    return launch(context, function, config->grid, config->block, config->dynamic, config->stream, parameters, extra);
}

API cuLaunchCooperativeKernel(Function *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              Stream *, void **) {
    return NotSupported;
}

// ---------------------------------------------------------------- occupancy: by threads and shared memory alone
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *function, int threads, size_t dynamic) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    NEED(blocks && threads > 0)
    const size_t shared = dynamic + function->static_shared() + 1024;
    const int by_threads = threads > (int)function->kernel->max_threads ? 0 : 2048 / ((threads + 31) / 32 * 32);
    const int by_shared = (int)(102400 / shared);
    *blocks = std::min({by_threads, by_shared, 32});
    return Success;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, Function *function, int threads, size_t dynamic,
                                                         unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic);
}

API cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Function *function, size_t (*)(int), size_t, int limit) {
    ENTER;
    if (!functions.count(function)) {
        return InvalidHandle;
    }
    const int most = (int)function->kernel->max_threads;
    *block = limit > 0 ? std::min(limit, most) : most;
    *grid = 4 * (2048 / *block);
    return Success;
}

API cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, Function *function, size_t (*shared)(int),
                                              size_t dynamic, int limit, unsigned) {
    return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared, dynamic, limit);
}

API cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, Function *function, int blocks, int) {
    ENTER;
    NEED(bytes && blocks > 0 && functions.count(function))
    const size_t each = (size_t)(102400 / blocks);
    const size_t fixed = function->static_shared() + 1024;
    *bytes = each > fixed ? std::min<size_t>(each - fixed, function->max_dynamic_shared) : 0;
    return Success;
}
