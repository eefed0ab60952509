#!/usr/bin/env python3
"""Measures every model on every backend and on onnxruntime in Python, one after the other.

    python models.py MODELS
    python models_run.py target/release/limen-models MODELS [THREADS]

`limen-models` is built with the cargo features `tract` and `ort`; ORT_DYLIB_PATH names ONNX Runtime. Prints two tables: median and
99th percentile in microseconds, and their ratios to onnxruntime in Python; and the shortest load time of each model,
without and with the trial that a plan makes. The figures are those of the round with the lowest median of ROUNDS (3) of SECONDS (2).
MODELS may also hold `silero_vad.onnx`, of the package of that name. NAMES (all) limits the models. A backend that cannot run a model
is reported on stderr.
"""
import json, os, subprocess, sys, time
from pathlib import Path

import numpy as np
import onnxruntime

ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "3")), float(os.environ.get("SECONDS", "2"))
BACKENDS = ["ort", "rten", "tract"]


def python(path, batch, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    begun = time.perf_counter()
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    load = (time.perf_counter() - begun) * 1e3
    feeds, carried = {}, None
    for value in session.get_inputs():
        shape = [dim if isinstance(dim, int) else batch for dim in value.shape]
        if value.name == "sr":
            feeds[value.name] = np.array(16000, np.int64)
            continue
        if value.name == "input" and len(shape) == 2 and "silero" in path:
            shape[1] = 576
        feeds[value.name] = (np.arange(np.prod(shape), dtype=np.int64) * 37 % 101 / 101).astype(np.float32).reshape(shape)
    if "state" in feeds:
        feeds["state"][:] = 0
        carried = next(at for at, output in enumerate(session.get_outputs()) if output.name in ("next_state", "stateN"))

    def call():
        begun = time.perf_counter_ns()
        outputs = session.run(None, feeds)
        took = time.perf_counter_ns() - begun
        if carried is not None:
            feeds["state"] = outputs[carried]
        return took

    end = time.perf_counter() + SECONDS / 5
    while time.perf_counter() < end:
        call()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 20:
        times.append(call())
    times.sort()
    return dict(p50_ns=times[len(times) // 2], p99_ns=times[int(len(times) * 0.99)], load_ms=load)


def main():
    program, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(f"{os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}; µs, p50 / p99, best of {ROUNDS} rounds of {SECONDS} s\n")
    print("| model | batch | onnxruntime in Python | ort | rten | tract |\n|---|---|---|---|---|---|")
    loads = []
    names = ["mlp", "smallcnn", "mobilenet_v2", "resnet18", "yolo_like", "former", "stream_gru", "silero_vad"]
    said = {"stream_gru": ["state=next_state"], "silero_vad": ["state=staten", "sr=16000", "input:576"]}
    names = [name for name in os.environ.get("NAMES", " ".join(names)).split() if (folder / f"{name}.onnx").exists()]
    for name in names:
        for batch in (1, 8):
            path, best = str(folder / f"{name}.onnx"), {}
            for _ in range(ROUNDS):
                found = {"python": python(path, batch, threads)}
                for backend in BACKENDS:
                    out = subprocess.run([program, path, backend, str(batch), str(threads), str(SECONDS)] + said.get(name, []), capture_output=True, text=True)
                    if out.returncode == 0:
                        found[backend] = json.loads(out.stdout)
                    else:
                        print(f"{name}, {batch}, {backend}: {out.returncode}, {out.stderr.strip()[-300:]}", file=sys.stderr)
                for backend, row in found.items():
                    known = best.setdefault(backend, row)
                    loaded = {key: min(known[key], row[key]) for key in ("load_ms", "untried_ms") if row.get(key)}
                    best[backend] = min(known, row, key=lambda r: r["p50_ns"]) | loaded
            base = best["python"]
            if batch == 1:
                size = (folder / f"{name}.onnx").stat().st_size / (1 << 20)
                load = lambda row: f"{row['untried_ms']:.1f} / {row['load_ms']:.1f}" if row.get("untried_ms") else f"{row['load_ms']:.1f}"
                cells = [load(best[b]) if b in best else "–" for b in ["python"] + BACKENDS]
                loads.append(f"| {name} | {size:.1f} | " + " | ".join(cells) + " |")

            def cell(backend):
                if backend not in best:
                    return "–"
                row = best[backend]
                text = f"{row['p50_ns'] / 1e3:.1f} / {row['p99_ns'] / 1e3:.1f}"
                return text if backend == "python" else f"{text} ({row['p50_ns'] / base['p50_ns']:.2f}×, {row['p99_ns'] / base['p99_ns']:.2f}×)"

            print(f"| {name} | {batch} | " + " | ".join(cell(b) for b in ["python"] + BACKENDS) + " |", flush=True)
    print("\n| load, ms | MiB | onnxruntime in Python | ort | rten | tract |\n|---|---|---|---|---|---|")
    print("\n".join(loads))


if __name__ == "__main__":
    main()
