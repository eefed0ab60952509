"""Compare `voice.csv` with `expected.csv`, and count how often it agrees with where voice is.

    python3 check.py out/voice.csv
"""

import csv
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RATE, HOP, LENGTH = 8000, 80, 200
# Message 2 completes the first frame. The low-pass delays a decision by seven frames.
FIRST, LATE = 2, 7


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def runs(flags):
    """Begin and end of each run of true values."""
    edges = [at for at, (a, b) in enumerate(zip([False, *flags], [*flags, False])) if a != b]
    return list(zip(edges[::2], edges[1::2]))


def main():
    found, expected = read(sys.argv[1]), read(HERE / "expected.csv")
    assert len(found) == len(expected), f"{len(found)} rows, {len(expected)} expected"
    for row, right in zip(found, expected):
        same = row["seq"] == right["seq"] and row["voice_0"] == right["voice_0"]
        assert same and abs(float(row["level_0"]) - float(right["level_0"])) < 1e-3, f"{row}, expected {right}"

    spans = [(float(row["begin"]) * RATE, float(row["end"]) * RATE) for row in read(HERE / "truth.csv")]
    heard = [row["voice_0"] == "1" for row in found][LATE:]
    middles = [(int(row["seq"]) - FIRST) * HOP + LENGTH / 2 for row in found]
    truth = [any(begin <= middle < end for begin, end in spans) for middle in middles][: len(heard)]
    both, either = sum(h and t for h, t in zip(heard, truth)), sum(heard) + sum(truth)
    accuracy, f1 = sum(h == t for h, t in zip(heard, truth)) / len(truth), 2 * both / either
    noticed = sum(any(heard[begin:end]) for begin, end in runs(truth))
    print(f"voice: {len(truth)} frames, accuracy {accuracy:.4f}, F1 {f1:.4f}, {noticed} of {len(spans)} phrases noticed")
    assert accuracy >= 0.94 and f1 >= 0.95 and noticed == len(spans), "worse than it was"


if __name__ == "__main__":
    main()
