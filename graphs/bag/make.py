"""Write `drive.mcap`, the recording in a bag of ROS 2, and `expected.json`, what the detector finds in its pictures.

The bag has pictures of three shapes that move (`/camera/image_raw`, sensor_msgs/Image, BGR, 30 a second) and an inertial sensor
(`/imu/data`, sensor_msgs/Imu, 100 readings a second). The boxes are those of onnxruntime, reduced by numpy.

    pip install numpy rosbags onnxruntime
    python make.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, FRAMES, STRIDE = 256, 192, 24, 8
MIN_SCORE, MAX_OVERLAP = 0.6, 0.5
BEGIN_NS, FRAME_NS, IMU_NS = 1_790_000_000_000_000_000, 33_333_333, 10_000_000
# Class, side, colour, position in the first frame, and pixels a frame.
SHAPES = [
    (0, 40, (230, 60, 20), (10, 20), (2.5, 0.7)),
    (1, 48, (30, 220, 120), (190, 30), (-1.5, 1.1)),
    (2, 44, (40, 90, 240), (100, 140), (0.8, -1.0)),
]


def frame(n, background):
    """Pixels in RGB, and the true boxes."""
    pixels, boxes = background.copy(), []
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    for shape, side, colour, (x, y), (dx, dy) in SHAPES:
        x, y = round(x + n * dx), round(y + n * dy)
        right, down = columns - x, rows - y
        inside = (right > 0) & (right < side) & (down > 0) & (down < side)
        if shape == 1:
            inside &= np.hypot(right - side / 2, down - side / 2) <= side / 2
        if shape == 2:
            inside &= np.abs(right - side / 2) <= down / 2
        pixels[inside] = colour
        boxes.append([x, y, x + side, y + side, 1, shape])
    return pixels, boxes


def overlap(a, b):
    size = np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(size, 0))
    return shared / (np.prod(a[2:4] - a[:2]) + np.prod(b[2:4] - b[:2]) - shared)


def detect(session, pixels):
    """Rows of x0, y0, x1, y1, score, class, the highest score first."""
    image = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]).astype(np.float32) / 255
    scores, distances = (output[0] for output in session.run(["scores", "boxes"], {"image": image}))
    cells = np.arange(WIDTH // STRIDE * (HEIGHT // STRIDE))
    centres = np.stack([cells % (WIDTH // STRIDE), cells // (WIDTH // STRIDE)], axis=1) * STRIDE + STRIDE / 2
    corners = np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], axis=1)
    rows = [np.array([*corners[cell], scores[cell, shape], shape]) for cell, shape in np.argwhere(scores > MIN_SCORE)]
    kept = []
    for row in sorted(rows, key=lambda row: -row[4]):
        if all(row[5] != other[5] or overlap(row, other) <= MAX_OVERLAP for other in kept):
            kept.append(row)
    return kept


def main():
    store = get_typestore(Stores.ROS2_HUMBLE)
    t = store.types
    session = onnxruntime.InferenceSession(HERE / "../detect/detector.onnx", providers=["CPUExecutionProvider"])
    background = (np.array([38, 42, 50]) + np.random.default_rng(3).integers(0, 4, (HEIGHT, WIDTH, 3))).astype(np.uint8)
    expected, right = [], 0
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder) / "drive", version=9, storage_plugin=StoragePlugin.MCAP)
        writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        with writer:
            camera = writer.add_connection("/camera/image_raw", "sensor_msgs/msg/Image", typestore=store)
            imu = writer.add_connection("/imu/data", "sensor_msgs/msg/Imu", typestore=store)

            def header(stamp):
                return t["std_msgs/msg/Header"](t["builtin_interfaces/msg/Time"](stamp // 10**9, stamp % 10**9), "base")

            times = [(n * FRAME_NS, n) for n in range(FRAMES)] + [(n * IMU_NS, None) for n in range(FRAMES * FRAME_NS // IMU_NS)]
            for time, n in sorted(times, key=lambda at: at[0]):
                stamp = BEGIN_NS + time
                if n is None:
                    vector, quaternion = t["geometry_msgs/msg/Vector3"], t["geometry_msgs/msg/Quaternion"]
                    message = t["sensor_msgs/msg/Imu"](
                        header(stamp), quaternion(0, 0, 0, 1), np.zeros(9), vector(0, 0, 0.1 * np.sin(time / 1e9)), np.zeros(9),
                        vector(0, 0, 9.81), np.zeros(9),
                    )  # fmt: skip
                    writer.write(imu, stamp + 50_000, store.serialize_cdr(message, "sensor_msgs/msg/Imu"))
                    continue
                pixels, truth = frame(n, background)
                data = np.ascontiguousarray(pixels[:, :, ::-1]).reshape(-1)
                message = t["sensor_msgs/msg/Image"](header(stamp), HEIGHT, WIDTH, "bgr8", 0, WIDTH * 3, data)
                writer.write(camera, stamp + 2_000_000, store.serialize_cdr(message, "sensor_msgs/msg/Image"))
                found = detect(session, pixels)
                right += sum(any(row[5] == shape[5] and overlap(row, np.array(shape)) >= 0.5 for shape in truth) for row in found)
                expected.append({"stamp": stamp, "boxes": [[round(float(v), 3) for v in row] for row in found]})
        shutil.copy(Path(folder) / "drive/drive.mcap", HERE / "drive.mcap")
    lines = ",\n".join(json.dumps(row) for row in expected)
    (HERE / "expected.json").write_text(f"[\n{lines}\n]\n")
    boxes = sum(len(row["boxes"]) for row in expected)
    print(f"{len(expected)} pictures, {boxes} boxes, {right} of them right, {FRAMES * len(SHAPES)} shapes")


if __name__ == "__main__":
    main()
