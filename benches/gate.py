#!/usr/bin/env python3
"""How often `limen-run hist compare --fail` finds a node that became 10 % slower, and how often it finds one that did not.

    cargo build --release --bin limen-run
    benches/gate.py [SLOWER [UNCHANGED [RUNS [SECONDS [PROGRAM]]]]]

A graph has one node that computes for a bit more than a millisecond, a filter whose work is proportional to its number of taps. A try takes
runs of both sides in turns and compares them. SLOWER tries have 10 % more taps on one side, UNCHANGED tries have the same graph on both.
"""
import json, os, pathlib, subprocess, sys, tempfile

SLOWER, UNCHANGED, RUNS, SECONDS = ([*map(int, sys.argv[1:5])] + [3, 10, 6, 2][len(sys.argv[1:5]) :])
PROGRAM = sys.argv[5] if len(sys.argv) > 5 else "target/release/limen-run"
TAPS, MORE = 1101, 1211
LIMITS = ["p50(work.compute) = +5%", "p50(e2e) = +5%"]
GRAPH = f"""version: 1
nodes:
  tick: {{ kind: synthetic, config: {{ pattern: noise, shape: [8192], dtype: f32, rate: 400Hz }} }}
  work: {{ kind: fir, config: {{ lowpass: 1kHz, sample_rate: 16kHz, count: {TAPS} }}, from: tick }}
  out: {{ kind: "null", from: work }}
"""


def compared(taps):
    """The gates and changes of one try, whose new side has so many taps."""
    with tempfile.TemporaryDirectory() as folder:
        graph = pathlib.Path(folder, "work.yaml")
        graph.write_text(GRAPH)
        for turn in range(RUNS):
            # The side that goes first changes, so that a drift of the host meets both alike.
            sides = [("base", TAPS), ("new", taps)]
            for side, count in sides if turn % 2 == 0 else reversed(sides):
                words = ["-q", "--duration", f"{SECONDS}s", "--warmup", "200ms", "--set", f"nodes.work.config.count={count}"]
                subprocess.run([PROGRAM, graph, *words, "--histograms", f"{folder}/{side}/{turn}"], check=True)
        limits = [word for limit in LIMITS for word in ("--fail", limit)]
        words = ["hist", "compare", f"{folder}/base", f"{folder}/new", "--figures", "p50,p90", "--json", *limits]
        done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.returncode, json.loads(done.stdout)


def main():
    print(f"{RUNS} runs of {SECONDS} s a side, in turns; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    right = {True: 0, False: 0}
    for slower in [True] * SLOWER + [False] * UNCHANGED:
        code, found = compared(MORE if slower else TAPS)
        right[slower] += code == (3 if slower else 0)
        changes = {(c["tag"], c["figure"]): c for c in found["changes"]}
        words = []
        for tag, figure in (("work.compute", "p50"), ("work.compute", "p90"), ("tick->out.e2e", "p50")):
            c = changes[tag, figure]
            words.append(f"{figure}({tag}) {c['base'] / 1e6:.2f} ms {100 * c['change']:+5.1f} % [{100 * c['low']:+.1f}, {100 * c['high']:+.1f}]")
        print(f"{'10 % slower' if slower else 'unchanged':12} exit {code}  " + "  ".join(words), flush=True)
    print(f"\n{right[True]} of {SLOWER} slower runs failed, {right[False]} of {UNCHANGED} unchanged runs passed")


main()
