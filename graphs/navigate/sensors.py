"""Take the place of a receiver of satellite navigation and of an inertial sensor on two serial lines, while a command runs.

    python3 sensors.py [--seconds S] [--sent FILE] limen-run graph.yaml --allow-path /dev/pts

The command finds the names of the lines, two pseudoterminals, in LIMEN_GPS and LIMEN_IMU; it is sent to when it has opened both, and
the lines are closed when everything has been sent. With `--sent`, what was sent is written to a file in JSON.

The receiver sends a sentence GGA and a sentence RMC ten times a second. The sensor sends `struct.pack("<IQ6f", number, microseconds,
ax, ay, az, gx, gy, gz)` and a checksum (CRC-16/IBM-3740) a hundred times a second, with Consistent Overhead Byte Stuffing and a zero at
the end. A message is due at a multiple of its period; one that is late is sent at once. In one sentence and in one reading a byte is
wrong, as on a line with noise.
"""

import argparse
import json
import math
import os
import select
import struct
import subprocess
import sys
import time
import tty

PERIOD_NS = 10_000_000
FIX_EVERY = 10
WRONG_FIX, WRONG_READING = 7, 33
BEGIN_OF_DAY = 9 * 3600 + 27 * 60 + 50


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021) & 0xFFFF if crc & 0x8000 else crc << 1
    return crc


def cobs(data):
    blocks = []
    for part in data.split(b"\0"):
        while len(part) >= 254:
            blocks.append(b"\xff" + part[:254])
            part = part[254:]
        blocks.append(bytes([len(part) + 1]) + part)
    return b"".join(blocks) + b"\0"


def sentence(text):
    checksum = 0
    for byte in text.encode():
        checksum ^= byte
    return f"${text}*{checksum:02X}\r\n".encode()


def angle(degrees, digits, letters):
    minutes, letter = round(abs(degrees) * 60 * 10**5), letters[degrees < 0]
    whole, rest = divmod(minutes, 60 * 10**5)
    return f"{whole:0{digits}d}{rest / 10**5:08.5f},{letter}", (whole + rest / 10**5 / 60) * (1 if degrees >= 0 else -1)


def fix(t):
    """Two sentences at a time in seconds, and the numbers in them: a circle of 50 m, once in 20 s."""
    turn = math.tau * t / 20
    latitude = -33.85 + 50 * math.sin(turn) / 111_320
    longitude = 151.21 + 50 * math.cos(turn) / (111_320 * math.cos(math.radians(33.85)))
    north, latitude = angle(latitude, 2, "NS")
    east, longitude = angle(longitude, 3, "EW")
    altitude, speed, course = round(20 + 2 * math.sin(turn / 2), 1), round(50 * math.tau / 20 * 1.943844, 2), round(-math.degrees(turn) % 360, 1)
    hundredths = round((BEGIN_OF_DAY + t) * 100)
    minutes, rest = divmod(hundredths, 6000)
    clock = f"{minutes // 60:02d}{minutes % 60:02d}{rest / 100:05.2f}"
    gga = sentence(f"GPGGA,{clock},{north},{east},1,08,1.0,{altitude:.1f},M,21.3,M,,")
    rmc = sentence(f"GPRMC,{clock},A,{north},{east},{speed:.2f},{course:.1f},261126,,,A")
    return gga, rmc, [hundredths / 100, latitude, longitude, altitude, speed, course]


def reading(number):
    t = number * PERIOD_NS / 1e9
    sway, turn = math.sin(math.tau * 0.5 * t), math.tau / 20
    values = [sway, 50 * turn**2, 9.81, 0.1 * sway, 0.0, turn]
    packed = struct.pack("<IQ6f", number, number * PERIOD_NS // 1000, *values)
    return packed + struct.pack(">H", crc16(packed)), list(struct.unpack("<6f", packed[12:]))


def spoil(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def line():
    """A pseudoterminal without echo and translation, and the name under which the other end opens it."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    name = os.ttyname(theirs)
    os.close(theirs)
    return ours, name


def is_open(end):
    """Whether the other end is open: until then the kernel reports that it has hung up."""
    poll = select.poll()
    poll.register(end, 0)
    return not poll.poll(0)


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=5.0)
    asked.add_argument("--sent")
    asked.add_argument("command", nargs=argparse.REMAINDER)
    asked = asked.parse_args()
    (gps, gps_name), (imu, imu_name) = line(), line()
    program = subprocess.Popen(asked.command, env={**os.environ, "LIMEN_GPS": gps_name, "LIMEN_IMU": imu_name})
    while not (is_open(gps) and is_open(imu)):
        if program.poll() is not None:
            sys.exit(program.returncode)
        time.sleep(0.01)

    fixes, readings, begin = [], [], time.monotonic_ns()
    for number in range(round(asked.seconds * 1e9 / PERIOD_NS)):
        wait = begin + number * PERIOD_NS - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        packed, values = reading(number)
        readings.append(values)
        os.write(imu, cobs(spoil(packed, 20) if number == WRONG_READING else packed))
        if number % FIX_EVERY == 0:
            gga, rmc, values = fix(number * PERIOD_NS / 1e9)
            os.write(gps, (spoil(gga, 20) if len(fixes) == WRONG_FIX else gga) + rmc)
            fixes.append(values)
    # What was written is lost if a line is closed before it was read.
    time.sleep(0.5)
    os.close(gps)
    os.close(imu)
    if asked.sent:
        with open(asked.sent, "w") as out:
            json.dump({"fixes": fixes, "readings": readings, "begin": BEGIN_OF_DAY}, out)
    sys.exit(program.wait())


if __name__ == "__main__":
    main()
