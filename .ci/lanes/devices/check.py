"""Compares what limen read from devices, and wrote to them, with what others read and wrote: pictures with those of v4l2-ctl, frames of a bus
with those of candump, sound with that of a file, of arecord and of aplay. Looks at the reports."""

import json
import pathlib
import re
import struct
import sys

import numpy as np
from mcap.reader import make_reader

out = pathlib.Path(sys.argv[1])


def metrics(name):
    report = json.loads((out / f"{name}.json").read_text())
    assert report["bugs"] == [] and report["failed_calls"] == 0, name
    return report["metrics"]


def clock(name, node):
    """The report says how a device's stamps lie beside the run's clock."""
    found = metrics(name)
    delay, jitter = found[f"{node}.clock_delay_ms"], found[f"{node}.clock_jitter_ms"]
    print(f"{name}: stamps are read {delay:.3f} ms later at least, jitter {jitter:.3f} ms")
    # A driver that computes when a frame ends can be ahead of an emulated clock.
    assert 0 <= delay < 1000 and 0 <= jitter < 1000 and found.get(f"{node}.unstamped", 0) <= 3, found


def check_cameras():
    raw = np.fromfile(out / "raw.rgb", np.uint8)[-320 * 240 * 3 :].reshape(240, 320, 3).astype(int)
    assert raw.std() > 30, "the driver's picture is flat"
    for name in ("rgb", "bgr", "yuyv", "nv12", "grey"):
        frames = np.load(out / f"{name}.npy").astype(int)
        assert frames.shape == (5, 240, 320) + (() if name == "grey" else (3,)), (name, frames.shape)
        # The driver's grey is luma by BT.709, from 0 to 255.
        grey = raw @ np.array([0.2126, 0.7152, 0.0722])
        difference = np.abs(frames[-1] - (grey if name == "grey" else raw))
        # Chroma is shared by pixels beside each other, which shows at the edges of the bars.
        inner = np.percentile(difference, 90)
        print(f"cameras: {name} differs from RGB by {inner:.1f} at most in nine of ten values, {difference.mean():.2f} in the mean")
        assert inner <= 4 and difference.mean() < 4, name
        if name in ("rgb", "bgr"):
            assert difference.max() == 0, name
    for name in ("webcam", "large", "dropped", "stuck", "resized", "fatal", "unplugged", "newest"):
        print(f"cameras: {name}:", {key: value for key, value in metrics(name).items() if key.startswith("cam.")})
    assert metrics("dropped")["cam.dropped"] >= 10
    clock("webcam", "cam")
    notes = json.loads((out / "resized.json").read_text())["notes"]
    assert any("could not be opened again: the camera now delivers 640 " in str(note) for note in notes), notes
    # Frames that the emulated machine had no time for are missing, so the steps are whole periods.
    steps = np.diff(stamps("origins")) * 30
    off = np.abs(steps - np.round(steps))
    print(f"cameras: {len(steps) + 1} origins are {steps.min():.2f} to {steps.max():.2f} periods apart, {np.percentile(off, 90):.2f} at most beside whole ones in nine of ten")
    assert (steps > 0.5).all() and np.percentile(off, 90) < 0.2, steps
    rounds = int((out / "rounds").read_text())
    report = metrics("again")
    _, memory, _, after = map(int, (out / "again.txt").read_text().split())
    assert report["cam.disconnects"] >= 0.9 * rounds and report["cam.frames"] > rounds, report
    assert after - memory < 1024, (memory, after)
    print(f"cameras: {report['cam.disconnects']:.0f} times reopened, {after - memory} KiB more")


def check_webcam():
    images = np.load(out / "webcam.npy").astype(int)
    for name in ("mjpeg", "replugged"):
        print(f"webcam: {name}:", {key: value for key, value in metrics(name).items() if key.startswith("cam.")})
    found, seen = metrics("mjpeg"), np.load(out / "mjpeg.npy").astype(int)
    # Of ten, one is half an image, one is noise, and one is marked by the camera, so the driver drops it.
    assert found["cam.frames"] == len(seen) == 40 and 10 <= found["cam.damaged"] <= 13 and 5 <= found["cam.dropped"] <= 7, found
    off = [min(np.abs(frame - image).mean() for image in images) for frame in seen]
    print(f"webcam: {len(seen)} images differ by {max(off):.2f} in the mean from those that were sent")
    assert max(off) < 5, off


