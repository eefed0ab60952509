#include "compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../image.h"
#include "source.h"

extern char **environ;

namespace {

std::string read_file(const std::string &path) {
    std::string text;
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) {
        return text;
    }
    char buffer[16384];
    size_t got;
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) {
        text.append(buffer, got);
    }
    fclose(file);
    return text;
}

bool write_file(const std::string &path, const std::string &text) {
    FILE *file = fopen(path.c_str(), "wb");
    if (!file) {
        return false;
    }
    const bool good = fwrite(text.data(), 1, text.size(), file) == text.size();
    return fclose(file) == 0 && good;
}

std::string environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

// The folder of the prelude, beside this library.
std::string prelude_directory() {
    Dl_info info;
    dladdr((void *)&prelude_directory, &info);
    const std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/kernel";
}

// Runs a program; what it says goes to `log`. Gives its exit status, or -1.
int run(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> arguments;
    for (const std::string &word : words) {
        arguments.push_back((char *)word.c_str());
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed) {
        write_file(log, "cannot run " + words[0] + ": " + strerror(failed) + "\n");
        return -1;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void make_directories(const std::string &path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        mkdir(path.substr(0, at).c_str(), 0777);
    }
    mkdir(path.c_str(), 0777);
}

// g++ says "file:line:column: error: ...", NVRTC "file(line): error: ...".
std::string log_of_nvrtc(const std::string &log, const std::string &name) {
    std::string out;
    int errors = 0;
    for (size_t from = 0; from < log.size();) {
        size_t end = log.find('\n', from);
        end = end == std::string::npos ? log.size() : end;
        std::string line = log.substr(from, end - from);
        from = end + 1;
        for (size_t at; (at = line.find("{anonymous}::")) != std::string::npos;) {
            line.erase(at, 13);
        }
        const size_t error = line.find(": error: ");
        const size_t fatal = line.find(": fatal error: ");
        const size_t mark = error != std::string::npos ? error : fatal;
        if (mark != std::string::npos) {
            ++errors;
            const size_t column = line.rfind(':', mark - 1);
            const size_t number = column == std::string::npos ? column : line.rfind(':', column - 1);
            if (number != std::string::npos) {
                line = line.substr(0, number) + "(" + line.substr(number + 1, column - number - 1) + "): error: " +
                       line.substr(mark + (mark == error ? 9 : 15));
            }
        }
        if (line != "compilation terminated.") {
            out += line + "\n";
        }
    }
    out += std::to_string(errors) + (errors == 1 ? " error" : " errors") + " detected in the compilation of \"" + name +
           "\".\n";
    return out;
}

struct Files {
    std::string stem;

    explicit Files(const std::string &directory) {
        static std::atomic<unsigned> made{0};
        stem = directory + "/tmp." + std::to_string(getpid()) + "." + std::to_string(made++);
    }
    ~Files() {
        for (const char *end : {".cu", ".ii", ".cpp", ".o", ".so", ".log"}) {
            unlink((stem + end).c_str());
        }
    }
};

class Compilation {
  public:
    explicit Compilation(const Request &request)
        : request(request), cache(cache_directory()), prelude(prelude_directory()), files(cache) {
        checked = environment("CUDA_STUB_CHECK", "1") != "0";
        drop_barrier = strtoull(environment("CUDA_STUB_DROP_BARRIER", "0").c_str(), nullptr, 10);
        compiler = environment("CUDA_STUB_CXX", "g++");
        common = {"-std=" + request.options.standard, "-nostdinc", "-nostdinc++", "-w", "-fdiagnostics-color=never"};
    }

    Outcome run() {
        make_directories(cache);
        const bool includes = request.source.find("#include") != std::string::npos ||
                              request.source.find("# include") != std::string::npos;
        // Preprocessing first only if the key depends on other files.
        std::string preprocessed;
        if (includes && !preprocess(&preprocessed)) {
            return failed();
        }
        const std::string key = make_key(includes ? preprocessed : request.source);
        const std::string library = cache + "/" + key + ".so";
        const std::string names = cache + "/" + key + ".names";
        if (access(library.c_str(), R_OK) != 0 || access(names.c_str(), R_OK) != 0) {
            if (!includes && !preprocess(&preprocessed)) {
                return failed();
            }
            if (!build(preprocessed, library, names)) {
                return failed();
            }
        }
        Outcome outcome;
        outcome.good = true;
        outcome.library = key;
        const std::string text = read_file(names);
        for (size_t from = 0; from < text.size();) {
            const size_t end = text.find('\n', from);
            outcome.lowered.push_back(text.substr(from, end - from));
            from = end + 1;
        }
        return outcome;
    }

  private:
    const Request &request;
    std::string cache;
    std::string prelude;
    std::string compiler;
    Files files;
    bool checked;
    uint64_t drop_barrier;
    std::vector<std::string> common;

    std::string make_key(const std::string &text) const {
        std::string all = __VERSION__ + compiler + request.name + '\0' + text + '\0';
        for (const std::string &define : request.options.defines) {
            all += define + '\0';
        }
        for (const std::string &expression : request.expressions) {
            all += expression + '\0';
        }
        all += std::to_string(CUDA_STUB_MARK) + request.options.standard + std::to_string(request.options.arch) +
               std::to_string(checked) + " " + std::to_string(drop_barrier) + extra_flags();
        for (const char *file : {"abi.h", "prelude.h", "vector_types.h", "builtins.h"}) {
            all += read_file(prelude + "/" + file);
        }
        return hash_text(all.data(), all.size());
    }

    // fmaf must not be a call; but no other operation is to be fused.
    static std::string extra_flags() { return __builtin_cpu_supports("fma") ? "-mfma" : ""; }

    Outcome failed() {
        Outcome outcome;
        outcome.log = log_of_nvrtc(read_file(files.stem + ".log"), request.name);
        return outcome;
    }

    bool call(std::vector<std::string> words) const { return ::run(words, files.stem + ".log") == 0; }

    bool preprocess(std::string *text) {
        const std::string headers = files.stem + ".headers";
        std::vector<std::string> words = {compiler, "-E"};
        words.insert(words.end(), common.begin(), common.end());
        words.insert(words.end(), {"-DCUDASTUB=1", "-D__CUDACC__=1", "-D__CUDACC_RTC__=1",
                                   "-D__CUDA_ARCH__=" + std::to_string(request.options.arch) + "0"});
        words.insert(words.end(), request.options.defines.begin(), request.options.defines.end());
        for (const auto &header : request.headers) {
            const std::string path = headers + "/" + header.first;
            make_directories(path.substr(0, path.rfind('/')));
            write_file(path, header.second);
        }
        if (!request.headers.empty()) {
            words.push_back("-I" + headers);
        }
        if (!write_file(files.stem + ".cu", "#line 1 \"" + request.name + "\"\n" + request.source + "\n")) {
            write_file(files.stem + ".log", cache + ": error: cannot write there\n");
            fprintf(stderr, "cuda stub: cannot write to %s\n", cache.c_str());
            return false;
        }
        words.insert(words.end(), {"-x", "c++", files.stem + ".cu", "-o", files.stem + ".ii"});
        const bool good = call(words);
        for (const auto &header : request.headers) {
            unlink((headers + "/" + header.first).c_str());
        }
        rmdir(headers.c_str());
        *text = read_file(files.stem + ".ii");
        return good;
    }

    bool build(const std::string &preprocessed, const std::string &library, const std::string &names) {
        const Source source(preprocessed, drop_barrier);
        std::vector<std::string> lowered;
        const std::string table = source.table(request.expressions, &lowered, checked);
        std::string lines;
        for (const std::string &name : lowered) {
            lines += name + "\n";
        }
        write_file(files.stem + ".cpp", "#include \"prelude.h\"\nnamespace {\n" + source.text + table);
        std::vector<std::string> words = {compiler};
        words.insert(words.end(), common.begin(), common.end());
        words.insert(words.end(), {"-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
                                   "-fno-tree-loop-distribute-patterns", "-fno-math-errno", "-ffp-contract=off"});
        if (!extra_flags().empty()) {
            words.push_back(extra_flags());
        }
        if (checked) {
            words.insert(words.end(), {"-fsanitize=thread", "-DCD_CHECKED"});
        }
        words.insert(words.end(), {"-I" + prelude, "-c", files.stem + ".cpp", "-o", files.stem + ".o"});
        if (!call(words)) {
            return false;
        }
        if (!call({compiler, "-shared", "-Wl,-Bsymbolic", files.stem + ".o", "-o", files.stem + ".so", "-lm"})) {
            return false;
        }
        // Renamed when whole, so that another process never sees half of one.
        write_file(files.stem + ".log", lines);
        return rename((files.stem + ".so").c_str(), library.c_str()) == 0 &&
               rename((files.stem + ".log").c_str(), names.c_str()) == 0;
    }
};

}  // namespace

Outcome compile(const Request &request) { return Compilation(request).run(); }
