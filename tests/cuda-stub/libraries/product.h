// One matrix product of cuBLASLt: whether it may be, and its values.
#pragma once
#include <cmath>
#include <cstdio>
#include <vector>

#include "element.h"

enum Status {
    Good = 0,
    NotInitialized = 1,
    InvalidValue = 7,
    ExecutionFailed = 13,
    NotSupported = 15,
};

enum EpilogueBits { Relu = 2, Bias = 4, Gelu = 32 };

struct Layout {
    uint32_t type;
    int32_t order = 0;  // 0: columns, 1: rows
    uint64_t rows;
    uint64_t cols;
    int64_t ld;
    int32_t batches = 1;
    int64_t stride = 0;
};

struct Description {
    int32_t compute;
    int32_t scale;
    int32_t pointer_mode = 0;
    int32_t transpose_a = 0;
    int32_t transpose_b = 0;
    int32_t transpose_c = 0;
    int32_t fill_mode = 2;
    uint32_t epilogue = 1;
    const void *bias = nullptr;
    int64_t bias_stride = 0;
    int32_t bias_type = -1;
};

inline int refuse(int status, const char *why) {
    fprintf(stderr, "cuda stub: cuBLASLt: %s\n", why);
    return status;
}

inline bool element_of(uint32_t type, Element *element) {
    switch (type) {
        case 0:
            *element = Element::F32;
            return true;
        case 2:
            *element = Element::F16;
            return true;
        case 14:
            *element = Element::BF16;
            return true;
        default:
            return false;
    }
}

// Where an element lies, in elements from the beginning of its matrix.
inline int64_t place(const Layout &layout, uint64_t row, uint64_t col) {
    return layout.order == 0 ? (int64_t)row + (int64_t)col * layout.ld : (int64_t)row * layout.ld + (int64_t)col;
}

inline uint64_t extent_bytes(const Layout &layout, Element element) {
    const int64_t last = place(layout, layout.rows - 1, layout.cols - 1) + (layout.batches - 1) * layout.stride;
    return (uint64_t)(last + 1) * bytes_of(element);
}

struct Product {
    Description description;
    Layout a, b, c, d;
    Element of_a = Element::F32, of_c = Element::F32;
    uint64_t m = 0, n = 0, k = 0;

    int check_types() {
        Element of_b, of_d;
        if (!element_of(a.type, &of_a) || !element_of(b.type, &of_b) || !element_of(c.type, &of_c) ||
            !element_of(d.type, &of_d)) {
            return refuse(NotSupported, "a type other than f32, f16 and bf16");
        }
        const int32_t compute = description.compute;
        const bool fast = compute == 74 || compute == 75 || compute == 77;  // by halves and TF32
        if ((compute != 68 && compute != 69 && !fast) || description.scale != 0) {
            return refuse(NotSupported, "a product that is not computed in f32");
        }
        if (of_a != of_b || of_c != of_d || (of_a == Element::F32 && of_c != Element::F32) ||
            (of_c != Element::F32 && of_c != of_a) || (fast && of_a != Element::F32)) {
            return refuse(NotSupported, "a combination of types that cuBLASLt does not have");
        }
        return Good;
    }

    int check_layout(const Layout &layout) const {
        if (layout.order != 0 && layout.order != 1) {
            return refuse(NotSupported, "an order other than columns and rows");
        }
        const uint64_t least = layout.order == 0 ? layout.rows : layout.cols;
        if (layout.rows == 0 || layout.cols == 0 || layout.ld < (int64_t)least) {
            return refuse(InvalidValue, "an empty matrix, or a leading dimension that is too small");
        }
        if (layout.batches < 1 || layout.batches != d.batches) {
            return refuse(InvalidValue, "batch counts that differ");
        }
        return Good;
    }

    int check_epilogue() const {
        const uint32_t known = 1 | Relu | Bias | Gelu;
        const uint32_t e = description.epilogue;
        if (e == 0 || (e & ~known) || ((e & Relu) && (e & Gelu)) || ((e & 1) && e != 1)) {
            return refuse(NotSupported, "an epilogue that the stub does not have");
        }
        if ((e & Bias) && d.order != 0) {
            return refuse(NotSupported, "a bias for a matrix in the order of rows");
        }
        if (description.bias_type != -1 && (uint32_t)description.bias_type != d.type) {
            return refuse(NotSupported, "a bias of another type than D");
        }
        return Good;
    }

    int check() {
        if (int status = check_types()) {
            return status;
        }
        for (const Layout *layout : {&a, &b, &c, &d}) {
            if (int status = check_layout(*layout)) {
                return status;
            }
        }
        if (description.pointer_mode != 0 || description.transpose_c != 0 || description.fill_mode != 2) {
            return refuse(NotSupported, "factors on the device, C transposed, or half a matrix");
        }
        if ((description.transpose_a | description.transpose_b) & ~1) {
            return refuse(NotSupported, "a conjugate");
        }
        m = description.transpose_a ? a.cols : a.rows;
        k = description.transpose_a ? a.rows : a.cols;
        n = description.transpose_b ? b.rows : b.cols;
        if (k != (description.transpose_b ? b.cols : b.rows) || d.rows != m || d.cols != n || c.rows != m ||
            c.cols != n) {
            return refuse(InvalidValue, "shapes that do not fit");
        }
        return check_epilogue();
    }

    float finish(float x) const {
        if (description.epilogue & Relu) {
            return x > 0 ? x : 0;
        }
        if (description.epilogue & Gelu) {
            return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
        }
        return x;
    }

    // The operands as f32, A by rows and B by columns, so that the inner loop is plain.
    void run(float alpha, float beta, const void *pa, const void *pb, const void *pc, void *pd) const {
        std::vector<float> left(m * k), right(n * k);
        for (int batch = 0; batch < d.batches; ++batch) {
            for (uint64_t p = 0; p < k; ++p) {
                for (uint64_t i = 0; i < m; ++i) {
                    const int64_t at = description.transpose_a ? place(a, p, i) : place(a, i, p);
                    left[i * k + p] = load(of_a, pa, at + batch * a.stride);
                }
                for (uint64_t j = 0; j < n; ++j) {
                    const int64_t at = description.transpose_b ? place(b, j, p) : place(b, p, j);
                    right[j * k + p] = load(of_a, pb, at + batch * b.stride);
                }
            }
            for (uint64_t i = 0; i < m; ++i) {
                for (uint64_t j = 0; j < n; ++j) {
                    float sum = 0;
                    for (uint64_t p = 0; p < k; ++p) {
                        sum += left[i * k + p] * right[j * k + p];
                    }
                    float value = alpha * sum;
                    if (beta != 0) {
                        value += beta * load(of_c, pc, place(c, i, j) + batch * c.stride);
                    }
                    if (description.epilogue & Bias) {
                        value += load(of_c, description.bias, (int64_t)i + batch * description.bias_stride);
                    }
                    store(of_c, pd, place(d, i, j) + batch * d.stride, finish(value));
                }
            }
        }
    }
};
