#!/usr/bin/env python3
"""The same chain in limen and in other engines, one configuration after the other in one session.

    peers.py build     builds every harness (Rust; GStreamer's where pkg-config finds gstreamer-1.0)
    peers.py run       one session, appended to results/<time>.jsonl
    peers.py table     the newest session as Markdown; or of the files named

A source sends messages through K pass-through nodes to a sink that reads stamp and number; 64 bytes, and 1 MiB by handle.
Saturated, and paced open loop at 1 and 10 kHz. REPS (3), SECS (1, saturated), SECS_10K (2), SECS_1K (3) and ONLY (engines, comma
separated) come from the environment. Figures are medians over repetitions, the worst max/min beside them. While a run is measured
the rest of the machine is watched: one that was disturbed by more than a seventh of a core is repeated twice, then marked and kept
out of the table. A harness that fails, or that loses a message, ends the session.
"""
import collections, glob, json, os, platform, resource, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
REPS = int(os.environ.get("REPS", "3"))
SECS = {0: float(os.environ.get("SECS", "1")), 10000: float(os.environ.get("SECS_10K", "2")), 1000: float(os.environ.get("SECS_1K", "3"))}
ONLY = [e for e in os.environ.get("ONLY", "").split(",") if e]
KS = (1, 2, 4, 8)
MIB = 1 << 20
CALM = 0.15
GST = os.path.join(TARGET, "gst-chain")


def binary(name):
    folder = os.path.join(TARGET, "futuresdr") if name == "futuresdr" else TARGET
    return os.path.join(folder, "release", "peers-" + name)


def build():
    cargo = ["cargo", "build", "--release", "--locked"]
    env = dict(os.environ, CARGO_TARGET_DIR=TARGET)
    subprocess.check_call(cargo + ["--workspace", "--exclude", "peers-futuresdr", "--exclude", "peers-classify"], cwd=HERE, env=env)
    # FutureSDR 0.8 asks for features of a nightly compiler; this lets it have them on a stable one, in a folder of its own.
    env = dict(os.environ, CARGO_TARGET_DIR=os.path.join(TARGET, "futuresdr"), RUSTC_BOOTSTRAP="1")
    env["RUSTFLAGS"] = "-Zcrate-attr=feature(float_algebraic)"
    subprocess.check_call(cargo + ["-p", "peers-futuresdr"], cwd=HERE, env=env)
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "gstreamer-1.0"], capture_output=True, text=True)
    if found.returncode:
        print("GStreamer is left out: apt install libgstreamer1.0-dev gstreamer1.0-tools", file=sys.stderr)
    else:
        subprocess.check_call(["cc", "-O2", "-o", GST, f"{HERE}/gstreamer/chain.c"] + found.stdout.split())
        if not subprocess.run(["pkg-config", "--exists", "gstreamer-app-1.0"]).returncode:
            subprocess.check_call(cargo + ["-p", "peers-classify"], cwd=HERE, env=dict(os.environ, CARGO_TARGET_DIR=TARGET))


def graph(k, payload, rate, form, cores, wait, capacity):
    """The chain as a limen user would write it."""
    nodes = k + 2
    pace = f", rate: {rate}.0" if rate else ""
    text = "version: 1\ngraph: chain\nnodes:\n"
    for i in range(nodes):
        kind = "source" if i == 0 else "sink" if i == nodes - 1 else "pass"
        come = f", from: {{ from: n{i - 1}{capacity} }}" if i else ""
        text += f"  n{i}: {{ kind: {form}_{kind}, config: {{ bytes: {payload}{pace} }}, core: {i * cores // nodes}{come} }}\n"
    text += "cores:\n" + "".join(f"  {c}: {{ wait: {wait} }}\n" for c in range(cores))
    return text + "run: { stop: 10s, strict: true }\n"


def limen(k, payload, rate, form, cores=1, wait="adaptive", telemetry="auto", singly=False, folder=None):
    path = os.path.join(folder, "chain.yaml")
    with open(path, "w") as f:
        f.write(graph(k, payload, rate, form, cores, wait, ", capacity: 1" if singly else ""))
    out = json.loads(run([binary("limen"), path, "--duration", f"{SECS[rate]}s", "--telemetry", telemetry, "--json"]))
    sink = next(n for n in out["nodes"] if n["name"] == f"n{k + 1}")["metrics"]
    if sink["intact"] != 1.0:
        sys.exit("limen lost a message, or its order")
    row = dict(n=sink["count"], msgs_per_s=sink["count"] / sink["seconds"], cpu_ns_per_msg=sink["cpu_seconds"] * 1e9 / sink["count"],
               cpu_pct=100 * sink["cpu_seconds"] / out["wall_s"], peak_kib=sink["peak_kib"])
    if rate:
        row.update(p50_ns=sink["p50"], p99_ns=sink["p99"], p999_ns=sink["p999"], max_ns=sink["max"])
    return row


