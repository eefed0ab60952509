"""Models of one operator with none of its optional attributes and inputs, for `operators.py`: left out, or given as `''`.

ONNX has defaults for all of them, so a runtime that claims an operator has to run these. The nodes have no names either.
"""
import numpy as np
import onnx
from onnx import helper

from .values import C, ONNX, TYPES, some

NAMES = {np.dtype(v): k for k, v in TYPES.items()}
# A runtime that claims the operator has to run the cases with this label, unless UNSUPPORTED says why not.
LABEL = "optional"
UNSUPPORTED = [
    ("tract", r"Compress-.*", "tract reads it, and cannot run it"),
    ("wgpu|cuda", r"Resize-.*_sizes", "no program rounds a half down to the nearest element, by a fraction"),
]


def f(*shape, seed=1):
    return some("f32", *shape, seed=seed)


def c(*shape, seed=2):
    return C(f(*shape, seed=seed))


def one(value):
    """A constant number."""
    return C(np.array(value, np.float32))


def u(*shape):
    return some("u8", *shape)


X2, X3, X4, I = f(3, 4), f(2, 3, 4), f(1, 2, 6, 6), C([1])
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6]]], np.float32)
PADS = C([0, 1, 0, 2])
REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
POOLS = [({"kernel_shape": [3, 3]}, "plain"), ({"kernel_shape": [2, 2], "strides": [2, 2]}, "strides")]

