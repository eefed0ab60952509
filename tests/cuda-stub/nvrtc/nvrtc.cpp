// The functions of NVRTC.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "../image.h"
#include "compiler.h"

#define API extern "C" __attribute__((visibility("default")))

enum Result {
    Good = 0,
    InvalidInput = 3,
    InvalidProgram = 4,
    InvalidOption = 5,
    CompilationFailed = 6,
    NoNamesAfterCompilation = 8,
    NoLoweredNamesBefore = 9,
    NameNotValid = 10,
};

struct Program {
    Request request;
    bool compiled = false;
    Outcome outcome;
    std::string log;
    std::string ptx;
    std::string cubin;
};

namespace {

const int known_archs[] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};

int cuda_version() {
    const char *set = getenv("CUDA_STUB_VERSION");
    return set && *set ? atoi(set) : 12080;
}

bool supported(int arch) {
    if (cuda_version() >= 13000 && arch < 75) {
        return false;
    }
    for (int known : known_archs) {
        if (known == arch) {
            return true;
        }
    }
    return false;
}

bool starts_with(const std::string &text, const char *prefix) { return text.rfind(prefix, 0) == 0; }

// What a real compiler makes of these does not matter here.
bool is_ignored(const std::string &option) {
    static const char *const prefixes[] = {
        "--use_fast_math", "-use_fast_math", "--fmad=", "-fmad=", "--ftz=", "-ftz=", "--prec-div=", "-prec-div=",
        "--prec-sqrt=", "-prec-sqrt=", "--maxrregcount=", "-maxrregcount=", "--device-debug", "-G",
        "--generate-line-info", "-lineinfo", "--extra-device-vectorization", "-extra-device-vectorization",
        "--restrict", "-restrict", "-w", "--disable-warnings", "-default-device", "--device-as-default-execution-space",
        "--dopt", "-dopt", "--ptxas-options", "-Xptxas", "--optimization-info=", "--split-compile=", "--minimal",
        "-minimal", "--builtin-move-forward=", "--builtin-initializer-list=", "--relocatable-device-code=false"};
    for (const char *prefix : prefixes) {
        if (starts_with(option, prefix)) {
            return true;
        }
    }
    return false;
}

struct OptionReader {
    Options *options;
    std::string *log;

    bool refuse(const std::string &why) {
        *log += "nvrtc: error: " + why + "\n";
        return false;
    }

    bool arch(const std::string &value) {
        const bool real = starts_with(value, "sm_");
        if (!real && !starts_with(value, "compute_")) {
            return refuse("invalid value for --gpu-architecture (-arch)");
        }
        // sm_90a and the like: the letter makes no difference here.
        options->arch = atoi(value.c_str() + (real ? 3 : 8));
        options->real_arch = real;
        return supported(options->arch) || refuse("invalid value for --gpu-architecture (-arch)");
    }

    // `next`: the option after it, for those that take their value there; set to null if it was used.
    bool read(const std::string &option, const char **next) {
        auto value_of = [&](std::initializer_list<const char *> names, std::string *value) {
            for (const char *name : names) {
                if (option == name && *next) {
                    *value = *next;
                    *next = nullptr;
                    return true;
                }
                if (starts_with(option, (std::string(name) + "=").c_str())) {
                    *value = option.substr(strlen(name) + 1);
                    return true;
                }
            }
            return false;
        };
        std::string value;
        if (value_of({"--gpu-architecture", "-arch"}, &value)) {
            return arch(value);
        }
        if (value_of({"--std", "-std"}, &value)) {
            options->standard = value == "c++11" || value == "c++14" ? "c++17" : value;
            return starts_with(value, "c++") || refuse("invalid value for --std");
        }
        if (value_of({"--define-macro", "-D"}, &value)) {
            options->defines.push_back("-D" + value);
            return true;
        }
        if (value_of({"--undefine-macro", "-U"}, &value)) {
            options->defines.push_back("-U" + value);
            return true;
        }
        if (value_of({"--include-path", "-I"}, &value)) {
            options->defines.push_back("-I" + value);
            return true;
        }
        const std::string two = option.substr(0, 2);
        if (option.size() > 2 && (two == "-D" || two == "-U" || two == "-I")) {
            options->defines.push_back(option);
            return true;
        }
        return is_ignored(option) || refuse("unrecognized option " + option + " found");
    }
};

