"""Windows and filters of signals."""
import numpy as np

from .values import C, TYPES, build


@build("BlackmanWindow HammingWindow HannWindow")
def window(t, op):
    for length in (1, 8, 9):
        for periodic in (0, 1):
            yield f"length{length}p{periodic}", [C(np.array(length, TYPES[t]))], {"periodic": periodic}


@build("MelWeightMatrix")
def mel(t, op):
    bounds = [C(np.array(hertz, np.float32)) for hertz in (0, 4096)]
    yield "plain", [C(np.array(n, TYPES[t])) for n in (8, 16, 8192)] + bounds, {}
