#!/usr/bin/env python3
"""Makes three systems with `limen-run new FOLDER --model FILE` and at most five edited lines, and compares them with Python on the same data.

    pip install numpy onnx onnxruntime opencv-python-headless pillow pyclipper pyyaml shapely
    systems.py --limen-run target/release/limen-run --folder /tmp/models

| system | from a file to a file | compared with |
|---|---|---|
| `voice` | a minute of speech, a voice detector, a table | the loop of the package silero-vad |
| `people` | photos, a YOLO detector, boxes | the package nudenet |
| `reader` | a page, a detector of text, a model that reads each line, corners with their text | the package rapidocr-onnxruntime |

FOLDER is that of `models.py`, which fetches the packages; limen-run is built with the cargo features `tract` and `ort`. Every system runs
on each backend. The script prints the edited lines, where a backend refuses a model, and the greatest differences. It exits with 1 if one is
too large, or if a backend refuses.
"""
import argparse, csv, difflib, json, math, shutil, subprocess, sys, wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data import Data
from models import BACKENDS, Files, library, session_of

OCR = "rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4"
MOST_EDITS = 5

# What is edited in the graphs of `limen-run new`: the text there, and what takes its place.
VOICE = [("frames: 512, ", "frames: 512, context: 64, "), (", verify: { case: verify.npz }", "")]
PEOPLE = [
    ("  scaled:\n", "  bgr: { kind: colour, config: { to: bgr }, from: camera/image }\n  scaled:\n"),
    ("    from: camera/image\n", "    from: bgr\n"),
    ("width: 320, height: 320 }", "width: 320, height: 320, at: top_left, fill: 0, order: fill_first }"),
    ("iou: 0.45 }", "iou: 0.45, across_classes: true }"),
]
READER = [
    ("width: 640, height: 640, ", "width: 1280, height: 800, "),
    ("mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]", "mean: [0.5], std: [0.5]"),
    (", verify: { case: detector.npz }", ""),
    ("box_threshold: 0.6, unclip: 1.5, ", "box_threshold: 0.5, unclip: 1.6, dilation: true, "),
]

# The package expands quads by whole pixels. The model then finds or misses a space where letters are far apart or close.
MOST_PIXELS, MOST_SCORE = 2, 0.1
PAGE = [
    (44, 60, 50, "Robot 7 reports: all wheels turn", (20, 20, 90)),
    (36, 80, 160, "The door on the left is open", (0, 0, 0)),
    (40, 60, 260, "Battery 83.5 % at 14:27", (120, 10, 10)),
    (52, 100, 370, "Stop at the table", (0, 70, 0)),
    (34, 60, 480, "Speed 1.25 m/s, limit 2.00 m/s", (0, 0, 0)),
    (30, 60, 590, "left shelf", (0, 0, 0)),
    (30, 700, 592, "right shelf", (0, 0, 0)),
    (28, 90, 690, "limen reads this line too.", (30, 30, 30)),
]


