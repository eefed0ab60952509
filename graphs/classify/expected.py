"""Write `expected.csv`: the five best classes of each of the first 90 frames.

This is the reference pipeline of the graph, written with Pillow and
onnxruntime: generate a frame, resize it bilinearly to 224x224, normalise it, run
`classifier.onnx`, apply softmax and take the top five. `make_model.py` imports
the frame generator and the preprocessing from here.

    pip install numpy pillow onnxruntime
    python expected.py
"""

from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

HERE = Path(__file__).resolve().parent
FRAMES = 90
TOP = 5
WIDTH, HEIGHT, SIDE = 640, 480, 224
# The usual ImageNet statistics.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def frame(seq):
    """The generated RGB frame `seq`, uint8[480, 640, 3].

    It is a diagonal sawtooth whose slope differs per channel and which moves by
    seven grey levels per frame. Both divisions round down, each on its own.
    """
    x = np.arange(WIDTH)[None, :, None]
    y = np.arange(HEIGHT)[:, None, None]
    c = np.arange(3)[None, None, :]
    return ((x * (c + 1) // 2 + y * (3 - c) // 2 + 7 * seq) % 256).astype(np.uint8)


def preprocess(pixels):
    """Turn an RGB frame into the model input f32[1, 3, 224, 224]."""
    small = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    values = (np.asarray(small).astype(np.float32) / np.float32(255) - MEAN) / STD
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def load_model():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(HERE / "classifier.onnx", options, ["CPUExecutionProvider"])


def probabilities(logits):
    # In double precision, so that the reference adds no rounding of its own.
    logits = logits.astype(np.float64)
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main():
    session = load_model()
    winners, margins = [], []
    with open(HERE / "expected.csv", "w", newline="\n") as out:
        out.write("seq,rank,class,score\n")
        for seq in range(FRAMES):
            (logits,) = session.run(["logits"], {"image": preprocess(frame(seq))})
            scores = probabilities(logits)[0]
            best = np.argsort(-scores, kind="stable")[:TOP]
            for rank, label in enumerate(best):
                out.write(f"{seq},{rank},{label},{scores[label]:.6f}\n")
            winners.append(best[0])
            margins.append(scores[best[0]] - scores[best[1]])
    margins = np.array(margins)
    print(f"{len(set(winners))} different winners over {FRAMES} frames")
    print(f"margin of the winner: median {np.median(margins):.3f}, least {margins.min():.4f}")
    print(f"frames with a margin under 0.02: {int((margins < 0.02).sum())}")


if __name__ == "__main__":
    main()
