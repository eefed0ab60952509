#!/usr/bin/env python3
"""Measures what it costs a run to be watched by `limen-top` (docs/monitor.md), which asks once a second and draws a terminal of 80 by 24.

    cargo build --release -p limen-tools -p limen-top
    benches/watched.py [PAIRS] [SECONDS]

A chain of eight nodes on one core is saturated, then paced at 10 kHz, then at 10 Hz, where the CPU time of its worker is what being watched
costs it, because the copies for a window do not depend on the load. `limen-top` is stopped (SIGSTOP) and continued in turns, so that both
sides are in one run and a drift of the host meets both alike; which side of a pair comes first changes. At the end of each side this script
asks once, so the difference is what `limen-top` asks. Printed: the median of each side, and the mean of the pairs' ratios with its standard
error; and the CPU time a second of the run's worker, of its thread that answers, and of `limen-top`.
"""

import fcntl
import json
import math
import os
import pathlib
import pty
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parent.parent / "target")) / "release"
NODES = 8


def graph(rate):
    rate = f", rate: {rate}" if rate else ""
    lines = ["version: 1", "graph: watched", "nodes:"]
    lines.append(f"  n0: {{ kind: synthetic, core: 0, config: {{ pattern: counter, dtype: u8, shape: [64]{rate} }} }}")
    lines += [f"  n{at}: {{ kind: pass, core: 0, from: n{at - 1} }}" for at in range(1, NODES + 1)]
    lines.append(f"  end: {{ kind: 'null', core: 0, from: n{NODES} }}")
    return "\n".join(lines) + "\n"


def watch(environment):
    """Starts `limen-top` on a terminal of its own; returns its process, and the thread and buffer that take what it draws."""
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


def cpu(pid, threads="*"):
    """The CPU time of the threads of a process, s."""
    return sum(int(file.read_text().split()[0]) for file in pathlib.Path(f"/proc/{pid}/task").glob(f"{threads}/schedstat")) / 1e9


def measure(folder, rate, pairs, seconds):
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
    file = pathlib.Path(folder) / "graph.yaml"
    file.write_text(graph(rate))
    words = [BUILT / "limen-run", file, "--json", "--monitor"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = next(line for line in run.stderr if "can watch at" in line)
    client = socket.socket(socket.AF_UNIX)
    client.connect(line.split("can watch at ")[1].strip())
    lines = client.makefile("rw")

    def ask(what="stats"):
        print(json.dumps({"ask": what}), file=lines, flush=True)
        return json.loads(lines.readline()).get("stats")

    top, reader, drawn = watch(environment)
    time.sleep(2)
    tasks = pathlib.Path(f"/proc/{run.pid}/task")
    worker = next(task.name for task in tasks.iterdir() if (task / "comm").read_text() == "limen-0\n")

    def used():
        return cpu(run.pid, worker), cpu(run.pid, run.pid), cpu(top.pid)

    found, spent = {True: [], False: []}, []
    for pair in range(pairs):
        for watched in (True, False) if pair % 2 else (False, True):
            top.send_signal(signal.SIGCONT if watched else signal.SIGSTOP)
            time.sleep(0.2)
            before, then = ask(), used()
            time.sleep(seconds)
            now = ask()
            within = now["elapsed_s"] - before["elapsed_s"]
            window = now["paths"][0]["latency"]
            rate = (now["nodes"][-1]["done"] - before["nodes"][-1]["done"]) / within
            found[watched].append((rate / 1e6, window["p50"], window["p99"]))
            spent.append((watched, within, *(after - begun for after, begun in zip(used(), then))))
    top.send_signal(signal.SIGCONT)
    top.send_signal(signal.SIGTERM)
    assert top.wait() == 0
    reader.join()
    # It has drawn, and has left the alternate screen.
    assert b"calls/s" in drawn and b"\x1b[?1049l" in drawn, bytes(drawn[-500:])
    ask("stop")
    run.communicate()
    assert run.returncode == 0
    return found, spent


def main():
    pairs, seconds = (int(word) for word in (sys.argv[1:] + ["20", "2"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as folder:
        for rate, columns in (("", {"M messages/s": 0}), ("10kHz", {"p50, ns": 1, "p99, ns": 2}), ("10Hz", {})):
            found, spent = measure(folder, rate, pairs, seconds)
            for name, column in columns.items():
                on, off = ([one[column] for one in found[side]] for side in (True, False))
                ratios = [100 * (a / b - 1) for a, b in zip(on, off)]
                error = statistics.stdev(ratios) / math.sqrt(pairs)
                print(
                    f"{name:13} watched {statistics.median(on):10.2f}  not {statistics.median(off):10.2f}  "
                    f"{statistics.mean(ratios):+.2f} ± {error:.2f} %, median {statistics.median(ratios):+.2f} %",
                    flush=True,
                )
            for side in (True, False):
                sums = [sum(column) for column in zip(*(one[1:] for one in spent if one[0] == side))]
                worker, answering, top = (f"{1e3 * used / sums[0]:.2f} ms/s" for used in sums[1:])
                print(f"  {rate or 'saturated'}, {'watched' if side else 'not'}: worker {worker}, main thread {answering}, limen-top {top}", flush=True)


main()
