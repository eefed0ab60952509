// Convolutions of the cuDNN stub against plain loops.
#include <cmath>

#include "../libraries/element.h"
#include "api.h"

#define DNN(name, ...) static Symbol<int(__VA_ARGS__)> name{"libcudnn.so", #name};
DNN(cudnnCreate, void **)
DNN(cudnnSetStream, void *, void *)
DNN(cudnnCreateTensorDescriptor, void **)
DNN(cudnnCreateFilterDescriptor, void **)
DNN(cudnnCreateConvolutionDescriptor, void **)
DNN(cudnnCreateActivationDescriptor, void **)
DNN(cudnnSetTensor4dDescriptor, void *, int, int, int, int, int, int)
DNN(cudnnSetTensor4dDescriptorEx, void *, int, int, int, int, int, int, int, int, int)
DNN(cudnnSetFilter4dDescriptor, void *, int, int, int, int, int, int)
DNN(cudnnSetConvolution2dDescriptor, void *, int, int, int, int, int, int, int, int)
DNN(cudnnSetConvolutionGroupCount, void *, int)
DNN(cudnnSetActivationDescriptor, void *, int, int, double)
DNN(cudnnGetConvolution2dForwardOutputDim, void *, void *, void *, int *, int *, int *, int *)
DNN(cudnnGetConvolutionForwardAlgorithm_v7, void *, void *, void *, void *, void *, int, int *, void *)
DNN(cudnnGetConvolutionForwardWorkspaceSize, void *, void *, void *, void *, void *, int, size_t *)
DNN(cudnnConvolutionForward, void *, const void *, void *, u64, void *, u64, void *, int, u64, size_t, const void *,
    void *, u64)
DNN(cudnnConvolutionBiasActivationForward, void *, const void *, void *, u64, void *, u64, void *, int, u64, size_t,
    const void *, void *, u64, void *, u64, void *, void *, u64)
DNN(cudnnSetTensorNdDescriptorEx, void *, int, int, int, const int *)
DNN(cudnnSetFilterNdDescriptor, void *, int, int, int, const int *)
DNN(cudnnSetConvolutionNdDescriptor, void *, int, const int *, const int *, const int *, int, int)
DNN(cudnnGetConvolutionBackwardDataAlgorithm_v7, void *, void *, void *, void *, void *, int, int *, void *)
DNN(cudnnGetConvolutionBackwardDataWorkspaceSize, void *, void *, void *, void *, void *, int, size_t *)
DNN(cudnnConvolutionBackwardData, void *, const void *, void *, u64, void *, u64, void *, int, u64, size_t, const void *,
    void *, u64)

