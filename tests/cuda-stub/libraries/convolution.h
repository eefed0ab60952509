// One convolution of cuDNN, forward or of the gradient of its data: whether it may be, and its values.
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
    fprintf(stderr, "cuda stub: cuDNN: %s\n", why);
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

// Where an element lies, in elements from the beginning of its tensor.
struct Place {
    int image, channel, at[3];
};

inline int64_t offset_of(const Tensor &tensor, const Place &place) {
    int64_t offset = (int64_t)place.image * tensor.strides[0] + (int64_t)place.channel * tensor.strides[1];
    for (int i = 0; i < 3; ++i) {
        offset += (int64_t)place.at[i] * tensor.strides[2 + i];
    }
    return offset;
}

// One convolution from `x` to `y`, or of the gradient of `x` from that of `y`.
struct Problem {
    Tensor x, y;
    Filter w;
    Convolution conv;
    Element of_x, of_y;
    int spatial = 0;

    Problem(const Tensor &x, const Tensor &y, const Filter &w, const Convolution &conv)
        : x(x), y(y), w(w), conv(conv), of_x(Element::F32), of_y(Element::F32) {}

    int output(int i) const {
        const int field = conv.dilations[i] * (w.dims[2 + i] - 1) + 1;
        const int room = x.dims[2 + i] + 2 * conv.pads[i] - field;
        return room < 0 ? 0 : room / conv.strides[i] + 1;
    }

    int check_shapes() {
        if (x.dims.empty() || w.dims.empty() || conv.pads.empty()) {
            return refuse(BadParam, "a descriptor that was not set");
        }
        spatial = (int)conv.pads.size();
        const size_t rank = spatial + 2;
        if ((spatial != 2 && spatial != 3) || x.dims.size() != rank || w.dims.size() != rank) {
            return refuse(NotSupported, "other than two or three spatial dimensions, or several numbers of them");
        }
        if (conv.groups < 1 || x.dims[1] != w.dims[1] * conv.groups || w.dims[0] % conv.groups != 0) {
            return refuse(BadParam, "channels that do not fit");
        }
        for (int i = 0; i < spatial; ++i) {
            if (output(i) <= 0) {
                return refuse(BadParam, "a filter larger than the input");
            }
        }
        return Good;
    }

    std::vector<int> output_dims() const {
        std::vector<int> dims{x.dims[0], w.dims[0]};
        for (int i = 0; i < spatial; ++i) {
            dims.push_back(output(i));
        }
        return dims;
    }

    int check() {
        if (int status = check_shapes()) {
            return status;
        }
        if (y.dims != output_dims()) {
            return refuse(BadParam, "an output of another shape");
        }
        if (!element_of(x.type, &of_x) || !element_of(y.type, &of_y) || w.type != x.type || of_x != of_y) {
            return refuse(NotSupported, "types other than f32, f16 and bf16, or several");
        }
        if (conv.compute != 0) {
            return refuse(NotSupported, "a convolution that is not computed in f32");
        }
        if (w.format != 0 || x.strides.back() != 1) {
            return refuse(NotSupported, "a layout other than NCHW");
        }
        if (spatial == 2) {  // one layer
            for (Tensor *tensor : {&x, &y}) {
                tensor->dims.insert(tensor->dims.begin() + 2, 1);
                tensor->strides.insert(tensor->strides.begin() + 2, 1);
            }
            w.dims.insert(w.dims.begin() + 2, 1);
            conv.pads.insert(conv.pads.begin(), 0);
            conv.strides.insert(conv.strides.begin(), 1);
            conv.dilations.insert(conv.dilations.begin(), 1);
        }
        return Good;
    }

    bool is_plain(int taps) const {
        return spatial == 2 && w.dims[3] == taps && w.dims[4] == taps && conv.strides == std::vector<int>{1, 1, 1} &&
               conv.dilations == std::vector<int>{1, 1, 1} && conv.groups == 1;
    }

    bool forward_fits(int algorithm) const {
        if (algorithm == 6) {  // Winograd
            return is_plain(3);
        }
        return algorithm >= 0 && algorithm <= 2 && (algorithm != 2 || conv.groups == 1);
    }

    bool backward_fits(int algorithm) const {
        if (algorithm == 4) {  // Winograd
            return is_plain(3);
        }
        return algorithm == 0 || algorithm == 1;
    }

    uint64_t taps() const {
        uint64_t product = 1;
        for (int length : w.dims) {
            product *= (uint64_t)length;
        }
        return product;
    }

