"""Operators that reduce dims, or sort along them."""
import itertools

import numpy as np

from .values import C, FLOATS, INF, INTS, NAN, TYPES, build, empty, scalar, some

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


@build("CumSum")
def cum_sum(t, op):
    x = some(t, 3, 4)
    for axis, exclusive, reverse in itertools.product((0, 1, -1), (0, 1), (0, 1)):
        yield f"axis{axis}e{exclusive}r{reverse}", [x, C(axis)], {"exclusive": exclusive, "reverse": reverse}
    if t in FLOATS:
        yield "specials", [np.array([1, INF, 2, -INF, 3], TYPES[t]), C(0)], {}


@build("Unique")
def unique(t, op):
    x = np.array([2, 1, 1, 3, 4, 3], TYPES[t])
    for is_sorted in (0, 1):
        yield f"sorted{is_sorted}", [x], {"sorted": is_sorted}, {"outputs": 4}
