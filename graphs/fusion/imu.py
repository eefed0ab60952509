"""Send what an inertial sensor would: a packet a millisecond, by UDP, to a port of this machine.

    python3 imu.py [PORT] [SECONDS]

A packet is `struct.pack("<IQ6f", number, microseconds, ax, ay, az, gx, gy, gz)`: its number, the sensor's own time, acceleration
in m/s2 and rotation in rad/s. A packet is due at a multiple of a millisecond; one that is late is sent at once, so that none is
left out. The port is 9750 and it goes on for 12 seconds, if nothing else is said.
"""

import math
import socket
import struct
import sys
import time

PERIOD_NS = 1_000_000


def packet(number):
    t = number * PERIOD_NS / 1e9
    sway, turn = math.sin(math.tau * 0.5 * t), math.sin(math.tau * 0.2 * t)
    return struct.pack("<IQ6f", number, number * PERIOD_NS // 1000, sway, 0.2 * turn, 9.81, 0.1 * turn, 0.0, 0.3 * sway)


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9750
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 12.0
    to = ("127.0.0.1", port)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    begin = time.monotonic_ns()
    for number in range(round(seconds * 1e9 / PERIOD_NS)):
        wait = begin + number * PERIOD_NS - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        try:
            sender.sendto(packet(number), to)
        except ConnectionRefusedError:
            pass  # Nobody listens yet, or no longer.


if __name__ == "__main__":
    main()
