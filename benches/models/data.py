"""Inputs for the models: photos, speech and text out of public packages, and seeded numbers where there is nothing real.

Every function returns one array whose first dim is the items; the other dims are those of one item.
"""
import json, wave, zlib
from pathlib import Path

import numpy as np

# As Pillow numbers it.
BILINEAR = 2
PHOTOS = ["astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png"]
SENTENCES = [
    "A robot drove through the door and stopped at the table.",
    "The camera sends thirty pictures each second to one model.",
    "Nobody knows why the left wheel turns faster than the right one.",
    "Please put the red cup on the shelf beside the window.",
]
ARABIC = ["ذهب الولد الى المدرسة صباحا", "كتب الطالب الدرس في البيت", "يحب الناس القهوة في الصباح", "سافر الرجل الى بلد بعيد"]
KHMER = ["ខ្ញុំចូលចិត្តអានសៀវភៅ", "ថ្ងៃនេះមេឃក្តៅណាស់", "គាត់ទៅផ្សារជាមួយម្តាយ", "ក្មេងៗលេងនៅក្នុងសួន"]


class Data:
    """The files of the packages: `files / "PACKAGE/PATH"`."""

    def __init__(self, files):
        self.files = files

    def picture(self, name, channels):
        """A photo of the package scikit-image. Models of sound and text need no Pillow."""
        from PIL import Image

        return Image.open(self.files / f"scikit-image/skimage/data/{name}").convert("RGB" if channels == 3 else "L")

    def photos(self, height, width, scale=1 / 255, shift=0.0, channels=3, names=PHOTOS):
        """Photos as `[c, h, w]`: `pixel × scale + shift`."""
        pictures = []
        for name in names:
            pixels = np.asarray(self.picture(name, channels).resize((width, height), BILINEAR), np.float32)
            pictures.append(pixels.reshape(height, width, channels).transpose(2, 0, 1) * scale + shift)
        return np.stack(pictures).astype(np.float32)

    def pages(self, height, width, scale=2 / 255, shift=-1.0):
        """Pictures of text as `[3, h, w]`."""
        return self.photos(height, width, scale, shift, names=["page.png", "text.png", "page.png"])

    def lines(self, height, width, scale=2 / 255, shift=-1.0, channels=3):
        """Lines of text, cut out of a scanned page, as `[c, h, w]`."""
        page = self.picture("page.png", channels)
        cut = []
        for top in (8, 32, 56, 80):
            line = page.crop((0, top, page.width, top + 24)).resize((width, height), BILINEAR)
            cut.append(np.asarray(line, np.float32).reshape(height, width, channels).transpose(2, 0, 1) * scale + shift)
        return np.stack(cut).astype(np.float32)

    def speech(self, samples, items, step=None, rate=16000, scale=1.0):
        """Windows of `samples` of speech, `step` apart; the recording is repeated where it ends."""
        with wave.open(str(self.files / "useful-moonshine-onnx/moonshine_onnx/assets/beckett.wav")) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
        if rate != 16000:
            at = np.arange(int(len(sound) * rate / 16000)) * (16000 / rate)
            sound = np.interp(at, np.arange(len(sound)), sound)
        step = step or samples
        at = (np.arange(items)[:, None] * step + np.arange(samples)) % len(sound)
        return (sound[at] * scale).astype(np.float32)

    def spectrum(self, frames, bins, items, window, hop):
        """The logarithm of a spectrum of speech as `[frames, bins]`, in bands if there are fewer than the transform gives."""
        sound = self.speech(window + hop * (frames - 1), items, step=4000)
        at = np.arange(frames)[:, None] * hop + np.arange(window)
        power = np.abs(np.fft.rfft(sound[:, at] * np.hanning(window))) ** 2
        edges = np.linspace(0, power.shape[-1], bins + 1).astype(int)
        bands = np.add.reduceat(power, edges[:-1], axis=-1)
        return np.log10(bands + 1e-8).astype(np.float32)

    def bytes(self, size):
        """The first and last `size / 2` bytes of files of several types, 256 where a file is shorter."""
        contents = [
            Path(__file__).read_bytes(),
            (self.files / "scikit-image/skimage/data/astronaut.png").read_bytes(),
            (self.files / "useful-moonshine-onnx/moonshine_onnx/assets/tokenizer.json").read_bytes(),
            "\n".join(SENTENCES).encode(),
        ]
        ends = np.full((len(contents), size), 256, np.int32)
        half = size // 2
        for row, content in zip(ends, contents):
            first, last = content[:half], content[-half:]
            row[: len(first)] = list(first)
            row[size - len(last):] = list(last)
        return ends

    def letters(self, path, key, texts, length):
        """The ids of the letters of texts, from a vocabulary among the files."""
        ids = json.loads((self.files / path).read_text())[key]
        rows = np.zeros((len(texts), length), np.int64)
        for row, text in zip(rows, texts):
            found = [ids.get(letter, 1) for letter in text][:length]
            row[: len(found)] = found
        return rows

    def words(self, length, vocabulary):
        """Ids of the words of sentences between those of start and end. The package has no vocabulary: an id is a checksum."""
        rows = np.zeros((len(SENTENCES), length), np.int64)
        for row, text in zip(rows, SENTENCES):
            ids = [101] + [1000 + zlib.crc32(word.encode()) % (vocabulary - 1000) for word in text.split()][: length - 2] + [102]
            row[: len(ids)] = ids
        return rows

    def noise(self, *shape, scale=1.0):
        """Normally distributed numbers, the same in every run."""
        return np.random.default_rng(7).normal(0, scale, shape).astype(np.float32)

    def ints(self, *shape, low=0, high):
        """Integers, the same in every run."""
        return np.random.default_rng(7).integers(low, high, shape)
