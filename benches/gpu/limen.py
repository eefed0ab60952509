"""What the parts of `run` share: results, runs of limen, and graphs."""
import json, os, re, subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUB = "driver stub, no GPU"


class Skip(Exception):
    """Why a part, or one of its figures, is not measured."""


class Results:
    """Prints each figure, and writes it as a line of `results.jsonl` and of `results.txt`."""

    def __init__(self, folder, device):
        self.device, self.part, self.counts = device, "", {}
        self.is_stub = device == STUB
        self.lines, self.table = (open(folder / name, "w", buffering=1) for name in ("results.jsonl", "results.txt"))

    def say(self, text):
        for line in text.splitlines():
            line = f"{STUB}: {line}" if self.is_stub else line
            print(line, flush=True)
            print(line, file=self.table)

    def add(self, verdict, name, value=None, unit="", note=""):
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        row = dict(device=self.device, part=self.part, name=name, verdict=verdict, value=value, unit=unit, note=note)
        print(json.dumps(row), file=self.lines)
        number = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
        self.say(f"{verdict:8} {name:46} {number + ' ' + unit:>14}  {note}".rstrip())

    def tell(self, name, value=None, unit="", note=""):
        self.add("", name, value, unit, note)

    def judge(self, name, holds, target, value=None, unit="", is_speed=False):
        """A figure with a target. Speed is not judged on the stub, which has none."""
        if is_speed and self.is_stub:
            self.add("skipped", name, value, unit, f"target: {target}; the stub has no speed")
        else:
            self.add("pass" if holds else "FAIL", name, value, unit, f"target: {target}")

    def skip(self, name, why):
        self.add("skipped", name, note=str(why))

    def fail(self, name, error):
        self.add("FAIL", name, note=f"{type(error).__name__}: {error}")


class Limen:
    """Runs graphs, and keeps their reports."""

    def __init__(self, program, folder, work):
        self.program, self.work, self.reports = program, work, folder / "reports"
        self.reports.mkdir(exist_ok=True)

    def command(self, name, nodes, *words):
        """What runs nodes, or the graph in a file."""
        path = nodes if isinstance(nodes, Path) else self.work / f"{name}.yaml"
        if path != nodes:
            path.write_text(json.dumps({"version": 1, "graph": name, "nodes": nodes}))
        out = ["--out", str(self.work / name), "--cache", str(self.work / "cache")]
        return [self.program, "run", str(path), "--allow-kernels", *out, *words]

    def run(self, name, nodes, *words, code=0):
        """The report, and what was printed to stderr."""
        ran = subprocess.run(self.command(name, nodes, "--json", *words), capture_output=True, text=True, timeout=300)
        (self.reports / f"{name}.json").write_text(ran.stdout)
        if ran.returncode != code:
            raise RuntimeError(f"{name}: limen-run exited with {ran.returncode}, not {code}: {ran.stderr.strip()[-600:]}")
        return json.loads(ran.stdout), ran.stderr

    def cuda(self):
        """What `limen-run doctor` says of CUDA, and the name of the first GPU."""
        ran = subprocess.run([self.program, "doctor", "--json"], capture_output=True, text=True, timeout=60)
        found = [row for row in json.loads(ran.stdout)["findings"] if row["what"] == "CUDA"]
        names = [re.match(r"\d+, (.*): compute capability", row["found"]) for row in found]
        return found, next((name[1] for name in names if name), None)


def term(report, node, term):
    """The median of a term in µs."""
    found = next((row["p50"] for row in report["histograms"] if row["tag"] == f"{node}.{term}"), None)
    if found is None:
        raise RuntimeError(f"{report['graph']}: too few samples of {node}.{term}")
    return found / 1e3


def rate(report):
    """Messages per second."""
    return next(node["done"] for node in report["nodes"] if node["name"] == "source") / report["wall_s"]


def synthetic(shape, count, pattern="counter", **more):
    return {"kind": "synthetic", "config": {"pattern": pattern, "dtype": "f32", "shape": shape, "count": count, **more}}


def resident(node, source):
    """A node that stays on the device, between copies; each of the three has a core if there are enough."""
    place = (lambda core: {"core": core}) if len(os.sched_getaffinity(0)) > 2 else lambda _: {}
    return {
        "source": source | place(0),
        "up": {"kind": "to_device", "config": {"device": "cuda"}, "from": "source"} | place(0),
        "m": node | {"inputs": {"x": "up"}} | place(1),
        "down": {"kind": "to_host", "config": {"device": "cuda"}, "from": "m/y"} | place(2),
        "end": {"kind": "null", "from": "down"} | place(2),
    }


def kernel(work, name, inputs, outputs, text, block=1):
    """A node that runs a kernel of CUDA in one block, from `x` to `y`."""
    (work / f"{name}.cu").write_text(f'extern "C" __global__ void {name}(const float *x, float *y) {{ {text} }}\n')
    outputs = {"y": {"dtype": "f32", "shape": outputs}}
    return {"kind": "kernel", "config": {"source": f"{name}.cu", "entry": name, "inputs": {"x": inputs}, "outputs": outputs, "grid": [1],
                                         "block": [block], "arguments": ["x", "y"], "allow_kernels": True}}


def product(work, side, ops=("MatMul",), precision="f32"):
    """A node that applies operators to `x`, of which `MatMul` multiplies by a random matrix, with a recorded case."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    name, random = f"product-{side}-{len(ops)}", np.random.default_rng(side)
    if not (work / f"{name}.onnx").exists():
        weight, x = random.normal(0, side**-0.5, (side, side)).astype(np.float32), random.random((side, side), np.float32)
        names = ["x", *(f"t{at}" for at in range(len(ops) - 1)), "y"]
        nodes = [helper.make_node(op, [names[at], "w"][: 1 + (op == "MatMul")], [names[at + 1]]) for at, op in enumerate(ops)]
        ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [side, side])] for name in "xy"]
        graph = helper.make_graph(nodes, "product", *ports, [numpy_helper.from_array(weight, "w")])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), work / f"{name}.onnx")
        y = x
        for op in ops:
            y = y @ weight if op == "MatMul" else y
        np.savez(work / f"{name}.npz", x=x, y=y)
    atol = {"f32": 1e-3, "tf32": 1e-2, "f16": 5e-2}[precision]
    config = {"model": f"{name}.onnx", "backend": "cuda", "precision": precision, "verify": {"case": f"{name}.npz", "atol": atol}}
    return {"kind": "infer", "config": config}
