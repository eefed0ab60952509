// The images that the NVRTC stub makes and the driver stub loads: they name a shared library in the cache. An
// image looks like PTX, or like the header of a cubin with the same text after it.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct ImageText {
    std::string library;  // a name in the cache directory, without ".so"
    int arch = 0;         // 0: any
    bool binary = false;
};

// Where compiled kernels are: CUDA_STUB_CACHE, else beside the library that holds this code.
inline std::string cache_directory() {
    const char *set = getenv("CUDA_STUB_CACHE");
    if (set && *set) {
        return set;
    }
    Dl_info info;
    dladdr((void *)&cache_directory, &info);
    const std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/cache";
}

// Two hashes of 64 bits, as text.
inline std::string hash_text(const char *bytes, size_t count) {
    uint64_t a = 1469598103934665603ull;
    uint64_t b = 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < count; ++i) {
        a = (a ^ (unsigned char)bytes[i]) * 1099511628211ull;
        b = (b + (unsigned char)bytes[i] + 1) * 0xD6E8FEB86659FD93ull;
        b ^= b >> 32;
    }
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    return text;
}

inline const char *image_mark() { return "// cuda stub image 1, library "; }

inline std::string make_ptx(const std::string &library, int arch, int version) {
    const int minor = version % 1000 / 10;
    const std::string isa = version >= 13000 ? "9." + std::to_string(minor) : "8." + std::to_string(minor);
    return image_mark() + library + " arch " + std::to_string(arch) + "\n.version " + isa + "\n.target sm_" +
           std::to_string(arch) + "\n.address_size 64\n";
}

// A 64-bit ELF header of machine type CUDA, then the text.
inline std::string make_cubin(const std::string &library, int arch) {
    const std::string text = image_mark() + library + " arch " + std::to_string(arch) + "\n";
    std::string header(64, '\0');
    memcpy(&header[0], "\x7f" "ELF\x02\x01\x01\x33", 8);
    const uint16_t type = 2, machine = 190, header_bytes = 64, section_bytes = 64;
    const uint32_t version = 1;
    const uint64_t sections_at = 64 + text.size();
    memcpy(&header[16], &type, 2);
    memcpy(&header[18], &machine, 2);
    memcpy(&header[20], &version, 4);
    memcpy(&header[40], &sections_at, 8);
    memcpy(&header[52], &header_bytes, 2);
    memcpy(&header[58], &section_bytes, 2);
    return header + text;
}

// The driver is not told how long an image is: text ends with a zero, a binary says it itself.
inline size_t image_bytes(const char *bytes) {
    if (memcmp(bytes, "\x7f" "ELF", 4) != 0) {
        return strlen(bytes);
    }
    uint64_t programs_at, sections_at;
    uint16_t program_bytes, programs, section_bytes, sections;
    memcpy(&programs_at, bytes + 32, 8);
    memcpy(&sections_at, bytes + 40, 8);
    memcpy(&program_bytes, bytes + 54, 2);
    memcpy(&programs, bytes + 56, 2);
    memcpy(&section_bytes, bytes + 58, 2);
    memcpy(&sections, bytes + 60, 2);
    const uint64_t a = programs_at + (uint64_t)program_bytes * programs;
    const uint64_t b = sections_at + (uint64_t)section_bytes * sections;
    return a > b ? a : b;
}

inline bool parse_image(const char *bytes, ImageText *text) {
    text->binary = memcmp(bytes, "\x7f" "ELF", 4) == 0;
    const char *at = bytes;
    if (text->binary) {
        if (image_bytes(bytes) < 64 + strlen(image_mark())) {
            return false;
        }
        at = bytes + 64;
    }
    if (strncmp(at, image_mark(), strlen(image_mark())) != 0) {
        return false;
    }
    char name[65];
    if (sscanf(at + strlen(image_mark()), "%64[0-9a-f] arch %d", name, &text->arch) != 2) {
        return false;
    }
    text->library = name;
    return true;
}
