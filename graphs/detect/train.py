"""Train the shape detector; write `detector.onnx`, `verify.npz`, `expected.json`.

The scenes are generated: `scene` below gives the same bytes and boxes as `render`
in `nodes/core/src/pattern/scene.rs`, which the graph runs. The detector learns on scenes of
seed 1, is watched on seed 2, and is measured on the first 200 scenes of seed 7,
which are those that the graph shows it.

    pip install numpy "jax[cpu]" onnx onnxruntime
    python train.py            (about six minutes on two cores)

Input  `image`  f32[batch, 3, 192, 256], pixel / 255.
Output `scores` f32[batch, 768, 3], one probability per cell and class.
Output `boxes`  f32[batch, 768, 4], the distances in pixels from the cell's centre
                to the left, top, right and bottom edge of its object.

The cells lie 8 pixels apart and are numbered row by row: cell `row * 32 + col` has
its centre at ((col + 0.5) * 8, (row + 0.5) * 8).
"""

import json
from pathlib import Path
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, CLASSES = 256, 192, 3
STRIDE = 8
COLS, ROWS = WIDTH // STRIDE, HEIGHT // STRIDE
CELLS = COLS * ROWS

TRAIN_SEED, WATCH_SEED, GRAPH_SEED = 1, 2, 7
STEPS, BATCH = 1500, 16
LEARNING_RATE = 2e-3

# How the graph turns the outputs into detections, and how these are judged.
MIN_SCORE, MAX_OVERLAP, MAX_BOXES, MATCH = 0.4, 0.5, 300, 0.5
EXPECTED_FRAMES = 200

# ---------------------------------------------------------------------------
# Scenes: the twin of nodes/core/src/pattern/scene.rs. A change in one needs the same change
# in the other; the checksum, which the tests there assert too, keeps them in step.

CHECKSUM = 0x0A63_C8C8_8C0A_C248
MAX_OBJECTS, SIDE, TRIES = 5, (20, 56), 20
MASK = (1 << 64) - 1


