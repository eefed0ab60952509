"""Products of matrices, quantized operators and recurrent ones."""
import itertools

import numpy as np

from .values import C, FLOATS, INF, TYPES, build, edges, other, some


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
        # Rounded to even only where the quotient is exact, as the product with a reciprocal is not.
        for odd in (0.7, 0.0137, 2.9):
            halves = ((np.arange(-60, 60) + 0.5).astype(np.float32) * np.float32(odd)).astype(np.float32)
            yield f"halves{odd}", [halves, C(np.array(odd, np.float32)), C(np.array(128, np.uint8))], {}
        odd = np.array([0.7, 0.0137, 2.9], np.float32)
        halves = ((np.arange(-60, 60) + 0.5).astype(np.float32).reshape(1, 40, 3) * odd).astype(np.float32)
        zeros = C(np.array([128, 0, 200], np.uint8))
        yield "halveslast", [halves, C(odd), zeros], {"axis": -1}
        yield "halvesaxis", [halves.transpose(0, 2, 1).copy(), C(odd), zeros], {"axis": 1}
        yield "halvesgiven", [halves, odd, zeros], {"axis": 2}
        same = C(np.full(3, 0.7, np.float32))
        yield "halvessame", [(halves / odd * np.float32(0.7)).astype(np.float32), same, C(np.full(3, 128, np.uint8))], {"axis": 2}


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
    yield "odd", [x, f(0.3), z(1), C(w), f(0.7), z(2), f(0.9), z(3)], {}


@build("QLinearConv")
def qlinear_conv(t, op):
    x, w = some(t, 1, 2, 5, 5), some(t, 3, 2, 3, 3, seed=2)
    f, z = (lambda n: C(np.array(n, np.float32))), (lambda n: C(np.array(n, TYPES[t])))
    yield "plain", [x, f(0.5), z(1), C(w), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [3, 3]}
    yield "pads", [x, f(0.5), z(1), C(w), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1]}
    yield "odd", [x, f(0.3), z(1), C(w), f(0.07), z(0), f(0.9), z(3)], {"kernel_shape": [3, 3]}
    yield "lower", [x, f(0.5), z(1), C(some(t, 3, 2, 2, 2, seed=2)), f(0.25), z(0), f(0.5), z(3)], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}


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


@build("com.microsoft.BiasGelu")
def bias_gelu(t, op):
    yield "plain", [some(t, 2, 4), C(some(t, 4, seed=2))], {}


@build("com.microsoft.SkipLayerNormalization")
def skip_layer_norm(t, op):
    x, skip, gamma = some(t, 1, 3, 4), some(t, 1, 3, 4, seed=2), C(some(t, 4, seed=3))
    yield "plain", [x, skip, gamma], {}
    yield "beta", [x, skip, gamma, C(some(t, 4, seed=4)), C(some(t, 4, seed=5))], {}
