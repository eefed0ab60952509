"""Write `classifier.onnx` and `verify.npz`: a MobileNetV2-shaped classifier.

The graph measures a pipeline, not a classifier, so the weights are random. Random
weights alone would let activations die out or explode over fifty layers,
so every convolution is scaled, channel by channel, to zero mean and unit
variance on a few of the graph's own frames. This is what batch normalisation
leaves behind once it is folded into the weights. The last layer is centred in
the same way, so that the logits show how a frame differs from the average frame.

Two more choices keep the network steady, so that a resize which rounds one pixel
the other way does not change the winner: filters lean towards blurring, and
residual branches are damped.

    pip install numpy pillow onnx onnxruntime
    python make_model.py && python expected.py

Input  `image`  f32[batch, 3, 224, 224], normalised RGB.
Output `logits` f32[batch, 100].
"""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from expected import FRAMES, HERE, SIDE, frame, load_model, preprocess

# Picked among six: the winner changes often over the frames and is seldom close.
SEED = 3
CLASSES = 100
# MobileNetV2 at width 0.35, with its channel counts rounded to multiples of 8.
STEM, HEAD = 16, 1024
# (expansion, output channels, blocks, stride of the first block)
STAGES = [
    (1, 8, 1, 1),
    (6, 8, 2, 2),
    (6, 16, 3, 2),
    (6, 24, 4, 2),
    (6, 32, 3, 1),
    (6, 56, 3, 2),
    (6, 112, 1, 1),
]
# Standard deviation of a logit over the frames. It decides how sure the softmax is.
LOGIT_STD = 4.0
# How much of a 3x3 filter is one common value rather than nine independent ones.
BLUR = 1.5
# Factor on what a residual block adds to its input.
BRANCH_GAIN = 0.3


class Builder:
    """Collects nodes, and runs each as it is added on the sample batch.

    The activations of the sample are needed to scale the next layer; running the
    layers one by one with onnxruntime gives them without a second framework.
    """

    def __init__(self, rng, sample):
        self.rng = rng
        self.nodes, self.weights = [], {}
        self.values = {"image": sample}

    def add(self, op, inputs, output, **attributes):
        node = helper.make_node(op, inputs, [output], **attributes)
        self.nodes.append(node)
        self.values[output] = self.run(node)
        return output

    def run(self, node):
        names = [name for name in node.input if name in self.values]
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.values[n].shape) for n in names],
            [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
            [numpy_helper.from_array(self.weights[n], n) for n in node.input if n in self.weights],
        )
        session = onnxruntime.InferenceSession(model_of(graph).SerializeToString())
        return session.run(None, {name: self.values[name] for name in names})[0]

    def conv(self, x, name, channels, kernel, stride=1, depthwise=False, relu6=True, gain=1.0):
        inputs = self.values[x].shape[1]
        w = self.rng.standard_normal((channels, 1 if depthwise else inputs, kernel, kernel))
        if kernel > 1:
            w += BLUR * self.rng.standard_normal((*w.shape[:2], 1, 1))
        w = (w / np.sqrt(w[0].size)).astype(np.float32)
        attributes = dict(
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=inputs if depthwise else 1,
        )
        self.weights[name + ".w"] = w
        self.weights[name + ".b"] = np.zeros(channels, np.float32)
        node = helper.make_node("Conv", [x, name + ".w", name + ".b"], [name], **attributes)
        raw = self.run(node).astype(np.float64)
        mean, var = raw.mean(axis=(0, 2, 3)), raw.var(axis=(0, 2, 3))
        # The floor keeps a channel that hardly varies from being blown up.
        scale = gain / np.sqrt(var + 0.01 * var.mean())
        self.weights[name + ".w"] = (w * scale[:, None, None, None]).astype(np.float32)
        self.weights[name + ".b"] = (-mean * scale).astype(np.float32)
        self.nodes.append(node)
        self.values[name] = self.run(node)
        return self.add("Clip", [name, "zero", "six"], name + ".relu6") if relu6 else name

    def block(self, x, name, expansion, channels, stride):
        """An inverted residual block: widen, filter each channel, narrow again."""
        inputs = self.values[x].shape[1]
        y = x
        if expansion != 1:
            y = self.conv(y, name + ".expand", inputs * expansion, 1)
        y = self.conv(y, name + ".depthwise", inputs * expansion, 3, stride, depthwise=True)
        residual = stride == 1 and inputs == channels
        gain = BRANCH_GAIN if residual else 1.0
        y = self.conv(y, name + ".project", channels, 1, relu6=False, gain=gain)
        if residual:
            y = self.add("Add", [x, y], name + ".add")
        return y


def model_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def build():
    rng = np.random.default_rng(SEED)
    sample = np.concatenate([preprocess(frame(seq)) for seq in range(0, FRAMES, 6)])
    net = Builder(rng, sample)
    net.weights["zero"] = np.array(0, np.float32)
    net.weights["six"] = np.array(6, np.float32)

    x = net.conv("image", "stem", STEM, 3, 2)
    for i, (expansion, channels, blocks, stride) in enumerate(STAGES):
        for j in range(blocks):
            x = net.block(x, f"stage{i}.block{j}", expansion, channels, stride if j == 0 else 1)
    x = net.conv(x, "head", HEAD, 1)
    x = net.add("GlobalAveragePool", [x], "pool")
    x = net.add("Flatten", [x], "features", axis=1)

    features = net.values[x].astype(np.float64)
    mean = features.mean(axis=0)
    w = rng.standard_normal((CLASSES, HEAD))
    # Each class gets the same spread over the frames, so that none wins always.
    w *= LOGIT_STD / ((features - mean) @ w.T).std(axis=0)[:, None]
    net.weights["classes.w"] = w.astype(np.float32)
    net.weights["classes.b"] = (-mean @ w.T).astype(np.float32)
    net.add("Gemm", [x, "classes.w", "classes.b"], "logits", transB=1)

    graph = helper.make_graph(
        net.nodes,
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in net.weights.items()],
    )
    return model_of(graph)


def main():
    model = build()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "classifier.onnx")

    session = load_model()
    images = np.concatenate([preprocess(frame(seq)) for seq in range(8)])
    (logits8,) = session.run(["logits"], {"image": images})
    (logits1,) = session.run(["logits"], {"image": images[:1]})
    assert np.allclose(logits8[:1], logits1, atol=1e-3)
    # Frame 0 is a reference for other runtimes.
    np.savez_compressed(HERE / "verify.npz", image=images[:1], logits=logits1)
    print(f"{sum(w.size for w in map(numpy_helper.to_array, model.graph.initializer))} weights")


if __name__ == "__main__":
    main()