class SplitMix64:
    def __init__(self, state):
        self.state = state

    def next(self):
        self.state = (self.state + 0x9E37_79B9_7F4A_7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
        return z ^ (z >> 31)

    def between(self, low, high):
        """A number from `low` to `high`, both included."""
        return low + (((self.next() >> 32) * (high - low + 1)) >> 32)


def collides(a, b):
    """Whether the intersection over union of two areas is above one tenth."""
    (ax, ay, aside), (bx, by, bside) = a, b
    shared_x = max(0, min(ax + aside, bx + bside) - max(ax, bx))
    shared_y = max(0, min(ay + aside, by + bside) - max(ay, by))
    shared = shared_x * shared_y
    return shared * 10 > aside**2 + bside**2 - shared


def shape_mask(shape, side):
    """Which pixels of its area a shape fills, bool[side, side]."""
    # Distances of pixel centres from the axis, in half pixels to stay whole.
    from_axis = np.abs(2 * np.arange(side) + 1 - side)
    if shape == 0:
        return np.ones((side, side), bool)
    if shape == 1:
        return from_axis[None, :] ** 2 + from_axis[:, None] ** 2 <= side**2
    return from_axis[None, :] <= np.arange(side)[:, None] + 1


def scene(seed, frame, width=WIDTH, height=HEIGHT):
    """Return the pixels u8[height, width, 3] and the boxes f32[n, 6]."""
    random = SplitMix64(SplitMix64(seed).next() ^ frame)
    base = np.array([random.between(16, 64) for _ in range(3)], np.uint32)
    noise = np.uint32(random.next() >> 32)
    # Products of arrays wrap around at 32 bits, as they do on the other side.
    hashed = (np.arange(width * height, dtype=np.uint32) ^ noise) * np.uint32(0x9E37_79B1)
    hashed = (hashed ^ (hashed >> 15)) * np.uint32(0x85EB_CA77)
    hashed ^= hashed >> 13
    grain = (hashed[:, None] >> np.array([0, 8, 16], np.uint32)) & 31
    pixels = (base + grain).astype(np.uint8).reshape(height, width, 3)

    areas, boxes = [], []
    for _ in range(random.between(1, MAX_OBJECTS)):
        shape = random.between(0, 2)
        side = random.between(*SIDE)
        strong = random.between(0, 2)
        weak = (strong + random.between(1, 2)) % 3
        colour = np.zeros(3, np.uint8)
        colour[strong] = random.between(200, 255)
        colour[weak] = random.between(0, 40)
        colour[3 - strong - weak] = random.between(0, 255)
        for _ in range(TRIES):
            x = random.between(0, width - side)
            y = random.between(0, height - side)
            if not any(collides((x, y, side), other) for other in areas):
                break
        else:
            continue
        pixels[y : y + side, x : x + side][shape_mask(shape, side)] = colour
        areas.append((x, y, side))
        boxes.append([x, y, x + side, y + side, 1, shape])
    return pixels, np.array(boxes, np.float32)


def check_scenes():
    """Assert the checksum that the Rust generator's test asserts as well."""
    value = 0xCBF2_9CE4_8422_2325
    for frame in range(8):
        pixels, boxes = scene(GRAPH_SEED, frame)
        for byte in pixels.tobytes() + boxes.astype("<u2").tobytes():
            value = ((value ^ byte) * 0x0100_0000_01B3) & MASK
    assert value == CHECKSUM, f"the scenes have changed: checksum {value:#018x}"


# ---------------------------------------------------------------------------
# Training

# The centres of all cells, [CELLS, 2] as x, y.
CENTRES = np.stack(
    np.meshgrid((np.arange(COLS) + 0.5) * STRIDE, (np.arange(ROWS) + 0.5) * STRIDE), axis=-1
).reshape(CELLS, 2)


def targets(boxes):
    """What the network should answer: scores [CELLS, 3] and distances [CELLS, 4].

    A cell stands for a box if its centre lies in the middle half of it, which
    holds at least one centre since a box is 20 pixels wide or more. Where two
    boxes claim a cell, the smaller one gets it.
    """
    scores = np.zeros((CELLS, CLASSES), np.float32)
    distances = np.ones((CELLS, 4), np.float32)
    for x0, y0, x1, y1, _, shape in sorted(boxes.tolist(), key=lambda b: b[0] - b[2]):
        middle = np.array([(x0 + x1) / 2, (y0 + y1) / 2])
        mine = np.all(np.abs(CENTRES - middle) < (x1 - x0) / 4, axis=1)
        scores[mine] = np.eye(CLASSES)[int(shape)]
        x, y = CENTRES[mine].T
        distances[mine] = np.stack([x - x0, y - y0, x1 - x, y1 - y], axis=1)
    return scores, distances


# (input channels, output channels, stride) of the 3x3 convolutions. The last
# ones give a cell a view of 79 pixels, wider than the largest object.
CONVS = [(3, 12, 2), (12, 24, 2), (24, 32, 2), (32, 48, 1), (48, 48, 1), (48, 48, 1), (48, 48, 1)]
CHANNELS = 48


def init_params(rng):
    params = {}
    for i, (inputs, outputs, _) in enumerate(CONVS):
        w = rng.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (inputs * 9))
        params[f"conv{i}.w"] = w.astype(np.float32)
        params[f"conv{i}.b"] = np.zeros(outputs, np.float32)
    for name, outputs, bias in [("scores", CLASSES, -4.0), ("boxes", 4, 2.0)]:
        # Almost all cells are background: starting from a low score keeps the
        # first steps from being spent on learning just that.
        w = rng.standard_normal((outputs, CHANNELS, 1, 1)) * 0.03
        params[f"{name}.w"] = w.astype(np.float32)
        params[f"{name}.b"] = np.full(outputs, bias, np.float32)
    return params


