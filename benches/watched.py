#!/usr/bin/env python3
"""Measures what it costs a run to be watched by `limen-top` (docs/monitor.md): throughput of a saturated chain, and p50 and p99 of a paced
one, without a monitor, with one that nobody asks, and watched once a second on a terminal of 80 by 24. The three take turns.

    cargo build --release -p limen-tools -p limen-top
    benches/watched.py [ROUNDS] [SECONDS]
"""

import fcntl
import json
import os
import pathlib
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading

BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parent.parent / "target")) / "release"
NODES = 8


def graph(paced):
    rate = ", rate: 10kHz" if paced else ""
    lines = ["version: 1", "graph: watched", "nodes:"]
    lines.append(f"  n0: {{ kind: synthetic, core: 0, config: {{ pattern: counter, dtype: u8, shape: [64]{rate} }} }}")
    lines += [f"  n{at}: {{ kind: pass, core: 0, from: n{at - 1} }}" for at in range(1, NODES + 1)]
    lines.append(f"  end: {{ kind: 'null', core: 0, from: n{NODES} }}")
    return "\n".join(lines) + "\n"


def watch(environment):
    """Starts `limen-top` on a terminal of its own, which is read and thrown away; returns its process."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([BUILT / "limen-top"], stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    drawn = bytearray()

    def read():
        try:
            while chunk := os.read(master, 65536):
                drawn.extend(chunk)
        except OSError:
            pass
        os.close(master)

    reader = threading.Thread(target=read)
    reader.start()
    return process, reader, drawn


def run(folder, file, how, seconds):
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
    words = [BUILT / "limen-run", file, "--json", "--duration", f"{seconds}s", "--warmup", "1s"]
    words += [] if how == "none" else ["--monitor"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if how == "watched":
        # Until the socket is there.
        for line in child.stderr:
            if "can watch at" in line:
                break
        process, reader, drawn = watch(environment)
    out, err = child.communicate()
    if how == "watched":
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        reader.join()
        shown = b"watched" in drawn and b"calls/s" in drawn
        # It has left the alternate screen too.
        assert code == 0 and shown and b"\x1b[?1049l" in drawn, (code, bytes(drawn[-500:]))
    assert child.returncode == 0, err
    report = json.loads(out)
    end = next(node for node in report["nodes"] if node["name"] == "end")
    path = report["paths"][0]
    return end["done"] / report["wall_s"], path["p50"], path["p99"]


def main():
    rounds, seconds = (int(word) for word in (sys.argv[1:] + ["6", "5"][len(sys.argv) - 1 :])[:2])
    sides = ["none", "monitor", "watched"]
    with tempfile.TemporaryDirectory() as folder:
        for paced, of in ((False, ["M messages/s"]), (True, ["p50 ns", "p99 ns"])):
            file = pathlib.Path(folder) / "graph.yaml"
            file.write_text(graph(paced))
            found = {side: [] for side in sides}
            for at in range(rounds):
                # The order changes, because a host slows down and recovers.
                for side in sides[at % 3 :] + sides[: at % 3]:
                    found[side].append(run(folder, file, side, seconds))
            for column, unit in zip((1, 2) if paced else (0,), of):
                scale = 1e6 if unit.startswith("M") else 1
                base = statistics.median(one[column] for one in found["none"])
                for side in sides:
                    values = sorted(one[column] / scale for one in found[side])
                    middle = statistics.median(values)
                    change = 100 * (middle * scale / base - 1)
                    print(f"{unit:13} {side:8} median {middle:9.2f}  {values[0]:9.2f} to {values[-1]:9.2f}  {change:+.2f} %", flush=True)


main()