struct Performance {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

struct Shape {
    int images, channels, height, width, filters, filter_height, filter_width, pad, stride, dilation, groups, type;
};

static std::vector<unsigned char> values(Element kind, int count, int step) {
    std::vector<unsigned char> bytes((size_t)count * bytes_of(kind));
    for (int i = 0; i < count; ++i) {
        store(kind, bytes.data(), i, (float)(i * step % 13 - 6) / 4);
    }
    return bytes;
}

static void run(const Shape &s, bool fused, void *stream) {
    const Element kind = s.type == 0 ? Element::F32 : s.type == 2 ? Element::F16 : Element::BF16;
    void *handle, *x, *y, *w, *conv, *bias, *relu;
    OK(cudnnCreate(&handle));
    OK(cudnnSetStream(handle, stream));
    OK(cudnnCreateTensorDescriptor(&x));
    OK(cudnnCreateTensorDescriptor(&y));
    OK(cudnnCreateTensorDescriptor(&bias));
    OK(cudnnCreateFilterDescriptor(&w));
    OK(cudnnCreateConvolutionDescriptor(&conv));
    OK(cudnnCreateActivationDescriptor(&relu));
    const int per_group = s.channels / s.groups;
    OK(cudnnSetTensor4dDescriptor(x, 0, s.type, s.images, s.channels, s.height, s.width));
    OK(cudnnSetTensor4dDescriptor(bias, 0, s.type, 1, s.filters, 1, 1));
    OK(cudnnSetFilter4dDescriptor(w, s.type, 0, s.filters, per_group, s.filter_height, s.filter_width));
    OK(cudnnSetConvolution2dDescriptor(conv, s.pad, s.pad, s.stride, s.stride, s.dilation, s.dilation, 1, 0));
    OK(cudnnSetConvolutionGroupCount(conv, s.groups));
    OK(cudnnSetActivationDescriptor(relu, 1, 0, 0));
    int n, c, height, width;
    OK(cudnnGetConvolution2dForwardOutputDim(conv, x, w, &n, &c, &height, &width));
    OK(cudnnSetTensor4dDescriptor(y, 0, s.type, n, c, height, width));
    Performance found[8];
    int count = 0;
    OK(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, conv, y, 8, &count, found));
    CHECK(count >= 2 && found[0].status == 0);
    size_t bytes = 0;
    OK(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, conv, y, found[0].algorithm, &bytes));
    EQUAL(bytes, found[0].memory);
    u64 workspace = 0;
    OK(cuMemAlloc(&workspace, bytes));
    const auto hx = values(kind, s.images * s.channels * s.height * s.width, 7);
    const auto hw = values(kind, s.filters * per_group * s.filter_height * s.filter_width, 5);
    const auto hb = values(kind, s.filters, 3);
    const auto hy = values(kind, n * c * height * width, 1);
    const u64 dx = on_device(hx), dw = on_device(hw), db = on_device(hb), dy = on_device(hy);
    const float one = 1, half = 0.5f;
    const int algorithm = found[0].algorithm;
    if (fused) {
        OK(cudnnConvolutionBiasActivationForward(handle, &one, x, dx, w, dw, conv, algorithm, workspace, bytes, &half,
                                                 y, dy, bias, db, relu, y, dy));
    } else {
        OK(cudnnConvolutionForward(handle, &one, x, dx, w, dw, conv, algorithm, workspace, bytes, &half, y, dy));
    }
    const auto got = from_device<unsigned char>(dy, hy.size(), stream);
    int at = 0;
    for (int image = 0; image < n; ++image) {
        for (int f = 0; f < c; ++f) {
            for (int i = 0; i < height; ++i) {
                for (int j = 0; j < width; ++j, ++at) {
                    double sum = 0.5 * load(kind, hy.data(), at) + (fused ? load(kind, hb.data(), f) : 0.0f);
                    for (int q = 0; q < per_group * s.filter_height * s.filter_width; ++q) {
                        const int channel = q / (s.filter_height * s.filter_width);
                        const int row = i * s.stride - s.pad + q / s.filter_width % s.filter_height * s.dilation;
                        const int col = j * s.stride - s.pad + q % s.filter_width * s.dilation;
                        if (row >= 0 && row < s.height && col >= 0 && col < s.width) {
                            const int from = f / (s.filters / s.groups) * per_group + channel;
                            sum += load(kind, hx.data(),
                                        ((image * s.channels + from) * s.height + row) * s.width + col) *
                                   load(kind, hw.data(), f * per_group * s.filter_height * s.filter_width + q);
                        }
                    }
                    const double expected = fused && sum < 0 ? 0 : sum;
                    const double tolerance = kind == Element::F32 ? 1e-5 : kind == Element::F16 ? 2e-3 : 2e-2;
                    CHECK(std::fabs(load(kind, got.data(), at) - expected) <= tolerance * (1 + std::fabs(expected)));
                }
            }
        }
    }
}

CASE(cudnn_convolutions, 4) {
    start();
    void *stream = new_stream();
    for (const bool fused : {false, true}) {
        run({2, 3, 7, 9, 4, 3, 3, 1, 1, 1, 1, 0}, fused, stream);
        run({1, 4, 8, 8, 6, 3, 2, 2, 2, 2, 2, 0}, fused, stream);
        run({1, 4, 8, 8, 4, 3, 3, 1, 1, 1, 4, 2}, fused, stream);
        run({1, 2, 5, 5, 3, 1, 1, 0, 1, 1, 1, 9}, fused, stream);
    }
}

struct Spatial {
    int groups;
    std::vector<int> x, w, pads, strides, dilations;  // x and w with their channels
};

