"""Write `sound.wav`, `listener.onnx`, `verify.npz` and `expected.csv`: a recurrent model that hears ten milliseconds at a time.

The model is a layer of features, a gated recurrent unit with its state as input and output, and a layer of scores. The graph
shows that a stream keeps its state, so the weights are random, with a bias to remember; the expected scores are those of
onnxruntime, which is given the state by hand from call to call.

    pip install numpy onnx onnxruntime
    python make.py

Inputs  `sound` f32[batch, 80, 1], `state` f32[1, batch, 24].
Outputs `scores` f32[batch, 4], `next_state` f32[1, batch, 24].
"""

import wave
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
RATE, STEP, FEATURES, HIDDEN, SCORES = 8000, 80, 16, 24, 4
SECONDS = 3.004
rng = np.random.default_rng(5)


def sound():
    """Tones that change every quarter of a second, with pauses; int16."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    pitch = np.array([220, 0, 330, 440, 0, 550, 880, 660, 0, 495, 247, 0, 0])[(t * 4).astype(int)]
    tone = np.sin(2 * np.pi * np.cumsum(pitch) / RATE) * (pitch > 0) * (0.3 + 0.5 * np.abs(np.sin(3 * t)))
    return np.round(tone * 24000).astype(np.int16)


def model():
    def weight(name, *shape, scale):
        return numpy_helper.from_array(rng.normal(0, scale, shape).astype(np.float32), name)

    bias = np.zeros((1, 6 * HIDDEN), np.float32)
    # The update gate leans towards keeping what is there.
    bias[0, :HIDDEN] = 2.0
    weights = [
        weight("features", STEP, FEATURES, scale=3 / np.sqrt(STEP)),
        weight("offsets", FEATURES, scale=0.5),
        weight("inputs", 1, 3 * HIDDEN, FEATURES, scale=1.5 / np.sqrt(FEATURES)),
        weight("recurrence", 1, 3 * HIDDEN, HIDDEN, scale=1.5 / np.sqrt(HIDDEN)),
        numpy_helper.from_array(bias, "bias"),
        weight("readout", HIDDEN, SCORES, scale=3 / np.sqrt(HIDDEN)),
        weight("levels", SCORES, scale=0.1),
        numpy_helper.from_array(np.array([2], np.int64), "last"),
        numpy_helper.from_array(np.array([0], np.int64), "first"),
        numpy_helper.from_array(np.array([0, 1], np.int64), "step"),
    ]
    node = helper.make_node
    nodes = [
        node("Squeeze", ["sound", "last"], ["samples"], "squeeze"),
        node("Gemm", ["samples", "features", "offsets"], ["heard"], "hear"),
        node("Relu", ["heard"], ["kept"], "keep"),
        node("Unsqueeze", ["kept", "first"], ["time"], "as_time"),
        node("GRU", ["time", "inputs", "recurrence", "bias", "", "state"], ["steps", "next_state"], "remember",
             hidden_size=HIDDEN, linear_before_reset=1),
        node("Squeeze", ["steps", "step"], ["now"], "last_step"),
        node("Gemm", ["now", "readout", "levels"], ["scores"], "judge"),
    ]
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes,
        "listener",
        [value("sound", "batch", STEP, 1), value("state", 1, "batch", HIDDEN)],
        [value("scores", "batch", SCORES), value("next_state", 1, "batch", HIDDEN)],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="limen")
    onnx.checker.check_model(made)
    return made


def main():
    samples = sound()
    with wave.open(str(HERE / "sound.wav"), "wb") as out:
        out.setparams((1, 2, RATE, len(samples), "NONE", ""))
        out.writeframes(samples.astype("<i2").tobytes())
    onnx.save(model(), HERE / "listener.onnx")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(HERE / "listener.onnx", options, ["CPUExecutionProvider"])
    steps = np.zeros((-(-len(samples) // STEP), STEP, 1), np.float32)
    steps.reshape(-1)[: len(samples)] = samples / np.float32(32768)
    state, scores = np.zeros((1, 1, HIDDEN), np.float32), []
    for step in steps:
        result, state = session.run(["scores", "next_state"], {"sound": step[None], "state": state})
        scores.append(result[0])
    scores = np.array(scores)
    np.savez(HERE / "verify.npz", sound=steps[:40], scores=scores[:40])

    alone = np.array([session.run(["scores"], {"sound": s[None], "state": np.zeros((1, 1, HIDDEN), np.float32)})[0][0] for s in steps])
    best = scores.argmax(axis=1)
    with open(HERE / "expected.csv", "w", newline="\n") as out:
        out.write("seq,class,score\n")
        for seq, (row, at) in enumerate(zip(scores, best)):
            out.write(f"{seq},{at},{row[at]:.6f}\n")
    margin = np.sort(scores, axis=1)
    print(f"{len(steps)} steps, classes {np.bincount(best, minlength=SCORES)}, changes {(np.diff(best) != 0).sum()}")
    print(f"least margin {np.min(margin[:, -1] - margin[:, -2]):.5f}; without its state {(alone.argmax(axis=1) != best).mean():.0%} would differ")


if __name__ == "__main__":
    main()
