"""Train the digit classifier; write `digits.onnx` and `verify.npz` here.

The model is a small convolutional network over 8x8 greyscale digits. It is
trained with JAX on every image that `export.py` does not hold out, then written
as ONNX by hand, and finally measured with onnxruntime on the held-out images.

    pip install numpy pillow scikit-learn "jax[cpu]" onnx onnxruntime
    python train.py

Input  `image`  f32[batch, 1, 8, 8], pixel / 255.
Output `logits` f32[batch, 10].
"""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from export import HERE, load_split

SEED = 20
EPOCHS = 80
BATCH = 64
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-4
# Weights are averaged over the last steps of training: it costs nothing and
# takes away most of the noise of the final updates.
AVERAGE_DECAY = 0.995


def init_params(rng):
    """He-initialised weights, in the layouts that ONNX Conv and Gemm expect."""

    def he(*shape):
        fan_in = np.prod(shape[1:])
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    def zeros(n):
        return np.zeros(n, np.float32)

    return {
        "conv1.w": he(16, 1, 3, 3), "conv1.b": zeros(16),
        "conv2.w": he(32, 16, 3, 3), "conv2.b": zeros(32),
        "conv3.w": he(32, 32, 3, 3), "conv3.b": zeros(32),
        "fc1.w": he(48, 512), "fc1.b": zeros(48),
        "fc2.w": he(10, 48), "fc2.b": zeros(10),
    }  # fmt: skip


def forward(params, x, dropout_key=None):
    def conv(name, x):
        y = jax.lax.conv(x, params[name + ".w"], (1, 1), "SAME")
        return jax.nn.relu(y + params[name + ".b"][None, :, None, None])

    x = conv("conv1", x)
    x = conv("conv2", x)
    x = conv("conv3", x)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(x.shape[0], -1)
    if dropout_key is not None:
        x = x * jax.random.bernoulli(dropout_key, 0.7, x.shape) / 0.7
    x = jax.nn.relu(x @ params["fc1.w"].T + params["fc1.b"])
    return x @ params["fc2.w"].T + params["fc2.b"]


@jax.jit
def train_step(params, average, m, v, step, x, y, key):
    """One AdamW step with a cosine schedule from LEARNING_RATE down to zero."""

    def loss(params):
        logp = jax.nn.log_softmax(forward(params, x, key))
        return -jnp.mean(jnp.sum(y * logp, axis=1))

    value, grads = jax.value_and_grad(loss)(params)
    progress, count = step
    rate = LEARNING_RATE * 0.5 * (1 + jnp.cos(jnp.pi * progress))
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    m_scale, v_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)

    def update(p, m, v):
        decay = WEIGHT_DECAY * p if p.ndim > 1 else 0.0
        return p - rate * (m * m_scale / (jnp.sqrt(v * v_scale) + 1e-8) + decay)

    params = jax.tree.map(update, params, m, v)
    average = jax.tree.map(lambda a, p: AVERAGE_DECAY * a + (1 - AVERAGE_DECAY) * p, average, params)
    return params, average, m, v, value


def augment(rng, images):
    """Shift each image by at most one pixel, and vary its brightness a little.

    The digits fill the 8x8 frame, so most images stay where they are: a shift
    cuts a row or a column off.
    """
    n = len(images)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows = rng.choice([0, 1, 2], n, p=[0.15, 0.7, 0.15])
    cols = rng.choice([0, 1, 2], n, p=[0.15, 0.7, 0.15])
    out = np.stack([padded[i, r : r + 8, c : c + 8] for i, (r, c) in enumerate(zip(rows, cols))])
    gain = rng.uniform(0.85, 1.15, (n, 1, 1))
    noise = rng.normal(0, 0.03, out.shape)
    return np.clip(out * gain + noise, 0, 1).astype(np.float32)


def train(pixels, labels):
    rng = np.random.default_rng(SEED)
    images = pixels.astype(np.float32) / 255
    # Label smoothing keeps the few badly written digits from dominating.
    targets = np.eye(10, dtype=np.float32)[labels] * 0.95 + 0.005
    params = init_params(rng)
    average = params
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    key = jax.random.key(SEED)
    steps = len(images) // BATCH
    count = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        for i in range(steps):
            rows = order[i * BATCH : (i + 1) * BATCH]
            x = augment(rng, images[rows])[:, None]
            count += 1
            step = (count / (steps * EPOCHS), count)
            params, average, m, v, loss = train_step(
                params, average, m, v, step, x, targets[rows], jax.random.fold_in(key, count)
            )
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {float(loss):.4f}")
    return {name: np.asarray(value) for name, value in average.items()}


def write_onnx(params, path):
    nodes, x = [], "image"
    for name in ["conv1", "conv2", "conv3"]:
        nodes.append(
            helper.make_node(
                "Conv", [x, name + ".w", name + ".b"], [name], kernel_shape=[3, 3], pads=[1, 1, 1, 1]
            )
        )
        nodes.append(helper.make_node("Relu", [name], [name + ".relu"]))
        x = name + ".relu"
    nodes += [
        helper.make_node("MaxPool", [x], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flat"], axis=1),
        helper.make_node("Gemm", ["flat", "fc1.w", "fc1.b"], ["fc1"], transB=1),
        helper.make_node("Relu", ["fc1"], ["fc1.relu"]),
        helper.make_node("Gemm", ["fc1.relu", "fc2.w", "fc2.b"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value, name) for name, value in params.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main():
    train_pixels, train_labels, held_pixels, held_labels = load_split()
    params = train(train_pixels, train_labels)
    write_onnx(params, HERE / "digits.onnx")

    session = onnxruntime.InferenceSession(HERE / "digits.onnx", providers=["CPUExecutionProvider"])
    image = (held_pixels.astype(np.float32) / 255)[:, None]
    (logits,) = session.run(["logits"], {"image": image})
    right = int((logits.argmax(axis=1) == held_labels).sum())
    print(f"held-out accuracy {right}/{len(held_labels)} = {right / len(held_labels):.4f}")

    # The first eight held-out digits are a reference for other runtimes.
    (logits8,) = session.run(["logits"], {"image": image[:8]})
    (logits1,) = session.run(["logits"], {"image": image[:1]})
    assert np.allclose(logits8[:1], logits1, atol=1e-4)
    np.savez_compressed(HERE / "verify.npz", image=image[:8], logits=logits8)


if __name__ == "__main__":
    main()
