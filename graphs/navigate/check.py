"""Compare the table of the graph with what `sensors.py` sent: every number, how far apart in time the pairs are, and whether every message
is in the table or counted in the report.

    python3 check.py out/route.csv sent.json report.json
"""

import csv
import json
import sys

PERIOD = 0.01
AXES = ["ax (m/s²)", "ay (m/s²)", "az (m/s²)", "gx (rad/s)", "gy (rad/s)", "gz (rad/s)"]


def near(a, b, off):
    assert abs(float(a) - b) <= off, f"{a}, sent {b}"


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sent, report = (json.load(open(path)) for path in sys.argv[2:])
    fixes = {round(fix[0] * 100): fix for fix in sent["fixes"]}
    apart = []
    for row in rows:
        time, latitude, longitude, altitude, speed, course = fixes.pop(round(float(row["time (s)"]) * 100))
        near(row["time (s)"], time, 1e-9)
        near(row["latitude (deg)"], latitude, 1e-9)
        near(row["longitude (deg)"], longitude, 1e-9)
        near(row["altitude (m)"], altitude, 1e-5)
        near(row["speed (kn)"], speed, 1e-5)
        near(row["course (deg)"], course, 1e-4)
        number = int(row["number"])
        assert int(row["stamp (µs)"]) == number * 10_000, row
        for axis, value in zip(AXES, sent["readings"][number], strict=True):
            near(row[f"motion_{axis}"], value, 1e-5)
        apart.append(abs(time - sent["begin"] - number * PERIOD))

    nodes = {node["name"]: node["metrics"] for node in report["nodes"]}
    lost = {edge["to"]: sum(edge["lost"].values()) for edge in report["edges"]}
    unmatched, wrong = lost["table/time"], nodes["position"]["malformed"]
    print(f"navigate: {len(rows)} of {len(sent['fixes'])} fixes in the table, {wrong:.0f} damaged, {unmatched} without a partner, at most {max(apart) * 1e3:.0f} ms apart")
    assert len(fixes) == wrong + unmatched and wrong == 1, f"not in the table: {sorted(fixes)}"
    assert len(sent["readings"]) == len(rows) + lost["table/motion"] + nodes["imu"]["malformed"], lost
    assert nodes["imu"]["malformed"] == 1 and nodes["gps"]["received"] == 2 * len(sent["fixes"]), nodes
    assert len(rows) >= 0.9 * len(sent["fixes"]), "too few fixes have a partner"
    assert max(apart) <= PERIOD + 1e-6, "the pairs are further apart than a period"


if __name__ == "__main__":
    main()
