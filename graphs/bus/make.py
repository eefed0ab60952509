"""Makes the log of a bus, and what the graph should send: `python3 make.py`.

A battery reports its temperature a hundred times a second for half a minute, in tenths of a degree: it warms up, wavers around the limit, and
cools down. Other frames are on the bus, too.
"""

import math
import pathlib
import random
import struct

here = pathlib.Path(__file__).parent
random.seed(25)
START = 1_700_000_000
log, warnings, hot = [], [], False
for at in range(3_000):
    time = f"({START + at // 100}.{at % 100 * 10_000:06})"
    degrees = 25 + 36 * math.sin(math.pi * at / 3_000) ** 0.7 + 4 * math.sin(at / 45) + random.gauss(0, 0.4)
    tenths = round(degrees * 10)
    log.append(f"{time} can0 1A0#{struct.pack('<hBB', tenths, 93, at % 256).hex().upper()}")
    if at % 5 == 0:
        log.append(f"{time} can0 18FEF100#{random.randbytes(8).hex().upper()}")
    # From 60 degrees on, until it is below 57.
    hot = tenths >= (570 if hot else 600)
    if hot:
        warnings.append(f"can0 2A0#{struct.pack('<h', tenths).hex().upper()}")
(here / "drive.log").write_text("\n".join(log) + "\n")
(here / "expected.txt").write_text("\n".join(warnings) + "\n")
