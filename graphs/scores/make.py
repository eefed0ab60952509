"""Write `scores.npy`, the scores of 6 classes for 50 frames, and `expected.csv`, what the graph makes of them.

It needs nothing but Python: the format is a header and the numbers.

    python make.py
"""

from array import array
from math import exp
from pathlib import Path

HERE = Path(__file__).resolve().parent
FRAMES, CLASSES = 50, 6


def scores():
    """Numbers from -4 up to 4, each a multiple of 1/1024, so that they are the same in single precision."""
    state, rows = 1, []
    for _ in range(FRAMES):
        row = []
        for _ in range(CLASSES):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append((state >> 19) / 1024 - 4)
        rows.append(row)
    return rows


def main():
    rows = scores()
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({FRAMES}, {CLASSES}), }}"
    header = header.ljust(128 - 10 - 1).encode() + b"\n"
    numbers = array("f", [score for row in rows for score in row])
    (HERE / "scores.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + numbers.tobytes())
    lines = ["seq,class,chance"]
    for seq, row in enumerate(rows):
        best = max(range(CLASSES), key=lambda i: row[i])
        chance = 1 / sum(exp(score - row[best]) for score in row)
        lines.append(f"{seq},{best},{chance:.6f}")
    (HERE / "expected.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