def forward(params, image):
    """Return score logits [n, CELLS, 3] and distances [n, CELLS, 4].

    Images are [n, height, width, 3] here, the layout that trains fastest on a CPU.
    """

    def conv(name, x, stride, pad):
        y = jax.lax.conv_general_dilated(
            x, params[name + ".w"], (stride, stride), [(pad, pad)] * 2,
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
        )  # fmt: skip
        return y + params[name + ".b"]

    x = image
    for i, (_, _, stride) in enumerate(CONVS):
        x = jax.nn.relu(conv(f"conv{i}", x, stride, 1))
    logits = conv("scores", x, 1, 0).reshape(-1, CELLS, CLASSES)
    distances = jax.nn.softplus(conv("boxes", x, 1, 0)).reshape(-1, CELLS, 4) * STRIDE
    return logits, distances


def loss_of(params, image, scores, distances):
    logits, guess = forward(params, image)
    # Focal loss: cells that are already right weigh little, so that the many
    # empty ones do not drown the few that hold an object.
    p = jax.nn.sigmoid(logits)
    miss = jnp.where(scores > 0.5, 1 - p, p)
    nll = jnp.where(scores > 0.5, -jax.nn.log_sigmoid(logits), -jax.nn.log_sigmoid(-logits))
    positive = scores.sum(axis=-1)
    count = jnp.maximum(positive.sum(), 1.0)
    score_loss = (miss**2 * nll).sum() / count
    # Both boxes contain the cell's centre, so they overlap from edge to edge.
    least, most = jnp.minimum(guess, distances), jnp.maximum(guess, distances)

    def area(d):
        return (d[..., 0] + d[..., 2]) * (d[..., 1] + d[..., 3])

    shared = area(least)
    iou = shared / (area(guess) + area(distances) - shared)
    # The gap to the enclosing box also counts, which speeds up the beginning.
    giou = iou - 1 + (area(guess) + area(distances) - shared) / area(most)
    return score_loss + ((1 - giou) * positive).sum() / count


@jax.jit
def train_step(params, m, v, count, image, scores, distances):
    """One Adam step; the rate warms up, then falls to zero along a cosine."""
    image = image.astype(jnp.float32) / 255
    value, grads = jax.value_and_grad(loss_of)(params, image, scores, distances)
    warm = jnp.minimum(1.0, count / 50)
    rate = LEARNING_RATE * warm * 0.5 * (1 + jnp.cos(jnp.pi * count / STEPS))
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    m_scale, v_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.99**count)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m * m_scale / (jnp.sqrt(v * v_scale) + 1e-8), params, m, v
    )
    return params, m, v, value


def train():
    check = jax.jit(forward)
    params = init_params(np.random.default_rng(TRAIN_SEED))
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    began = perf_counter()
    for step in range(STEPS):
        # Scenes are cheaper to make than to learn from, so none is used twice.
        made = [scene(TRAIN_SEED, step * BATCH + i) for i in range(BATCH)]
        image = np.stack([pixels for pixels, _ in made])
        scores, distances = map(np.stack, zip(*(targets(boxes) for _, boxes in made)))
        params, m, v, loss = train_step(params, m, v, step + 1.0, image, scores, distances)
        if (step + 1) % 100 == 0:

            def run(pixels):
                logits, distances = check(params, pixels[None].astype(np.float32) / 255)
                return np.asarray(jax.nn.sigmoid(logits))[0], np.asarray(distances)[0]

            precision, recall = measure(run, WATCH_SEED, 50)
            print(
                f"step {step + 1}: loss {float(loss):.3f}, precision {precision:.3f}, "
                f"recall {recall:.3f}, {perf_counter() - began:.0f} s",
                flush=True,
            )
    return {name: np.asarray(value) for name, value in params.items()}


# ---------------------------------------------------------------------------
# Judging

def overlap(box, others):
    """Intersection over union of one box with several."""

    def area(b):
        return (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])

    size = np.minimum(box[2:4], others[:, 2:4]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(size, 0), axis=1)
    return shared / (area(box) + area(others) - shared)


def decode(scores, distances):
    """Turn one frame's outputs into rows of x0, y0, x1, y1, score, class."""
    corners = np.concatenate([CENTRES - distances[:, :2], CENTRES + distances[:, 2:]], axis=1)
    kept = []
    for shape in range(CLASSES):
        cells = np.flatnonzero(scores[:, shape] > MIN_SCORE)
        cells = cells[np.argsort(-scores[cells, shape], kind="stable")]
        while len(cells):
            best, cells = cells[0], cells[1:]
            kept.append([*corners[best], scores[best, shape], shape])
            cells = cells[overlap(corners[best], corners[cells]) <= MAX_OVERLAP]
    kept.sort(key=lambda row: -row[4])
    return np.array(kept[:MAX_BOXES], np.float32).reshape(-1, 6)


