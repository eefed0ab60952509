"""The cases of `operators.py`: for each operator and element type, inputs and attributes at which runtimes are known to differ.

A builder takes an element type and yields cases `(label, inputs, attributes[, options])`. An input is an array that a call passes, a
`C(array)` that is a constant of the model, or None. Options: `outputs` (their number), `opset`, `scale` (the size of the terms that an
output adds up, for its tolerance).
"""
import itertools

import numpy as np

TYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i16": np.int16,
         "i8": np.int8, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_}
FLOATS = ("f32", "f16", "f64")
INTS = ("i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64")
ONNX = {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12, "u64": 13}
NAN, INF = float("nan"), float("inf")
# Specials, denormals, ties of rounding, where exp overflows and where softplus does, and beyond 24 and 32 bits.
EDGES = [NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, -3.7, 7.0, -7.0, 20.5, -20.5,
         88.0, -88.0, 100.0, -100.0, 700.0, -1000.0, 16777217.0, 3e9, -3e9, 1e30, -1e30, 3e38]
FEW = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, 1e-40, 100.0, 3e38]
BUILDERS = {}


class C:
    """A constant of the model."""

    def __init__(self, values, t="i64"):
        self.array = values if isinstance(values, np.ndarray) else np.array(values, TYPES[t])


def build(names):
    def register(builder):
        for name in names.split():
            BUILDERS[name] = lambda t, name=name: builder(t, name)
        return builder

    return register


def edges(t, few=False):
    """The edge values of a type, one after the other."""
    if t in FLOATS:
        values = np.array(FEW if few else EDGES, np.float32)
        if t == "f16":
            with np.errstate(over="ignore"):
                values = np.concatenate([values.astype(np.float16), np.array([65504, 6e-8, 300], np.float16)])
        return values.astype(TYPES[t])
    if t == "bool":
        return np.array([True, False, True])
    low, high = max(np.iinfo(TYPES[t]).min, -(2**31)), min(np.iinfo(TYPES[t]).max, 2**31 - 1)
    values = [v for v in (0, 1, 2, 3, 7, 13, 100, -1, -2, -3, -7, -13, -100, low, high, high - 1) if low <= v <= high]
    return np.array(sorted(set(values), key=values.index), TYPES[t])


def some(t, *shape, seed=1):
    """Small numbers: products and sums of them are exact in every type but the narrowest."""
    numbers = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=int))
    if t == "bool":
        return (numbers.integers(0, 2, count) == 1).reshape(shape)
    low = 0 if t.startswith("u") else -8
    whole = numbers.integers(low, 9, count)
    return (whole / 4 if t in FLOATS else whole).astype(TYPES[t]).reshape(shape)


