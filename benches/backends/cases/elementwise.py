"""Operators on each element, and casts."""
import numpy as np

from .values import C, FLOATS, INF, INTS, NAN, ONNX, TYPES, build, edges, empty, other, scalar, some

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


@build("IsNaN")
def is_nan(t, op):
    yield "edges", [edges(t)], {}