class System:
    """A folder with a graph that `limen-run new` wrote and that was then edited."""

    def __init__(self, name: str, models: list[Path], edits: list[tuple[str, str]], options: argparse.Namespace):
        self.name, self.program, self.failed = name, options.limen_run, False
        self.folder = options.folder / "systems" / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        done = self.limen("new", self.folder, *(part for model in models for part in ("--model", model)))
        if done.returncode:
            sys.exit(done.stderr)
        graph = self.folder / "graph.yaml"
        before = after = graph.read_text()
        for old, new in edits:
            if after.count(old) != 1:
                sys.exit(f"`limen-run new` no longer writes one `{old}`:\n{before}")
            after = after.replace(old, new)
        graph.write_text(after)
        changes = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
        changes = [line for line in changes if not line.startswith("@@")]
        count = sum(line.startswith("+") for line in changes)
        print(f"\n{name}: {count} lines changed or added")
        print("\n".join(f"    {line}" for line in changes), flush=True)
        if count > MOST_EDITS:
            self.check(f"more than {MOST_EDITS} edits", False)

    def limen(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run([self.program, *arguments, "--onnxruntime", library()], capture_output=True, text=True)

    def run(self, output: str, models=("model",)):
        """Runs the graph on each backend, and gives the backend with the path of the output."""
        for backend in BACKENDS:
            out = self.folder / backend
            sets = [part for model in models for part in ("--set", f"nodes.{model}.config.backend={backend}")]
            done = self.limen("run", self.folder / "graph.yaml", "--quiet", "--out", out, *sets)
            if done.returncode:
                self.check(f"{backend}: {done.stderr.splitlines()[0][:160]}", False)
            else:
                yield backend, out / "out" / output

    def check(self, text: str, right: bool) -> None:
        self.failed |= not right
        print(f"  {text}{'' if right else '  WRONG'}", flush=True)


# A minute of speech.


def voice(options: argparse.Namespace, files: Files) -> System:
    model = files / "silero-vad/silero_vad/data/silero_vad.onnx"
    system = System("voice", [model], VOICE, options)
    sound = Data(files).speech(60 * 16000 + 200, 1)[0]
    with wave.open(str(system.folder / "sound.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((sound * 32768).astype("<i2").tobytes())
    expected = probabilities(session_of(model), sound)
    for backend, path in system.run("output.csv"):
        got = np.array([row[1:] for row in csv.reader(path.open())][1:], np.float64).reshape(-1)
        off = np.abs(got - expected).max() if got.shape == expected.shape else math.inf
        system.check(f"{backend}: {len(got)} probabilities, off by at most {off:.1e}", off < 1e-5)
    return system


def probabilities(session, sound: np.ndarray) -> np.ndarray:
    """A probability for each 512 samples, which the model gets behind the last 64 of those before."""
    state, context, found = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
    for samples in np.pad(sound, (0, -len(sound) % 512)).reshape(-1, 512):
        window = np.concatenate([context, samples])
        output, state = session.run(None, {"input": window[None], "state": state, "sr": np.array(16000)})
        found.append(output.item())
        context = window[-64:]
    return np.array(found)


# Photos.


def people(options: argparse.Namespace, files: Files) -> System:
    model = files / "nudenet/nudenet/320n.onnx"
    system = System("people", [model], PEOPLE, options)
    photos(files, system.folder / "images")
    sys.path.insert(0, str(files.folder / "nudenet"))
    from nudenet import nudenet

    # The package rounds the corners to whole pixels.
    nudenet.int = float
    detector, labels = nudenet.NudeDetector(str(model)), getattr(nudenet, "__labels")
    for backend, path in system.run("boxes.jsonl"):
        worst, found = [0.0, 0.0], 0
        for row in map(json.loads, path.open()):
            expected = detector.detect(str(system.folder / "images" / row["name"]))
            same = [labels[int(box[5])] for box in row["boxes"]] == [box["class"] for box in expected]
            found += len(expected)
            for box, other in zip(row["boxes"], expected):
                x, y, width, height = other["box"]
                off = np.abs(np.array(box[:4]) - [x, y, x + width, y + height]).max()
                worst = np.maximum(worst, [off, abs(box[4] - other["score"])])
            if not same:
                system.check(f"{backend}: {row['name']} has {len(row['boxes'])} boxes instead of {len(expected)}", False)
        pixels, score = worst
        text = f"{backend}: corners off by at most {pixels:.1e} pixels, scores by {score:.1e}"
        system.check(text, pixels < 1e-3 and score < 1e-5)
        system.check(f"{backend}: {found} boxes", found > 0)
    return system


def photos(files: Files, to: Path) -> None:
    """Photos of several sizes, instead of the sample of `limen-run new`."""
    for sample in to.iterdir():
        sample.unlink()
    names = ["astronaut", "camera", "coffee", "moon", "phantom"]
    pictures = {name: Image.open(files / f"scikit-image/skimage/data/{name}.png").convert("RGB") for name in names}
    face = pictures["astronaut"]
    pictures["two"] = Image.new("RGB", (1024, 512))
    pictures["two"].paste(face, (0, 0))
    pictures["two"].paste(pictures["camera"], (512, 0))
    pictures["tall"] = face.crop((100, 20, 400, 500))
    pictures["fraction"] = face.crop((60, 0, 451, 300))
    for name, picture in pictures.items():
        picture.save(to / f"{name}.png")


# A page of text.


def reader(options: argparse.Namespace, files: Files) -> System:
    system = System("reader", [files / f"{OCR}_{model}_infer.onnx" for model in ("det", "rec")], READER, options)
    for sample in (system.folder / "images").iterdir():
        sample.unlink()
    picture = system.folder / "images/page.png"
    page().save(picture)
    sys.path.insert(0, str(files.folder / "rapidocr-onnxruntime"))
    from rapidocr_onnxruntime import RapidOCR

    # All lines in one width, as in the graph, instead of that of the widest of six.
    package = RapidOCR(use_cls=False, rec_img_shape=[3, 48, 800])
    expected = package(str(picture))[0]
    for backend, path in system.run("lines.jsonl", ["detector", "reader"]):
        (row,) = map(json.loads, path.open())
        compare_lines(system, backend, list(zip(row["quads"], row["text"].split("\n"), row["score"])), expected)
    return system


def compare_lines(system: System, backend: str, got: list, expected: list) -> None:
    """Compares corners, texts and scores, and prints the lines that differ."""
    pairs = list(zip(got, expected))
    pixels = max((np.abs(np.subtract(a[0], np.ravel(b[0]))).max() for a, b in pairs), default=math.inf)
    score = max((abs(a[2] - b[2]) for a, b in pairs), default=math.inf)
    texts = [(a[1], b[1]) for a, b in pairs]
    equal = sum(a == b for a, b in texts)
    same = all(a.replace(" ", "") == b.replace(" ", "") for a, b in texts)
    right = len(got) == len(expected) and same and pixels < MOST_PIXELS and score < MOST_SCORE
    text = f"{backend}: {equal} of {len(expected)} texts equal, corners off by at most {pixels:.1e} pixels, scores by {score:.1e}"
    system.check(text, right)
    for a, b in texts:
        if a != b:
            print(f"    `{a}` instead of `{b}`")


def page() -> Image.Image:
    picture = Image.new("RGB", (1280, 800), (250, 246, 235))
    draw = ImageDraw.Draw(picture)
    for size, x, y, text, colour in PAGE:
        draw.text((x, y), text, font=ImageFont.load_default(size), fill=colour)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limen-run", type=lambda path: Path(path).resolve(), required=True, help="the program, with the features tract and ort")
    parser.add_argument("--folder", type=lambda path: Path(path).resolve(), required=True, help="where packages and graphs are kept")
    options = parser.parse_args()
    files = Files(options.folder)
    failed = [system.name for make in (voice, people, reader) if (system := make(options, files)).failed]
    if failed:
        sys.exit("wrong: " + ", ".join(failed))


if __name__ == "__main__":
    main()
