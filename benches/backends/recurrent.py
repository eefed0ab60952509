#!/usr/bin/env python3
"""Writes small recurrent models, runs each for many calls on every backend, and compares the numbers with onnxruntime in Python.

    .ci/pip backends                       into target/venv
    recurrent.py LIMEN-RUN                 fails if numbers differ, or if other backends run a model than `recurrent.txt` lists
    recurrent.py LIMEN-RUN --bless         rewrites that list
    recurrent.py LIMEN-RUN --only lstm     the models whose names contain that

LIMEN-RUN is built with the cargo features `tract` and `ort`, and uses the library of Python's onnxruntime. A graph calls a model 24
times in one session: with eight items, with the same in the opposite order, and in order again. A state begins at zeros and is fed
back in the next call, with `state:` in the graph. Items are five steps long, so that a state also passes through each call.

| part of a name | |
|---|---|
| `rnn`, `gru`, `gru2`, `lstm` | the operator; `gru2` multiplies by the reset gate behind the linear part |
| `forward`, `reverse`, `both` | its direction |
| `plain` | no state: it begins at zeros in each call |
| `initial` | begins at constants in each call |
| `lengths` | an input gives the length of each item |
| `state` | the state is an input and an output |
| `layout` | as `state`, with the batch first (the attribute `layout`); compared with the same model with the batch in the middle |
| `clip`, `activations`, `peepholes`, `forget` | as `state`, with an attribute or input that is rare; `forget` is `input_forget` |
| `scan`, `scan-reverse`, `loop`, `loop-until` | a `Scan` or `Loop` over the steps; `loop-until` ends when its state is large |
"""
import itertools, json, os, shutil, subprocess, sys, tempfile, zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto

from models import Builder

LIST = Path(__file__).resolve().with_name("recurrent.txt")
LIBRARY = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*"))
BACKENDS = ["ort", "rten", "tract"]
ITEMS, STEPS, FEATURES, HIDDEN = 8, 5, 3, 4
GATES = {"rnn": 1, "gru": 3, "gru2": 3, "lstm": 4}
DIRECTIONS = {"forward": "forward", "reverse": "reverse", "both": "bidirectional"}
FORMS = ["plain", "initial", "lengths", "state", "layout", "clip", "activations", "peepholes", "forget"]
ACTIVATIONS = {"rnn": ["Softsign"], "gru": ["HardSigmoid", "Softsign"], "lstm": ["HardSigmoid", "Softsign", "Tanh"]}
ATOL, RTOL = 1e-5, 1e-4


@dataclass
class Case:
    """A model, what it is called with, and what onnxruntime in Python computes."""

    model: Path
    reference: Path
    states: dict[str, str] = field(default_factory=dict)
    """Outputs by the inputs that they become in the next call."""


def random(name, *shape):
    return np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.8, shape).astype(np.float32)


def layer(folder, op, direction, form, layout=0):
    """A recurrent operator with a linear part in front, whose `x` and `y` have the batch first."""
    name, gates, wide = f"{op}-{direction}-{form}", GATES[op], 2 if direction == "both" else 1
    b = Builder(name, zlib.crc32(name.encode()))
    kind, has_cell = op.rstrip("2").upper(), op == "lstm"
    batch = 1 if form == "initial" else "n"
    x = b.matmul("x", FEATURES, FEATURES)
    x = x if layout else b.add("Transpose", x, perm=[1, 0, 2])
    weights = [b.random(wide, gates * HIDDEN, size, fan_in=size) for size in (FEATURES, HIDDEN)]
    bias = b.weight(b.rng.normal(0, 0.3, (wide, 2 * gates * HIDDEN)).astype(np.float32))
    names = ["h", "c"][: 1 + has_cell]
    lengths, begin, inputs, states = "", [""] * len(names), {"x": [batch, STEPS, FEATURES]}, {}
    if form == "lengths":
        lengths, inputs["lengths"] = "lengths", (TensorProto.INT32, [batch])
    elif form == "initial":
        begin = [b.weight(b.rng.normal(0, 0.8, (wide, 1, HIDDEN)).astype(np.float32)) for _ in names]
    elif form != "plain":
        states = {state: f"next_{state}" for state in names}
        inputs |= {state: [batch, wide, HIDDEN] if form == "layout" else [wide, batch, HIDDEN] for state in names}
        turned = form == "layout" and not layout
        begin = [b.add("Transpose", state, perm=[1, 0, 2]) if turned else state for state in names]
    more = {"linear_before_reset": 1} if op == "gru2" else {}
    more |= {"layout": 1} if layout else {}
    more |= {"clip": 0.4} if form == "clip" else {}
    more |= {"activations": ACTIVATIONS[op.rstrip("2")] * wide} if form == "activations" else {}
    more |= {"input_forget": 1} if form == "forget" else {}
    peepholes = [b.random(wide, 3 * HIDDEN, fan_in=HIDDEN)] if form == "peepholes" else []
    y, *last = b.add(kind, x, *weights, bias, lengths, *begin, *peepholes, outputs=1 + len(names),
                     direction=DIRECTIONS[direction], hidden_size=HIDDEN, **more)
    y = y if layout else b.add("Transpose", y, perm=[2, 0, 1, 3])
    outputs = {y: ("y", [batch, STEPS, wide, HIDDEN])}
    for state, value in zip(names, last):
        if form == "layout" or not states:
            value = value if layout else b.add("Transpose", value, perm=[1, 0, 2])
            outputs[value] = (states.get(state, f"last_{state}"), [batch, wide, HIDDEN])
        else:
            outputs[value] = (states[state], [wide, batch, HIDDEN])
    return Case(model := b.save(folder, inputs, outputs), model, states)


