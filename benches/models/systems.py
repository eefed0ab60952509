#!/usr/bin/env python3
"""Makes three systems with `limen-run new FOLDER --model FILE` and at most five edited lines, and compares them with Python on the same data.

    pip install numpy onnx onnxruntime opencv-python-headless pillow pyclipper pyyaml shapely
    systems.py --limen-run target/release/limen-run --folder /tmp/models

| system | from a file to a file | compared with |
|---|---|---|
| `voice` | a minute of speech, a voice detector, a table | the loop of the package silero-vad |
| `people` | photos, a YOLO detector, boxes | the package nudenet |
| `reader` | pages, a detector of text, a model that reads each line, corners with their text | the same steps with OpenCV, pyclipper and onnxruntime; for one page also the package rapidocr-onnxruntime |

FOLDER is that of `models.py`, which fetches the packages; limen-run is built with the cargo features `tract` and `ort`. Every system runs
on each backend. The script prints the edited lines, where a backend refuses a model, and the greatest differences. It exits with 1 if one is
too large, or if a backend refuses.
"""
import argparse, csv, difflib, json, math, shutil, subprocess, sys, wave
from pathlib import Path

import cv2
import numpy as np
import pyclipper
from PIL import Image, ImageDraw, ImageFont
from shapely.geometry import Polygon

from data import Data
from models import BACKENDS, Files, library, session_of

OCR = "rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4"
MOST_EDITS = 5

