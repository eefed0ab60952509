"""Compare a recording of the graph, as the Python library of MCAP reads it, with the bag and with `expected.json`.

    pip install mcap mcap-protobuf-support mcap-ros2-support
    python check.py out/found.mcap
"""

import json
import sys
from pathlib import Path

from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory as Protobuf
from mcap_ros2.decoder import DecoderFactory as Ros2

HERE = Path(__file__).resolve().parent


def read(path, topic):
    with open(path, "rb") as file:
        found = make_reader(file, decoder_factories=[Protobuf(), Ros2()]).iter_decoded_messages(topics=[topic])
        return [(message.publish_time, content) for _, _, message, content in found]


def mirrored(data):
    """BGR as RGB."""
    rgb = bytearray(data)
    rgb[::3], rgb[2::3] = data[2::3], data[::3]
    return bytes(rgb)


def main():
    expected = json.loads((HERE / "expected.json").read_text())
    bag, pictures, found = read(HERE / "drive.mcap", "/camera/image_raw"), read(sys.argv[1], "/camera/image"), read(sys.argv[1], "/camera/boxes")
    assert len(bag) == len(expected) == len(pictures) == len(found) > 0, (len(bag), len(pictures), len(found))
    boxes, worst = 0, 0.0
    for (_, image), (at, picture), (time, marks), row in zip(bag, pictures, found, expected):
        assert at == time and time - found[0][0] == row["stamp"] - expected[0]["stamp"], f"{time} and {at}, {row['stamp']} in the bag"
        assert bytes(picture.data) == mirrored(bytes(image.data)), "the picture is another"
        assert len(marks.points) == len(marks.texts) == len(row["boxes"]), f"{len(marks.points)} boxes, expected {row['boxes']}"
        for mark, text, (x0, y0, x1, y1, score, shape) in zip(marks.points, marks.texts, row["boxes"]):
            corners = [(p.x, p.y) for p in mark.points]
            off = max(abs(a - b) for a, b in zip(sum(corners, ()), [x0, y0, x1, y0, x1, y1, x0, y1]))
            named, percent = text.text.split()
            assert off < 0.05 and int(named) == shape and abs(float(percent) - score) < 0.011, f"{corners} {text.text}, expected {row}"
            boxes, worst = boxes + 1, max(worst, off)
    print(f"bag: {boxes} boxes in {len(found)} pictures, at most {worst:.4f} pixels from those of onnxruntime")


if __name__ == "__main__":
    main()
