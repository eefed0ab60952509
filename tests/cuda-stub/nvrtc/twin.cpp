// Compiles a source with the NVRTC stub beside this program, and registers it as what runs for an image.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "../image.h"

namespace {

bool read_file(const char *path, std::string *text) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream stream;
    stream << file.rdbuf();
    *text = stream.str();
    return file.good() || file.eof();
}

template <class F> F symbol(void *library, const char *name) { return (F)dlsym(library, name); }

int fail(const std::string &why) {
    std::cerr << "cuda stub: " << why << "\n";
    return 1;
}

}  // namespace

int main(int count, char **arguments) {
    if (count < 3) {
        return fail("usage: cuda-stub-twin IMAGE SOURCE.cu [NVRTC OPTION]...");
    }
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        return fail("cannot find the folder of this program");
    }
    const std::string directory = std::string(self).substr(0, std::string(self).rfind('/'));
    std::string image, source;
    if (!read_file(arguments[1], &image) || !read_file(arguments[2], &source)) {
        return fail("cannot read " + std::string(arguments[1]) + " or " + arguments[2]);
    }
    void *library = dlopen((directory + "/libnvrtc.so.12").c_str(), RTLD_NOW);
    if (!library) {
        return fail(dlerror());
    }
    auto create = symbol<int (*)(void **, const char *, const char *, int, void *, void *)>(library,
                                                                                          "nvrtcCreateProgram");
    auto compile = symbol<int (*)(void *, int, char **)>(library, "nvrtcCompileProgram");
    auto size = symbol<int (*)(void *, size_t *)>(library, "nvrtcGetPTXSize");
    auto get = symbol<int (*)(void *, char *)>(library, "nvrtcGetPTX");
    auto log_size = symbol<int (*)(void *, size_t *)>(library, "nvrtcGetProgramLogSize");
    auto log = symbol<int (*)(void *, char *)>(library, "nvrtcGetProgramLog");
    void *program = nullptr;
    create(&program, source.c_str(), arguments[2], 0, nullptr, nullptr);
    if (compile(program, count - 3, arguments + 3) != 0) {
        size_t bytes = 0;
        log_size(program, &bytes);
        std::string text(bytes, '\0');
        log(program, &text[0]);
        return fail("the source does not compile:\n" + text);
    }
    size_t bytes = 0;
    size(program, &bytes);
    std::string ptx(bytes, '\0');
    get(program, &ptx[0]);
    ImageText text;
    if (!parse_image(ptx.c_str(), &text)) {
        return fail("the library beside this program is not the NVRTC stub");
    }
    image.append(64, '\0');
    // The cache lies beside the libraries, as this program does.
    const std::string cache = cache_directory();
    const std::string path = cache + "/" + hash_text(image.data(), image_bytes(image.data())) + ".twin";
    const std::string temporary = path + "." + std::to_string(getpid());
    std::ofstream(temporary) << text.library << "\n";
    if (rename(temporary.c_str(), path.c_str()) != 0) {
        return fail("cannot write " + path);
    }
    std::cout << path << "\n";
    return 0;
}
