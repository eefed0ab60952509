"""Convolutions, pools and normalizations."""
import itertools

import numpy as np

from .values import C, FLOATS, INF, NAN, TYPES, build, other, some

PADDED = [{}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 1, 2, 1]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}]


def windows(rank=2):
    """Paddings, with strides, dilations and kernels, of images or of lines."""
    for at, padding in enumerate(PADDED):
        padding = dict(padding)
        if rank == 1 and "pads" in padding:
            padding["pads"] = padding["pads"][1::2] if at == 1 else [0, 2]
        if rank == 3 and "pads" in padding:
            padding["pads"] = [1, 0, 1, 1, 2, 0]
        for kernel, stride, dilation in ((2, 1, 1), (3, 1, 1), (3, 2, 1), (2, 2, 1), (4, 1, 1), (4, 3, 1), (2, 1, 2), (3, 1, 2), (1, 2, 1)):
            if dilation > 1 and stride > 1:
                continue
            yield f"p{at}k{kernel}s{stride}d{dilation}", kernel, {"kernel_shape": [kernel] * rank, "strides": [stride] * rank,
                                                           **({"dilations": [dilation] * rank} if dilation > 1 else {}), **padding}


SIZES = {1: (7,), 2: (6, 7), 3: (5, 6, 7)}


@build("Conv")
def conv(t, op):
    for rank in (2, 1, 3):
        for label, kernel, attributes in windows(rank):
            if rank == 3 and kernel not in (2, 3):
                continue
            yield f"r{rank}{label}", [some(t, 1, 2, *SIZES[rank]), C(some(t, 3, 2, *[kernel] * rank, seed=2)), C(some(t, 3, seed=3))], attributes
    yield "groups", [some(t, 2, 4, 5, 5), C(some(t, 4, 2, 3, 3, seed=2))], {"kernel_shape": [3, 3], "group": 2}
    yield "depthwise", [some(t, 1, 4, 5, 6), C(some(t, 4, 1, 3, 2, seed=2))], {"kernel_shape": [3, 2], "group": 4, "auto_pad": "SAME_LOWER"}
    yield "depthwise2", [some(t, 1, 4, 5, 6), C(some(t, 4, 1, 3, 2, seed=2))], {"kernel_shape": [3, 2], "group": 4, "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    yield "multiplier", [some(t, 1, 2, 5, 6), C(some(t, 6, 1, 3, 3, seed=2))], {"kernel_shape": [3, 3], "group": 2, "pads": [1, 0, 0, 1]}
    yield "oblong", [some(t, 1, 2, 6, 7), C(some(t, 3, 2, 1, 4, seed=2))], {"kernel_shape": [1, 4], "auto_pad": "SAME_LOWER", "strides": [1, 2]}
    yield "specials", [other(some(t, 1, 2, 5, 5)), C(some(t, 2, 2, 3, 3, seed=2))], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    yield "specials1", [other(some(t, 1, 2, 5, 5)), C(some(t, 2, 2, 1, 1, seed=2))], {"kernel_shape": [1, 1]}
    yield "dynamic", [some(t, 1, 2, 6, 7), some(t, 3, 2, 3, 3, seed=2)], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}


@build("ConvTranspose")
def conv_transpose(t, op):
    for rank in (2, 1):
        for label, kernel, attributes in windows(rank):
            if kernel == 1:
                continue
            if attributes.get("auto_pad", "").startswith("SAME") and kernel < attributes["strides"][0]:
                continue
            yield f"r{rank}{label}", [some(t, 1, 2, *SIZES[rank]), C(some(t, 2, 3, *[kernel] * rank, seed=2)), C(some(t, 3, seed=3))], attributes
    x, w = some(t, 1, 4, 4, 5), C(some(t, 4, 2, 3, 3, seed=2))
    yield "groups", [x, w], {"kernel_shape": [3, 3], "group": 2}
    yield "output_padding", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_padding": [1, 1]}
    yield "output_padding2", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_padding": [1, 0], "pads": [1, 0, 1, 2]}
    yield "output_shape", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_shape": [8, 10]}
    yield "output_shape_lower", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_shape": [8, 10], "auto_pad": "SAME_LOWER"}
    yield "output_shape_upper", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_shape": [8, 10], "auto_pad": "SAME_UPPER"}
    yield "same_lower_padding", [x, w], {"kernel_shape": [3, 3], "strides": [2, 2], "output_padding": [1, 1], "auto_pad": "SAME_LOWER"}


