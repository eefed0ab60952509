// The functions of cuDNN's legacy API that convolutions and transposed ones need.
#include <cstdio>
#include <memory>
#include <vector>

#include "../extension.h"
#include "convolution.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

struct Handle {
    void *stream = nullptr;
};

struct Activation {
    int mode = -1;
    int nan = 0;
    double coefficient = 0;
};

struct Performance {
    int algorithm;
    int status;
    float time;
    size_t memory;
    int determinism;
    int math;
    int reserved[3];
};

namespace {

// The fastest first, as cuDNN gives them.
const std::vector<int> forward_algorithms = {1, 0, 2, 6}, backward_algorithms = {1, 0, 4};

std::vector<int> packed(const std::vector<int> &dims, int format) {
    std::vector<int> strides(dims.size());
    int at = 1;
    if (format == 1) {  // channels last
        strides[1] = 1;
        at = dims[1];
    }
    for (size_t i = dims.size(); i-- > 0;) {
        if (format == 1 && i == 1) {
            continue;
        }
        strides[i] = at;
        at *= dims[i];
    }
    return strides;
}

bool all_positive(const std::vector<int> &values) {
    for (int value : values) {
        if (value <= 0) {
            return false;
        }
    }
    return !values.empty();
}

// What all convolutions need; `x` is what is read, and `y` what is written.
struct Arguments {
    Handle *handle;
    const void *x, *w;
    void *y;
    void *workspace;
    size_t workspace_bytes;
    int algorithm;
};

bool fits(const Problem &problem, int algorithm, bool backward) {
    return backward ? problem.backward_fits(algorithm) : problem.forward_fits(algorithm);
}

uint64_t workspace_of(const Problem &problem, int algorithm, bool backward) {
    return backward ? problem.backward_workspace(algorithm) : problem.forward_workspace(algorithm);
}

int check_arguments(const Arguments &given, Problem &problem, bool backward, std::vector<DeviceRange> *ranges) {
    if (int status = problem.check()) {
        return status;
    }
    const Tensor &from = backward ? problem.y : problem.x, &to = backward ? problem.x : problem.y;
    if (!given.x || !given.w || !given.y) {
        return refuse(BadNull, "a null pointer");
    }
    if (!fits(problem, given.algorithm, backward)) {
        return refuse(NotSupported, "an algorithm that does not fit the convolution");
    }
    const uint64_t needed = workspace_of(problem, given.algorithm, backward);
    if (given.workspace_bytes < needed || (needed && !given.workspace)) {
        return refuse(BadParam, "a workspace that is too small");
    }
    ranges->push_back({given.x, extent(from) * bytes_of(problem.of_x), false});
    ranges->push_back({given.w, problem.taps() * bytes_of(problem.of_x), false});
    ranges->push_back({given.y, extent(to) * bytes_of(problem.of_y), true});
    if (needed) {
        ranges->push_back({given.workspace, needed, true});
    }
    return Good;
}

int queue(const Arguments &given, uint64_t used, const char *name, std::function<void()> work,
          std::vector<DeviceRange> ranges) {
    void *workspace = given.workspace;
    auto all = [used, workspace, work = std::move(work)] {
        if (used) {
            memset(workspace, 0xAB, used);  // whoever keeps something there shall notice
        }
        work();
    };
    return cuda_stub_enqueue(given.handle->stream, name, all, std::move(ranges)) ? ExecutionFailed : Good;
}

}  // namespace

EXPORT size_t cudnnGetVersion() { return 91002; }

EXPORT size_t cudnnGetCudartVersion() { return 12080; }

EXPORT const char *cudnnGetErrorString(int status) {
    switch (status) {
        case Good:
            return "CUDNN_STATUS_SUCCESS";
        case NotInitialized:
            return "CUDNN_STATUS_NOT_INITIALIZED";
        case BadParam:
            return "CUDNN_STATUS_BAD_PARAM";
        case BadNull:
            return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
        case NotSupported:
            return "CUDNN_STATUS_NOT_SUPPORTED";
        case ExecutionFailed:
            return "CUDNN_STATUS_EXECUTION_FAILED";
        default:
            return "CUDNN_UNKNOWN_STATUS";
    }
}

EXPORT void cudnnGetLastErrorString(char *text, size_t bytes) { snprintf(text, bytes, "see stderr"); }

API cudnnOpsVersionCheck() { return Good; }

API cudnnCnnVersionCheck() { return Good; }

API cudnnCreate(Handle **out) {
    if (!out) {
        return BadNull;
    }
    *out = new Handle;
    return Good;
}

API cudnnDestroy(Handle *handle) {
    delete handle;
    return Good;
}