# Operator, label, inputs, and what else is not the default: attributes, outputs of which `y` is the result, the version of the operator set.
CASES = [
    ("Clip", "none", [X2], {}),
    ("Clip", "max", [X2, None, one(1)], {}),
    ("Clip", "min", [X2, one(-1), None], {}),
    ("Clip", "empty", [X2, None, None], {}),
    ("Resize", "scales", [X4, None, C(np.array([1, 1, 2, 2], np.float32))], {}),
    ("Resize", "sizes", [X4, None, None, C([1, 2, 9, 9])], {}),
    ("Resize", "roi", [X4, C(np.zeros(0, np.float32)), C(np.array([1, 1, 2, 2], np.float32)), None], {}),
    ("Upsample", "mode", [X4, C(np.array([1, 1, 2, 2], np.float32))], {}, ["y"], 9),
    ("Dropout", "none", [X2], {}),
    ("Dropout", "empty", [X2, None, None], {}),
    ("Dropout", "ratio", [X2, one(0.5), None], {}),
    ("Dropout", "old", [X2], {}, ["y"], 11),
    ("Pad", "value", [X2, PADS], {}),
    ("Pad", "empty", [X2, PADS, None, None], {}),
    ("Pad", "reflect", [X2, PADS, None], {"mode": "reflect"}),
    ("Slice", "none", [X2, C([1, 0]), C([3, 3])], {}),
    ("Slice", "empty", [X2, C([1, 0]), C([3, 3]), None, None], {}),
    ("Slice", "steps", [X2, C([0, 0]), C([3, 4]), None, C([2, 2])], {}),
    ("Slice", "axes", [X2, C([1]), C([3]), C([1]), None], {}),
    ("Slice", "old", [X2], {"starts": [1], "ends": [3]}, ["y"], 9),
    ("Gemm", "none", [X2, c(4, 5)], {}),
    ("Gemm", "empty", [X2, c(4, 5), None], {}),
    ("BatchNormalization", "none", [X3, c(3), c(3), c(3), C(np.abs(f(3)) + 1)], {}),
    ("InstanceNormalization", "none", [X3, c(3), c(3)], {}),
    ("LayerNormalization", "none", [X3, c(4)], {}),
    ("LayerNormalization", "empty", [X3, c(4), None], {}),
    ("RMSNormalization", "none", [X3, c(4)], {}, ["y"], 23),
    ("LpNormalization", "none", [np.abs(X2) + 1], {}),
    ("MeanVarianceNormalization", "none", [X4], {}),
    ("LRN", "size", [X4], {"size": 3}),
    ("Conv", "none", [X4, c(3, 2, 3, 3)], {}),
    ("Conv", "empty", [X4, c(3, 2, 3, 3), None], {}),
    ("Conv", "input", [X4, f(3, 2, 3, 3, seed=2)], {}),
    ("Conv", "one", [f(1, 2, 9), c(3, 2, 3), None], {}),
    ("ConvTranspose", "none", [X4, c(2, 3, 3, 3)], {}),
    ("ConvTranspose", "empty", [X4, c(2, 3, 3, 3), None], {}),
    ("ConvTranspose", "input", [X4, f(2, 3, 3, 3, seed=2)], {}),
    ("ConvInteger", "none", [u(1, 2, 6, 6), C(u(3, 2, 3, 3))], {}),
    ("ConvInteger", "empty", [u(1, 2, 6, 6), C(u(3, 2, 3, 3)), None, None], {}),
    ("ConvInteger", "weights", [u(1, 2, 6, 6), C(u(3, 2, 3, 3)), None, C(np.array(3, np.uint8))], {}),
    ("MatMulInteger", "none", [u(3, 4), C(u(4, 5))], {}),
    ("MatMulInteger", "empty", [u(3, 4), C(u(4, 5)), None, None], {}),
    ("MatMulInteger", "second", [u(3, 4), C(u(4, 5)), None, C(np.array(3, np.uint8))], {}),
    ("GlobalLpPool", "none", [X4], {}),
    ("MaxPool", "indices", [X4], {"kernel_shape": [2, 2]}, ["y", ""]),
    ("TopK", "values", [X2, C([2])], {}, ["y", ""]),
    ("TopK", "indices", [X2, C([2])], {}, ["", "y"]),
    ("Squeeze", "none", [f(1, 3, 1, 4)], {}),
    ("Squeeze", "empty", [f(1, 3, 1, 4), None], {}),
    ("Squeeze", "old", [f(1, 3, 1, 4)], {}, ["y"], 11),
    ("Softmax", "none", [X3], {}),
    ("LogSoftmax", "none", [X3], {}),
    ("Hardmax", "none", [X3], {}),
    ("Flatten", "none", [X3], {}),
    ("Transpose", "none", [X3], {}),
    ("Split", "none", [f(4, 3)], {"num_outputs": 2}, ["y", "z"]),
    ("Split", "empty", [f(4, 3), None], {"num_outputs": 2}, ["y", "z"]),
    ("Split", "equal", [f(4, 3)], {}, ["y", "z"], 13),
    ("Split", "equal_empty", [f(4, 3), None], {}, ["y", "z"], 13),
    ("Split", "old", [f(4, 3)], {}, ["y", "z"], 11),
    ("QuantizeLinear", "none", [X2, one(0.1)], {}),
    ("QuantizeLinear", "empty", [X2, one(0.1), None], {}),
    ("DequantizeLinear", "none", [u(3, 4), one(0.1)], {}),
    ("DequantizeLinear", "empty", [u(3, 4), one(0.1), None], {}),
    ("QLinearConv", "bias", [u(1, 2, 6, 6), one(0.1), C(np.array(3, np.uint8)), C(u(3, 2, 3, 3)), one(0.1), C(np.array(3, np.uint8)), one(1.3),
                             C(np.array(9, np.uint8)), None], {}),
    ("NonMaxSuppression", "none", [BOXES, SCORES], {}),
    ("NonMaxSuppression", "zero", [BOXES, SCORES, C([0])], {}),
    ("NonMaxSuppression", "most", [BOXES, SCORES, C([2])], {}),
    ("NonMaxSuppression", "empty", [BOXES, SCORES, C([2]), None, None], {}),
    ("NonMaxSuppression", "score", [BOXES, SCORES, C([2]), None, C(np.array([0.7], np.float32))], {}),
    ("NonMaxSuppression", "iou", [BOXES, SCORES, C([2]), C(np.array([0.5], np.float32)), None], {}),
    ("GridSample", "none", [X4, C(f(1, 3, 3, 2, seed=3) / 4)], {}),
    ("OneHot", "none", [some("i64", 3) % 4, C(4), C(np.array([0, 1], np.float32))], {}),
    ("CumSum", "none", [X2, C(1)], {}),
    ("EyeLike", "none", [X2], {}),
    ("ArgMax", "none", [f(3, 4, seed=5)], {}),
    ("ArgMin", "none", [f(3, 4, seed=5)], {}),
    ("Gather", "none", [X2, C([1, 0])], {}),
    ("GatherElements", "none", [X2, C([[1, 0, 2, 1]])], {}),
    ("GatherND", "none", [X2, C([[1, 0], [2, 1]])], {}),
    ("ScatterElements", "none", [X2, C([[1, 0, 2, 1]]), c(1, 4)], {}),
    ("ScatterND", "none", [X2, C([[1], [0]]), c(2, 4)], {}),
    ("DepthToSpace", "none", [f(1, 4, 2, 2)], {"blocksize": 2}),
    ("Compress", "none", [X2, C(np.array([True, False, True, True]))], {}),
    ("Trilu", "none", [X2], {}),
    ("Trilu", "empty", [X2, None], {}),
    ("ConstantOfShape", "none", [C([2, 3])], {}),
    ("Shape", "none", [X2], {}),
    ("Mod", "none", [some("i32", 6), C(np.array(3, np.int32))], {}),
    ("Gelu", "none", [X2], {}),
    ("RoiAlign", "none", [X4, C(np.array([[0, 0, 4, 4]], np.float32)), C([0])], {}),
    ("CenterCropPad", "none", [X2, C([5, 2])], {}),
    ("Unique", "none", [f(6)], {}),
    ("Unique", "counts", [f(6)], {}, ["", "", "", "y"]),
    ("ReverseSequence", "none", [X2, C([1, 2, 3, 1])], {}),
    ("com.microsoft.SkipLayerNormalization", "empty", [f(1, 3, 4), f(1, 3, 4, seed=2), c(4), None, None], {}),
]
CASES += [(f"Reduce{name}", label, inputs, {}) for name in REDUCTIONS for label, inputs in
          (("none", [np.abs(X2) + 1]), ("empty", [np.abs(X2) + 1, None]))]
