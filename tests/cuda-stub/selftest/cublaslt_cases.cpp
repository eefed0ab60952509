// Matrix products of the cuBLASLt stub against plain loops.
#include <cmath>

#include "../libraries/element.h"
#include "api.h"

#define LT(name, ...) static Symbol<int(__VA_ARGS__)> name{"libcublasLt.so", #name};
LT(cublasLtCreate, void **)
LT(cublasLtMatrixLayoutCreate, void **, int, u64, u64, int64_t)
LT(cublasLtMatrixLayoutSetAttribute, void *, int, const void *, size_t)
LT(cublasLtMatmulDescCreate, void **, int, int)
LT(cublasLtMatmulDescSetAttribute, void *, int, const void *, size_t)
LT(cublasLtMatmulDescGetAttribute, void *, int, void *, size_t, size_t *)
LT(cublasLtMatmulPreferenceCreate, void **)
LT(cublasLtMatmulPreferenceSetAttribute, void *, int, const void *, size_t)
LT(cublasLtMatmulAlgoGetHeuristic, void *, void *, void *, void *, void *, void *, void *, int, void *, int *)
LT(cublasLtMatmul, void *, void *, const void *, u64, void *, u64, void *, const void *, u64, void *, u64, void *,
   const void *, u64, size_t, void *)

struct Heuristic {
    u64 algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

// What one case computes; columns first, as cuBLASLt has it, unless rows.
struct Shape {
    int m, n, k, batches;
    bool transpose_a, transpose_b, rows;
    int epilogue;
    float alpha, beta;
    int type, out_type;  // cudaDataType
};

static Element element(int type) { return type == 0 ? Element::F32 : type == 2 ? Element::F16 : Element::BF16; }

static void *set(void *description, int number, int value) {
    OK(cublasLtMatmulDescSetAttribute(description, number, &value, 4));
    return description;
}

static void *layout(int type, u64 rows, u64 cols, const Shape &shape) {
    void *made = nullptr;
    const int64_t ld = (shape.rows ? (int64_t)cols : (int64_t)rows) + 3;
    OK(cublasLtMatrixLayoutCreate(&made, type, rows, cols, ld));
    const int order = shape.rows, batches = shape.batches;
    const int64_t stride = ld * (shape.rows ? (int64_t)rows : (int64_t)cols) + 5;
    OK(cublasLtMatrixLayoutSetAttribute(made, 1, &order, 4));
    OK(cublasLtMatrixLayoutSetAttribute(made, 5, &batches, 4));
    OK(cublasLtMatrixLayoutSetAttribute(made, 6, &stride, 8));
    return made;
}

struct Matrix {
    std::vector<unsigned char> bytes;
    Element kind;
    int64_t ld, stride;
    bool rows;

    Matrix(int type, u64 r, u64 c, const Shape &shape, int step) : kind(element(type)), rows(shape.rows) {
        ld = (int64_t)(rows ? c : r) + 3;
        stride = ld * (int64_t)(rows ? r : c) + 5;
        const int64_t count = stride * shape.batches;
        bytes.resize((size_t)count * bytes_of(kind));
        for (int64_t i = 0; i < count; ++i) {
            store(kind, bytes.data(), i, (float)(i * step % 15 - 7) / 8);
        }
    }
    int64_t place(int batch, int64_t r, int64_t c) const { return batch * stride + (rows ? r * ld + c : c * ld + r); }
    float at(int batch, int64_t r, int64_t c) const { return load(kind, bytes.data(), place(batch, r, c)); }
};

static float epilogue(int kind, float x) {
    if (kind & 2) {
        return x > 0 ? x : 0;
    }
    return kind & 32 ? 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))) : x;
}

static void run(const Shape &s, void *stream) {
    void *handle = nullptr, *description = nullptr, *preference = nullptr;
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulDescCreate(&description, 68, 0));
    set(set(set(description, 3, s.transpose_a), 4, s.transpose_b), 7, s.epilogue);
    const u64 ar = s.transpose_a ? s.k : s.m, ac = s.transpose_a ? s.m : s.k;
    const u64 br = s.transpose_b ? s.n : s.k, bc = s.transpose_b ? s.k : s.n;
    const Matrix a(s.type, ar, ac, s, 7), b(s.type, br, bc, s, 11), c(s.out_type, s.m, s.n, s, 13);
    std::vector<unsigned char> bias_bytes((size_t)s.m * bytes_of(c.kind));
    for (int i = 0; i < s.m; ++i) {
        store(c.kind, bias_bytes.data(), i, (float)(i % 5) - 2);
    }
    const u64 da = on_device(a.bytes), db = on_device(b.bytes), dc = on_device(c.bytes), dd = on_device(c.bytes);
    const u64 bias = on_device(bias_bytes);
    if (s.epilogue & 4) {
        OK(cublasLtMatmulDescSetAttribute(description, 8, &bias, 8));
    }
    void *la = layout(s.type, ar, ac, s), *lb = layout(s.type, br, bc, s), *lc = layout(s.out_type, s.m, s.n, s);
    OK(cublasLtMatmulPreferenceCreate(&preference));
    size_t most = 1 << 20;
    OK(cublasLtMatmulPreferenceSetAttribute(preference, 1, &most, 8));
    Heuristic found[4];
    int count = 0;
    OK(cublasLtMatmulAlgoGetHeuristic(handle, description, la, lb, lc, lc, preference, 4, found, &count));
    EQUAL(count, 2);
    CHECK(found[0].workspace > 0 && found[1].workspace == 0);
    u64 workspace = 0;
    OK(cuMemAlloc(&workspace, found[0].workspace));
    OK(cublasLtMatmul(handle, description, &s.alpha, da, la, db, lb, &s.beta, dc, lc, dd, lc, found[0].algorithm,
                      workspace, found[0].workspace, stream));
    Matrix d = c;
    d.bytes = from_device<unsigned char>(dd, c.bytes.size(), stream);
    for (int batch = 0; batch < s.batches; ++batch) {
        for (int i = 0; i < s.m; ++i) {
            for (int j = 0; j < s.n; ++j) {
                double sum = 0;
                for (int p = 0; p < s.k; ++p) {
                    sum += (s.transpose_a ? a.at(batch, p, i) : a.at(batch, i, p)) *
                           (s.transpose_b ? b.at(batch, j, p) : b.at(batch, p, j));
                }
                const float with_bias = s.epilogue & 4 ? load(c.kind, bias_bytes.data(), i) : 0;
                const float raw = s.alpha * (float)sum + s.beta * c.at(batch, i, j) + with_bias;
                const float expected = epilogue(s.epilogue, raw);
                const float tolerance = d.kind == Element::F32 ? 1e-5f : d.kind == Element::F16 ? 2e-3f : 2e-2f;
                CHECK(std::fabs(d.at(batch, i, j) - expected) <= tolerance * (1 + std::fabs(expected)));
            }
        }
    }
}