def frames(name):
    """The frames that limen received."""
    rows = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
    return [bytes(value) for row in rows for key, value in row.items() if key != "seq"]


def dumped(name):
    """The frames of candump's log: `(time) vcan0 123#0102`."""
    found = []
    for line in (out / f"{name}.log").read_text().splitlines():
        word = line.split()[2]
        identifier, data = word.split("#", 1)
        number = int(identifier, 16) | (1 << 31 if len(identifier) == 8 else 0)
        data = bytes.fromhex(data)
        found.append(struct.pack("<IBBBB", number, len(data), 0, 0, 0) + data)
    return found


def check_bus():
    seen, others = frames("frames"), dumped("frames")
    assert len(others) == 1000 and seen == others, (len(seen), len(others))
    words = lambda path: [line.split()[1:] for line in path.read_text().splitlines()]
    assert words(out / "frames.limen.log") == words(out / "frames.log"), "the log is not candump's"
    assert [frame for _, frame in words(out / "fd.limen.log")][0].split("##")[1][1:] == bytes(range(12)).hex().upper()
    # Behind `##` is a digit of flags, to which the kernel adds that it is CAN FD.
    sent = [line[1].split("##") for line in words(out / "fd_to.log")]
    assert [(number, data[1:]) for number, data in sent] == [("213", "000102030405060708090A0B"), ("7FF", "11")], sent
    answers = [line[1] for line in words(out / "live.log")]
    expected = [line.split()[-1] for line in (out / "bus" / "expected.txt").read_text().splitlines()]
    print(f"bus: the graph answered {len(answers)} frames, {len(expected)} to a file")
    assert answers == expected
    clock("frames", "bus")
    late = metrics("late")
    print(f"bus: late: {late['bus.received']:.0f} of 2001 frames received, {late['bus.overrun']:.0f} lost by the kernel")
    assert late["bus.received"] + late["bus.overrun"] == 2001, late
    number = lambda i, *data: struct.pack("<IBBBB", i, len(data), 0, 0, 0) + bytes(data)
    assert frames("chosen")[:2] == [number(0x123, 1, 2), number(0x18FEF100 | 1 << 31, 4, 5, 6)], frames("chosen")
    fd = frames("fd")
    assert fd[0][:5] == struct.pack("<IB", 0x213, 12) and fd[0][8:] == bytes(range(12)), fd
    assert fd[1] == number(0x7FF, 0x11), fd
    assert dumped("through") == [struct.pack("<IBBBBH", 0x200, 2, 0, 0, 0, min(speed, 1000)) for speed in (10, 1000, 1001, 65535)]
    print(f"bus: {len(seen)} frames are those of candump; chosen identifiers, CAN FD, and a bus through a formula are right")


def lines(name):
    """The frames that an adapter got on its serial line, such as `t20020A00`, without its commands."""
    return [line for line in (out / f"{name}.tty").read_bytes().decode().split("\r") if line[:1] in tuple("tTrR")]


def logged(name):
    """The frames of a log as an adapter gets them."""
    words = [line.split()[2].split("#") for line in (out / f"{name}.log").read_text().splitlines()]
    return [f"{'T' if len(number) == 8 else 't'}{number}{len(data) // 2}{data}" for number, data in words]


