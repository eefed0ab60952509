// NVRTC and images.
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "api.h"
#include "kernels.h"

static bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

CASE(compile_errors, 0) {
    std::string log;
    compile_ptx("extern \"C\" __global__ void k(float *p) {\n    p[0] = 1.0f;\n    p[1] = nope;\n}\n", {}, 6, &log);
    CHECK(contains(log, "case.cu(3): error:") && contains(log, "nope"));
    CHECK(contains(log, "1 error detected in the compilation of \"case.cu\"."));
    compile_ptx("#include <cstdint>\n", {}, 6, &log);
    CHECK(contains(log, "case.cu(1): error:"));
    compile_ptx("", {"--no-such-option"}, 5, &log);
    CHECK(contains(log, "unrecognized option --no-such-option"));
    compile_ptx("", {"--gpu-architecture=sm_1"}, 5);
}

CASE(options, 0) {
    start();
    const char *source = R"(
#if __CUDA_ARCH__ != 900 || !defined CUDASTUB
#error
#endif
extern "C" __global__ void k(int *p) { p[0] = VALUE + OTHER; }
)";
    const std::string ptx = compile_ptx(source, {"-arch", "sm_90", "-DVALUE=40", "-D", "OTHER=2", "--std=c++17",
                                                 "-use_fast_math", "--fmad=false"});
    CHECK(contains(ptx, ".target sm_90"));
    void *module = nullptr;
    OK(cuModuleLoadData(&module, ptx.c_str()));
    const u64 p = on_device(std::vector<int>(1));
    OK(launch(function(module, "k"), 1, 1, 0, nullptr, p));
    EQUAL(from_device<int>(p, 1)[0], 42);
}

CASE(headers_and_names, 0) {
    start();
    void *program = nullptr;
    const char *text = "const int N = 5;\n", *name = "inner/n.h", *expression = "typed<float, N>";
    const std::string source = std::string("#include \"inner/n.h\"\n") + features_source;
    OK(nvrtcCreateProgram(&program, source.c_str(), "n.cu", 1, &text, &name));
    OK(nvrtcAddNameExpression(program, expression));
    OK(nvrtcAddNameExpression(program, "reduce"));
    OK(nvrtcCompileProgram(program, 0, nullptr));
    const char *lowered = nullptr, *same = nullptr;
    OK(nvrtcGetLoweredName(program, expression, &lowered));
    OK(nvrtcGetLoweredName(program, "reduce", &same));
    CHECK(std::string(same) == "reduce");
    size_t bytes = 0;
    OK(nvrtcGetPTXSize(program, &bytes));
    std::string ptx(bytes, '\0');
    OK(nvrtcGetPTX(program, &ptx[0]));
    void *module = nullptr;
    OK(cuModuleLoadData(&module, ptx.c_str()));
    const u64 p = on_device(std::vector<float>(4));
    OK(launch(function(module, lowered), 1, 4, 0, nullptr, p));
    CHECK(from_device<float>(p, 4)[3] == 5.0f);
}

static std::string cubin_for(const char *arch, const char *source) {
    void *program = nullptr;
    OK(nvrtcCreateProgram(&program, source, nullptr, 0, nullptr, nullptr));
    const std::string option = std::string("--gpu-architecture=") + arch;
    const char *options[] = {option.c_str()};
    OK(nvrtcCompileProgram(program, 1, options));
    size_t bytes = 0;
    OK(nvrtcGetCUBINSize(program, &bytes));
    std::string cubin(bytes, '\0');
    if (bytes) {
        OK(nvrtcGetCUBIN(program, &cubin[0]));
    }
    return cubin;
}

CASE(architectures, 0, "CUDA_STUB_ARCH=86") {
    start();
    void *module = nullptr;
    OK(cubin_for("compute_86", basic_source).size());
    OK(cuModuleLoadData(&module, cubin_for("sm_86", basic_source).data()));
    OK(cuModuleLoadData(&module, cubin_for("sm_80", basic_source).data()));
    EQUAL(cuModuleLoadData(&module, cubin_for("sm_75", basic_source).data()), 209);
    EQUAL(cuModuleLoadData(&module, cubin_for("sm_89", basic_source).data()), 209);
    EQUAL(cuModuleLoadData(&module, cubin_for("sm_90", basic_source).data()), 209);
    OK(cuModuleLoadData(&module, compile_ptx(basic_source, {"-arch=compute_75"}).c_str()));
    EQUAL(cuModuleLoadData(&module, compile_ptx(basic_source, {"-arch=compute_90"}).c_str()), 218);
    EQUAL(cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n"), 200);
    EQUAL(cuModuleLoadData(&module, "nonsense"), 200);
    const std::string large = compile_ptx("__device__ int f() { __shared__ int big[20000]; big[0] = 1; return 1; }\n"
                                          "extern \"C\" __global__ void k(int *p) { *p = f(); }\n");
    EQUAL(cuModuleLoadData(&module, large.c_str()), 218);
}

// A second process loads what the first one compiled and wrote.
CASE(load_from_file, 0) {
    if (!getenv("SELFTEST_IMAGE")) {
        return;
    }
    start();
    std::ifstream file(getenv("SELFTEST_IMAGE"), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string image = text.str() + std::string(64, '\0');
    CHECK(image.size() > 100);
    void *module = nullptr;
    OK(cuModuleLoadData(&module, image.data()));
    const u64 p = on_device(std::vector<float>(64));
    OK(launch(function(module, "fill"), 1, 32, 0, nullptr, p, 5.0f, 64));
    CHECK(from_device<float>(p, 64)[63] == 5.0f);
}

static int in_second_process(const std::string &image, const char *redirected = "") {
    const std::string path = "/tmp/cuda-stub-image." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << image;
    const std::string self = "/proc/" + std::to_string(getpid()) + "/exe";
    const std::string command = "SELFTEST_IMAGE=" + path + " " + self + " load_from_file" + redirected;
    const int code = system(command.c_str());
    unlink(path.c_str());
    return code;
}

CASE(second_process_ptx, 0) { OK(in_second_process(compile_ptx(basic_source))); }

CASE(second_process_cubin, 0) { OK(in_second_process(cubin_for("sm_90", basic_source))); }

CASE(symbol_left_out, 0) {
    const std::string path = std::string(getenv("SELFTEST_LACKING")) + "/libcuda.so";
    void *library = dlopen(path.c_str(), RTLD_NOW);
    CHECK(library);
    CHECK(dlsym(library, "cuInit"));
    CHECK(!dlsym(library, "cuMemGetInfo_v2"));
}

CASE(twin_of_real_code, 0) {
    const std::string stem = "/tmp/cuda-stub-twin." + std::to_string(getpid());
    const std::string ptx = "// not of the stub " + stem + "\n.version 8.0\n";
    std::ofstream(stem + ".ptx") << ptx;
    std::ofstream(stem + ".cu") << basic_source;
    const std::string twin = getenv("SELFTEST_TWIN");
    CHECK(in_second_process(ptx, " >/dev/null") != 0);
    OK(system((twin + " " + stem + ".ptx " + stem + ".cu >/dev/null").c_str()));
    OK(in_second_process(ptx));
    unlink((stem + ".ptx").c_str());
    unlink((stem + ".cu").c_str());
}
