// One forward convolution of cuDNN: whether it may be, and its values.
#pragma once
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "element.h"

enum Status {
    Good = 0,
    NotInitialized = 1001,
    BadParam = 2000,
    BadNull = 2002,
    NotSupported = 3000,
    ExecutionFailed = 5000,
};

struct Tensor {
    int type = -1;
    std::vector<int> dims;
    std::vector<int> strides;
};

struct Filter {
    int type = -1;
    int format = 0;
    std::vector<int> dims;
};

struct Convolution {
    std::vector<int> pads, strides, dilations;
    int mode = 1;  // 1: cross-correlation
    int compute = -1;
    int groups = 1;
    int math = 0;
};

inline int refuse(int status, const char *why) {
    fprintf(stderr, "cuda double: cuDNN: %s\n", why);
    return status;
}

inline bool element_of(int type, Element *element) {
    if (type == 0) {
        *element = Element::F32;
    } else if (type == 2) {
        *element = Element::F16;
    } else if (type == 9) {
        *element = Element::BF16;
    } else {
        return false;
    }
    return true;
}

inline uint64_t extent(const Tensor &tensor) {
    uint64_t last = 0;
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
        last += (uint64_t)(tensor.dims[i] - 1) * (uint64_t)tensor.strides[i];
    }
    return last + 1;
}

// Whether two elements are at one place, as far as sorted strides tell.
inline bool overlaps(const Tensor &tensor) {
    std::vector<std::pair<int64_t, int64_t>> along;
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
        if (tensor.dims[i] > 1) {
            along.push_back({tensor.strides[i], tensor.dims[i]});
        }
    }
    std::sort(along.begin(), along.end());
    for (size_t i = 1; i < along.size(); ++i) {
        if (along[i].first < along[i - 1].first * along[i - 1].second) {
            return true;
        }
    }
    return false;
}

inline uint64_t workspace_of(int algorithm, const Tensor &y, const Filter &w) {
    switch (algorithm) {
        case 1:
            return 4096;
        case 2:  // all patches, explicitly
            return (uint64_t)y.dims[2] * y.dims[3] * w.dims[1] * w.dims[2] * w.dims[3] * 4;
        case 6:
            return 65536;
        default:
            return 0;
    }
}

// Where an element lies, in elements from the beginning of its tensor.
inline int64_t place(const Tensor &tensor, int a, int b, int c, int d) {
    return (int64_t)a * tensor.strides[0] + (int64_t)b * tensor.strides[1] + (int64_t)c * tensor.strides[2] +
           (int64_t)d * tensor.strides[3];
}

// One forward convolution of two spatial dimensions.
struct Problem {
    Tensor x, y;
    Filter w;
    Convolution conv;
    Element of_x, of_y;

    int output(int i) const {
        const int field = conv.dilations[i] * (w.dims[2 + i] - 1) + 1;
        const int room = x.dims[2 + i] + 2 * conv.pads[i] - field;
        return room < 0 ? 0 : room / conv.strides[i] + 1;
    }

    int check_shapes() const {
        if (x.dims.empty() || w.dims.empty() || conv.pads.empty()) {
            return refuse(BadParam, "a descriptor that was not set");
        }
        if (x.dims.size() != 4 || w.dims.size() != 4 || conv.pads.size() != 2) {
            return refuse(NotSupported, "other than two spatial dimensions");
        }
        if (conv.groups < 1 || x.dims[1] != w.dims[1] * conv.groups || w.dims[0] % conv.groups != 0) {
            return refuse(BadParam, "channels that do not fit");
        }
        if (output(0) <= 0 || output(1) <= 0) {
            return refuse(BadParam, "a filter larger than the input");
        }
        return Good;
    }

    int check() {
        if (int status = check_shapes()) {
            return status;
        }
        if (y.dims != std::vector<int>{x.dims[0], w.dims[0], output(0), output(1)}) {
            return refuse(BadParam, "an output of another shape");
        }
        if (!element_of(x.type, &of_x) || !element_of(y.type, &of_y) || w.type != x.type || of_x != of_y) {
            return refuse(NotSupported, "types other than f32, f16 and bf16, or several");
        }
        if (conv.compute != 0) {
            return refuse(NotSupported, "a convolution that is not computed in f32");
        }
        if (w.format != 0 || x.strides[3] != 1) {
            return refuse(NotSupported, "a layout other than NCHW");
        }
        return Good;
    }

    bool algorithm_fits(int algorithm) const {
        if (algorithm == 6) {  // Winograd: 3 by 3, one step at a time
            return w.dims[2] == 3 && w.dims[3] == 3 && conv.strides == std::vector<int>{1, 1} &&
                   conv.dilations == std::vector<int>{1, 1} && conv.groups == 1;
        }
        return algorithm >= 0 && algorithm <= 2 && (algorithm != 2 || conv.groups == 1);
    }

    // Input and taps as f32, packed, so that the inner loop is plain.
    struct Operands {
        std::vector<float> x, w;
    };

    Operands operands(const void *px, const void *pw) const {
        Operands result;
        for (int image = 0; image < x.dims[0]; ++image) {
            for (int channel = 0; channel < x.dims[1]; ++channel) {
                for (int row = 0; row < x.dims[2]; ++row) {
                    for (int col = 0; col < x.dims[3]; ++col) {
                        result.x.push_back(load(of_x, px, place(x, image, channel, row, col)));
                    }
                }
            }
        }
        const int64_t taps = (int64_t)w.dims[0] * w.dims[1] * w.dims[2] * w.dims[3];
        for (int64_t i = 0; i < taps; ++i) {
            result.w.push_back(load(of_x, pw, i));
        }
        return result;
    }

    float at(const Operands &from, int image, int filter, int row, int col) const {
        const int channels = w.dims[1];
        const int first = filter / (w.dims[0] / conv.groups) * channels;
        float sum = 0;
        for (int c = 0; c < channels; ++c) {
            for (int r = 0; r < w.dims[2]; ++r) {
                const int from_row = row * conv.strides[0] - conv.pads[0] + r * conv.dilations[0];
                for (int s = 0; s < w.dims[3]; ++s) {
                    const int from_col = col * conv.strides[1] - conv.pads[1] + s * conv.dilations[1];
                    if (from_row < 0 || from_row >= x.dims[2] || from_col < 0 || from_col >= x.dims[3]) {
                        continue;
                    }
                    const int tap_row = conv.mode == 1 ? r : w.dims[2] - 1 - r;
                    const int tap_col = conv.mode == 1 ? s : w.dims[3] - 1 - s;
                    const int64_t tap = (((int64_t)filter * channels + c) * w.dims[2] + tap_row) * w.dims[3] + tap_col;
                    const int64_t plane = (int64_t)image * x.dims[1] + first + c;
                    sum += from.x[(plane * x.dims[2] + from_row) * x.dims[3] + from_col] * from.w[tap];
                }
            }
        }
        return sum;
    }

    template <class F> void for_each_output(F f) const {
        for (int image = 0; image < y.dims[0]; ++image) {
            for (int filter = 0; filter < y.dims[1]; ++filter) {
                for (int row = 0; row < y.dims[2]; ++row) {
                    for (int col = 0; col < y.dims[3]; ++col) {
                        f(image, filter, row, col);
                    }
                }
            }
        }
    }
};
