"""Operators that move elements, and shapes."""
import itertools

import numpy as np

from .values import C, FLOATS, NAN, TYPES, build, edges, empty, other, scalar, some


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


@build("Trilu")
def trilu(t, op):
    for upper, k in itertools.product((0, 1), (None, 0, 1, -1, 5, -5)):
        yield f"u{upper}k{k}", [other(some(t, 2, 3, 4))] + ([] if k is None else [C(k)]), {"upper": upper}


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


@build("ReverseSequence")
def reverse_sequence(t, op):
    yield "time", [some(t, 4, 3), C([1, 4, 2])], {"batch_axis": 1, "time_axis": 0}
    yield "batch", [some(t, 3, 4), C([1, 4, 2])], {"batch_axis": 0, "time_axis": 1}


@build("Dropout")
def dropout(t, op):
    yield "plain", [some(t, 2, 3)], {}
    yield "ratio", [some(t, 2, 3), C(np.array(0.5, np.float32))], {}
