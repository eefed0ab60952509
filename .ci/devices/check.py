"""Compares the pictures that limen read from a camera with those that v4l2-ctl read in RGB, and looks at the reports."""

import json
import pathlib
import struct
import sys

import numpy as np

out = pathlib.Path(sys.argv[1])
raw = np.fromfile(out / "raw.rgb", np.uint8)[-320 * 240 * 3 :].reshape(240, 320, 3).astype(int)
assert raw.std() > 30, "the driver's picture is flat"
for name in ("rgb", "bgr", "yuyv", "nv12", "grey"):
    frames = np.load(out / f"{name}.npy").astype(int)
    assert frames.shape == (5, 240, 320) + (() if name == "grey" else (3,)), (name, frames.shape)
    # The driver's grey is luma by BT.709, from 0 to 255.
    grey = raw @ np.array([0.2126, 0.7152, 0.0722])
    difference = np.abs(frames[-1] - (grey if name == "grey" else raw))
    # Chroma is shared by pixels beside each other, which shows at the edges of the bars.
    inner = np.percentile(difference, 90)
    print(f"cameras: {name} differs from RGB by {inner:.1f} at most in nine of ten values, {difference.mean():.2f} in the mean")
    assert inner <= 4 and difference.mean() < 4, name
    if name in ("rgb", "bgr"):
        assert difference.max() == 0, name
for name in ("webcam", "large", "dropped", "fatal", "unplugged"):
    report = json.loads((out / f"{name}.json").read_text())
    metrics = {key: value for key, value in report["metrics"].items() if key.startswith("cam.")}
    print(f"cameras: {name}: {metrics}")
    assert report["bugs"] == [] and report["failed_calls"] == 0, name


def frames(name):
    """The frames that limen received."""
    rows = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
    return [bytes(value) for row in rows for key, value in row.items() if key != "seq"]


def dumped(name):
    """The frames of candump's log: `(time) vcan0 123#0102`."""
    found = []
    for line in (out / f"{name}.log").read_text().splitlines():
        word = line.split()[2]
        identifier, data = word.split("#", 1)
        number = int(identifier, 16) | (1 << 31 if len(identifier) == 8 else 0)
        data = bytes.fromhex(data)
        found.append(struct.pack("<IBBBB", number, len(data), 0, 0, 0) + data)
    return found


seen, others = frames("frames"), dumped("frames")
assert len(others) == 1000 and seen == others, (len(seen), len(others))
words = lambda path: [line.split()[1:] for line in path.read_text().splitlines()]
assert words(out / "frames.limen.log") == words(out / "frames.log"), "the log is not candump's"
assert [frame for _, frame in words(out / "fd.limen.log")][0].split("##")[1][1:] == bytes(range(12)).hex().upper()
number = lambda i, *data: struct.pack("<IBBBB", i, len(data), 0, 0, 0) + bytes(data)
assert frames("chosen")[:2] == [number(0x123, 1, 2), number(0x18FEF100 | 1 << 31, 4, 5, 6)], frames("chosen")
fd = frames("fd")
assert fd[0][:5] == struct.pack("<IB", 0x213, 12) and fd[0][8:] == bytes(range(12)), fd
assert fd[1] == number(0x7FF, 0x11), fd
assert dumped("through") == [struct.pack("<IBBBBH", 0x200, 2, 0, 0, 0, min(speed, 1000)) for speed in (10, 1000, 1001, 65535)]
print(f"bus: {len(seen)} frames are those of candump; chosen identifiers, CAN FD, and a bus through a formula are right")
