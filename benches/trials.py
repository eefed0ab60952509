#!/usr/bin/env python3
"""The cost of model trials in a separate process at the start: the wall time of `limen-run check` on the digits graph.

    cargo build --release --bin limen-run --features tract,ort
    benches/trials.py [REPETITIONS [PROGRAM]]      ORT_DYLIB_PATH names ONNX Runtime, for `ort`

Each backend is started in turns in four ways: the model is tried in a separate process, or in this one (`--model-limits none`); and both
again with the results cached by `--cache`.
"""
import os, statistics, subprocess, sys, tempfile, time

REPETITIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
PROGRAM = sys.argv[2] if len(sys.argv) > 2 else "target/release/limen-run"
HERE = ["--model-limits", "none"]


def start(backend, words):
    command = [PROGRAM, "check", "graphs/digits/graph.yaml", "--set", f"nodes.digit.config.backend={backend}", *words]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return 1000 * (time.perf_counter() - begun)


def main():
    backends = ["rten", "tract"] + (["ort"] if "ORT_DYLIB_PATH" in os.environ else [])
    with tempfile.TemporaryDirectory() as folder:
        kept = {words: ["--cache", os.path.join(folder, str(len(words)))] for words in ((), tuple(HERE))}
        ways = {"own process": [], "this process": HERE, "own, kept": kept[()], "this, kept": kept[tuple(HERE)] + HERE}
        took = {(backend, way): [] for backend in backends for way in ways}
        # The first round fills the caches and is not counted.
        for turn in range(REPETITIONS + 1):
            for (backend, way), times in took.items():
                ms = start(backend, ways[way])
                times.extend([ms] if turn else [])
    print(f"{REPETITIONS} starts each, in turns; ms; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(f"{'backend':10}{'tried in':16}{'least':>8}{'p50':>8}{'p90':>8}   more than in this process: least, p50")
    for (backend, way), times in took.items():
        figures = [min(times), statistics.median(times), statistics.quantiles(times, n=10)[8]]
        here = took[backend, way.replace("own process", "this process").replace("own,", "this,")]
        more = [figures[0] - min(here), figures[1] - statistics.median(here)] if here is not times else []
        print(f"{backend:10}{way:16}" + "".join(f"{ms:8.1f}" for ms in figures) + "   " + "".join(f"{ms:8.1f}" for ms in more))


main()