CASES += [(f"Reduce{name}", "old", [np.abs(X2) + 1], {}, ["y"], 11) for name in REDUCTIONS]
CASES += [(op, label, [X4], attributes) for op in ("MaxPool", "AveragePool", "LpPool") for attributes, label in POOLS]
for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    W, R = c(1, gates * 3, 4), c(1, gates * 3, 3, seed=3)
    x = f(2, 1, 4) / 4
    rest = 2 if op == "LSTM" else 1
    CASES += [
        (op, "none", [x, W, R], {}),
        (op, "empty", [x, W, R] + [None] * (2 + rest) + [None] * (op == "LSTM"), {}),
        (op, "size", [x, W, R, None], {"hidden_size": 3}),
        (op, "start", [x, W, R, None, None, c(1, 1, 3)] + [None] * (rest - 1), {"hidden_size": 3}),
        (op, "last", [x, W, R], {"hidden_size": 3}, ["", "y"]),
        (op, "input", [x, f(1, gates * 3, 4, seed=2), f(1, gates * 3, 3, seed=3)], {}),
    ]


def optional_cases():
    """Names, models and what a call gives them."""
    for op, label, inputs, attributes, *more in CASES:
        outputs, opset = (more + [["y"], 21][len(more):])[:2] if len(more) < 2 else more
        domain, kind = op.rsplit(".", 1) if "." in op else ("", op)
        names, ports, weights, feeds = [], [], [], {}
        for at, value in enumerate(inputs):
            names.append("" if value is None else f"x{at}")
            if isinstance(value, C):
                weights.append(onnx.numpy_helper.from_array(value.array, f"x{at}"))
            elif value is not None:
                ports.append(helper.make_tensor_value_info(f"x{at}", ONNX[NAMES[value.dtype]], value.shape))
                feeds[f"x{at}"] = value
        node = helper.make_node(kind, names, outputs, domain=domain, **attributes)
        if not ports:
            ports, feeds = [helper.make_tensor_value_info("unused", 1, [1])], {"unused": np.zeros(1, np.float32)}
        result = helper.make_tensor_value_info("y", 1, None) if domain else onnx.ValueInfoProto(name="y")
        graph = helper.make_graph([node], "g", ports, [result], weights)
        opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        yield f"{op}-{NAMES[feeds[ports[0].name].dtype]}-{LABEL}_{label}", helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds
