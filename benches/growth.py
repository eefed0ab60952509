#!/usr/bin/env python3
"""Draws the output of `limen-growth`: growth.py ROWS FOLDER. Needs matplotlib."""
import collections, json, sys
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

plt.rcParams.update({"svg.hashsalt": "limen", "svg.fonttype": "none"})
GRAPHS = [
    ("nodes", "nodes between source and sink", "ns a message", "nodes, "),
    ("fan-out", "sinks of one output", "ns a message", "fan-out, "),
    ("payload", "bytes of a message", "ns a message, K=4", "payload, "),
    ("rate", "messages a second", "ns from source to sink, K=4", "rate, "),
]


def main():
    rows, folder = [json.loads(line) for line in open(sys.argv[1])], sys.argv[2]
    curves = collections.defaultdict(list)
    for row in rows:
        if "ns" in row:
            curves[row["curve"]].append((row["x"], row["ns"]))
    for name, x, y, prefix in GRAPHS:
        figure, axes = plt.subplots(figsize=(6, 3.6))
        for curve, points in curves.items():
            if curve.startswith(prefix):
                axes.plot(*zip(*points), marker="o", markersize=3, label=curve.removeprefix(prefix))
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend()
        figure.tight_layout()
        figure.savefig(f"{folder}/growth-{name}.svg", metadata={"Date": None})


main()