def check_adapter():
    # What the serial line carried is what the graph got, and the other way round.
    number = lambda i, data: struct.pack("<IBBH", i, len(data), 0, 0) + data
    sent = [number(0x123, b"\x01\x02\xab"), number(0x18FEF100 | 1 << 31, b""), number(0x7FF, bytes(range(8)))]
    assert frames("serial") == sent * 40, frames("serial")[:3]
    log = logged("serial-to")
    assert lines("serial") == log and len(log) == 200, (len(lines("serial")), len(log))
    print(f"adapter: {len(sent) * 40} frames from a serial line and {len(log)} to it are equal")

    found, log, sunk = metrics("faults"), logged("faults-to"), lines("faults")
    print("adapter: faults:", {key: value for key, value in found.items() if key[:4] in ("bus.", "out.")})
    assert found["bus.bus_off"] == found["out.bus_off"] == 1 and found["bus.error_passive"] == 1
    assert found["bus.controller_overrun"] == 2 and found["bus.bus_errors"] == 6
    assert found["bus.received"] == 60 and frames("faults") == [number(0x100, bytes([at])) for at in range(60)]
    # Every frame was sent or counted; those that were given to a controller off the bus, and to an adapter that was gone, were counted.
    assert found["out.sent"] + found["out.unsent"] == len(log) == 600 and found["out.unsent"] >= 60, found
    at = iter(log)
    assert all(line in at for line in sunk), "frames on the serial line are not those of the log, in order"
    # The kernel's queue holds ten frames when the adapter goes, and a controller off the bus loses its queue within a second or so.
    assert found["out.sent"] - 12 <= len(sunk) <= found["out.sent"] + 30, (len(sunk), found["out.sent"])
    notes = json.loads((out / "off.json").read_text())["notes"]
    assert any("off the bus" in str(note) for note in notes), notes