# What is edited in the graphs of `limen-run new`: the text there, and what takes its place.
VOICE = [("frames: 512, ", "frames: 512, context: 64, "), (", verify: { case: verify.npz }", "")]
PEOPLE = [
    ("nodes:\n", "nodes:\n  bgr: { kind: colour, config: { to: bgr }, from: camera/image }\n"),
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

# The greatest differences of corners, in pixels, and of scores.
EXACT = (1e-3, 1e-3)
# The package expands quads by whole pixels. The model then finds or misses a space where letters are far apart or close.
LOOSE = (2, 0.1)
# pyclipper computes in whole numbers: these are the parts of a pixel.
PIXEL = 1 << 16
PAPER = (250, 246, 235)
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


# Pages of text.


def reader(options: argparse.Namespace, files: Files) -> System:
    detector, recognizer = (files / f"{OCR}_{model}_infer.onnx" for model in ("det", "rec"))
    system = System("reader", [detector, recognizer], READER, options)
    images = system.folder / "images"
    for sample in images.iterdir():
        sample.unlink()
    page().save(images / "page.png")
    # At an angle, and in a size that is scaled to a part of the frame.
    page().rotate(4, Image.Resampling.BICUBIC, fillcolor=PAPER).resize((1000, 600)).save(images / "tilted.png")
    sys.path.insert(0, str(files.folder / "rapidocr-onnxruntime"))
    from rapidocr_onnxruntime import RapidOCR

    # All lines in one width, as in the graph, instead of that of the widest of six.
    package = RapidOCR(use_cls=False, rec_img_shape=[3, 48, 800])
    loose = [(np.ravel(quad), text, score) for quad, text, score in package(str(images / "page.png"))[0]]
    sessions = session_of(detector), session_of(recognizer)
    exact = {path.name: list(read_lines(cv2.imread(str(path)), *sessions)) for path in sorted(images.iterdir())}
    for backend, path in system.run("lines.jsonl", ["detector", "reader"]):
        rows = {row["name"]: list(zip(row["quads"], row["text"].split("\n"), row["score"])) for row in map(json.loads, path.open())}
        for name, expected in exact.items():
            compare_lines(system, f"{backend}, the same steps, {name}", rows[name], expected, EXACT)
        compare_lines(system, f"{backend}, the package, page.png", rows["page.png"], loose, LOOSE, spaces=False)
    return system


def compare_lines(system: System, name: str, got: list, expected: list, most: tuple[float, float], spaces=True) -> None:
    """Compares corners, texts and scores, and prints the lines that differ."""
    pairs = list(zip(got, expected))
    pixels = max((np.abs(np.subtract(a[0], b[0])).max() for a, b in pairs), default=math.inf)
    score = max((abs(a[2] - b[2]) for a, b in pairs), default=math.inf)
    texts = [(a[1], b[1]) for a, b in pairs]
    equal = sum(a == b for a, b in texts)
    same = equal == len(texts) if spaces else all(a.replace(" ", "") == b.replace(" ", "") for a, b in texts)
    right = len(got) == len(expected) and same and pixels < most[0] and score < most[1]
    text = f"{name}: {equal} of {len(expected)} texts equal, corners off by at most {pixels:.1e} pixels, scores by {score:.1e}"
    system.check(text, right)
    for a, b in texts:
        if a != b:
            print(f"    `{a}` instead of `{b}`")


def page() -> Image.Image:
    picture = Image.new("RGB", (1280, 800), PAPER)
    draw = ImageDraw.Draw(picture)
    for size, x, y, text, colour in PAGE:
        draw.text((x, y), text, font=ImageFont.load_default(size), fill=colour)
    return picture


def read_lines(picture: np.ndarray, detector, recognizer):
    """The steps of the graph: the corners of each line, its text and its score."""
    height, width = picture.shape[:2]
    scale = min(1280 / width, 800 / height)
    wide, high = round(width * scale), round(height * scale)
    frame = np.zeros((800, 1280, 3), np.uint8)
    frame[:high, :wide] = cv2.resize(picture, (wide, high))
    symbols = ["", *recognizer.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    for quad in find_lines(run_on(frame, detector)[0]):
        quad = np.clip(quad / np.float32([wide / width, high / height]), 0, np.float32([width - 1, height - 1]))
        steps = run_on(as_line(cut(picture, quad)), recognizer)
        classes, chances = steps.argmax(1), steps.max(1)
        is_symbol = (classes > 0) & (np.diff(classes, prepend=0) != 0)
        yield quad.ravel(), "".join(symbols[at] for at in classes[is_symbol]), chances[is_symbol].mean()


def run_on(pixels: np.ndarray, session) -> np.ndarray:
    """The output of a model for an image as `[1, c, h, w]` from -1 to 1."""
    planes = ((pixels.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]
    return session.run(None, {session.get_inputs()[0].name: planes})[0][0]


def find_lines(chances: np.ndarray) -> list[np.ndarray]:
    """The corners of the lines in a map of the probability of text, from top to bottom."""
    height, width = chances.shape
    mask = cv2.dilate((chances > 0.3).astype(np.uint8), np.ones((2, 2)))
    count, regions, places, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    quads = []
    for region in range(1, count):
        inside = regions == region
        if places[region][2:4].min() >= 3 and chances[inside].mean() >= 0.5:
            quad = rectangle(np.argwhere(inside)[:, ::-1])
            around = Polygon(quad)
            offset = pyclipper.PyclipperOffset(arc_tolerance=PIXEL / 16)
            offset.AddPath(np.rint(quad * PIXEL).astype(np.int64).tolist(), pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
            expanded = offset.Execute(around.area * 1.6 / around.length * PIXEL)
            quads.append(np.clip(rectangle(np.array(expanded[0]) / PIXEL), 0, [width - 1, height - 1]).astype(np.float32))
    # Lines side by side begin in the same ten pixels on these pages.
    return sorted(quads, key=lambda quad: (quad[0, 1] // 10, quad[0, 0]))


def rectangle(points: np.ndarray) -> np.ndarray:
    """The corners of the smallest rectangle around points: top left, top right, bottom right, bottom left."""
    corners = cv2.boxPoints(cv2.minAreaRect(points.astype(np.float32)))
    corners = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (side[np.argsort(side[:, 1], kind="stable")] for side in (corners[:2], corners[2:]))
    return np.array([left[0], right[0], right[1], left[1]])


def cut(picture: np.ndarray, quad: np.ndarray) -> np.ndarray:
    """What is between four corners."""
    sides = np.linalg.norm(quad - np.roll(quad, -1, 0), axis=1)
    wide, high = int(max(sides[0], sides[2])), int(max(sides[1], sides[3]))
    to = cv2.getPerspectiveTransform(quad, np.float32([[0, 0], [wide, 0], [wide, high], [0, high]]))
    part = cv2.warpPerspective(picture, to, (wide, high), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.rot90(part) if high / wide >= 1.5 else part


def as_line(part: np.ndarray) -> np.ndarray:
    """A part at the left of an image of 800 × 48 pixels."""
    wide = min(math.ceil(48 * part.shape[1] / part.shape[0]), 800)
    line = np.full((48, 800, 3), 128, np.uint8)
    line[:, :wide] = cv2.resize(part, (wide, 48))
    return line


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
