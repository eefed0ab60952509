#!/usr/bin/env python3
"""Runs the test cases of the ONNX project for single operators on every runtime, and compares the results with the lists here.

    .ci/pip backends                         into target/venv
    python conformance.py PROGRAM            fails if a case newly passes, or no longer passes
    python conformance.py PROGRAM --bless    rewrites the lists

PROGRAM is `limen-conformance`, built with the cargo features `tract`, `ort` and `wgpu`; ORT_DYLIB_PATH names ONNX Runtime. With
LIMEN_RUNTIME=cuda it runs only that runtime, and is built with the feature `cuda12`. Cases with
element types that ports do not carry are left out; a runtime that does not have an operator refuses the case. 64-bit
integers and bools are converted to 32 bits, as everywhere in limen.

`pass with constants`: the runtime needs the operator's parameters before the call, as constants of the model or the graph.

A case that differs has its cause in the list. `deviation` is what the runtime's table of `onnx::Deviation` says; the causes for which a
model is not refused are in `HARMLESS`.
"""
import collections, os, re, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case import node as node_cases

HERE = Path(__file__).resolve().parent
OPSET = onnx.defs.onnx_opset_version()
PORT = {np.dtype(k): np.dtype(v) for k, v in {
    "float32": "float32", "float64": "float32", "int64": "int32", "int32": "int32", "bool": "int32",
    "uint8": "uint8", "int8": "int8"}.items()}
# Why a case differs on a runtime that computes what ONNX says.
HARMLESS = [
    # ONNX's numbers are computed with 64 bits. 0 becomes 1e-4 among numbers up to 540.
    ("ort", "test_(dft|stft)", "rounding"),
    ("ort", "test_training_dropout", "random"),
    # It indexes out of range and panics, which a session catches: the call fails.
    ("tract", "test_onehot_out_of_range_indices", "call fails"),
]


def cause(runtime, name):
    return next((why for other, cases, why in HARMLESS if other == runtime and re.match(cases, name)), "deviation")


def as_port(array):
    """The array as a port carries it; None if no port can."""
    if not isinstance(array, np.ndarray) or array.dtype not in PORT:
        return None
    to = PORT[array.dtype]
    if array.dtype == np.int64 and array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        return None
    return np.ascontiguousarray(array.astype(to)).reshape(array.shape)


def write(folders):
    """Writes the cases to the folders in turn."""
    written = 0
    for case in collect_testcases(None):
        model = case.model
        domains = {o.domain for o in model.opset_import}
        opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=99)
        if opset > OPSET or domains - {"", "ai.onnx"} or "_expanded" in case.name or not case.data_sets:
            continue
        if any(v.type.WhichOneof("value") != "tensor_type" for v in list(model.graph.input) + list(model.graph.output)):
            continue
        inputs, outputs = case.data_sets[0]
        arrays = {f"in_{i}": as_port(np.asarray(a)) for i, a in enumerate(inputs)}
        arrays |= {f"out_{i}": as_port(np.asarray(a)) for i, a in enumerate(outputs)}
        if any(a is None for a in arrays.values()) or not outputs:
            continue
        target = folders[written % len(folders)] / case.name
        target.mkdir(parents=True)
        (target / "model.onnx").write_bytes(model.SerializeToString())
        for name, array in arrays.items():
            np.save(target / f"{name}.npy", array)
        written += 1
    return written


def run(program, folder):
    """The result of each case on each runtime. After a case that ends the process, the program is started again with the next one."""
    results, names = collections.defaultdict(dict), sorted(p.name for p in folder.iterdir())
    start = ""
    while True:
        done = subprocess.run([program, folder, start], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=1200)
        for line in done.stdout.splitlines():
            runtime, case, text = line.split("\t", 2)
            results[runtime][case] = text
        if done.returncode == 0:
            return results
        last = max((c for r in results.values() for c in r), default=names[0])
        fallen = next((n for n in names if any(n not in r for r in results.values()) and n >= last), None)
        for runtime in results:
            results[runtime].setdefault(fallen, "ENDS THE PROCESS")
        behind = [n for n in names if n > fallen]
        if not behind:
            return results
        start = behind[0]


def main():
    program, bless = sys.argv[1], "--bless" in sys.argv
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        # A core each: a runtime may compute on one thread.
        folders = [Path(folder) / str(n) for n in range(os.cpu_count() or 1)]
        count = write(folders)
        results = collections.defaultdict(dict)
        with ThreadPoolExecutor() as pool:
            for found in pool.map(lambda folder: run(program, folder), folders):
                for runtime, cases in found.items():
                    results[runtime].update(cases)
    for runtime, cases in sorted(results.items()):
        passing = sorted(name for name, text in cases.items() if text.startswith("pass"))
        as_they_are = sum(text == "pass" for text in cases.values())
        differing = sorted(name for name, text in cases.items() if text.startswith(("DIFFERS", "PANIC", "ENDS")))
        print(f"{runtime}: {len(passing)} of {count} pass, {as_they_are} of them without constants, {len(differing)} give other numbers or panic")
        path = HERE / f"conformance-{runtime}.txt"
        lines = [f"{name} {cases[name]}" for name in passing] + [
            f"{name} {cases[name].split(':')[0].lower()}: {cause(runtime, name)}" for name in differing]
        text = "\n".join(sorted(lines)) + "\n"
        if bless:
            path.write_text(text)
            continue
        before = set(path.read_text().splitlines()) if path.exists() else set()
        now = set(text.splitlines())
        for line in sorted(before ^ now):
            failed = True
            name = line.split()[0]
            print(f"  {'new' if line in now else 'gone'}: {line} ({cases.get(name, 'no such case')})")
    if failed:
        sys.exit("the lists have changed; check each case, then rewrite them with --bless")


if __name__ == "__main__":
    main()
