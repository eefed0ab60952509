#!/usr/bin/env python3
"""Videos and arrays held against FFmpeg's libraries and NumPy: `.ci/lanes/formats/media.py LIMEN_RUN FOLDER`.

`y4m` reads what libavformat's own muxer writes, and headers that other programs write, as libavformat reads them; colours are those of
libswscale. `npy` reads what NumPy writes, or refuses it with an advice that works, and NumPy reads what `npy` writes.
"""
import re, subprocess, sys
from pathlib import Path

import av
import numpy as np

PROGRAM, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
RANDOM = np.random.default_rng(61)
FRAMES = 3


def run(source):
    """What a graph writes of a source to an array, or why it is refused."""
    out = FOLDER / "out.npy"
    out.unlink(missing_ok=True)
    (FOLDER / "graph.yaml").write_text(f"version: 1\nnodes:\n  a: {{ {source} }}\n  b: {{ kind: npy, from: a, config: {{ path: out.npy }} }}\n")
    done = subprocess.run([PROGRAM, FOLDER / "graph.yaml", "--quiet"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 2), (source, done)
    return np.load(out, allow_pickle=False) if done.returncode == 0 else done.stderr


def checked(condition, *what):
    if not condition:
        sys.exit(f"media.py: {what}")


# Videos.

# How many pixels share a sample of chroma, down and across.
SAMPLING = {"yuv420p": (2, 2), "yuvj420p": (2, 2), "yuv422p": (1, 2), "yuv444p": (1, 1), "gray": None}


def planes(name, width, height):
    """Random planes of a frame, within the range of video: beyond it, libswscale's own numbers overflow."""
    luma = RANDOM.integers(16, 236, (height, width), np.uint8)
    if SAMPLING[name] is None:
        return [luma]
    down, across = SAMPLING[name]
    shape = (-(-height // down), -(-width // across))
    return [luma, *RANDOM.integers(16, 241, (2, *shape), np.uint8)]


def frame(name, width, height, of):
    made = av.VideoFrame(width, height, name)
    for plane, numbers in zip(made.planes, of):
        lines = np.zeros((plane.height, plane.line_size), np.uint8)
        lines[:, : numbers.shape[1]] = numbers
        plane.update(lines.tobytes())
    return made


def mux(path, name, width, height):
    """A video as libavformat writes it."""
    with av.open(str(path), "w", format="yuv4mpegpipe") as container:
        stream = container.add_stream("wrapped_avframe", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, name
        for at in range(FRAMES):
            made = frame(name, width, height, planes(name, width, height))
            made.pts = at
            container.mux(stream.encode(made))
        container.mux(stream.encode())


def converted(frame444, colours, is_full):
    """A frame in RGB as libswscale converts it; chroma has one sample for each pixel already."""
    graph = av.filter.Graph()
    size = f"video_size={frame444.width}x{frame444.height}:pix_fmt=yuv444p:time_base=1/25"
    space = f"colorspace={'bt709' if colours == 'bt709' else 'smpte170m'}:range={'pc' if is_full else 'tv'}"
    nodes = [
        graph.add("buffer", f"{size}:{space}"),
        graph.add("scale", "flags=accurate_rnd+full_chroma_int+full_chroma_inp"),
        graph.add("format", "pix_fmts=rgb24"),
        graph.add("buffersink"),
    ]
    for one, next in zip(nodes, nodes[1:]):
        one.link_to(next)
    graph.configure()
    graph.push(frame444)
    return graph.pull().to_ndarray()


def expected(path, colours):
    """The frames of a video, as libavformat reads them."""
    with av.open(str(path), format="yuv4mpegpipe") as container:
        for read in container.decode(video=0):
            name, width, height = read.format.name, read.width, read.height
            numbers = [np.frombuffer(bytes(p), np.uint8).reshape(p.height, p.line_size)[:, : p.width] for p in read.planes]
            if SAMPLING[name] is None:
                yield numbers[0]
                continue
            down, across = SAMPLING[name]
            full = [numbers[0], *(plane.repeat(down, 0).repeat(across, 1)[:height, :width] for plane in numbers[1:])]
            is_full = int(read.color_range) == 2
            yield converted(frame("yuv444p", width, height, full), colours, is_full)


def compare(path, what):
    for colours in ("bt601", "bt709"):
        ours = run(f"kind: y4m, config: {{ path: {path.name}, pace: max, colours: {colours} }}")
        checked(not isinstance(ours, str), what, ours)
        theirs = np.stack(list(expected(path, colours)))
        checked(ours.shape == theirs.shape, what, ours.shape, theirs.shape)
        off = np.abs(ours.astype(int) - theirs.astype(int)).max()
        checked(off <= 1, what, colours, f"{off} of 255 beside libswscale")


def videos():
    path = FOLDER / "in.y4m"
    count = 0
    for name in SAMPLING:
        for width, height in [(1, 1), (2, 2), (7, 5), (1, 4), (33, 18)]:
            mux(path, name, width, height)
            compare(path, (name, width, height))
            count += 1
    data = b"".join(plane.tobytes() for plane in planes("yuv420p", 7, 5))
    video = lambda header, of_frame=b"FRAME": b"YUV4MPEG2 " + header + b"\n" + (of_frame + b"\n" + data) * FRAMES
    for header, of_frame in [
        (b"W7 H5 F25:1", b"FRAME"),
        (b"H5 F30000:1001 A128:117 W7 Ip C420mpeg2 XYSCSS=420MPEG2", b"FRAME"),
        (b"W7 H5 F25:1 I? A0:0 C420paldv", b"FRAME Ip"),
        (b"W7 H5 C420 F1:10 XCOLORRANGE=FULL", b"FRAME Xanything=1"),
        (b"W7 H5 F25:1 C420jpeg XCOLORRANGE=LIMITED XUNKNOWN", b"FRAME"),
        (b"W7 H5 F0:0 C420jpeg", b"FRAME"),
    ]:
        path.write_bytes(video(header, of_frame))
        compare(path, header)
        count += 1
    # Valid, and not read: each is named with a way to convert it.
    refused = [b"It", b"Ib", b"Im", b"C411", b"C410", b"C420p10", b"C422p12", b"C444alpha", b"Cmono16"]
    for word in refused:
        path.write_bytes(video(b"W7 H5 F25:1 " + word) + bytes(4096))
        why = run("kind: y4m, config: { path: in.y4m, pace: max }")
        checked(isinstance(why, str) and "convert the video: `ffmpeg" in why, word, why)
    print(f"{count} videos are read as FFmpeg's libraries read them, {len(refused)} are refused")


# Arrays.


def same(ours, array):
    array = array.astype(np.uint8) if array.dtype == bool else array
    return (ours.dtype, ours.shape, ours.tobytes()) == (array.dtype, array.shape, np.ascontiguousarray(array).tobytes())


def same_numbers(ours, values):
    if np.iscomplexobj(values):
        values = np.stack([values.real, values.imag], -1)
    return np.array_equal(ours, values.astype(ours.dtype).ravel(), equal_nan=ours.dtype.kind == "f")


def arrays():
    numbers = RANDOM.integers(0, 256, 8 * 2 * 3 * 4, np.uint8)
    for at, value in enumerate([np.nan, -np.inf, -0.0, 5e-324]):
        numbers[8 * at : 8 * at + 8] = np.frombuffer(np.float64(value).tobytes(), np.uint8)
    of = lambda dtype, shape: numbers.view(dtype)[: np.prod(shape)].reshape(shape)
    read = [of(dtype, (4, 3, 2)) for dtype in "f2 f4 f8 i1 u1 i2 u2 i4 u4 i8 u8".split()]
    read += [of("u1", (5, 4)) % 2 == 1, of("f4", 7), of("f8", (3, 1)), of("i8", (1, 1, 1, 1, 1, 1, 2)), np.asfortranarray(of("i2", 5))]
    read += [of("f4", (0, 3)), np.zeros(0, np.uint16)]
    # Both orders are one for a column.
    read += [np.asfortranarray(of("f8", (6, 1)))]
    refused = [of(dtype, (4, 3)) for dtype in (">f2", ">f4", ">f8", ">i2", ">u4", ">i8", ">u8")]
    refused += [np.asfortranarray(of("f4", (4, 3))), np.array(2.5), np.array(7, ">i4"), np.asfortranarray(of(">i8", (3, 2)))]
    refused += [of("f4", (1, 1, 1, 1, 1, 1, 1, 2)), np.arange(3, dtype=np.longdouble), np.array(["1", "2.5"]), np.array([1 + 2j, 3], "<c8")]
    path = FOLDER / "in.npy"

    def save(array, version):
        with open(path, "wb") as file:
            np.lib.format.write_array(file, array, version=version, allow_pickle=True)
        return run("kind: npy, config: { path: in.npy }")

    for version in [(1, 0), (2, 0), (3, 0)]:
        for array in read:
            ours = save(array, version)
            checked(not isinstance(ours, str) and same(ours, array), version, array.dtype, array.shape, ours)
        for array in refused:
            # The advice may have to be followed twice: for the order, and for the type.
            values = array
            for _ in range(3):
                why = save(array, version)
                if not isinstance(why, str):
                    break
                advice = re.search(r"`numpy.save\(file, (.*)\)`", " ".join(why.split()))
                checked(advice, version, array.dtype, array.shape, why)
                array = eval(advice[1], {"numpy": np, "array": array, "len": len})
            checked(not isinstance(why, str) and array is not values, version, array.dtype, why)
            checked(same_numbers(why.ravel(), values), values.dtype, why)
    # Nothing that is no array of numbers is read.
    never = [np.array([(1, 2.0)], [("a", "<i4"), ("b", "<f8")]), np.zeros((3, 0)), np.array([None]), np.array(["2026-11-29"], "M8[D]"), np.zeros(2, "V3")]
    for array in never:
        why = save(array, None)
        checked(isinstance(why, str) and "help: " in why, array.dtype, array.shape, why)
    print(f"{3 * len(read)} arrays are read as NumPy reads them, {3 * len(refused)} after following the advice, {len(never)} are refused")


videos()
arrays()