def harness(name, **keys):
    return json.loads(run([binary(name)] + [f"{k}={v}" for k, v in keys.items()]))


def run(command):
    p = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = [line for line in p.stdout.splitlines() if line.startswith("{")]
    if p.returncode or not (lines or p.stdout.startswith("{")):
        sys.exit(f"{' '.join(command)} ended with {p.returncode}: {p.stderr[-800:]}")
    return p.stdout if p.stdout.startswith("{\n") else lines[-1]


def engines(k, payload, rate, folder):
    """Name, how messages travel, and the measurement."""
    secs, small = SECS[rate], payload == 64
    common = dict(k=k, payload=payload, rate=rate, secs=secs)
    how = "value" if small else "handle"
    queues = dict(common, mode="inline" if small else "handle")
    yield "dynamic calls, one thread", how, lambda: harness("queues", engine="calls", **queues)
    yield "limen, one core", "handle", lambda: limen(k, payload, rate, "handle", folder=folder)
    if small:
        yield "limen, one core", "value", lambda: limen(k, payload, rate, "value", folder=folder)
    if not rate:
        yield "limen, one core, telemetry off", "handle", lambda: limen(k, payload, rate, "handle", telemetry="off", folder=folder)
        yield "limen, one core, singly", "handle", lambda: limen(k, payload, rate, "handle", singly=True, folder=folder)
        full = dict(singly=True, telemetry="full", folder=folder)
        yield "limen, one core, singly, all recorded", "handle", lambda: limen(k, payload, rate, "handle", **full)
    yield "limen, two cores", "handle", lambda: limen(k, payload, rate, "handle", cores=2, folder=folder)
    if rate:
        asleep = dict(cores=2, wait="park", folder=folder)
        yield "limen, two cores, asleep", "handle", lambda: limen(k, payload, rate, "handle", **asleep)
        awake = dict(cores=2, wait="spin", folder=folder)
        yield "limen, two cores, awake", "handle", lambda: limen(k, payload, rate, "handle", **awake)
        # What a wake costs by itself: the source's thread and the sink's, pinned, with no node between them.
        bare = dict(queues, k=0, policy="park", map="blk")
        yield "a ring and a futex, no node", how, lambda: harness("queues", engine="rtrb", **bare)
    yield "rtrb, a thread a node", how, lambda: harness("queues", engine="rtrb", policy="park", **queues)
    if not rate and small:
        yield "rtrb, a thread a node, chunks of 64", how, lambda: harness("queues", engine="rtrb", policy="park", batch=64, **queues)
    yield "crossbeam channel, a thread a node", how, lambda: harness("queues", engine="crossbeam", **queues)
    yield "std channel, a thread a node", how, lambda: harness("queues", engine="std", **queues)
    yield "copper 1.3.1, without its log", "value" if small else "handle", lambda: harness("copper", **common)
    if small:
        log = os.path.join(folder, "log.copper")
        yield "copper 1.3.1, with its log", "value", lambda: harness("copper", log=log, **common)
        yield "FutureSDR 0.8, one thread", "value", lambda: harness("futuresdr", sched="smol1", **common)
        yield "FutureSDR 0.8, two threads, pinned", "value", lambda: harness("futuresdr", sched="flow", **common)
    yield "lmflow 0.3.3, one executor", "handle", lambda: harness("lmflow", layout="one", **common)
    if not rate:
        yield "lmflow 0.3.3, one executor, batches", "handle", lambda: harness("lmflow", layout="one", batch=64 if small else 16, **common)
    if os.path.exists(GST):
        for layout, name in (("none", "GStreamer, no queue"), ("queues", "GStreamer, a queue a node")):
            yield name, "handle", lambda layout=layout: json.loads(run([GST, str(k), str(payload), str(secs), str(rate), layout]))


