// Runs every case in a process of its own: selftest runs all, selftest NAME one of them.
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

std::vector<Case> &cases() {
    static std::vector<Case> all;
    return all;
}

void *open_library(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return library;
}

void start() {
    OK(cuInit(0));
    void *context = nullptr;
    OK(cuPrimaryRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

std::string compile_ptx(const char *source, std::vector<const char *> options, int expected, std::string *log) {
    void *program = nullptr;
    OK(nvrtcCreateProgram(&program, source, "case.cu", 0, nullptr, nullptr));
    const int code = nvrtcCompileProgram(program, (int)options.size(), options.data());
    size_t bytes = 0;
    OK(nvrtcGetProgramLogSize(program, &bytes));
    std::string text(bytes, '\0');
    OK(nvrtcGetProgramLog(program, &text[0]));
    if (code != expected) {
        printf("%s\n", text.c_str());
    }
    EQUAL(code, expected);
    if (log) {
        *log = text.c_str();
    }
    if (code) {
        return "";
    }
    OK(nvrtcGetPTXSize(program, &bytes));
    std::string ptx(bytes, '\0');
    OK(nvrtcGetPTX(program, &ptx[0]));
    return ptx;
}

void *load(const char *source) {
    void *module = nullptr;
    OK(cuModuleLoadData(&module, compile_ptx(source).c_str()));
    return module;
}

void *function(void *module, const char *name) {
    void *found = nullptr;
    OK(cuModuleGetFunction(&found, module, name));
    return found;
}

void *new_stream() {
    void *stream = nullptr;
    OK(cuStreamCreate(&stream, 1));
    return stream;
}

void *new_event() {
    void *event = nullptr;
    OK(cuEventCreate(&event, 0));
    return event;
}

static bool run_apart(const Case &one, int seed) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (one.seeds) {
            setenv("CUDA_STUB_SEED", std::to_string(seed).c_str(), 1);
        }
        for (const std::string &entry : one.environment) {
            const size_t at = entry.find('=');
            setenv(entry.substr(0, at).c_str(), entry.substr(at + 1).c_str(), 1);
        }
        alarm(120);
        execl("/proc/self/exe", "selftest", one.name, nullptr);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int count, char **arguments) {
    if (count > 1) {
        for (const Case &one : cases()) {
            if (one.name == std::string(arguments[1])) {
                one.run();
                return 0;
            }
        }
        printf("no case %s\n", arguments[1]);
        return 2;
    }
    int failed = 0;
    for (const Case &one : cases()) {
        bool good = true;
        int seed = 0;
        for (; good && seed < (one.seeds ? one.seeds : 1); ++seed) {
            good = run_apart(one, seed);
        }
        printf("%s %s", good ? "ok  " : "FAIL", one.name);
        if (one.seeds && good) {
            printf(", %d seeds", one.seeds);
        } else if (one.seeds) {
            printf(", seed %d", seed - 1);
        }
        printf("\n");
        failed += !good;
    }
    printf("%zu cases, %d failed\n", cases().size(), failed);
    return failed != 0;
}