CASE(cublaslt_products, 4) {
    start();
    void *stream = new_stream();
    run({5, 7, 9, 1, false, false, false, 1, 1, 0, 0, 0}, stream);
    run({5, 7, 9, 1, true, false, false, 6, 1, 0, 0, 0}, stream);
    run({5, 7, 9, 3, false, true, false, 4, 0.5f, 2, 0, 0}, stream);
    run({16, 8, 4, 2, true, true, false, 36, 1, 0, 2, 2}, stream);
    run({16, 8, 4, 2, false, false, true, 2, 1, 1, 2, 0}, stream);
    run({3, 4, 33, 1, true, false, true, 32, 1, 0, 14, 14}, stream);
    run({3, 4, 33, 1, true, false, false, 6, 1, 0, 14, 0}, stream);
}

struct Setup {
    void *handle = nullptr, *description = nullptr, *a = nullptr, *b = nullptr, *c = nullptr, *preference = nullptr;
    u64 da, db, dc;
    float alpha = 1, beta = 0;

    Setup() {
        OK(cublasLtCreate(&handle));
        OK(cublasLtMatmulDescCreate(&description, 68, 0));
        OK(cublasLtMatrixLayoutCreate(&a, 0, 4, 8, 4));
        OK(cublasLtMatrixLayoutCreate(&b, 0, 8, 6, 8));
        OK(cublasLtMatrixLayoutCreate(&c, 0, 4, 6, 4));
        OK(cublasLtMatmulPreferenceCreate(&preference));
        da = on_device(std::vector<float>(32, 1.0f));
        db = on_device(std::vector<float>(48, 1.0f));
        dc = on_device(std::vector<float>(24));
    }
    int multiply(void *stream = nullptr) {
        return cublasLtMatmul(handle, description, &alpha, da, a, db, b, &beta, dc, c, dc, c, nullptr, 0, 0, stream);
    }
};

CASE(cublaslt_refuses, 0) {
    start();
    Setup s;
    OK(s.multiply());
    EQUAL(cublasLtMatmul(nullptr, s.description, &s.alpha, s.da, s.a, s.db, s.b, &s.beta, s.dc, s.c, s.dc, s.c,
                         nullptr, 0, 0, nullptr), 1);
    const u64 right = s.da;
    s.da += 2;
    EQUAL(s.multiply(), 7);  // misaligned
    s.da = right;
    std::swap(s.a, s.b);
    EQUAL(s.multiply(), 7);  // shapes
    std::swap(s.a, s.b);
    set(s.description, 7, 4);
    EQUAL(s.multiply(), 7);  // no bias
    set(s.description, 7, 256);
    EQUAL(s.multiply(), 15);  // an epilogue of training
    int read = 0;
    size_t written = 0;
    OK(cublasLtMatmulDescGetAttribute(s.description, 7, &read, 4, &written));
    EQUAL(read, 256);
    set(s.description, 7, 1);
    const int64_t ld = 2;
    OK(cublasLtMatrixLayoutSetAttribute(s.a, 4, &ld, 8));
    EQUAL(s.multiply(), 7);
    OK(cuCtxSynchronize());
}

CASE(cublaslt_bounds, 4) {
    start();
    Setup s;
    s.dc = on_device(std::vector<float>(23));  // one too few
    OK(s.multiply());
    EQUAL(cuCtxSynchronize(), 700);
    EQUAL(s.multiply(), 13);
}

CASE(cublaslt_captured, 4) {
    start();
    Setup s;
    void *stream = new_stream(), *graph = nullptr, *executable = nullptr;
    OK(cuBeginCapture(stream, 0));
    OK(s.multiply(stream));
    OK(cuEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(from_device<float>(s.dc, 1)[0] == 0.0f);
    OK(cuGraphLaunch(executable, stream));
    CHECK(from_device<float>(s.dc, 24, stream)[23] == 8.0f);
}

CASE(cublaslt_fault, 0, "CUDA_STUB_FAULT=719@launch:1") {
    start();
    Setup s;
    OK(s.multiply());
    EQUAL(cuCtxSynchronize(), 719);
}
