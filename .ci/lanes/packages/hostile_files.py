"""Files that nodes read, whose lengths promise far more than they have, and which unpack to far more. `.ci/lanes/packages/hostile` checks and runs graphs
that read them."""
import struct, zlib

LAST = 2**32 - 1


def graph(node, output="r"):
    return f"version: 1\nnodes:\n  r: {{ {node} }}\n  z: {{ kind: 'null', from: {output} }}\nrun: {{ max_memory: 1GiB, watchdog: 50ms }}\n"


def npy(head, data=bytes(64), length=None, version=b"\x01\x00"):
    size = struct.pack("<H" if version[0] == 1 else "<I", len(head) if length is None else length)
    return b"\x93NUMPY" + version + size + head + data


def array(shape, dtype="<f4"):
    return b"{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (dtype.encode(), shape.encode())


def chunk(name, data, size=None):
    """A chunk of RIFF."""
    return name + struct.pack("<I", len(data) if size is None else size) + data


def wav(fmt=struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16), data=bytes(400), size=None, more=b""):
    return b"RIFF" + struct.pack("<I", LAST) + b"WAVE" + chunk(b"fmt ", fmt) + more + chunk(b"data", data, size)


def part(name, data, size=None):
    """A chunk of PNG."""
    return struct.pack(">I", len(data) if size is None else size) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, more=b"", colour=2, data=zlib.compress(bytes(100))):
    head = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + part(b"IDAT", data) + part(b"IEND", b"")


def jpeg(width, height, seed):
    """The seed with other dims in its frame header."""
    at = next(at for at in range(len(seed)) if seed[at] == 0xFF and seed[at + 1] in (0xC0, 0xC1, 0xC2))
    return seed[: at + 5] + struct.pack(">HH", height, width) + seed[at + 9 :]


def record(opcode, data, size=None):
    """A record of MCAP."""
    return bytes([opcode]) + struct.pack("<Q", len(data) if size is None else size) + data


def text(data, size=None):
    return struct.pack("<I", len(data) if size is None else size) + data


def zstd(size):
    """A frame of zstd that unpacks to zeros."""
    blocks = [min(128 << 10, size - at) for at in range(0, size, 128 << 10)]
    heads = [(n << 3 | 2 | (at + 1 == len(blocks))).to_bytes(3, "little") + b"\0" for at, n in enumerate(blocks)]
    # A window of 8 MiB.
    return b"\x28\xb5\x2f\xfd\x80\x68" + struct.pack("<I", size) + b"".join(heads)


def chunked(size, data, name=b"zstd", count=1):
    body = struct.pack("<QQQI", 0, 0, size, 0) + text(name) + struct.pack("<Q", len(data)) + data
    return record(6, body) * count