API cudnnSetStream(Handle *handle, void *stream) {
    if (!handle) {
        return BadNull;
    }
    handle->stream = stream;
    return Good;
}

API cudnnGetStream(Handle *handle, void **stream) {
    *stream = handle->stream;
    return Good;
}

#define CREATE_AND_DESTROY(type)                              \
    API cudnnCreate##type##Descriptor(type **out) {           \
        *out = new type;                                      \
        return Good;                                          \
    }                                                         \
    API cudnnDestroy##type##Descriptor(type *descriptor) {    \
        delete descriptor;                                    \
        return Good;                                          \
    }
CREATE_AND_DESTROY(Tensor)
CREATE_AND_DESTROY(Filter)
CREATE_AND_DESTROY(Convolution)
CREATE_AND_DESTROY(Activation)

// ---------------------------------------------------------------- descriptors
API cudnnSetTensorNdDescriptor(Tensor *tensor, int type, int count, const int *dims, const int *strides) {
    if (!tensor || count < 4 || count > 8) {
        return refuse(BadParam, "a tensor of less than 4 or more than 8 dimensions");
    }
    tensor->type = type;
    tensor->dims.assign(dims, dims + count);
    tensor->strides.assign(strides, strides + count);
    if (overlaps(*tensor)) {
        return refuse(BadParam, "a tensor whose elements lie in each other");
    }
    return all_positive(tensor->dims) && all_positive(tensor->strides) ? Good : BadParam;
}

API cudnnSetTensor4dDescriptorEx(Tensor *tensor, int type, int n, int c, int h, int w, int sn, int sc, int sh, int sw) {
    const int dims[] = {n, c, h, w};
    const int strides[] = {sn, sc, sh, sw};
    return cudnnSetTensorNdDescriptor(tensor, type, 4, dims, strides);
}

API cudnnSetTensorNdDescriptorEx(Tensor *tensor, int format, int type, int count, const int *dims) {
    if (count < 4 || count > 8 || (format != 0 && format != 1)) {
        return BadParam;
    }
    return cudnnSetTensorNdDescriptor(tensor, type, count, dims, packed({dims, dims + count}, format).data());
}

API cudnnSetTensor4dDescriptor(Tensor *tensor, int format, int type, int n, int c, int h, int w) {
    const int dims[] = {n, c, h, w};
    return cudnnSetTensorNdDescriptorEx(tensor, format, type, 4, dims);
}

API cudnnSetFilterNdDescriptor(Filter *filter, int type, int format, int count, const int *dims) {
    if (!filter || count < 3 || count > 8) {
        return BadParam;
    }
    filter->type = type;
    filter->format = format;
    filter->dims.assign(dims, dims + count);
    return all_positive(filter->dims) ? Good : BadParam;
}

API cudnnSetFilter4dDescriptor(Filter *filter, int type, int format, int k, int c, int h, int w) {
    const int dims[] = {k, c, h, w};
    return cudnnSetFilterNdDescriptor(filter, type, format, 4, dims);
}

API cudnnSetConvolutionNdDescriptor(Convolution *conv, int count, const int *pads, const int *strides,
                                    const int *dilations, int mode, int compute) {
    if (!conv || count < 1 || count > 6 || (mode != 0 && mode != 1)) {
        return BadParam;
    }
    conv->pads.assign(pads, pads + count);
    conv->strides.assign(strides, strides + count);
    conv->dilations.assign(dilations, dilations + count);
    conv->mode = mode;
    conv->compute = compute;
    for (int pad : conv->pads) {
        if (pad < 0) {
            return BadParam;
        }
    }
    return all_positive(conv->strides) && all_positive(conv->dilations) ? Good : BadParam;
}

API cudnnSetConvolution2dDescriptor(Convolution *conv, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                    int dilation_w, int mode, int compute) {
    const int pads[] = {pad_h, pad_w};
    const int strides[] = {stride_h, stride_w};
    const int dilations[] = {dilation_h, dilation_w};
    return cudnnSetConvolutionNdDescriptor(conv, 2, pads, strides, dilations, mode, compute);
}

API cudnnSetConvolutionGroupCount(Convolution *conv, int groups) {
    conv->groups = groups;
    return groups >= 1 ? Good : BadParam;
}

API cudnnGetConvolutionGroupCount(Convolution *conv, int *groups) {
    *groups = conv->groups;
    return Good;
}

API cudnnSetConvolutionMathType(Convolution *conv, int math) {
    conv->math = math;
    return math >= 0 && math <= 3 ? Good : BadParam;
}

API cudnnGetConvolutionMathType(Convolution *conv, int *math) {
    *math = conv->math;
    return Good;
}

