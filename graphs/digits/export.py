"""Write the held-out digits as PNG files into `data/`, beside this script.

The images are the UCI optical digits that ship with scikit-learn
(`load_digits`): 1797 images of 8x8 pixels with values 0..16. 320 of them, 32
of each class, are held out for the graph to read. `train.py` imports
`load_split` from here, so that the two scripts cannot disagree about which
images the model may learn from.

    pip install numpy pillow scikit-learn
    python export.py
"""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
SEED = 20
HELD_OUT_PER_CLASS = 32


def load_split():
    """Return (train_pixels, train_labels, held_pixels, held_labels).

    Pixels are uint8 arrays of shape [n, 8, 8], the very bytes that the PNG
    files hold. The held-out rows are in the order of the file numbers.
    """
    digits = load_digits()
    # The source has 17 grey levels; they are spread over 0..255 so that a PNG
    # looks right in any viewer and the model input is simply pixel / 255.
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)
    labels = digits.target.astype(np.int64)

    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(labels))
    held = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        held[order[labels[order] == digit][:HELD_OUT_PER_CLASS]] = True
    # `order` is a permutation, so filtering it also mixes the classes.
    train_rows = order[~held[order]]
    held_rows = order[held[order]]
    return pixels[train_rows], labels[train_rows], pixels[held_rows], labels[held_rows]


def main():
    _, _, pixels, labels = load_split()
    folder = HERE / "data"
    folder.mkdir(exist_ok=True)
    # Files of an earlier run with another split would otherwise stay behind.
    for old in folder.glob("*.png"):
        old.unlink()
    for number, (image, label) in enumerate(zip(pixels, labels)):
        Image.fromarray(image).save(folder / f"{number:04d}-{label}.png")
    print(f"wrote {len(labels)} images, per class {np.bincount(labels).tolist()}")


if __name__ == "__main__":
    main()