MAGIC = b"\x89MCAP0\r\n"
MESSAGES = (
    record(3, struct.pack("<H", 1) + text(b"std_msgs/msg/UInt32") + text(b"ros2msg") + text(b"uint32 data"))
    + record(4, struct.pack("<HH", 1, 1) + text(b"/a") + text(b"cdr") + text(b""))
    + record(5, struct.pack("<HIQQ", 1, 1, 1, 1) + b"\0\1\0\0\7\0\0\0")
)
CDR = lambda schema, definition, data: (
    record(3, struct.pack("<H", 1) + text(schema) + text(b"ros2msg") + text(definition))
    + record(4, struct.pack("<HH", 1, 1) + text(b"/a") + text(b"cdr") + text(b""))
    + record(5, struct.pack("<HIQQ", 1, 1, 1, 1) + b"\0\1\0\0" + data)
)
STAMPED = struct.pack("<II", 1, 1) + struct.pack("<I", 2) + b"f\0" + b"\0\0"
recordings = {
    "a header with a long profile": record(1, text(b"", LAST)) + MESSAGES,
    "a schema with a long name": MESSAGES + record(3, struct.pack("<H", 2) + text(b"", LAST)),
    "a schema with a long definition": MESSAGES + record(3, struct.pack("<H", 2) + text(b"x") + text(b"x") + text(b"", LAST)),
    "a channel with a long topic": MESSAGES + record(4, struct.pack("<HH", 2, 0) + text(b"", LAST)),
    "a channel with long metadata": MESSAGES + record(4, struct.pack("<HH", 2, 0) + text(b"/b") + text(b"x") + text(text(b"", LAST) + text(b"", LAST))),
    "metadata with a long name": MESSAGES + record(12, text(b"", LAST)),
    "a record of 2^63 bytes": MESSAGES + record(5, b"", 1 << 63),
    "a chunk of 2^63 bytes": MESSAGES + chunked(1 << 63, zstd(1 << 20)),
    "a chunk of 256 MiB in 8 kB": MESSAGES + chunked(256 << 20, zstd(256 << 20)),
    "40 chunks of 4 MiB in 5 kB": MESSAGES + chunked(4 << 20, zstd(4 << 20), count=40),
    "a chunk with a window of 2^40 bytes": MESSAGES + chunked(1 << 20, b"\x28\xb5\x2f\xfd\x00\xf0" + bytes(20)),
    "a chunk with a long name": MESSAGES + record(6, struct.pack("<QQQI", 0, 0, 0, 0) + text(b"", LAST)),
    "statistics with a long list": MESSAGES + record(11, struct.pack("<QHIIIIQQ", 1, 1, 1, 0, 0, 0, 0, 0) + text(b"", LAST)),
    "an array of 2^32 numbers": CDR(b"std_msgs/msg/Float64MultiArray", b"float64[] data", struct.pack("<III", 0, 0, LAST)),
    "an array of 2^32 dims": CDR(b"std_msgs/msg/Float64MultiArray", b"float64[] data", struct.pack("<II", LAST, LAST)),
    "a string of 2^32 letters": CDR(b"std_msgs/msg/String", b"string data", struct.pack("<I", LAST)),
    "an image of 2^32 rows": CDR(b"sensor_msgs/msg/Image", b"", STAMPED + struct.pack("<II", LAST, LAST) + text(b"rgb8\0") + b"\0" * 3 + struct.pack("<II", LAST, LAST)),
    "a point cloud of 2^32 fields": CDR(b"sensor_msgs/msg/PointCloud2", b"", STAMPED + struct.pack("<III", LAST, LAST, LAST)),
    "poses of 2^32": CDR(b"geometry_msgs/msg/PoseArray", b"", STAMPED + struct.pack("<I", LAST)),
}


def zipped(shape, size, count=1):
    """An `.npz` of arrays that unpack to `size` zero bytes each."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = npy(array(shape), b"")
    begin = pack.compress(head) + pack.flush(zlib.Z_FULL_FLUSH)
    # The same block again and again: nothing before a full flush is referred to.
    block = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    data = begin + block * (size >> 20) + pack.flush()
    crc = zlib.crc32(head)
    for _ in range(size >> 20):
        crc = zlib.crc32(ZEROS, crc)
    files, index = b"", b""
    for n in range(count):
        name = f"w{n or ''}.npy".encode()
        same = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(data), len(head) + size, len(name), 0)
        index += b"PK\1\2" + struct.pack("<H", 20) + same + struct.pack("<HHHII", 0, 0, 0, 0, len(files)) + name
        files += b"PK\3\4" + same + name + data
    return files + index + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, len(index), len(files), 0)


ZEROS = bytes(1 << 20)
LINEAR = """version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [16], dtype: f32, count: 3 } }
  r: { kind: linear, config: { weight: { file: f.npz, tensor: w } }, from: a }
  z: { kind: 'null', from: r }
