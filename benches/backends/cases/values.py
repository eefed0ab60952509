"""The element types of the cases, their edge values, and the register of their builders."""
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