API cudnnSetActivationDescriptor(Activation *activation, int mode, int nan, double coefficient) {
    activation->mode = mode;
    activation->nan = nan;
    activation->coefficient = coefficient;
    return mode >= 0 && mode <= 6 ? Good : BadParam;
}

// ---------------------------------------------------------------- convolutions
API cudnnGetConvolutionNdForwardOutputDim(const Convolution *conv, const Tensor *x, const Filter *w, int count,
                                          int *dims) {
    Problem problem(*x, Tensor{}, *w, *conv);
    if (int status = problem.check_shapes()) {
        return status;
    }
    const std::vector<int> lengths = problem.output_dims();
    if (count != (int)lengths.size()) {
        return BadParam;
    }
    std::copy(lengths.begin(), lengths.end(), dims);
    return Good;
}

API cudnnGetConvolution2dForwardOutputDim(const Convolution *conv, const Tensor *x, const Filter *w, int *n, int *c,
                                          int *h, int *width) {
    int dims[4];
    if (int status = cudnnGetConvolutionNdForwardOutputDim(conv, x, w, 4, dims)) {
        return status;
    }
    *n = dims[0];
    *c = dims[1];
    *h = dims[2];
    *width = dims[3];
    return Good;
}

// The gradient of `x` from that of `y` has the same arguments, in another order.
static int algorithms(Handle *handle, Problem problem, bool backward, int wanted, int *found, Performance *results) {
    if (!handle || wanted < 1 || !found || !results) {
        return BadParam;
    }
    *found = 0;
    if (int status = problem.check()) {
        return status;
    }
    for (int algorithm : backward ? backward_algorithms : forward_algorithms) {
        if (*found < wanted && fits(problem, algorithm, backward)) {
            Performance &result = results[(*found)++];
            result = Performance{};
            result.algorithm = algorithm;
            result.time = -1;  // not measured
            result.memory = workspace_of(problem, algorithm, backward);
            result.determinism = 1;
            result.math = problem.conv.math;
        }
    }
    return Good;
}

static int workspace(Problem problem, int algorithm, bool backward, size_t *bytes) {
    if (int status = problem.check()) {
        return status;
    }
    if (!fits(problem, algorithm, backward)) {
        return refuse(NotSupported, "an algorithm that does not fit the convolution");
    }
    *bytes = workspace_of(problem, algorithm, backward);
    return Good;
}

static int convolve(const Arguments &given, const Problem &described, bool backward, const void *alpha,
                    const void *beta) {
    auto problem = std::make_shared<Problem>(described);
    std::vector<DeviceRange> ranges;
    if (int status = check_arguments(given, *problem, backward, &ranges)) {
        return status;
    }
    const float factor = *(const float *)alpha, old = *(const float *)beta;
    const void *from = given.x, *w = given.w;
    void *to = given.y;
    const char *name = backward ? "cudnnConvolutionBackwardData" : "cudnnConvolutionForward";
    return queue(given, workspace_of(*problem, given.algorithm, backward), name, [=] {
        const Tensor &read = backward ? problem->y : problem->x, &written = backward ? problem->x : problem->y;
        const Problem::Operands operands = problem->operands(read, from, w);
        Problem::each(written, [&](const Place &place) {
            const int64_t at = offset_of(written, place);
            float value = factor * (backward ? problem->backward(operands, place) : problem->forward(operands, place));
            if (old != 0) {
                value += old * load(problem->of_y, to, at);
            }
            store(problem->of_y, to, at, value);
        });
    }, ranges);
}

API cudnnGetConvolutionForwardAlgorithmMaxCount(Handle *, int *count) {
    *count = (int)forward_algorithms.size();
    return Good;
}

API cudnnGetConvolutionForwardAlgorithm_v7(Handle *handle, const Tensor *x, const Filter *w, const Convolution *conv,
                                           const Tensor *y, int wanted, int *found, Performance *results) {
    return algorithms(handle, Problem(*x, *y, *w, *conv), false, wanted, found, results);
}

API cudnnGetConvolutionForwardWorkspaceSize(Handle *, const Tensor *x, const Filter *w, const Convolution *conv,
                                            const Tensor *y, int algorithm, size_t *bytes) {
    return workspace(Problem(*x, *y, *w, *conv), algorithm, false, bytes);
}

API cudnnConvolutionForward(Handle *handle, const void *alpha, const Tensor *x_tensor, const void *x,
                            const Filter *w_filter, const void *w, const Convolution *conv, int algorithm,
                            void *workspace, size_t workspace_bytes, const void *beta, const Tensor *y_tensor,
                            void *y) {
    if (!handle || !alpha || !beta || !x_tensor || !w_filter || !conv || !y_tensor) {
        return refuse(BadNull, "a null pointer");
    }
    const Arguments given{handle, x, w, y, workspace, workspace_bytes, algorithm};
    return convolve(given, Problem(*x_tensor, *y_tensor, *w_filter, *conv), false, alpha, beta);
}