static int count_of(const std::vector<int> &dims) {
    int product = 1;
    for (int length : dims) {
        product *= length;
    }
    return product;
}

// The coordinates of an element.
static std::vector<int> coordinates(const std::vector<int> &dims, int at) {
    std::vector<int> result(dims.size());
    for (size_t i = dims.size(); i-- > 0; at /= dims[i]) {
        result[i] = at % dims[i];
    }
    return result;
}

// The convolution and the gradient of its data, of two or three dimensions, against one loop over every pair of a place and a tap.
static void both_ways(const Spatial &s, void *stream) {
    void *handle, *x, *y, *w, *conv;
    OK(cudnnCreate(&handle));
    OK(cudnnSetStream(handle, stream));
    OK(cudnnCreateTensorDescriptor(&x));
    OK(cudnnCreateTensorDescriptor(&y));
    OK(cudnnCreateFilterDescriptor(&w));
    OK(cudnnCreateConvolutionDescriptor(&conv));
    const int rank = (int)s.x.size();
    std::vector<int> ydims = {s.x[0], s.w[0]};
    for (int i = 2; i < rank; ++i) {
        const int field = s.dilations[i - 2] * (s.w[i] - 1) + 1;
        ydims.push_back((s.x[i] + 2 * s.pads[i - 2] - field) / s.strides[i - 2] + 1);
    }
    OK(cudnnSetTensorNdDescriptorEx(x, 0, 0, rank, s.x.data()));
    OK(cudnnSetTensorNdDescriptorEx(y, 0, 0, rank, ydims.data()));
    OK(cudnnSetFilterNdDescriptor(w, 0, 0, rank, s.w.data()));
    OK(cudnnSetConvolutionNdDescriptor(conv, rank - 2, s.pads.data(), s.strides.data(), s.dilations.data(), 1, 0));
    OK(cudnnSetConvolutionGroupCount(conv, s.groups));
    const auto hx = values(Element::F32, count_of(s.x), 7), hw = values(Element::F32, count_of(s.w), 5);
    const auto hy = values(Element::F32, count_of(ydims), 1);
    const u64 dx = on_device(hx), dw = on_device(hw), dy = on_device(hy);
    const u64 to_y = on_device(std::vector<float>(count_of(ydims))), to_x = on_device(std::vector<float>(count_of(s.x)));
    Performance found[8];
    int count = 0;
    size_t bytes = 0;
    u64 workspace = 0;
    const float one = 1, zero = 0;
    OK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, conv, x, 8, &count, found));
    CHECK(count >= 2 && found[0].status == 0);
    OK(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, conv, x, found[0].algorithm, &bytes));
    EQUAL(bytes, found[0].memory);
    OK(cuMemAlloc(&workspace, bytes));
    EQUAL(cudnnConvolutionBackwardData(handle, &one, w, dw, y, dy, conv, found[0].algorithm, 0, 0, &zero, x, to_x), 2000);
    EQUAL(cudnnConvolutionBackwardData(handle, &one, w, dw, y, dy, conv, 5, 0, 0, &zero, x, to_x), 3000);
    OK(cudnnConvolutionBackwardData(handle, &one, w, dw, y, dy, conv, found[0].algorithm, workspace, bytes, &zero, x,
                                    to_x));
    OK(cudnnConvolutionForward(handle, &one, x, dx, w, dw, conv, 0, 0, 0, &zero, y, to_y));
    std::vector<double> sum_x(count_of(s.x)), sum_y(count_of(ydims));
    for (size_t at = 0; at < sum_y.size(); ++at) {
        const std::vector<int> place = coordinates(ydims, (int)at);
        for (int tap = 0; tap < count_of(s.w) / s.w[0]; ++tap) {
            std::vector<int> of_tap = coordinates({s.w.begin() + 1, s.w.end()}, tap);
            int from = place[0] * s.x[1] + place[1] / (s.w[0] / s.groups) * s.w[1] + of_tap[0];
            bool inside = true;
            for (int i = 2; i < rank; ++i) {
                const int from_i = place[i] * s.strides[i - 2] + of_tap[i - 1] * s.dilations[i - 2] - s.pads[i - 2];
                inside = inside && from_i >= 0 && from_i < s.x[i];
                from = from * s.x[i] + from_i;
            }
            if (inside) {
                const double weight = load(Element::F32, hw.data(), place[1] * (count_of(s.w) / s.w[0]) + tap);
                sum_y[at] += weight * load(Element::F32, hx.data(), from);
                sum_x[from] += weight * load(Element::F32, hy.data(), (int)at);
            }
        }
    }
    const auto got_x = from_device<float>(to_x, sum_x.size(), stream), got_y = from_device<float>(to_y, sum_y.size(), stream);
    for (size_t at = 0; at < sum_x.size(); ++at) {
        CHECK(std::fabs(got_x[at] - sum_x[at]) <= 1e-5 * (1 + std::fabs(sum_x[at])));
    }
    for (size_t at = 0; at < sum_y.size(); ++at) {
        CHECK(std::fabs(got_y[at] - sum_y[at]) <= 1e-5 * (1 + std::fabs(sum_y[at])));
    }
}