bool read_options(int count, const char *const *options, Options *out, std::string *log) {
    OptionReader reader{out, log};
    out->arch = cuda_version() >= 13000 ? 75 : 52;
    for (int i = 0; i < count; ++i) {
        const char *next = i + 1 < count ? options[i + 1] : nullptr;
        const char *const unused = next;
        if (!reader.read(options[i], &next)) {
            return false;
        }
        i += unused && !next;
    }
    return true;
}

int give(const std::string &text, char *out) {
    if (!out) {
        return InvalidInput;
    }
    memcpy(out, text.data(), text.size());
    return Good;
}

std::string with_zero(const std::string &text) { return text + '\0'; }

}  // namespace

#define PROGRAM(program)          \
    if (!(program)) {             \
        return InvalidProgram;    \
    }

API int nvrtcVersion(int *major, int *minor) {
    *major = cuda_version() / 1000;
    *minor = cuda_version() % 1000 / 10;
    return Good;
}

API int nvrtcGetNumSupportedArchs(int *count) {
    *count = 0;
    for (int arch : known_archs) {
        *count += supported(arch);
    }
    return Good;
}

API int nvrtcGetSupportedArchs(int *out) {
    for (int arch : known_archs) {
        if (supported(arch)) {
            *out++ = arch;
        }
    }
    return Good;
}

API int nvrtcCreateProgram(Program **out, const char *source, const char *name, int headers,
                           const char *const *header_texts, const char *const *header_names) {
    if (!out || !source || headers < 0) {
        return InvalidInput;
    }
    auto program = std::make_unique<Program>();
    program->request.source = source;
    program->request.name = name && *name ? name : "default_program";
    for (int i = 0; i < headers; ++i) {
        program->request.headers.emplace_back(header_names[i], header_texts[i]);
    }
    *out = program.release();
    return Good;
}

API int nvrtcDestroyProgram(Program **program) {
    if (!program || !*program) {
        return InvalidProgram;
    }
    delete *program;
    *program = nullptr;
    return Good;
}

API int nvrtcAddNameExpression(Program *program, const char *expression) {
    PROGRAM(program)
    if (program->compiled) {
        return NoNamesAfterCompilation;
    }
    program->request.expressions.push_back(expression);
    return Good;
}

API int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    PROGRAM(program)
    program->compiled = true;
    program->log.clear();
    program->request.options = Options();
    if (!read_options(count, options, &program->request.options, &program->log)) {
        return InvalidOption;
    }
    program->outcome = compile(program->request);
    program->log = program->outcome.log;
    if (!program->outcome.good) {
        return CompilationFailed;
    }
    const Options &used = program->request.options;
    program->ptx = make_ptx(program->outcome.library, used.arch, cuda_version());
    program->cubin = used.real_arch ? make_cubin(program->outcome.library, used.arch) : "";
    return Good;
}

API int nvrtcGetPTXSize(Program *program, size_t *bytes) {
    PROGRAM(program)
    if (program->ptx.empty()) {
        return InvalidProgram;
    }
    *bytes = program->ptx.size() + 1;
    return Good;
}

API int nvrtcGetPTX(Program *program, char *out) {
    PROGRAM(program)
    return program->ptx.empty() ? InvalidProgram : give(with_zero(program->ptx), out);
}

API int nvrtcGetCUBINSize(Program *program, size_t *bytes) {
    PROGRAM(program)
    if (program->ptx.empty()) {
        return InvalidProgram;
    }
    *bytes = program->cubin.size();
    return Good;
}

API int nvrtcGetCUBIN(Program *program, char *out) {
    PROGRAM(program)
    return program->cubin.empty() ? InvalidProgram : give(program->cubin, out);
}

API int nvrtcGetProgramLogSize(Program *program, size_t *bytes) {
    PROGRAM(program)
    *bytes = program->log.size() + 1;
    return Good;
}

API int nvrtcGetProgramLog(Program *program, char *out) {
    PROGRAM(program)
    return give(with_zero(program->log), out);
}

API int nvrtcGetLoweredName(Program *program, const char *expression, const char **out) {
    PROGRAM(program)
    if (!program->compiled || !program->outcome.good) {
        return NoLoweredNamesBefore;
    }
    const auto &expressions = program->request.expressions;
    for (size_t i = 0; i < expressions.size() && i < program->outcome.lowered.size(); ++i) {
        if (expressions[i] == expression) {
            *out = program->outcome.lowered[i].c_str();
            return Good;
        }
    }
    return NameNotValid;
}

API const char *nvrtcGetErrorString(int code) {
    static const char *const names[] = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION",
                                        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                        "NVRTC_ERROR_INTERNAL_ERROR"};
    return code >= 0 && code < 12 ? names[code] : "NVRTC_ERROR unknown";
}