@build("MaxPool AveragePool LpPool")
def pool(t, op):
    for rank in (2, 1, 3):
        for label, kernel, attributes in windows(rank):
            if rank == 3 and kernel not in (2, 3) or kernel == 1:
                continue
            if "pads" in attributes and max(attributes["pads"]) >= kernel:
                continue
            if op == "LpPool" and ("dilations" in attributes or "pads" in attributes and t != "f32"):
                continue
            yield f"r{rank}{label}", [some(t, 1, 2, *SIZES[rank])], attributes
    x = some(t, 1, 2, 6, 7)
    for label, attributes in (("ceil", {"strides": [2, 2]}), ("ceil_pads", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
                              ("ceil_wide", {"strides": [3, 3], "pads": [1, 0, 0, 1]})):
        yield label, [x], {"kernel_shape": [3, 3], "ceil_mode": 1, **attributes}
        if op == "AveragePool":
            yield label + "_counted", [x], {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1, **attributes}
    if op == "AveragePool":
        yield "counted", [x], {"kernel_shape": [3, 3], "count_include_pad": 1, "pads": [1, 0, 1, 2]}
        yield "same_counted", [x], {"kernel_shape": [3, 2], "count_include_pad": 1, "auto_pad": "SAME_LOWER"}
        yield "upper_counted", [x], {"kernel_shape": [3, 2], "count_include_pad": 1, "auto_pad": "SAME_UPPER"}
    if op == "MaxPool":
        yield "indices", [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, {"outputs": 2}
        yield "indices_column", [x], {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}, {"outputs": 2}
        yield "negative", [np.minimum(x, 0) - (1 if t in FLOATS else 0)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if op == "LpPool":
        for p in (1, 3):
            yield f"p{p}", [x], {"kernel_shape": [3, 3], "p": p}
    if t in FLOATS:
        yield "specials", [other(some(t, 1, 2, 5, 5))], {"kernel_shape": [2, 2]}
        yield "infinite", [np.full((1, 1, 4, 4), -INF, TYPES[t])], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        yield "specials_pads", [other(some(t, 1, 2, 5, 5))], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}


@build("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def global_pool(t, op):
    for size in ((3,), (3, 4), (2, 3, 4)):
        yield f"r{len(size)}", [some(t, 2, 3, *size)], {}
    yield "specials", [other(some(t, 2, 3, 2, 2))], {}
    yield "negative", [-np.abs(some(t, 1, 2, 3, 3)) - TYPES[t](1)], {}
    if op == "GlobalLpPool":
        yield "p1", [some(t, 1, 2, 3, 3)], {"p": 1}


@build("BatchNormalization")
def batch_norm(t, op):
    for shape in ((2, 3), (2, 3, 4), (2, 3, 2, 2)):
        yield f"r{len(shape)}", [some(t, *shape), *[C(some(t, 3, seed=n)) for n in (2, 3, 4)], C(np.abs(some(t, 3, seed=5)))], {"epsilon": 0.01}
    yield "specials", [other(some(t, 2, 3, 4)), *[C(some(t, 3, seed=n)) for n in (2, 3, 4)], C(np.abs(some(t, 3, seed=5)))], {}


@build("InstanceNormalization")
def instance_norm(t, op):
    for shape in ((2, 3, 4), (2, 3, 2, 3)):
        yield f"r{len(shape)}", [some(t, *shape), C(some(t, 3, seed=2)), C(some(t, 3, seed=3))], {"epsilon": 0.01}
    if t == "f32":
        yield "shifted", [some(t, 2, 3, 8) + np.float32(1000), C(some(t, 3, seed=2)), C(some(t, 3, seed=3))], {}, {"scale": 100}


@build("LayerNormalization RMSNormalization SimplifiedLayerNormalization")
def layer_norm(t, op):
    opset = {"opset": 23} if op == "RMSNormalization" else {}
    bias = op == "LayerNormalization"
    for axis in (-1, 1, 2, -2):
        shape = (2, 3, 4)[axis:]
        yield f"axis{axis}", [some(t, 2, 3, 4), C(some(t, *shape, seed=2)), *([C(some(t, *shape, seed=3))] if bias else [])], {"axis": axis, "epsilon": 0.01}, opset
    yield "default", [some(t, 2, 3, 4), C(some(t, 4, seed=2))], {}, opset
    if t == "f32":
        yield "shifted", [some(t, 2, 16) + np.float32(100), C(some(t, 16, seed=2))], {}, {"scale": 30, **opset}
        yield "zero", [np.zeros((2, 4), np.float32), C(some(t, 4, seed=2))], {}, opset
        yield "specials", [np.array([[1, NAN, 2, 3], [1, INF, 2, 3]], np.float32), C(some(t, 4, seed=2))], {}, opset


@build("GroupNormalization")
def group_norm(t, op):
    for groups in (1, 2, 4):
        yield f"g{groups}", [some(t, 2, 4, 3), C(some(t, 4, seed=2)), C(some(t, 4, seed=3))], {"num_groups": groups, "epsilon": 0.01}, {"opset": 21}


@build("LpNormalization MeanVarianceNormalization")
def lp_norm(t, op):
    if op == "MeanVarianceNormalization":
        yield "default", [some(t, 2, 3, 2, 2)], {}
        yield "axes", [some(t, 2, 3, 2, 2)], {"axes": [2, 3]}
        return
    for axis, p in itertools.product((0, 1, -1), (1, 2)):
        yield f"axis{axis}p{p}", [some(t, 2, 3, 4) + TYPES[t](0.25)], {"axis": axis, "p": p}
    yield "default", [some(t, 2, 3) + TYPES[t](0.25)], {}
    yield "zero", [np.array([[0, 0, 0], [1, 2, 3]], TYPES[t])], {}


@build("LRN")
def lrn(t, op):
    for size in (1, 3, 5):
        yield f"size{size}", [some(t, 1, 6, 2, 3)], {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 2.0}
    yield "default", [some(t, 1, 6, 2, 3)], {"size": 3}