CASE(cudnn_both_ways, 4) {
    start();
    void *stream = new_stream();
    both_ways({1, {2, 3, 7, 9}, {4, 3, 3, 2}, {1, 0}, {2, 3}, {1, 2}}, stream);
    both_ways({2, {1, 4, 6, 6}, {6, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}}, stream);
    both_ways({4, {1, 4, 5, 8}, {4, 1, 4, 4}, {1, 1}, {2, 2}, {1, 1}}, stream);
    both_ways({1, {2, 3, 5, 4, 7}, {4, 3, 2, 3, 1}, {1, 0, 2}, {2, 1, 3}, {1, 1, 2}}, stream);
    both_ways({2, {1, 4, 3, 6, 5}, {2, 2, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 2, 1}}, stream);
}

CASE(cudnn_refuses, 0) {
    start();
    void *handle, *x, *y, *w, *conv, *identity;
    OK(cudnnCreate(&handle));
    OK(cudnnCreateTensorDescriptor(&x));
    OK(cudnnCreateTensorDescriptor(&y));
    OK(cudnnCreateFilterDescriptor(&w));
    OK(cudnnCreateConvolutionDescriptor(&conv));
    OK(cudnnCreateActivationDescriptor(&identity));
    OK(cudnnSetTensor4dDescriptor(x, 0, 0, 1, 3, 8, 8));
    OK(cudnnSetTensor4dDescriptorEx(y, 0, 1, 4, 6, 6, 144, 36, 6, 1));
    OK(cudnnSetFilter4dDescriptor(w, 0, 0, 4, 3, 3, 3));
    OK(cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, 1, 0));
    OK(cudnnSetActivationDescriptor(identity, 5, 0, 0));
    const u64 dx = on_device(std::vector<float>(192)), dw = on_device(std::vector<float>(108));
    const u64 dy = on_device(std::vector<float>(144));
    const float one = 1, zero = 0;
    auto forward = [&](int algorithm) {
        return cudnnConvolutionForward(handle, &one, x, dx, w, dw, conv, algorithm, 0, 0, &zero, y, dy);
    };
    OK(forward(0));
    EQUAL(forward(1), 2000);  // needs a workspace
    EQUAL(forward(5), 3000);
    EQUAL(cudnnConvolutionBiasActivationForward(handle, &one, x, dx, w, dw, conv, 0, 0, 0, &zero, y, dy, y, dy,
                                                identity, y, dy), 3000);
    OK(cudnnSetTensor4dDescriptor(y, 0, 0, 1, 4, 5, 6));
    EQUAL(forward(0), 2000);
    OK(cudnnSetTensor4dDescriptor(y, 0, 0, 1, 4, 6, 6));
    OK(cudnnSetConvolutionGroupCount(conv, 3));
    EQUAL(forward(0), 2000);
    OK(cudnnSetConvolutionGroupCount(conv, 1));
    EQUAL(cudnnConvolutionForward(handle, &one, x, dx + 4, w, dw, conv, 0, 0, 0, &zero, y, dy), 0);
    EQUAL(cuCtxSynchronize(), 700);  // one element past the input
}
