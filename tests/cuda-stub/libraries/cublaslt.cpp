// The functions of cuBLASLt that a matrix product with an epilogue needs.
#include <memory>
#include <vector>

#include "../extension.h"
#include "product.h"

#define API extern "C" __attribute__((visibility("default"))) int

struct Handle {
    unsigned mark = 0xCB1A5;
};

struct Preference {
    uint32_t search_mode = 0;
    uint64_t workspace = 0;
};

struct Algorithm {
    uint64_t data[8];  // mark, bytes of workspace
};

struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

namespace {

const uint64_t algorithm_mark = 0xA160;
const uint64_t wanted_workspace = 65536;

// An attribute is copied in or out as so many bytes.
struct Field {
    int number;
    void *at;
    size_t bytes;
};

int set_field(const std::vector<Field> &fields, int number, const void *from, size_t bytes) {
    if (!from) {
        return InvalidValue;
    }
    for (const Field &field : fields) {
        if (field.number == number) {
            if (bytes != field.bytes) {
                return refuse(InvalidValue, "an attribute of another size");
            }
            memcpy(field.at, from, bytes);
            return Good;
        }
    }
    return refuse(NotSupported, "an attribute that the stub does not know");
}

int get_field(const std::vector<Field> &fields, int number, void *to, size_t bytes, size_t *written) {
    for (const Field &field : fields) {
        if (field.number == number) {
            if (written) {
                *written = field.bytes;
            }
            if (bytes == 0 && written) {
                return Good;
            }
            if (!to || bytes < field.bytes) {
                return InvalidValue;
            }
            memcpy(to, field.at, field.bytes);
            return Good;
        }
    }
    return NotSupported;
}

std::vector<Field> fields_of(Layout *layout) {
    return {{0, &layout->type, 4}, {1, &layout->order, 4},   {2, &layout->rows, 8},   {3, &layout->cols, 8},
            {4, &layout->ld, 8},   {5, &layout->batches, 4}, {6, &layout->stride, 8}};
}

std::vector<Field> fields_of(Description *d) {
    return {{0, &d->compute, 4},     {1, &d->scale, 4},       {2, &d->pointer_mode, 4}, {3, &d->transpose_a, 4},
            {4, &d->transpose_b, 4}, {5, &d->transpose_c, 4}, {6, &d->fill_mode, 4},    {7, &d->epilogue, 4},
            {8, &d->bias, 8},        {10, &d->bias_stride, 8}, {26, &d->bias_type, 4}};
}

std::vector<Field> fields_of(Preference *preference) {
    return {{0, &preference->search_mode, 4}, {1, &preference->workspace, 8}};
}

bool aligned(const void *address, size_t to) { return (uintptr_t)address % to == 0; }

}  // namespace

API cublasLtCreate(Handle **out) {
    if (!out) {
        return InvalidValue;
    }
    *out = new Handle;
    return Good;
}

API cublasLtDestroy(Handle *handle) {
    if (!handle) {
        return NotInitialized;
    }
    delete handle;
    return Good;
}

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 120803; }

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetCudartVersion() { return 12080; }

extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusName(int status) {
    switch (status) {
        case Good:
            return "CUBLAS_STATUS_SUCCESS";
        case NotInitialized:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case InvalidValue:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case ExecutionFailed:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NotSupported:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "CUBLAS_STATUS_UNKNOWN";
    }
}

extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusString(int status) {
    return cublasLtGetStatusName(status);
}

API cublasLtMatrixLayoutCreate(Layout **out, uint32_t type, uint64_t rows, uint64_t cols, int64_t ld) {
    if (!out) {
        return InvalidValue;
    }
    *out = new Layout{type, 0, rows, cols, ld};
    return Good;
}

API cublasLtMatrixLayoutDestroy(Layout *layout) {
    delete layout;
    return Good;
}

API cublasLtMatrixLayoutSetAttribute(Layout *layout, int number, const void *from, size_t bytes) {
    return layout ? set_field(fields_of(layout), number, from, bytes) : InvalidValue;
}

API cublasLtMatrixLayoutGetAttribute(Layout *layout, int number, void *to, size_t bytes, size_t *written) {
    return layout ? get_field(fields_of(layout), number, to, bytes, written) : InvalidValue;
}

API cublasLtMatmulDescCreate(Description **out, int compute, int scale) {
    if (!out) {
        return InvalidValue;
    }
    *out = new Description{compute, scale};
    return Good;
}

API cublasLtMatmulDescDestroy(Description *description) {
    delete description;
    return Good;
}

API cublasLtMatmulDescSetAttribute(Description *description, int number, const void *from, size_t bytes) {
    return description ? set_field(fields_of(description), number, from, bytes) : InvalidValue;
}

API cublasLtMatmulDescGetAttribute(Description *description, int number, void *to, size_t bytes, size_t *written) {
    return description ? get_field(fields_of(description), number, to, bytes, written) : InvalidValue;
}

API cublasLtMatmulPreferenceCreate(Preference **out) {
    if (!out) {
        return InvalidValue;
    }
    *out = new Preference;
    return Good;
}

API cublasLtMatmulPreferenceDestroy(Preference *preference) {
    delete preference;
    return Good;
}