def other(array):
    """With a NaN and infinities among its numbers, if it is of floats."""
    array = array.copy()
    if array.dtype.kind == "f" and array.size > 4:
        array.flat[1], array.flat[array.size // 2], array.flat[array.size - 1] = NAN, INF, -INF
    return array


def empty(t):
    """No elements, as a constant: an input of a model has some."""
    return C(np.zeros((2, 0), TYPES[t]))


def scalar(t):
    return np.array(1, TYPES[t])


PLAIN = ("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Identity IsInf IsNaN Log Mish Neg Not Reciprocal "
         "Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh BitwiseNot com.microsoft.FastGelu com.microsoft.QuickGelu "
         "com.microsoft.Gelu")


@build(PLAIN)
def plain(t, op):
    values = edges(t)
    if op in ("Sin", "Cos", "Tan"):
        # Of the argument 1e30 no float has the digits.
        values = values[~(np.abs(values) > 1e4) | np.isinf(values)]
    yield "edges", [values], {}
    yield "2d", [values[: len(values) // 2 * 2].reshape(2, -1)], {}
    yield "scalar", [scalar(t)], {}
    yield "empty", [empty(t)], {}
    if op == "IsInf":
        for positive, negative in ((0, 1), (1, 0), (0, 0)):
            yield f"sides{positive}{negative}", [values], {"detect_positive": positive, "detect_negative": negative}


ALPHA = {"Elu": [{"alpha": 2.0}], "Selu": [{"alpha": 2.0, "gamma": 3.0}], "Celu": [{"alpha": 2.0}], "LeakyRelu": [{"alpha": 0.3}, {"alpha": 0.0}],
         "HardSigmoid": [{"alpha": 0.5, "beta": 0.1}], "ThresholdedRelu": [{"alpha": 2.0}], "Shrink": [{"lambd": 1.0, "bias": 0.5}],
         "Gelu": [{"approximate": "tanh"}], "Swish": [{"alpha": 2.0}]}


@build(" ".join(ALPHA))
def with_alpha(t, op):
    opset = {"opset": 24} if op == "Swish" else {}
    for at, attributes in enumerate([{}] + ALPHA[op]):
        yield f"edges{at}", [edges(t)], attributes, opset
        yield f"scalar{at}", [scalar(t)], attributes, opset
    yield "empty", [empty(t)], {}, opset


@build("Add Sub Mul Div Pow Mod Max Min Mean Sum Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor PRelu BitShift BitwiseAnd "
       "BitwiseOr BitwiseXor")
def binary(t, op):
    a, b = edges(t, few=True), edges(t, few=True)
    kinds = [{}]
    if op in ("Div", "Mod") and t in INTS:
        b = b[b != 0]
        a = a[a > np.iinfo(TYPES[t]).min] if t in ("i32", "i64") else a
        a = a[a > -(2**31)] if t == "i64" else a
    if op == "Div" and t in ("i8", "i16"):
        a = a[a > np.iinfo(TYPES[t]).min]
    if op == "Mod":
        kinds = [{"fmod": 1}] if t in FLOATS else [{}, {"fmod": 1}]
    if op in ("Add", "Sub", "Mul") and t in ("i64", "i32", "u32", "u64"):
        # What overflows is the class of narrowed integers.
        a, b = a[np.abs(a.astype(float)) < 1e4], b[np.abs(b.astype(float)) < 1e4]
    if op == "Sum" and t in INTS or op == "Mean" and t in INTS:
        a = b = some(t, 5)
    if op == "Pow":
        b = edges(t, few=True) if t in FLOATS else np.array([0, 1, 2, 3], TYPES[t])
        a = a if t in FLOATS else a[np.abs(a.astype(float)) < 1e3]
    if op == "BitShift":
        kinds, b = [{"direction": "LEFT"}, {"direction": "RIGHT"}], np.array([0, 1, 3], TYPES[t])
        a = a[a < 1 << 28] if t in ("u32", "u64") else a
    for at, attributes in enumerate(kinds):
        if op == "PRelu":
            yield "table", [np.tile(a[:, None], (1, len(b))), C(b)], attributes
        else:
            yield f"table{at}", [a[:, None], b], attributes
            yield f"constant{at}", [a[:, None], C(b)], attributes
            yield f"scalars{at}", [scalar(t), scalar(t)], attributes
            yield f"empty{at}", [empty(t), scalar(t)], attributes
            if t != "bool":
                # Each operand with the greater rank, and with dims that only the other one has.
                three, two = np.array([7, 5], TYPES[t]).reshape(2, 1, 1), np.array([[3, 2], [1, 2], [2, 3]], TYPES[t])
                yield f"rank3by2_{at}", [three, two], attributes
                yield f"rank2by3_{at}", [two, three], attributes
                yield f"rank3by1_{at}", [np.stack([two] * 2), two[0]], attributes
                yield f"rank1by3_{at}", [two[0], np.stack([two] * 2)], attributes
                yield f"crossed{at}", [two[:, :1].copy(), two[:1].copy()], attributes
    if op == "PRelu":
        yield "channels", [some(t, 2, 3, 2, 2), C(some(t, 3, 1, 1, seed=2))], {}
    if op in ("Max", "Min", "Mean", "Sum"):
        yield "one", [a], {}
        yield "three", [a[:, None], b, scalar(t)], {}
    if op == "Pow" and t in FLOATS:
        for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 1.0, -0.5, -2.0):
            yield f"by{exponent}", [edges(t), C(np.array(exponent, TYPES[t]))], {}
        yield "int", [edges(t, few=True)[:, None], np.array([0, 1, 2, 3, -2], np.int32)], {}
    if op == "Pow" and t in ("i32", "i64"):
        yield "float", [a[a >= 0], C(np.array(2.0, np.float32))], {}
    if op == "Div" and t in FLOATS:
        yield "zero", [edges(t), C(np.array(0, TYPES[t]))], {}
    if op == "Mul" and t in FLOATS:
        yield "zero", [edges(t), C(np.array(0, TYPES[t]))], {}


@build("Where")
def where(t, op):
    a, b = edges(t, few=True), edges(t, few=True)[::-1].copy()
    yield "table", [np.array([[True], [False]]), a, b], {}
    yield "scalar", [np.array(True), a, C(np.array(3, TYPES[t]))], {}
    yield "constant", [a == a, C(a), b], {}
    yield "empty", [C(np.zeros((2, 0), bool)), empty(t), scalar(t)], {}


@build("Clip")
def clip(t, op):
    two, three, values = np.array(2, TYPES[t]), np.array(3, TYPES[t]), edges(t)
    yield "both", [values, C(two), C(three)], {}
    yield "least", [values, C(two)], {}
    yield "most", [values, None, C(three)], {}
    yield "crossed", [values, C(three), C(two)], {}
    yield "none", [values], {}
    if t in FLOATS:
        yield "opset6", [values], {"min": -1.0, "max": 2.0}, {"opset": 6}
    if t == "f32":
        yield "infinite", [values, C(np.array(-INF, np.float32)), C(np.array(INF, np.float32))], {}


REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"


@build(REDUCTIONS)
def reduction(t, op):
    x = some(t, 2, 3, 4)
    if op == "ReduceProd" and t not in FLOATS:
        x = np.minimum(np.maximum(x, 0 if t.startswith("u") else -1), 1) if t != "bool" else x
    if op == "ReduceLogSum":
        x = np.abs(x) + (1 if t in INTS else TYPES[t](0.5))
    y = some(t, 2, 6)
    for keep in (0, 1):
        for axes in ([1], [-1], [0, 2], [-3, -1], [0, 1, 2]):
            name = "_".join(str(axis) for axis in axes)
            yield f"axes{name}k{keep}", [x, C(axes)], {"keepdims": keep}
        yield f"allk{keep}", [x], {"keepdims": keep}
        yield f"noop{keep}", [x], {"keepdims": keep, "noop_with_empty_axes": 1}
    yield "old", [x], {"axes": [-1]}, {"opset": 12}
    yield "scalar", [scalar(t)], {"keepdims": 0}
    if op not in ("ReduceMax", "ReduceMin", "ReduceMean"):
        yield "empty", [empty(t), C([1])], {"keepdims": 0}
    yield "outer_empty", [empty(t), C([0])], {"keepdims": 1}
    if t in FLOATS:
        rows = np.array([[1, NAN, 2], [INF, 1, 2], [-INF, 1, 2], [INF, -INF, 1], [NAN, INF, 3], [-INF, -INF, -INF], [-0.0, 0.0, -0.0]], TYPES[t])
        yield "specials", [rows, C([1])], {}
        yield "specials0", [rows, C([0])], {"keepdims": 0}
        yield "specials_all", [rows[:, :1]], {"keepdims": 0}
    if t == "f32":
        yield "large", [np.array([[100, 100.5, -3], [1e3, 999, 5], [-1e3, -1e3, -1001], [88, 89, 90]], np.float32), C([1])], {}
        yield "huge", [np.array([[1e25, 1e25], [1e-25, 1e-25]], np.float32), C([1])], {}
        yield "wide", [np.linspace(-1, 1, 3000, dtype=np.float32).reshape(3, 1000), C([1])], {}, {"scale": 1000}
    if t in ("i32", "i64") and op == "ReduceMean":
        yield "negative", [np.array([[-1, -2], [1, 2], [-7, 0]], TYPES[t]), C([1])], {}


@build("ArgMax ArgMin")
def arg(t, op):
    x = some(t, 2, 3, 4)
    ties = np.array([[1, 2, 2, 1], [0, 0, 0, 0], [3, 1, 3, 1]], TYPES[t])
    for last in (0, 1):
        for axis, keep in ((0, 1), (1, 0), (-1, 1), (-2, 0)):
            yield f"axis{axis}k{keep}l{last}", [x], {"axis": axis, "keepdims": keep, "select_last_index": last}
        yield f"ties{last}", [ties], {"axis": 1, "select_last_index": last}
    yield "default", [x], {}
    if t in FLOATS:
        yield "infinite", [np.array([[INF, 1, INF], [-INF, -INF, 0], [-INF, -INF, -INF]], TYPES[t])], {"axis": 1}


@build("Softmax LogSoftmax Hardmax")
def softmax(t, op):
    x = some(t, 2, 3, 4)
    for axis in (0, 1, -1, -2):
        yield f"axis{axis}", [x], {"axis": axis}
        yield f"old{axis}", [x], {"axis": axis}, {"opset": 11 if axis < 0 else 1 + 8}
    yield "default", [x], {}
    yield "old", [x], {}, {"opset": 9}
    yield "empty", [empty(t)], {"axis": 0}
    if t != "f16":
        yield "large", [np.array([[100, 100.5, -3], [1e3, 999, 5], [-1e3, -1e3, -1001], [3e38, -3e38, 0]], TYPES[t])], {}
        yield "old_large", [np.array([[100, -3], [1e3, 5]], TYPES[t])], {"axis": 1}, {"opset": 11}
    masked = np.array([[-INF, 1, 2], [1, -INF, -INF]] + ([[-INF] * 3, [1, NAN, 2], [INF, 1, 2]] if op != "Hardmax" else []), TYPES[t])
    yield "masked", [masked], {}
    if t == "f32":
        yield "wide", [np.linspace(-3, 3, 300, dtype=np.float32).reshape(3, 100)], {}


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


@build("MatMul")
def matmul(t, op):
    for a, b in (((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((2, 2, 3), (3, 4)), ((2, 2, 3), (2, 3, 4)),
                 ((2, 1, 2, 3), (3, 3, 4)), ((3,), (2, 3, 4)), ((2, 2, 3), (3,)), ((2, 0), (0, 3)), ((1, 1), (1, 1)), ((5, 17), (17, 33))):
        name = "x".join(map(str, a)) + "by" + "x".join(map(str, b))
        yield name, [some(t, *a), some(t, *b, seed=2)], {}
        yield name + "c", [some(t, *a), C(some(t, *b, seed=2))], {}
    if t in FLOATS:
        yield "specials", [other(some(t, 3, 4)), C(some(t, 4, 3, seed=2))], {}


@build("Gemm")
def gemm(t, op):
    for ta, tb in itertools.product((0, 1), (0, 1)):
        a, b = some(t, *((3, 2) if ta else (2, 3))), some(t, *((4, 3) if tb else (3, 4)), seed=2)
        for shape in (None, (), (1,), (4,), (2, 1), (1, 4), (2, 4)):
            c = [] if shape is None else [C(some(t, *shape, seed=3))]
            yield f"t{ta}{tb}c{'none' if shape is None else 'x'.join(map(str, shape))}", [a, C(b), *c], {"transA": ta, "transB": tb}
    if t in FLOATS:
        yield "scaled", [some(t, 2, 3), C(some(t, 3, 4, seed=2)), C(some(t, 4, seed=3))], {"alpha": 0.5, "beta": 2.0}
        yield "unbiased", [some(t, 2, 3), C(some(t, 3, 4, seed=2)), C(some(t, 4, seed=3))], {"alpha": -1.0, "beta": 0.0}


@build("Einsum")
def einsum(t, op):
    for at, (equation, shapes) in enumerate((("ij,jk->ik", [(2, 3), (3, 4)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]), ("ij->ji", [(2, 3)]),
                                             ("ij->i", [(2, 3)]), ("i,j->ij", [(2,), (3,)]), ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
                                             ("...ij,...jk->...ik", [(2, 2, 3), (2, 3, 2)]), ("ij,ij->", [(2, 3), (2, 3)]), ("ii->i", [(3, 3)]))):
        yield f"e{at}", [some(t, *shape, seed=n) for n, shape in enumerate(shapes)], {"equation": equation}


@build("MatMulInteger")
def matmul_integer(t, op):
    for b in ("u8", "i8"):
        x, w = some(t, 2, 3) * TYPES[t](9), some(b, 3, 4, seed=2) * TYPES[b](9)
        yield f"{b}", [x, C(w)], {}
        yield f"{b}zero", [x, C(w), C(np.array(3, TYPES[t])), C(np.array(2, TYPES[b]))], {}
        yield f"{b}zeros", [x, C(w), C(np.array(3, TYPES[t])), C(np.array([1, 2, 3, 4], TYPES[b]))], {}
        yield f"{b}dynamic", [x, w, np.array(3, TYPES[t]), np.array(2, TYPES[b])], {}
        yield f"{b}large", [np.full((2, 300), np.iinfo(TYPES[t]).max, TYPES[t]), C(np.full((300, 2), np.iinfo(TYPES[b]).min or 255, TYPES[b]))], {}


@build("ConvInteger")
def conv_integer(t, op):
    for b in ("u8", "i8"):
        x, w = some(t, 1, 2, 5, 6), C(some(b, 3, 2, 3, 3, seed=2))
        yield f"{b}", [x, w], {"kernel_shape": [3, 3]}
        yield f"{b}zero", [x, w, C(np.array(3, TYPES[t])), C(np.array(2, TYPES[b]))], {"kernel_shape": [3, 3]}
        yield f"{b}zero_pads", [x, w, C(np.array(3, TYPES[t]))], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        yield f"{b}lower", [x, C(some(b, 3, 2, 2, 2, seed=2)), C(np.array(3, TYPES[t]))], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}


@build("QuantizeLinear")
def quantize(t, op):
    x = edges(t) if t in FLOATS else some(t, 16) * TYPES[t](3)
    x = x[~np.isnan(x)]
    x = x[np.abs(x) < 1e8] if t in FLOATS else x
    scale = np.float32(0.5)
    for zero in ("u8", "i8"):
        yield f"{zero}", [x, C(np.array(scale, TYPES[t] if t in FLOATS else np.float32)), C(np.array(3, TYPES[zero]))], {}
        yield f"{zero}axis", [some(t, 2, 3, 4), C(np.array([0.5, 1, 2], TYPES[t] if t in FLOATS else np.float32)), C(np.array([0, 1, 5], TYPES[zero]))], {"axis": 1}
        yield f"{zero}last", [some(t, 2, 3), C(np.array([0.5, 1, 2], TYPES[t] if t in FLOATS else np.float32)), C(np.array([0, 1, 5], TYPES[zero]))], {"axis": -1}
    yield "none", [x, C(np.array(scale, TYPES[t] if t in FLOATS else np.float32))], {}
    if t == "f32":
        ties = (np.arange(-20, 20) / 4).astype(np.float32)
        yield "ties", [ties, C(np.array(0.5, np.float32)), C(np.array(128, np.uint8))], {}
        yield "infinite", [np.array([INF, -INF, 1e30, -1e30], np.float32), C(np.array(0.5, np.float32)), C(np.array(128, np.uint8))], {}


@build("DequantizeLinear")
def dequantize(t, op):
    x = edges(t)
    if t == "i32":
        yield "none", [x, C(np.array(0.5, np.float32))], {}
        return
    yield "zero", [x, C(np.array(0.5, np.float32)), C(np.array(3, TYPES[t]))], {}
    yield "none", [x, C(np.array(0.5, np.float32))], {}
    yield "axis", [some(t, 2, 3, 4), C(np.array([0.5, 1, 2], np.float32)), C(np.array([0, 1, 5], TYPES[t]))], {"axis": 1}
    yield "last", [some(t, 2, 3), C(np.array([0.5, 1, 2], np.float32)), C(np.array([0, 1, 5], TYPES[t]))], {"axis": -1}


@build("DynamicQuantizeLinear")
def dynamic_quantize(t, op):
    for label, x in (("mixed", some(t, 12)), ("positive", np.abs(some(t, 12)) + np.float32(1)), ("negative", -np.abs(some(t, 12)) - np.float32(1)),
                     ("ties", (np.arange(0, 511) / 2).astype(np.float32))):
        yield label, [x], {}, {"outputs": 3}
    yield "zeros", [np.zeros(4, np.float32)], {}, {"outputs": 3}


@build("QLinearMatMul")
def qlinear_matmul(t, op):
    x, w = some(t, 2, 3), some(t, 3, 4, seed=2)
    f, z = (lambda n: C(np.array(n, np.float32))), (lambda n: C(np.array(n, TYPES[t])))
    yield "plain", [x, f(0.5), z(1), C(w), f(0.25), z(2), f(0.5), z(3)], {}


@build("QLinearConv")
def qlinear_conv(t, op):
    x, w = some(t, 1, 2, 5, 5), some(t, 3, 2, 3, 3, seed=2)
    f, z = (lambda n: C(np.array(n, np.float32))), (lambda n: C(np.array(n, TYPES[t])))
    yield "plain", [x, f(0.5), z(1), C(w), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [3, 3]}
    yield "pads", [x, f(0.5), z(1), C(w), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1]}
    yield "lower", [x, f(0.5), z(1), C(some(t, 3, 2, 2, 2, seed=2)), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}


@build("Cast")
def cast(t, op):
    for to, code in ONNX.items():
        if t in FLOATS and to in INTS:
            # Beyond the range of the type ONNX leaves the result open.
            info = np.iinfo(TYPES[to])
            x = np.array([v for v in [0.0, -0.0, 0.9, 1.5, 2.5, 100.7, -0.9, -1.5, -2.5, -100.7, 1e-40] if info.min <= np.trunc(v) <= info.max], TYPES[t])
        else:
            x = edges(t)
        yield f"to_{to}", [x], {"to": code}
    yield "empty", [empty(t)], {"to": 1}
    yield "scalar", [scalar(t)], {"to": 1}


@build("CastLike")
def cast_like(t, op):
    for to in ("f32", "i32", "bool", "i64", "u8", "i8"):
        x = np.array([0, 1, 2, 3], TYPES[t]) if t not in FLOATS else np.array([0.0, 0.5, 2, 100] + ([NAN] if to in ("bool", "f32") else []), TYPES[t])
        yield f"to_{to}", [x, C(np.array([1], TYPES[to]))], {}
        yield f"like_{to}", [x, np.array([1], TYPES[to])], {}


@build("Concat")
def concat(t, op):
    a, b = some(t, 2, 3), some(t, 2, 2, seed=2)
    for axis in (1, -1):
        yield f"axis{axis}", [a, b], {"axis": axis}
    yield "first", [a, some(t, 1, 3)], {"axis": 0}
    yield "empty", [a, empty(t)], {"axis": 1}
    yield "constant", [a, C(b)], {"axis": -1}
    yield "one", [a], {"axis": 0}


@build("Expand Tile")
def expand(t, op):
    for label, shape, to in (("broadcast", (2, 1), [2, 3]), ("rank", (3, 1), [2, 1, 4]), ("ones", (2, 3), [1, 1]), ("scalar", (), [2, 2])):
        if op == "Expand":
            yield label, [some(t, *shape), C(to)], {}
        elif len(shape) == len(to):
            yield label, [some(t, *shape), C(to)], {}
            yield label + "0", [some(t, *shape), C([0] + to[1:])], {}


@build("Flatten")
def flatten(t, op):
    for axis in (0, 1, 2, 3, -1, -2, -3):
        yield f"axis{axis}", [some(t, 2, 3, 4)], {"axis": axis}


@build("Reshape")
def reshape(t, op):
    for at, to in enumerate(([6, 4], [0, -1], [-1], [2, 0, 2, 2], [1, 24, 1], [-1, 3, 0])):
        if at == 3:
            to = [2, 0, 4]
        yield f"to{at}", [some(t, 2, 3, 4), C(to)], {}
    yield "scalar", [some(t, 1, 1), C(np.zeros(0, np.int64))], {}
    yield "allowzero", [C(np.zeros((0, 3), TYPES[t])), C([3, 0])], {"allowzero": 1}


@build("Squeeze Unsqueeze")
def squeeze(t, op):
    if op == "Squeeze":
        yield "all", [some(t, 1, 3, 1)], {}
        for axes in ([0], [-1], [0, 2], [2, 0]):
            yield "axes" + "_".join(map(str, axes)), [some(t, 1, 3, 1), C(axes)], {}
        yield "old", [some(t, 1, 3, 1)], {"axes": [-1]}, {"opset": 11}
    else:
        for axes in ([0], [-1], [0, 2], [3, 0], [-1, 0], [-2]):
            yield "axes" + "_".join(map(str, axes)), [some(t, 2, 3), C(axes)], {}
        yield "scalar", [scalar(t), C([0])], {}
        yield "old", [some(t, 2, 3)], {"axes": [-1]}, {"opset": 11}


@build("Transpose")
def transpose(t, op):
    yield "default", [some(t, 2, 3, 4)], {}
    for perm in ([0, 2, 1], [2, 0, 1], [1, 0, 2]):
        yield "perm" + "".join(map(str, perm)), [some(t, 2, 3, 4)], {"perm": perm}
    yield "empty", [empty(t)], {}
    yield "scalar", [scalar(t)], {}


@build("Slice")
def slices(t, op):
    x, most, least = some(t, 5, 6), 2**63 - 1, -(2**63)
    for label, starts, ends, axes, steps in (
            ("plain", [1], [3], [0], [1]), ("negative", [-3], [-1], [1], None), ("end", [2], [most], [-1], None), ("beyond", [-100], [100], [0], None),
            ("reverse", [-1], [least], [0], [-1]), ("reverse2", [4], [0], [1], [-2]), ("reverse3", [100], [-100], [-1], [-3]), ("step", [0, 1], [5, 6], [0, 1], [2, 3]),
            ("nothing", [3], [1], [0], [1]), ("nothing2", [7], [9], [0], None), ("all", [1, 2], [4, 5], None, None), ("end32", [1], [2**31 - 1], [0], None),
            ("last", [-1], [most], [1], None), ("reverse_end", [3], [-6], [0], [-1])):
        rest = [C(starts), C(ends)] + ([C(axes)] if axes else []) + ([C(steps)] if steps else [])
        yield label, [x, *rest], {}
    yield "old", [x], {"starts": [1, -2], "ends": [4, most], "axes": [0, 1]}, {"opset": 9}


@build("Split")
def split(t, op):
    x = some(t, 2, 6)
    yield "even", [x], {"axis": 1, "num_outputs": 3}, {"outputs": 3}
    yield "uneven", [x], {"axis": -1, "num_outputs": 4}, {"outputs": 4}
    yield "lengths", [x, C([1, 2, 3])], {"axis": -1}, {"outputs": 3}
    yield "empty", [x, C([0, 6])], {"axis": 1}, {"outputs": 2}
    yield "first", [x, C([1, 1])], {}, {"outputs": 2}
    yield "old", [x], {"axis": 1, "split": [2, 4]}, {"outputs": 2, "opset": 11}
    yield "old_even", [x], {"axis": 1}, {"outputs": 2, "opset": 13}


@build("Pad")
def pad(t, op):
    x = some(t, 4, 5)
    for mode in ("constant", "reflect", "edge", "wrap"):
        opset = {"opset": 19}
        yield f"{mode}", [x, C([1, 2, 0, 1])], {"mode": mode}, opset
        yield f"{mode}_axes", [x, C([2, 1]), None, C([-1])], {"mode": mode}, opset
        yield f"{mode}_none", [x, C([0, 0, 0, 0])], {"mode": mode}, opset
    yield "value", [x, C([1, 0, 0, 2]), C(np.array(3, TYPES[t]))], {}
    yield "negative", [x, C([-1, 0, 0, -2])], {}
    yield "mixed", [x, C([-1, 2, 1, -2]), C(np.array(3, TYPES[t]))], {}
    yield "axes", [x, C([1, 2]), C(np.array(3, TYPES[t])), C([0])], {}
    if t in FLOATS:
        yield "nan", [x, C([1, 0, 0, 0]), C(np.array(NAN, TYPES[t]))], {}
        yield "old", [x], {"pads": [1, 0, 0, 2], "value": 2.5}, {"opset": 10}


@build("Gather")
def gather(t, op):
    x = some(t, 3, 4)
    for label, indices, axis in (("plain", [0, 2], 0), ("negative", [-1, 0, -3], 0), ("axis1", [[3, 0], [-1, 2]], 1), ("axis-1", [1, -4], -1), ("scalar", 1, 0),
                                 ("scalar-1", -1, 1)):
        yield label, [x, C(indices)], {"axis": axis}
        yield label + "_dynamic", [x, np.array(indices, np.int64)], {"axis": axis}
    yield "int32", [x, np.array([2, -1], np.int32)], {}
    yield "nothing", [x, C(np.zeros(0, np.int64))], {}


@build("GatherElements")
def gather_elements(t, op):
    x = some(t, 3, 3)
    for label, indices, axis in (("axis0", [[0, 2, 1]], 0), ("axis1", [[0, 2], [1, 1], [2, 0]], 1), ("negative", [[-1, -2], [-3, 0], [1, -1]], -1)):
        yield label, [x, C(indices)], {"axis": axis}


@build("GatherND")
def gather_nd(t, op):
    x = some(t, 2, 3, 4)
    for label, indices, batch in (("all", [[0, 1, 2], [1, 2, 3]], 0), ("part", [[0, 1], [1, 2]], 0), ("negative", [[-1, -2], [0, -1]], 0), ("batch", [[1], [-1]], 1)):
        yield label, [x, C(indices)], {"batch_dims": batch}


@build("ScatterElements Scatter")
def scatter_elements(t, op):
    opset = {"opset": 10} if op == "Scatter" else {}
    x, u = some(t, 3, 3), some(t, 2, 3, seed=2)
    yield "axis0", [x, C([[0, 2, 1], [1, 0, 2]]), u], {}, opset
    yield "axis1", [x, C([[1], [2], [0]]), some(t, 3, 1, seed=2)], {"axis": 1}, opset
    if op == "Scatter":
        return
    yield "negative", [x, C([[-1], [-2], [0]]), some(t, 3, 1, seed=2)], {"axis": -1}
    for how in ("add", "mul", "max", "min"):
        if t == "bool" and how in ("max", "min", "mul", "add"):
            continue
        yield how, [x, C([[0, 0, 1], [0, 2, 1]]), u], {"reduction": how}
    if t in FLOATS:
        for how in ("max", "min"):
            yield f"{how}_nan", [np.array([[1, NAN, 3]], TYPES[t]), C([[0, 1, 2]]), np.array([[NAN, 1, 2]], TYPES[t])], {"reduction": how, "axis": 1}


@build("ScatterND")
def scatter_nd(t, op):
    x = some(t, 4, 3)
    yield "rows", [x, C([[0], [2]]), some(t, 2, 3, seed=2)], {}
    yield "elements", [x, C([[0, 1], [3, 2]]), some(t, 2, seed=2)], {}
    yield "negative", [x, C([[-1], [-3]]), some(t, 2, 3, seed=2)], {}
    for how in ("add", "mul", "max", "min"):
        if t != "bool":
            yield how, [x, C([[0], [0]]), some(t, 2, 3, seed=2)], {"reduction": how}


@build("OneHot")
def one_hot(t, op):
    indices = np.array([0, 2, 3, 5] if t.startswith("u") else [0, 2, -1, -4, 5, -9], TYPES[t])
    if t in FLOATS:
        indices = np.array([0, 2, 3, -1], TYPES[t])
    for axis in (-1, 0, 1):
        yield f"axis{axis}", [indices, C([4]), C(np.array([0, 1], np.float32))], {"axis": axis}
    yield "values", [indices, C([4]), C(np.array([7, -3], np.int32))], {}
    yield "2d", [indices[:4].reshape(2, 2), C(4), C(np.array([0.5, 2.5], np.float32))], {"axis": 1}


@build("TopK")
def top_k(t, op):
    x = np.array([[3, 1, 2, 5], [9, 4, 8, 6]], TYPES[t])
    ties = np.array([[1, 2, 2, 1, 2]], TYPES[t])
    for largest in (0, 1):
        yield f"l{largest}", [x, C([2])], {"largest": largest}, {"outputs": 2}
        yield f"axis0l{largest}", [x, C([1])], {"largest": largest, "axis": 0}, {"outputs": 2}
        yield f"ties{largest}", [ties, C([3])], {"largest": largest}, {"outputs": 2}
        if t in FLOATS:
            yield f"infinite{largest}", [np.array([[1, INF, -INF, 0]], TYPES[t]), C([4])], {"largest": largest}, {"outputs": 2}
    yield "none", [x, C([0])], {}, {"outputs": 2}
    yield "old", [x], {"k": 2}, {"opset": 9, "outputs": 2}


@build("Trilu")
def trilu(t, op):
    for upper, k in itertools.product((0, 1), (None, 0, 1, -1, 5, -5)):
        yield f"u{upper}k{k}", [other(some(t, 2, 3, 4))] + ([] if k is None else [C(k)]), {"upper": upper}


@build("CumSum")
def cum_sum(t, op):
    x = some(t, 3, 4)
    for axis, exclusive, reverse in itertools.product((0, 1, -1), (0, 1), (0, 1)):
        yield f"axis{axis}e{exclusive}r{reverse}", [x, C(axis)], {"exclusive": exclusive, "reverse": reverse}
    if t in FLOATS:
        yield "specials", [np.array([1, INF, 2, -INF, 3], TYPES[t]), C(0)], {}


@build("Compress")
def compress(t, op):
    x = some(t, 3, 2)
    yield "flat", [x, C(np.array([False, True, True, False, True]))], {}
    yield "axis0", [x, C(np.array([True, False, True]))], {"axis": 0}
    yield "axis-1", [x, np.array([False, True])], {"axis": -1}


@build("NonZero")
def non_zero(t, op):
    yield "edges", [edges(t)], {}
    yield "2d", [some(t, 3, 4)], {}
    yield "zeros", [np.zeros((2, 2), TYPES[t])], {}


@build("Shape Size")
def shapes(t, op):
    yield "plain", [some(t, 2, 3, 4)], {}
    yield "empty", [empty(t)], {}
    yield "scalar", [scalar(t)], {}
    if op == "Shape":
        for start, end in ((1, None), (-2, None), (0, -1), (0, 100), (2, 1), (-100, 2)):
            yield f"from{start}to{end}", [some(t, 2, 3, 4)], {"start": start, **({} if end is None else {"end": end})}


@build("ConstantOfShape")
def constant_of_shape(t, op):
    yield "default", [C([2, 3])], {}


@build("EyeLike")
def eye_like(t, op):
    for k in (0, 1, -1):
        yield f"k{k}", [some(t, 3, 4)], {"k": k}
    yield "f32", [some(t, 3, 4)], {"dtype": 1}


@build("Range")
def ranges(t, op):
    for label, numbers in (("up", (0, 5, 1)), ("step", (1, 8, 3)), ("down", (7, 0, -2)), ("none", (5, 1, 1)), ("fraction", (0.5, 2.2, 0.25))):
        if label == "fraction" and t not in FLOATS:
            continue
        yield label, [C(np.array(n, TYPES[t])) for n in numbers], {}


@build("DepthToSpace SpaceToDepth")
def depth(t, op):
    if op == "DepthToSpace":
        for mode in ("DCR", "CRD"):
            yield mode, [some(t, 1, 8, 2, 3)], {"blocksize": 2, "mode": mode}
    yield "plain", [some(t, 1, 8, 2, 4)], {"blocksize": 2}


@build("ReverseSequence")
def reverse_sequence(t, op):
    yield "time", [some(t, 4, 3), C([1, 4, 2])], {"batch_axis": 1, "time_axis": 0}
    yield "batch", [some(t, 3, 4), C([1, 4, 2])], {"batch_axis": 0, "time_axis": 1}


@build("Resize")
def resize(t, op):
    x = some(t, 1, 1, 4, 5)
    none, roi = C(np.zeros(0, np.float32)), None
    for mode in ("nearest", "linear", "cubic"):
        if mode != "nearest" and t not in FLOATS:
            continue
        for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for at, scales in enumerate(([1, 1, 2, 2], [1, 1, 0.5, 0.6], [1, 1, 1.5, 1])):
                yield f"{mode}_{how}_s{at}", [x, roi, C(np.array(scales, np.float32))], {"mode": mode, "coordinate_transformation_mode": how}
            yield f"{mode}_{how}_sizes", [x, roi, None, C([1, 1, 3, 8])], {"mode": mode, "coordinate_transformation_mode": how}
            yield f"{mode}_{how}_one", [x, roi, None, C([1, 1, 1, 1])], {"mode": mode, "coordinate_transformation_mode": how}
    for how in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for mode in ("half_pixel", "asymmetric", "align_corners"):
            for at, scales in enumerate(([1, 1, 2, 3], [1, 1, 0.5, 0.7])):
                yield f"nearest_{how}_{mode}{at}", [x, roi, C(np.array(scales, np.float32))], {
                    "mode": "nearest", "nearest_mode": how, "coordinate_transformation_mode": mode}
    if t in FLOATS:
        yield "antialias", [x, roi, C(np.array([1, 1, 0.5, 0.5], np.float32))], {"mode": "linear", "antialias": 1}
        yield "cubic_coeff", [x, roi, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "cubic", "cubic_coeff_a": -0.5}
        yield "cubic_exclude", [x, roi, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "cubic", "exclude_outside": 1}
        yield "crop", [x, C(np.array([0, 0, 0.4, 0.6, 1, 1, 0.6, 1.2], np.float32)), None, C([1, 1, 3, 3])], {
            "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
        yield "axes", [x, roi, C(np.array([2, 2], np.float32))], {"mode": "linear", "axes": [2, 3]}
        yield "larger", [x, roi, None, C([8, 7])], {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
        yield "half_symmetric", [x, roi, C(np.array([1, 1, 0.6, 0.6], np.float32))], {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
        yield "rank3", [some(t, 1, 2, 5), roi, C(np.array([1, 1, 2], np.float32))], {"mode": "linear"}
        yield "old", [x, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "nearest"}, {"opset": 10}
        yield "old_linear", [x, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "linear"}, {"opset": 10}


@build("Upsample")
def upsample(t, op):
    for mode in ("nearest", "linear"):
        if mode == "nearest" or t in FLOATS:
            yield mode, [some(t, 1, 1, 3, 4), C(np.array([1, 1, 2, 3], np.float32))], {"mode": mode}, {"opset": 9}


@build("GridSample")
def grid_sample(t, op):
    if t not in FLOATS:
        # How interpolated integers are rounded is open.
        return
    grid = np.random.default_rng(4).uniform(-1.3, 1.3, (1, 3, 4, 2)).astype(np.float32)
    for mode, padding, corners in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        yield f"{mode}_{padding}{corners}", [some(t, 1, 2, 4, 5), C(grid)], {"mode": mode, "padding_mode": padding, "align_corners": corners}, {"opset": 20}
    yield "old", [some(t, 1, 2, 4, 5), C(grid)], {}, {"opset": 16}


@build("NonMaxSuppression")
def non_max_suppression(t, op):
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], np.float32)
    limits = [C([3]), C(np.array([0.5], np.float32)), C(np.array([0.0], np.float32))]
    yield "one", [boxes, scores, *limits], {}
    yield "classes", [boxes, np.concatenate([scores, scores[:, :, ::-1]], 1), *limits], {}
    yield "flipped", [boxes[:, :, [2, 3, 0, 1]].copy(), scores, *limits], {}
    yield "centre", [np.array([[[0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [0.5, 10.5, 1, 1]]], np.float32), scores[:, :, :3].copy(), *limits], {"center_point_box": 1}


@build("IsNaN")
def is_nan(t, op):
    yield "edges", [edges(t)], {}


@build("LSTM GRU RNN")
def recurrent(t, op):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        x, w, r, b = some(t, 3, 2, 4), C(some(t, count, gates * 3, 4, seed=2)), C(some(t, count, gates * 3, 3, seed=3)), C(some(t, count, 2 * gates * 3, seed=4))
        attributes = {"hidden_size": 3, "direction": direction}
        yield direction, [x, w, r, b], attributes, {"outputs": 1}
        yield f"{direction}_lengths", [x, w, r, b, C(np.array([3, 1], np.int32))], attributes, {"outputs": 1}
        yield f"{direction}_large", [x * TYPES[t](50), w, r, b], attributes, {"outputs": 1}
        if op == "GRU":
            yield f"{direction}_after", [x, w, r, b], {**attributes, "linear_before_reset": 1}, {"outputs": 1}
        yield f"{direction}_clip", [x, w, r, b], {**attributes, "clip": 0.5}, {"outputs": 1}
        acts = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["Sigmoid", "Relu"], "RNN": ["Relu"]}[op]
        yield f"{direction}_relu", [x, w, r, b], {**attributes, "activations": acts * count}, {"outputs": 1}


@build("Unique")
def unique(t, op):
    x = np.array([2, 1, 1, 3, 4, 3], TYPES[t])
    for is_sorted in (0, 1):
        yield f"sorted{is_sorted}", [x], {"sorted": is_sorted}, {"outputs": 4}


@build("RoiAlign MaxRoiPool")
def roi(t, op):
    x, rois = some(t, 1, 2, 6, 6), np.array([[0, 0, 3, 3], [1, 2, 5, 5]], np.float32)
    if op == "MaxRoiPool":
        yield "plain", [x, C(np.concatenate([np.zeros((2, 1), np.float32), rois], 1))], {"pooled_shape": [2, 2]}
        return
    for mode in ("avg", "max"):
        yield mode, [x, C(rois.astype(TYPES[t])), C([0, 0])], {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode}


@build("com.microsoft.BiasGelu")
def bias_gelu(t, op):
    yield "plain", [some(t, 2, 4), C(some(t, 4, seed=2))], {}


@build("com.microsoft.SkipLayerNormalization")
def skip_layer_norm(t, op):
    x, skip, gamma = some(t, 1, 3, 4), some(t, 1, 3, 4, seed=2), C(some(t, 4, seed=3))
    yield "plain", [x, skip, gamma], {}
    yield "beta", [x, skip, gamma, C(some(t, 4, seed=4)), C(some(t, 4, seed=5))], {}


@build("Dropout")
def dropout(t, op):
    yield "plain", [some(t, 2, 3)], {}
    yield "ratio", [some(t, 2, 3), C(np.array(0.5, np.float32))], {}


# Integers that need more than 32 bits between inputs and outputs that do not.
WIDE = {
    "mod": ("a = Mul x big; y = Mod a prime", {"big": 3_000_000_019, "prime": 1009}),
    "less": ("y = Less x big", {"big": 3_000_000_000}),
    "add_sub": ("a = Add x big; y = Sub a big", {"big": 5_000_000_000}),
    "div": ("a = Mul x big; y = Div a big", {"big": 5_000_000_000}),
}