API cudnnGetConvolutionBackwardDataAlgorithmMaxCount(Handle *, int *count) {
    *count = (int)backward_algorithms.size();
    return Good;
}

API cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle *handle, const Filter *w, const Tensor *dy,
                                                const Convolution *conv, const Tensor *dx, int wanted, int *found,
                                                Performance *results) {
    return algorithms(handle, Problem(*dx, *dy, *w, *conv), true, wanted, found, results);
}

API cudnnGetConvolutionBackwardDataWorkspaceSize(Handle *, const Filter *w, const Tensor *dy, const Convolution *conv,
                                                 const Tensor *dx, int algorithm, size_t *bytes) {
    return workspace(Problem(*dx, *dy, *w, *conv), algorithm, true, bytes);
}

API cudnnConvolutionBackwardData(Handle *handle, const void *alpha, const Filter *w_filter, const void *w,
                                 const Tensor *dy_tensor, const void *dy, const Convolution *conv, int algorithm,
                                 void *workspace, size_t workspace_bytes, const void *beta, const Tensor *dx_tensor,
                                 void *dx) {
    if (!handle || !alpha || !beta || !dy_tensor || !w_filter || !conv || !dx_tensor) {
        return refuse(BadNull, "a null pointer");
    }
    const Arguments given{handle, dy, w, dx, workspace, workspace_bytes, algorithm};
    return convolve(given, Problem(*dx_tensor, *dy_tensor, *w_filter, *conv), true, alpha, beta);
}

// y = activation(alpha1 * convolution(x) + alpha2 * z + bias)
API cudnnConvolutionBiasActivationForward(Handle *handle, const void *alpha1, const Tensor *x_tensor, const void *x,
                                          const Filter *w_filter, const void *w, const Convolution *conv, int algorithm,
                                          void *workspace, size_t workspace_bytes, const void *alpha2,
                                          const Tensor *z_tensor, const void *z, const Tensor *bias_tensor,
                                          const void *bias, const Activation *activation, const Tensor *y_tensor,
                                          void *y) {
    if (!handle || !alpha1 || !alpha2 || !x_tensor || !w_filter || !conv || !y_tensor || !z_tensor || !bias_tensor ||
        !bias || !activation) {
        return refuse(BadNull, "a null pointer");
    }
    auto problem = std::make_shared<Problem>(Problem(*x_tensor, *y_tensor, *w_filter, *conv));
    const Arguments given{handle, x, w, y, workspace, workspace_bytes, algorithm};
    std::vector<DeviceRange> ranges;
    if (int status = check_arguments(given, *problem, false, &ranges)) {
        return status;
    }
    if (activation->mode != 1 && activation->mode != 5) {
        return refuse(NotSupported, "an activation other than ReLU and identity");
    }
    if (activation->mode == 5 && algorithm != 1) {
        return refuse(NotSupported, "the identity with another algorithm than IMPLICIT_PRECOMP_GEMM");
    }
    if (problem->spatial != 2 || bias_tensor->dims != std::vector<int>{1, y_tensor->dims[1], 1, 1} || bias_tensor->type != y_tensor->type) {
        return refuse(BadParam, "a bias that is not one value a channel");
    }
    const float factor = *(const float *)alpha1, of_z = *(const float *)alpha2;
    ranges.push_back({bias, (uint64_t)y_tensor->dims[1] * bytes_of(problem->of_y), false});
    const Tensor z_copy = *z_tensor;
    if (of_z != 0) {
        if (!z || z_copy.dims != y_tensor->dims || z_copy.type != y_tensor->type) {
            return refuse(BadParam, "a z of another shape than y");
        }
        ranges.push_back({z, extent(z_copy) * bytes_of(problem->of_y), false});
    }
    const bool relu = activation->mode == 1;
    const uint64_t used = workspace_of(*problem, algorithm, false);
    return queue(given, used, "cudnnConvolutionBiasActivationForward", [=] {
        const Problem::Operands operands = problem->operands(problem->x, x, w);
        Problem::each(problem->y, [&](const Place &place) {
            const int64_t to = offset_of(problem->y, place);
            float value = factor * problem->forward(operands, place) + load(problem->of_y, bias, place.channel);
            if (of_z != 0) {
                Tensor all = z_copy;
                all.dims.insert(all.dims.begin() + 2, 1);
                all.strides.insert(all.strides.begin() + 2, 1);
                value += of_z * load(problem->of_y, z, offset_of(all, place));
            }
            value = relu && !(value > 0) ? 0 : value;
            store(problem->of_y, y, to, value);
        });
    }, ranges);
}