def samples(path):
    """The frames of a WAV file of two channels, of 16 bits or floats."""
    data = path.read_bytes()
    at = data.index(b"data") + 8
    size = min(int.from_bytes(data[at - 4 : at], "little"), len(data) - at) // 8 * 8
    if int.from_bytes(data[34:36], "little") == 16:
        return np.frombuffer(data[at : at + size // 4 * 4], "<i2").reshape(-1, 2).astype(int)
    floats = np.frombuffer(data[at : at + size], "<f4").reshape(-1, 2)
    return np.round(floats * 32768).astype(int)


def equal(name):
    """How many of the frames of the played file are in a recording, in order, each run found by its first frames."""
    sound, heard = samples(out / "sound.wav"), samples(out / f"{name}.wav")
    # A frame of noise is a number that is almost nowhere twice.
    key = lambda frames: (frames[:, 0] << 16) + (frames[:, 1] & 0xFFFF)
    places = {int(number): place for place, number in enumerate(key(heard))}
    numbers, found = key(sound), 0
    heard = key(heard)
    last = -1
    for number in numbers:
        place = last + 1 if last + 1 < len(heard) and heard[last + 1] == number else places.get(int(number), -1)
        if place > last:
            found, last = found + 1, place
    return found / len(numbers), len(heard)


def stamps(name):
    """The origins of messages, s."""
    with open(out / f"{name}.mcap", "rb") as file:
        return np.array([message.publish_time for _, _, message in make_reader(file).iter_messages()]) / 1e9


def phrases(path):
    """When someone speaks, in hundredths of a second: begin and length."""
    voice = np.loadtxt(path, delimiter=",", skiprows=1)[:, 1].astype(int)
    begins, ends = np.flatnonzero(np.diff(voice) > 0), np.flatnonzero(np.diff(voice) < 0)
    return [(int(begin), int(ends[ends > begin][0] - begin)) for begin in begins if (ends > begin).any()]


def check_sound():
    for name in ("heard", "arecord", "from_aplay", "shared"):
        share, frames = equal(name)
        print(f"sound: {name}: {100 * share:.3f} % of 144000 frames are those of the file, in {frames} frames")
        assert share >= 0.98, name
    BLOCK = 960 / 48000
    for name in ("heard", "from_aplay", "shared"):
        times = stamps(name)
        assert (np.diff(times) >= 0).all(), name
        period = np.polyfit(np.arange(len(times)), times, 1)[0]
        off = np.abs(times - np.polyval(np.polyfit(np.arange(len(times)), times, 1), np.arange(len(times)))).max()
        print(f"sound: {name}: {len(times)} blocks of {1e3 * period:.3f} ms by their origins, at most {1e3 * off:.1f} ms beside a line")
        assert abs(period / BLOCK - 1) < 0.01, (name, period)
    clock("heard", "mic")
    # The phrases of the first eight seconds, but for one that may be cut off.
    expected, found = phrases(out / "voice" / "expected.csv"), phrases(out / "mic" / "out" / "voice.csv")
    expected = [(begin, length) for begin, length in expected if begin + length < 750]
    # A microphone's frames begin anywhere within those of the file, and in the middle of a phrase the level is close to the threshold: a
    # pause of a few hundredths is none.
    whole = found[:1]
    for begin, length in found[1:]:
        first, so_far = whole[-1]
        if begin - (first + so_far) < 20:
            whole[-1] = (first, begin + length - first)
        else:
            whole.append((begin, length))
    found = whole
    found = [(begin + expected[0][0] - found[0][0], length) for begin, length in found[: len(expected)]]
    print(f"sound: a microphone's {len(found)} phrases begin at {[begin for begin, _ in found]}, those of the file at {[begin for begin, _ in expected]}")
    assert len(found) == len(expected) and all(abs(a - b) <= 5 for one, other in zip(found, expected) for a, b in zip(one, other)), (found, expected)
    late, times = metrics("late_mic"), stamps("late_mic")
    # What is missing between two messages is what was counted.
    missing = round(np.maximum(np.diff(times) - BLOCK, 0)[np.diff(times) > 0.5].sum() / BLOCK)
    print(f"sound: late: {late['mic.overruns']:.0f} overruns, {late['mic.overrun']:.0f} blocks counted, {missing} missing by the origins")
    assert late["mic.overrun"] >= 100 and abs(late["mic.overrun"] - missing) <= 2 * late["mic.overruns"]
    for name in ("played", "to_arecord", "to_shared", "starved", "unplugged_out", "unplugged_mic"):
        print(f"sound: {name}:", {key: value for key, value in metrics(name).items() if key[:4] in ("out.", "mic.")})


def check_gstreamer():
    used = {}
    for line in (out / "beside.txt").read_text().splitlines():
        engine, pixels, count, user, system = line.split()
        used.setdefault((pixels, engine), {}).setdefault(int(count), []).append(float(user) + float(system))
    each = {key: 1e6 * (np.median(found[70]) - np.median(found[10])) / 60 for key, found in used.items()}
    for (pixels, engine), micros in each.items():
        what = "to RGB and numbers by limen" if engine == "tensor" else f"to RGB by {engine}"
        print(f"beside: {pixels} {what}, 1280x720: {micros:.0f} µs of CPU a frame (emulated), {micros / each[pixels, 'gstreamer']:.2f} of GStreamer's to RGB")
    log = (out / "beside-gstreamer.log").read_text()
    seconds = lambda text: sum(float(part) * unit for part, unit in zip(text.split(":"), (3600, 60, 1)))
    ages = [seconds(found) for found in re.findall(r"delay (\d+:\d\d:\d\d\.\d+)", log)]
    times = [int(found) / 1e9 for found in re.findall(r"latency, .*time=\(guint64\)(\d+)", log)]
    copies = len(re.findall(r"memcpy|slow copy|copy GstBuffer", log))
    print(f"beside: GStreamer: {1e3 * np.median(ages):.1f} ms from the stamp to v4l2src, {1e3 * np.median(times):.1f} ms more to the sink; {copies} copies of {len(ages)} frames before the conversion")
    report = json.loads((out / "beside-YUY2.json").read_text())
    print(f"beside: limen: {report['paths'][0]['p50'] / 1e6:.1f} ms from the stamp to the sink")
    report = json.loads((out / "tensor-YUY2.json").read_text())
    terms = {(found["node"], found["term"]): found["p50"] for found in report["histograms"] if found["to"] is None}
    print(f"beside: limen: {report['paths'][0]['p50'] / 1e6:.1f} ms to the model's input; calls of the camera {terms['cam', 'compute'] / 1e6:.1f} ms, of to_tensor {terms['pixels', 'compute'] / 1e6:.1f}")


for part in sys.argv[2:]:
    globals()[f"check_{part}"]()