def layout(folder, op, direction):
    """The model with the attribute `layout`, which onnxruntime lacks, and the same model without."""
    plain = layer(folder, op, direction, "layout")
    reference = plain.model.rename(folder / f"{plain.model.stem}-reference")
    return Case(layer(folder, op, direction, "layout", 1).model, reference, plain.states)


def step(b, x, h):
    """`tanh(x W + h R)`."""
    x, h = b.matmul(x, FEATURES, HIDDEN), b.add("MatMul", h, b.random(HIDDEN, HIDDEN, fan_in=HIDDEN))
    return b.add("Tanh", b.add("Add", x, h))


def scan(folder, name):
    body = Builder("body", zlib.crc32(name.encode()))
    h = step(body, "x_step", "h_before")
    y = body.add("Mul", h, body.weight(np.float32(2)))
    body = body.graph({"h_before": ["n", HIDDEN], "x_step": ["n", FEATURES]}, {h: ("h_after", ["n", HIDDEN]), y: ("y_step", ["n", HIDDEN])})
    b = Builder(name, 0)
    h, y = b.add("Scan", "h", "x", outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
                 scan_input_directions=[int("reverse" in name)])
    model = b.save(folder, {"x": ["n", STEPS, FEATURES], "h": ["n", HIDDEN]}, {y: ("y", ["n", STEPS, HIDDEN]), h: ("next_h", ["n", HIDDEN])})
    return Case(model, model, {"h": "next_h"})


def loop(folder, name):
    body = Builder("body", zlib.crc32(name.encode()))
    x = body.add("Gather", "x", "at", axis=1)
    h = step(body, x, "h_before")
    norm = body.add("ReduceSum", body.add("Abs", h), keepdims=0)
    go_on = body.add("Less", norm, body.weight(np.float32(2.2 if "until" in name else 1e9)))
    carried = {go_on: ("go_on", (TensorProto.BOOL, [])), h: ("h_after", ["n", HIDDEN])}
    # With a length that values decide, there is no output of every step.
    each = {} if "until" in name else {body.add("Mul", h, body.weight(np.float32(2))): ("y_step", ["n", HIDDEN])}
    body = body.graph({"at": (TensorProto.INT64, []), "go_on_before": (TensorProto.BOOL, []), "h_before": ["n", HIDDEN]}, carried | each)
    b = Builder(name, 0)
    found = b.add("Loop", b.weight(np.int64(STEPS)), b.weight(np.bool_(True)), "h", outputs=1 + len(each), body=body)
    h, y = (found[0], b.add("Transpose", found[1], perm=[1, 0, 2])) if each else (found, None)
    y, shape = (y, ["n", STEPS, HIDDEN]) if each else (b.add("Neg", h), ["n", HIDDEN])
    model = b.save(folder, {"x": ["n", STEPS, FEATURES], "h": ["n", HIDDEN]}, {y: ("y", shape), h: ("next_h", ["n", HIDDEN])})
    return Case(model, model, {"h": "next_h"})


def cases(folder):
    """All cases by name, each of which is made when it is asked for."""
    made = {}
    for op, direction, form in itertools.product(GATES, DIRECTIONS, FORMS):
        if form not in ("peepholes", "forget") or op == "lstm":
            make = layout if form == "layout" else lambda folder, op, direction, form=form: layer(folder, op, direction, form)
            made[f"{op}-{direction}-{form}"] = lambda make=make, op=op, direction=direction: make(folder, op, direction)
    made |= {name: lambda name=name: scan(folder, name) for name in ("scan", "scan-reverse")}
    return made | {name: lambda name=name: loop(folder, name) for name in ("loop", "loop-until")}


