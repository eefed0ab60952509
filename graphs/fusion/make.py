"""Write `steer.onnx` and `verify.npz`: a small model of two sensors.

It takes the means of a picture's channels and the six numbers of an inertial sensor to two commands. The graph shows two
streams that meet in time, so the weights are random; the recorded case is that of onnxruntime.

    pip install numpy onnx onnxruntime
    python make.py

Inputs `image` f32[batch, 3, 48, 64], `motion` f32[batch, 6].
Output `command` f32[batch, 2].
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
HIDDEN = 8
rng = np.random.default_rng(7)


def weights(name, *shape):
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


def main():
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["means"]),
            helper.make_node("Flatten", ["means"], ["light"]),
            helper.make_node("Concat", ["light", "motion"], ["seen"], axis=1),
            helper.make_node("Gemm", ["seen", "w0", "b0"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w1", "b1"], ["wanted"]),
            helper.make_node("Tanh", ["wanted"], ["command"]),
        ],
        "steer",
        [value("image", 3, 48, 64), value("motion", 6)],
        [value("command", 2)],
        [weights("w0", 9, HIDDEN), weights("b0", HIDDEN), weights("w1", HIDDEN, 2), weights("b1", 2)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "steer.onnx")
    case = {
        "image": rng.random((1, 3, 48, 64), dtype=np.float32),
        "motion": rng.standard_normal((1, 6)).astype(np.float32),
    }
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (case["command"],) = session.run(["command"], case)
    np.savez_compressed(HERE / "verify.npz", **case)


if __name__ == "__main__":
    main()