    uint64_t forward_workspace(int algorithm) const {
        switch (algorithm) {
            case 1:
                return 4096;
            case 2:  // all patches, explicitly
                return (uint64_t)y.dims[2] * y.dims[3] * y.dims[4] * (taps() / w.dims[0]) * 4;
            case 6:
                return 65536;
            default:
                return 0;
        }
    }

    uint64_t backward_workspace(int algorithm) const { return algorithm == 1 ? 8192 : algorithm == 4 ? 65536 : 0; }

    // Input and taps as f32, packed, so that the inner loop is plain.
    struct Operands {
        std::vector<float> from, w;
    };

    // `from` is the tensor that is read: `x`, or `y` for the gradient.
    Operands operands(const Tensor &from, const void *elements, const void *pw) const {
        Operands result;
        each(from, [&](const Place &place) { result.from.push_back(load(of_x, elements, offset_of(from, place))); });
        const int64_t count = (int64_t)taps();
        for (int64_t i = 0; i < count; ++i) {
            result.w.push_back(load(of_x, pw, i));
        }
        return result;
    }

    template <class F> static void each(const Tensor &tensor, F f) {
        Place place;
        for (place.image = 0; place.image < tensor.dims[0]; ++place.image) {
            for (place.channel = 0; place.channel < tensor.dims[1]; ++place.channel) {
                for (place.at[0] = 0; place.at[0] < tensor.dims[2]; ++place.at[0]) {
                    for (place.at[1] = 0; place.at[1] < tensor.dims[3]; ++place.at[1]) {
                        for (place.at[2] = 0; place.at[2] < tensor.dims[4]; ++place.at[2]) {
                            f(place);
                        }
                    }
                }
            }
        }
    }

    // Calls `f` with each tap of a window.
    template <class F> void each_tap(F f) const {
        int tap[3];
        for (tap[0] = 0; tap[0] < w.dims[2]; ++tap[0]) {
            for (tap[1] = 0; tap[1] < w.dims[3]; ++tap[1]) {
                for (tap[2] = 0; tap[2] < w.dims[4]; ++tap[2]) {
                    f(tap);
                }
            }
        }
    }

    float weight(const Operands &from, int filter, int channel, const int *tap) const {
        int64_t at = (int64_t)filter * w.dims[1] + channel;
        for (int i = 0; i < 3; ++i) {
            at = at * w.dims[2 + i] + (conv.mode == 1 ? tap[i] : w.dims[2 + i] - 1 - tap[i]);
        }
        return from.w[at];
    }

    static float packed(const std::vector<float> &elements, const Tensor &tensor, const Place &place) {
        int64_t at = (int64_t)place.image * tensor.dims[1] + place.channel;
        for (int i = 0; i < 3; ++i) {
            at = at * tensor.dims[2 + i] + place.at[i];
        }
        return elements[at];
    }

    // An element of `y`.
    float forward(const Operands &from, const Place &to) const {
        const int first = to.channel / (w.dims[0] / conv.groups) * w.dims[1];
        float sum = 0;
        for (int channel = 0; channel < w.dims[1]; ++channel) {
            each_tap([&](const int *tap) {
                Place place{to.image, first + channel, {}};
                for (int i = 0; i < 3; ++i) {
                    place.at[i] = to.at[i] * conv.strides[i] - conv.pads[i] + tap[i] * conv.dilations[i];
                    if (place.at[i] < 0 || place.at[i] >= x.dims[2 + i]) {
                        return;
                    }
                }
                sum += packed(from.from, x, place) * weight(from, to.channel, channel, tap);
            });
        }
        return sum;
    }

    // An element of the gradient of `x`: the sum over the elements of `y` that it is part of.
    float backward(const Operands &from, const Place &to) const {
        const int shared = w.dims[0] / conv.groups, first = to.channel / w.dims[1] * shared;
        float sum = 0;
        for (int filter = first; filter < first + shared; ++filter) {
            each_tap([&](const int *tap) {
                Place place{to.image, filter, {}};
                for (int i = 0; i < 3; ++i) {
                    const int at = to.at[i] + conv.pads[i] - tap[i] * conv.dilations[i];
                    place.at[i] = at / conv.strides[i];
                    if (at < 0 || at % conv.strides[i] != 0 || place.at[i] >= y.dims[2 + i]) {
                        return;
                    }
                }
                sum += packed(from.from, y, place) * weight(from, filter, to.channel % w.dims[1], tap);
            });
        }
        return sum;
    }
};