def sequence(values):
    """In order, in the opposite order, and in order again."""
    return np.concatenate([values, values[::-1], values])


def expected(case):
    """The inputs of all calls, and the outputs without states."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(case.reference, options, ["CPUExecutionProvider"])
    inputs, states, outputs = {}, {}, {}
    for value in session.get_inputs():
        shape = [1 if isinstance(dim, str) else dim for dim in value.shape]
        if value.name in case.states:
            states[value.name] = np.zeros(shape, np.float32)
        elif value.type == "tensor(int32)":
            inputs[value.name] = sequence(np.array([[at % STEPS + 1] for at in range(ITEMS)], np.int32))
        else:
            inputs[value.name] = sequence(random(case.model.stem, ITEMS, *shape))
    names = [value.name for value in session.get_outputs()]
    for call in range(3 * ITEMS):
        found = dict(zip(names, session.run(None, {name: array[call] for name, array in inputs.items()} | states)))
        states = {name: found.pop(output) for name, output in case.states.items()}
        for name, array in found.items():
            outputs.setdefault(name, []).append(array)
    return inputs, {name: np.stack(arrays) for name, arrays in outputs.items()}


def run(program, case, backend, inputs, outputs, folder):
    """`right`, `refused: …`, `failed: …` or `WRONG: …`."""
    folder.mkdir()
    shutil.copy(case.model, folder / "model.onnx")
    nodes = {f"in-{name}": {"kind": "npy", "config": {"path": f"in-{name}.npy"}} for name in inputs}
    for name, array in inputs.items():
        # A port is one item, without the batch.
        np.save(folder / f"in-{name}.npy", array[:, 0])
    config = {"model": "model.onnx", "backend": backend}
    if case.states:
        config["state"] = [{"input": name, "output": output} for name, output in case.states.items()]
    nodes["model"] = {"kind": "infer", "config": config, "inputs": {name: {"from": f"in-{name}"} for name in inputs}}
    nodes |= {f"out-{name}": {"kind": "npy", "config": {"path": f"out-{name}.npy"}, "from": f"model/{name}"} for name in outputs}
    (folder / "graph.yaml").write_text(json.dumps({"version": 1, "nodes": nodes}))
    command = [program, "run", folder / "graph.yaml", "--onnxruntime", LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if line.startswith("error")), done.stderr)
        return f"{'refused' if done.returncode == 2 else 'failed'}: {said[:300]}"
    for name, array in outputs.items():
        found = np.load(folder / f"out-{name}.npy")
        if len(found) != len(array) or found.size != array.size:
            return f"WRONG: {name} is {found.shape}, not {array.shape}"
        wrong = ~np.isclose(found.reshape(array.shape), array, RTOL, ATOL)
        if wrong.any():
            calls = np.flatnonzero(wrong.reshape(len(wrong), -1).any(1))
            most = np.abs(found.reshape(array.shape) - array).max()
            return f"WRONG: {name} is up to {most:.2g} off in {len(calls)} calls, the first is {calls[0]}"
    return "right"


def main():
    program, bless = Path(sys.argv[1]).resolve(), "--bless" in sys.argv
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        folder = Path(folder)
        jobs = {}
        for name, make in cases(folder).items():
            if only in name:
                case = make()
                inputs, outputs = expected(case)
                for backend in BACKENDS:
                    jobs[name, backend] = threads.submit(run, program, case, backend, inputs, outputs, folder / f"{name}-{backend}")
        found = {key: job.result() for key, job in jobs.items()}
    lines = [f"{name} {backend} {text.split(':')[0]}" for (name, backend), text in found.items()]
    if bless:
        LIST.write_text("\n".join(lines) + "\n")
    before = {line for line in LIST.read_text().splitlines() if only in line.split()[0]}
    for backend in BACKENDS:
        texts = [text for (_, on), text in found.items() if on == backend]
        print(f"{backend}: {texts.count('right')} of {len(texts)} right, {sum(text.startswith('refused') for text in texts)} refused")
    wrong = False
    for line, ((name, backend), text) in zip(lines, found.items()):
        if line not in before or not text.startswith(("right", "refused")):
            wrong = True
            print(f"  {name} on {backend}: {text}")
    if wrong or before - set(lines):
        sys.exit(f"not as in {LIST.name}; check each, then rewrite the list with --bless")


if __name__ == "__main__":
    main()