run: { max_memory: 1GiB }
"""


def files(seed):
    """Name: a graph, the name of the file, and what it has. `seed` is a JPEG file."""
    source = lambda kind, name, output="r", more="": graph(f"kind: {kind}, config: {{ path: {name}{more} }}", output)
    numbers, sound, video = source("npy", "f.npy"), source("wav", "f.wav", more=", frames: 16"), source("y4m", "f.y4m", "r/image", ", pace: max")
    table = source("csv", "f.csv", more=", columns: [0], max_bytes: 1KiB")
    cases = {f"a recording with {name}": (source("replay", "f.mcap", "r/a", ", pace: max"), "f.mcap", MAGIC + record(1, text(b"") * 2) + data + record(15, bytes(4)) + record(2, bytes(20)) + MAGIC) for name, data in recordings.items()}
    cases |= {
        "an array of 2^60 rows": (numbers, "f.npy", npy(array("(%d, 4)" % 2**60))),
        "an array of 2^40 columns": (numbers, "f.npy", npy(array("(2, %d)" % 2**40))),
        "an array of 2^64 elements": (numbers, "f.npy", npy(array("(%d, %d)" % (2**32, 2**32)))),
        "an array whose header has 4 GiB": (numbers, "f.npy", npy(b"{", length=LAST, version=b"\x02\x00")),
        "an array of 64 dims": (numbers, "f.npy", npy(array("(%s)" % ("2, " * 64)))),
        "sound of 4 GiB": (sound, "f.wav", wav(size=LAST)),
        "sound with a format of 4 GiB": (sound, "f.wav", b"RIFF\xff\xff\xff\xffWAVE" + chunk(b"fmt ", bytes(16), LAST)),
        "sound with a list of 4 GiB": (sound, "f.wav", wav(more=chunk(b"LIST", b"", LAST))),
        "sound of 65535 channels": (sound, "f.wav", wav(struct.pack("<HHIIHH", 1, 65535, LAST, LAST, 65535, 16))),
        "sound of 4 billion samples a second": (source("wav", "f.wav", more=", frames: 16, sample_rate: 16kHz"), "f.wav", wav(struct.pack("<HHIIHH", 1, 1, LAST, LAST, 2, 16))),
        "a video of 2^31 columns": (video, "f.y4m", b"YUV4MPEG2 W2147483648 H2147483648 F30:1 C420jpeg\nFRAME\n"),
        "a video of 65535 rows": (video, "f.y4m", b"YUV4MPEG2 W65534 H65534 F30:1 C420jpeg\nFRAME\n"),
        "a video with a long head": (video, "f.y4m", b"YUV4MPEG2 W4 H4 F30:1 X" + b"x" * 10_000_000),
        "a video with a long frame head": (video, "f.y4m", b"YUV4MPEG2 W4 H4 F30:1 C420jpeg\nFRAME " + b"x" * 10_000_000),
        "an image of 2^31 rows": (source("image_files", "f.png", "r/image"), "f.png", png(2**31 - 1, 2**31 - 1)),
        "an image of 30,000 rows": (source("image_files", "f.png", "r/image"), "f.png", png(30_000, 30_000)),
        "an image with a profile of 256 MiB": (source("image_files", "f.png", "r/image"), "f.png", png(4, 4, part(b"iCCP", b"x\0\0" + zlib.compress(bytes(1 << 28), 9)))),
        "an image with a text of 4 GiB": (source("image_files", "f.png", "r/image"), "f.png", png(4, 4, part(b"tEXt", b"x", LAST))),
        "an image whose rows are a bomb": (source("image_files", "f.png", "r/image"), "f.png", png(4, 4, data=zlib.compress(bytes(1 << 28), 9))),
        "a photo of 65535 rows": (source("image_files", "f.jpg", "r/image"), "f.jpg", jpeg(65535, 65535, seed)),
        "a photo with a long segment": (source("image_files", "f.jpg", "r/image"), "f.jpg", seed[:2] + b"\xff\xe1\xff\xff" + seed[2:]),
        "a table with a line of 100 MB": (table, "f.csv", b"1\n" + b"2" * 100_000_000),
        "a table of 10 million columns": (table, "f.csv", b"1," * 10_000_000),
        "a table with an open quote": (table, "f.csv", b'1\n"' + b"x\n" * 10_000_000),
        "a log with a long line": (source("candump", "f.log", more=", pace: max"), "f.log", b"(1.0) can0 123#" + b"0" * 10_000_000),
        "messages of 4 GiB": (source("file", "f.bin", more=", max_bytes: 64B, framing: length"), "f.bin", struct.pack(">I", LAST) + bytes(100)),
        "weights of 2 GiB in 2 MB": (LINEAR, "f.npz", zipped("(%d, 16)" % (2 << 24), 2 << 30)),
        "weights of 900 MiB in 1 MB": (LINEAR, "f.npz", zipped("(%d, 16)" % (900 << 14), 900 << 20)),
        "40 weights of 100 MiB": (LINEAR, "f.npz", zipped("(%d, 16)" % (100 << 14), 100 << 20, 40)),
    }
    return cases