def measure(run, seed, frames):
    """Precision and recall over the first frames of a seed.

    Detections are taken from the surest on, and each claims the best free object
    of its class that it overlaps by at least one half.
    """
    right = found = present = 0
    for frame in range(frames):
        pixels, truth = scene(seed, frame)
        detections = decode(*run(pixels))
        free = np.ones(len(truth), bool)
        for row in detections:
            fit = overlap(row, truth) * (free & (truth[:, 5] == row[5]))
            if fit.max() >= MATCH:
                free[fit.argmax()] = False
                right += 1
        found += len(detections)
        present += len(truth)
    return right / max(found, 1), right / present


# ---------------------------------------------------------------------------
# Export

def write_onnx(params, path):
    nodes, x = [], "image"
    for i, (_, _, stride) in enumerate(CONVS):
        name = f"conv{i}"
        nodes.append(
            helper.make_node(
                "Conv", [x, name + ".w", name + ".b"], [name],
                kernel_shape=[3, 3], strides=[stride, stride], pads=[1, 1, 1, 1],
            )
        )  # fmt: skip
        nodes.append(helper.make_node("Relu", [name], [name + ".relu"]))
        x = name + ".relu"
    for name, activation in [("scores", "Sigmoid"), ("boxes", "Softplus")]:
        nodes += [
            helper.make_node("Conv", [x, name + ".w", name + ".b"], [name + ".map"], kernel_shape=[1, 1]),
            helper.make_node(activation, [name + ".map"], [name + ".act"]),
            helper.make_node("Transpose", [name + ".act"], [name + ".last"], perm=[0, 2, 3, 1]),
        ]
    nodes += [
        helper.make_node("Reshape", ["scores.last", "scores.shape"], ["scores"]),
        helper.make_node("Reshape", ["boxes.last", "boxes.shape"], ["boxes.cells"]),
        helper.make_node("Mul", ["boxes.cells", "stride"], ["boxes"]),
    ]
    constants = {
        # A zero keeps the batch as it is.
        "scores.shape": np.array([0, CELLS, CLASSES], np.int64),
        "boxes.shape": np.array([0, CELLS, 4], np.int64),
        "stride": np.array(STRIDE, np.float32),
    }
    image = ["batch", 3, HEIGHT, WIDTH]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, image)],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CELLS, CLASSES]),
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["batch", CELLS, 4]),
        ],
        [numpy_helper.from_array(value, name) for name, value in (params | constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main():
    check_scenes()
    write_onnx(train(), HERE / "detector.onnx")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(HERE / "detector.onnx", options, ["CPUExecutionProvider"])

    def infer(frames):
        image = np.stack(frames).astype(np.float32) / 255
        image = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
        return image, *session.run(["scores", "boxes"], {"image": image})

    def run(pixels):
        _, scores, boxes = infer([pixels])
        return scores[0], boxes[0]

    precision, recall = measure(run, GRAPH_SEED, EXPECTED_FRAMES)
    print(f"precision {precision:.4f}, recall {recall:.4f} over {EXPECTED_FRAMES} frames")
    expected = {"precision": round(precision, 4), "recall": round(recall, 4), "frames": EXPECTED_FRAMES}
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")

    # Frame 0 is a reference for other runtimes.
    image, scores, boxes = infer([scene(GRAPH_SEED, 0)[0]])
    _, scores8, boxes8 = infer([scene(GRAPH_SEED, frame)[0] for frame in range(8)])
    assert np.allclose(scores8[:1], scores, atol=1e-4) and np.allclose(boxes8[:1], boxes, atol=1e-2)
    np.savez_compressed(HERE / "verify.npz", image=image, scores=scores, boxes=boxes)


if __name__ == "__main__":
    main()
