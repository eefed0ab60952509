#include "settings.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

uint64_t random_state = 88172645463325252ull;

uint64_t number(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    if (!value || !*value) {
        return otherwise;
    }
    char *end = nullptr;
    const uint64_t result = strtoull(value, &end, 10);
    if (*end) {
        say("%s=%s is no number", name, value);
        exit(97);
    }
    return result;
}

std::vector<Fault> read_faults(const char *value) {
    std::vector<Fault> faults;
    std::string text = value ? value : "";
    while (!text.empty()) {
        const size_t comma = text.find(',');
        const std::string item = text.substr(0, comma);
        text = comma == std::string::npos ? "" : text.substr(comma + 1);
        int code = 0;
        char what[17] = "";
        unsigned long long at = 0;
        char rest = 0;
        if (sscanf(item.c_str(), "%d@%16[a-z]:%llu%c", &code, what, &at, &rest) != 3) {
            say("CUDA_STUB_FAULT: '%s' is not CODE@launch:N, CODE@copy:N, CODE@alloc:N or CODE@wait:N", item.c_str());
            exit(97);
        }
        faults.push_back({code, what, at});
    }
    return faults;
}

Settings read_settings() {
    Settings s;
    s.seed = number("CUDA_STUB_SEED", 0);
    s.policy = s.seed == 0 ? Policy::Eager : s.seed % 2 ? Policy::Lazy : Policy::Random;
    s.trace = number("CUDA_STUB_TRACE", 0) != 0;
    s.devices = (int)number("CUDA_STUB_DEVICES", 1);
    s.arch = (int)number("CUDA_STUB_ARCH", 90);
    s.version = (int)number("CUDA_STUB_VERSION", 12080);
    s.memory = number("CUDA_STUB_MEMORY", 4ull << 30);
    s.steps = number("CUDA_STUB_STEPS", 8000000000ull);
    s.seconds = (long)number("CUDA_STUB_SECONDS", 120);
    s.preempt = number("CUDA_STUB_PREEMPT", s.seed == 0 ? 0 : 200);
    s.drop_wait = number("CUDA_STUB_DROP_WAIT", 0);
    s.idle_ms = (long)number("CUDA_STUB_IDLE_MS", 0);
    s.pools = number("CUDA_STUB_POOLS", 1) != 0;
    s.sticky_process = number("CUDA_STUB_STICKY_PROCESS", 0) != 0;
    s.faults = read_faults(getenv("CUDA_STUB_FAULT"));
    s.report = getenv("CUDA_STUB_REPORT") ? getenv("CUDA_STUB_REPORT") : "";
    random_state ^= s.seed * 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < 16; ++i) {
        random_below(2);
    }
    return s;
}

}  // namespace

const Settings &settings() {
    static const Settings *all = new Settings(read_settings());
    return *all;
}

uint64_t random_below(uint64_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % limit;
}

int fault_at(const char *what, uint64_t number) {
    for (const Fault &fault : settings().faults) {
        if (fault.number == number && fault.what == what) {
            say("fault %d at %s %llu, as asked for", fault.code, what, (unsigned long long)number);
            return fault.code;
        }
    }
    return 0;
}

void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "cuda stub: %s\n", line);
}