def busy():
    """CPU seconds of the whole machine so far."""
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6] + fields[7]) / os.sysconf("SC_CLK_TCK")


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watched(measure):
    """A measurement, and how many cores everything else used meanwhile."""
    best = None
    for _ in range(3):
        t, b, c = time.monotonic(), busy(), children()
        row = measure()
        wall = time.monotonic() - t
        other = max(0.0, (busy() - b) - (children() - c)) / wall
        if best is None or other < best[1]:
            best = row, other
        if other < CALM:
            break
    return best


def host():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    governor = open(governor).read().strip() if os.path.exists(governor) else "not visible"
    return f"{len(os.sched_getaffinity(0))} cores, {cpu}, Linux {platform.release()}, SCHED_OTHER, governor {governor}"


def session():
    os.makedirs(f"{HERE}/results", exist_ok=True)
    path = f"{HERE}/results/{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    with open(path, "w") as out, tempfile.TemporaryDirectory() as folder:
        out.write(json.dumps(dict(host=host(), reps=REPS, secs=SECS)) + "\n")
        for rep in range(REPS):
            for rate, payload in ((0, 64), (0, MIB), (10000, 64), (1000, 64)):
                for k in KS:
                    for engine, form, measure in engines(k, payload, rate, folder):
                        if ONLY and not any(engine.startswith(name) for name in ONLY):
                            continue
                        row, other = watched(measure)
                        keep = ("n", "msgs_per_s", "cpu_pct", "cpu_ns_per_msg", "peak_kib", "p50_ns", "p99_ns", "p999_ns", "max_ns")
                        row = {key: row[key] for key in keep if key in row}
                        row.update(engine=engine, form=form, k=k, payload=payload, rate=rate, other_cores=round(other, 3))
                        out.write(json.dumps(row) + "\n")
                        out.flush()
                        for log in glob.glob(folder + "/*.copper*"):
                            os.remove(log)
    print(path)


def si(value):
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def us(ns):
    return f"{ns / 1e3:.3g}"


def table(files):
    rows, kept_out, heads = collections.OrderedDict(), 0, []
    for line in (line for f in files for line in open(f)):
        row = json.loads(line)
        if "host" in row:
            heads.append(f"{row['host']}; {row['reps']} repetitions; seconds a run {row['secs']}")
        elif row["other_cores"] >= CALM:
            kept_out += 1
        else:
            rows.setdefault((row["rate"], row["payload"], row["engine"], row["form"]), {}).setdefault(row["k"], []).append(row)
    print("\n".join(dict.fromkeys(heads)) + f"; {kept_out} disturbed runs kept out")
    median = lambda runs, key: statistics.median(r[key] for r in runs)
    for rate, payload in dict.fromkeys((key[0], key[1]) for key in rows):
        some = {key: by_k for key, by_k in rows.items() if key[:2] == (rate, payload)}
        size = "64 B" if payload == 64 else "1 MiB"
        if rate:
            print(f"\n**{size} at {rate} messages/s: p50 / p99 / p99.9 / max, us**\n")
        else:
            print(f"\n**{size}, saturated, messages/s**\n")
        last = "worst max/min of p50 | CPU %" if rate else "worst max/min | ns CPU a message | peak MiB"
        print(f"| engine | travels by | " + " | ".join(f"K={k}" for k in KS) + f" | {last} |")
        print("|" + "---|" * (2 + len(KS) + last.count("|") + 1))
        for (_, _, engine, form), by_k in some.items():
            most = by_k.get(8) or list(by_k.values())[-1]
            what = "p50_ns" if rate else "msgs_per_s"
            spread = max(max(r[what] for r in runs) / min(r[what] for r in runs) for runs in by_k.values())
            if rate:
                cell = lambda runs: " / ".join(us(median(runs, q)) for q in ("p50_ns", "p99_ns", "p999_ns", "max_ns"))
                tail = f"{spread:.2f} | {median(most, 'cpu_pct'):.1f}"
            else:
                cell = lambda runs: si(median(runs, what))
                tail = f"{spread:.2f} | {median(most, 'cpu_ns_per_msg'):.3g} | {median(most, 'peak_kib') / 1024:.1f}"
            cells = [cell(by_k[k]) if k in by_k else "" for k in KS]
            print(f"| {engine} | {form} | " + " | ".join(cells) + f" | {tail} |")


def main():
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "build":
        build()
    elif verb == "run":
        session()
    elif verb == "table":
        table(sys.argv[2:] or sorted(glob.glob(f"{HERE}/results/*.jsonl"))[-1:])
    else:
        sys.exit(__doc__)


main()