API cublasLtMatmulPreferenceSetAttribute(Preference *preference, int number, const void *from, size_t bytes) {
    if (preference && number >= 5 && number <= 8 && bytes == 4) {
        return Good;  // least alignments: every algorithm takes any
    }
    return preference ? set_field(fields_of(preference), number, from, bytes) : InvalidValue;
}

API cublasLtMatmulPreferenceGetAttribute(Preference *preference, int number, void *to, size_t bytes, size_t *written) {
    return preference ? get_field(fields_of(preference), number, to, bytes, written) : InvalidValue;
}

// Two algorithms: one with a workspace, if there may be one, and one without.
API cublasLtMatmulAlgoGetHeuristic(Handle *handle, const Description *description, const Layout *a, const Layout *b,
                                   const Layout *c, const Layout *d, const Preference *preference, int wanted,
                                   Heuristic *results, int *found) {
    if (!handle) {
        return NotInitialized;
    }
    if (!description || !a || !b || !c || !d || !preference || wanted < 1 || !results || !found) {
        return InvalidValue;
    }
    *found = 0;
    Product product{*description, *a, *b, *c, *d};
    if (int status = product.check()) {
        return status;
    }
    for (uint64_t workspace : {wanted_workspace, (uint64_t)0}) {
        if (workspace <= preference->workspace && *found < wanted) {
            Heuristic &result = results[(*found)++];
            result = Heuristic{};
            result.algorithm.data[0] = algorithm_mark;
            result.algorithm.data[1] = workspace;
            result.workspace = workspace;
            result.waves = 1;
        }
    }
    return Good;
}

API cublasLtMatmulAlgoCheck(Handle *handle, const Description *description, const Layout *a, const Layout *b,
                            const Layout *c, const Layout *d, const Algorithm *algorithm, Heuristic *result) {
    if (!handle || !description || !a || !b || !c || !d || !algorithm || !result) {
        return InvalidValue;
    }
    Product product{*description, *a, *b, *c, *d};
    if (algorithm->data[0] != algorithm_mark) {
        return NotSupported;
    }
    *result = Heuristic{};
    result->algorithm = *algorithm;
    result->workspace = algorithm->data[1];
    result->waves = 1;
    return product.check();
}

API cublasLtMatmul(Handle *handle, const Description *description, const void *alpha, const void *a,
                   const Layout *layout_a, const void *b, const Layout *layout_b, const void *beta, const void *c,
                   const Layout *layout_c, void *d, const Layout *layout_d, const Algorithm *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream) {
    if (!handle) {
        return NotInitialized;
    }
    if (!description || !alpha || !beta || !a || !b || !d || !layout_a || !layout_b || !layout_c || !layout_d) {
        return refuse(InvalidValue, "a null pointer");
    }
    auto product = std::make_shared<Product>(Product{*description, *layout_a, *layout_b, *layout_c, *layout_d});
    if (int status = product->check()) {
        return status;
    }
    const float factor = *(const float *)alpha, of_c = *(const float *)beta;
    if (of_c != 0 && !c) {
        return refuse(InvalidValue, "no C, though beta is not 0");
    }
    if (c == d && (layout_c->ld != layout_d->ld || layout_c->order != layout_d->order ||
                   layout_c->stride != layout_d->stride)) {
        return refuse(InvalidValue, "C in the place of D, but laid out otherwise");
    }
    const size_t element_a = bytes_of(product->of_a), element_c = bytes_of(product->of_c);
    if (!aligned(a, element_a) || !aligned(b, element_a) || !aligned(c, element_c) || !aligned(d, element_c)) {
        return refuse(InvalidValue, "a matrix that is misaligned");
    }
    if (algorithm && algorithm->data[0] != algorithm_mark) {
        return refuse(InvalidValue, "an algorithm that no heuristic gave");
    }
    const uint64_t used = algorithm ? algorithm->data[1] : 0;
    if (used > workspace_bytes || (used && !workspace) || !aligned(workspace, 16)) {
        return refuse(InvalidValue, "a workspace that is too small or misaligned");
    }
    std::vector<DeviceRange> ranges = {{a, extent_bytes(*layout_a, product->of_a), false},
                                       {b, extent_bytes(*layout_b, product->of_a), false},
                                       {d, extent_bytes(*layout_d, product->of_c), true}};
    if (of_c != 0) {
        ranges.push_back({c, extent_bytes(*layout_c, product->of_c), false});
    }
    if (used) {
        ranges.push_back({workspace, used, true});
    }
    if (description->epilogue & Bias) {
        const int64_t elements = (int64_t)product->m + (layout_d->batches - 1) * description->bias_stride;
        if (!description->bias || !aligned(description->bias, element_c)) {
            return refuse(InvalidValue, "no bias, or a misaligned one");
        }
        ranges.push_back({description->bias, (uint64_t)elements * element_c, false});
    }
    const int code = cuda_stub_enqueue(stream, "cublasLtMatmul", [=] {
        if (used) {
            memset(workspace, 0xAB, used);  // whoever keeps something there shall notice
        }
        product->run(factor, of_c, a, b, c, d);
    }, ranges);
    return code ? ExecutionFailed : Good;
}

API cublasLtLoggerSetLevel(int) { return Good; }

API cublasLtLoggerOpenFile(const char *) { return Good; }
