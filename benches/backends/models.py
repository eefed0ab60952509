#!/usr/bin/env python3
"""Writes the models for the backend benchmarks into a folder, with random weights from a fixed seed.

    pip install numpy onnx
    python models.py FOLDER

| model | architecture | input |
|---|---|---|
| `mlp` | 3 layers, 256 wide | `f32[batch, 64]` |
| `smallcnn` | 3 convolutions, a linear layer | `f32[batch, 1, 28, 28]` |
| `mobilenet_v2` | inverted residuals, width 1.0 | `f32[batch, 3, 224, 224]` |
| `resnet18` | basic blocks | `f32[batch, 3, 224, 224]` |
| `yolo_like` | backbone, top-down neck, three heads, SiLU | `f32[batch, 3, 320, 320]` |
| `former` | 4 encoder layers, 128 wide, 4 heads, 64 tokens | `f32[batch, 64, 128]` |
| `stream_gru` | a step of 80 features with its state | `f32[batch, 1, 80]`, `f32[1, batch, 128]` |

Weights are scaled so that activations keep their magnitude, as in trained models: denormals would distort the figures.
"""
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, name, seed):
        self.name, self.rng = name, np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def random(self, *shape, fan_in):
        return self.weight(self.rng.normal(0, np.sqrt(1.6 / fan_in), shape).astype(np.float32))

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"t{self.count + i}" for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x, inp, out, k=3, stride=1, groups=1, act=None):
        w = self.random(out, inp // groups, k, k, fan_in=inp // groups * k * k)
        b = self.weight(self.rng.normal(0, 0.1, out).astype(np.float32))
        x = self.add("Conv", x, w, b, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=groups)
        return self.act(x, act)

    def act(self, x, act):
        if act == "relu":
            return self.add("Relu", x)
        if act == "relu6":
            return self.add("Clip", x, self.weight(np.float32(0)), self.weight(np.float32(6)))
        if act == "silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        return x

    def gemm(self, x, inp, out, act=None):
        x = self.add("Gemm", x, self.random(inp, out, fan_in=inp), self.weight(np.zeros(out, np.float32)))
        return self.act(x, act)

    def matmul(self, x, inp, out):
        x = self.add("MatMul", x, self.random(inp, out, fan_in=inp))
        return self.add("Add", x, self.weight(np.zeros(out, np.float32)))

    def norm(self, x, n):
        return self.add("LayerNormalization", x, self.weight(np.ones(n, np.float32)), self.weight(np.zeros(n, np.float32)), axis=-1)

    def graph(self, inputs, outputs):
        """The graph of all nodes. Inputs and outputs have a shape, of floats, or an element type and a shape; outputs get names too."""
        rename = {old: new for old, (new, _) in outputs.items()}
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    names[i] = rename.get(name, name)
        typed = lambda name, of: helper.make_tensor_value_info(name, *(of if isinstance(of, tuple) else (TensorProto.FLOAT, of)))
        inputs = [typed(name, of) for name, of in inputs.items()]
        return helper.make_graph(self.nodes, self.name, inputs, [typed(name, of) for name, of in outputs.values()], self.weights)

    def save(self, folder, inputs, outputs):
        """Writes a model with the inputs and outputs of `graph`, and returns its path."""
        graph = self.graph(inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="limen")
        onnx.checker.check_model(model)
        path = folder / f"{self.name}.onnx"
        onnx.save(model, path)
        return path


def mlp(folder):
    b = Builder("mlp", 1)
    x = b.gemm("x", 64, 256, "relu")
    x = b.gemm(x, 256, 256, "relu")
    y = b.gemm(x, 256, 10)
    return b.save(folder, {"x": ["batch", 64]}, {y: ("y", ["batch", 10])})


def smallcnn(folder):
    b = Builder("smallcnn", 2)
    x = b.conv("x", 1, 8, act="relu")
    x = b.conv(x, 8, 16, stride=2, act="relu")
    x = b.conv(x, 16, 16, stride=2, act="relu")
    y = b.gemm(b.add("Flatten", x), 16 * 7 * 7, 10)
    return b.save(folder, {"x": ["batch", 1, 28, 28]}, {y: ("y", ["batch", 10])})


def head(b, x, channels, classes):
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return b.gemm(x, channels, classes)


def mobilenet_v2(folder):
    b = Builder("mobilenet_v2", 3)
    x, inp = b.conv("x", 3, 32, stride=2, act="relu6"), 32
    for expand, out, blocks, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for i in range(blocks):
            step, hidden = stride if i == 0 else 1, inp * expand
            h = b.conv(x, inp, hidden, k=1, act="relu6") if expand > 1 else x
            h = b.conv(h, hidden, hidden, stride=step, groups=hidden, act="relu6")
            h = b.conv(h, hidden, out, k=1)
            x, inp = (b.add("Add", x, h) if step == 1 and inp == out else h), out
    y = head(b, b.conv(x, 320, 1280, k=1, act="relu6"), 1280, 1000)
    return b.save(folder, {"x": ["batch", 3, 224, 224]}, {y: ("y", ["batch", 1000])})


def resnet18(folder):
    b = Builder("resnet18", 4)
    x = b.conv("x", 3, 64, k=7, stride=2, act="relu")
    x, inp = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for out, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        for step in (stride, 1):
            h = b.conv(b.conv(x, inp, out, stride=step, act="relu"), out, out)
            short = x if step == 1 and inp == out else b.conv(x, inp, out, k=1, stride=step)
            x, inp = b.add("Relu", b.add("Add", h, short)), out
    y = head(b, x, 512, 1000)
    return b.save(folder, {"x": ["batch", 3, 224, 224]}, {y: ("y", ["batch", 1000])})


def yolo_like(folder):
    b = Builder("yolo_like", 5)
    side = 320

    def block(x, n):
        left, right = b.add("Split", x, b.ints(n // 2, n // 2), outputs=2, axis=1)
        h = b.conv(b.conv(right, n // 2, n // 2, act="silu"), n // 2, n // 2, act="silu")
        return b.conv(b.add("Concat", left, b.add("Add", right, h), axis=1), n, n, k=1, act="silu")

    def up(x):
        return b.add("Resize", x, "", b.weight(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    x = b.conv("x", 3, 16, stride=2, act="silu")
    x = block(b.conv(x, 16, 32, stride=2, act="silu"), 32)
    p3 = block(b.conv(x, 32, 64, stride=2, act="silu"), 64)
    p4 = block(b.conv(p3, 64, 128, stride=2, act="silu"), 128)
    p5 = block(b.conv(p4, 128, 256, stride=2, act="silu"), 256)
    n4 = block(b.conv(b.add("Concat", up(p5), p4, axis=1), 384, 128, k=1, act="silu"), 128)
    n3 = block(b.conv(b.add("Concat", up(n4), p3, axis=1), 192, 64, k=1, act="silu"), 64)
    heads = []
    for x, n, stride in ((n3, 64, 8), (n4, 128, 16), (p5, 256, 32)):
        x = b.conv(b.conv(x, n, 64, act="silu"), 64, 24, k=1)
        cells = (side // stride) ** 2
        heads.append(b.add("Transpose", b.add("Reshape", x, b.ints(0, 24, cells)), perm=[0, 2, 1]))
    y = b.add("Sigmoid", b.add("Concat", *heads, axis=1))
    return b.save(folder, {"x": ["batch", 3, side, side]}, {y: ("y", ["batch", 2100, 24])})


def former(folder):
    b = Builder("former", 6)
    tokens, width, heads = 64, 128, 4
    x = "x"
    for _ in range(4):
        h = b.norm(x, width)
        split = lambda t, perm: b.add("Transpose", b.add("Reshape", t, b.ints(0, tokens, heads, width // heads)), perm=perm)
        q = split(b.matmul(h, width, width), [0, 2, 1, 3])
        k = split(b.matmul(h, width, width), [0, 2, 3, 1])
        v = split(b.matmul(h, width, width), [0, 2, 1, 3])
        a = b.add("Div", b.add("MatMul", q, k), b.weight(np.float32(np.sqrt(width / heads))))
        a = b.add("MatMul", b.add("Softmax", a, axis=-1), v)
        a = b.add("Reshape", b.add("Transpose", a, perm=[0, 2, 1, 3]), b.ints(0, tokens, width))
        x = b.add("Add", x, b.matmul(a, width, width))
        h = b.matmul(b.norm(x, width), width, 4 * width)
        e = b.add("Erf", b.add("Div", h, b.weight(np.float32(np.sqrt(2)))))
        h = b.add("Mul", b.add("Mul", h, b.add("Add", e, b.weight(np.float32(1)))), b.weight(np.float32(0.5)))
        x = b.add("Add", x, b.matmul(h, 4 * width, width))
    y = b.matmul(b.add("ReduceMean", b.norm(x, width), axes=[1], keepdims=0), width, 16)
    return b.save(folder, {"x": ["batch", tokens, width]}, {y: ("y", ["batch", 16])})


def stream_gru(folder):
    b = Builder("stream_gru", 7)
    features, hidden = 80, 128
    x = b.add("Transpose", "x", perm=[1, 0, 2])
    w = b.random(1, 3 * hidden, features, fan_in=features)
    r = b.random(1, 3 * hidden, hidden, fan_in=4 * hidden)
    bias = b.weight(np.zeros((1, 6 * hidden), np.float32))
    steps, state = b.add("GRU", x, w, r, bias, "", "state", outputs=2, hidden_size=hidden, linear_before_reset=1)
    y = b.add("Squeeze", steps, b.ints(0, 1))
    y = b.gemm(y, hidden, 8)
    return b.save(folder, {"x": ["batch", 1, features], "state": [1, "batch", hidden]},
                  {y: ("y", ["batch", 8]), state: ("next_state", [1, "batch", hidden])})


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    for make in (mlp, smallcnn, mobilenet_v2, resnet18, yolo_like, former, stream_gru):
        path = make(folder)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
