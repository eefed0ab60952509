"""Checks the live server for Foxglove by a client that others wrote: the library websockets, Foxglove's own message classes, and the
recording of the same edges beside it.

Usage: foxglove.py LIMEN_RUN FOLDER
"""

import asyncio
import base64
import json
import pathlib
import socket
import struct
import subprocess
import sys

import numpy as np
import websockets
from foxglove_schemas_protobuf.ImageAnnotations_pb2 import ImageAnnotations
from foxglove_schemas_protobuf.RawImage_pb2 import RawImage
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from mcap.reader import make_reader

LIMEN, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
INPUTS = "{ cam: cam/image, boxes: cam/boxes, numbers: imu/value, imu: imu/value }"
TOPICS = "{ boxes: { as: boxes }, imu: { as: imu, topic: /imu/data } }"
GRAPH = f"""version: 1
nodes:
  cam: {{ kind: synthetic, config: {{ pattern: scenes, width: 320, height: 240, rate: 50Hz }} }}
  imu: {{ kind: synthetic, config: {{ pattern: noise, shape: [6], dtype: f32, rate: 200Hz }} }}
  view: {{ kind: foxglove, config: {{ listen: PORT, topics: {TOPICS} }}, inputs: {INPUTS} }}
  file: {{ kind: record, config: {{ path: live.mcap, topics: {TOPICS} }}, inputs: {INPUTS} }}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def connect(port, protocol="foxglove.sdk.v1", **options):
    return websockets.connect(f"ws://127.0.0.1:{port}", subprotocols=[protocol], max_size=None, **options)


async def connected(port, **options):
    """Connects, as soon as the graph runs."""
    for _ in range(200):
        try:
            return await connect(port, **options)
        except OSError:
            await asyncio.sleep(0.05)
    raise AssertionError("the server does not come")


async def refused(port, status, protocol="foxglove.sdk.v1", **options):
    try:
        async with connect(port, protocol, **options):
            raise AssertionError(f"connected with {protocol} {options}")
    except websockets.InvalidStatus as error:
        assert error.response.status_code == status, error


async def watch(port, seconds):
    """Subscribes to every topic that is announced; returns the channels and the messages by topic."""
    channels, messages = {}, {}

    async def read(client):
        async for text in client:
            if isinstance(text, bytes):
                kind, subscription, time = struct.unpack_from("<BIQ", text)
                assert kind == 1, kind
                messages.setdefault(channels[subscription - 100]["topic"], []).append((time, text[13:]))
                continue
            told = json.loads(text)
            if told["op"] == "advertise":
                new = {channel["id"]: channel for channel in told["channels"]}
                assert not new.keys() & channels.keys(), "announced twice"
                channels.update(new)
                asked = [{"id": 100 + id, "channelId": id} for id in new]
                await client.send(json.dumps({"op": "subscribe", "subscriptions": asked}))
            else:
                assert told["op"] == "serverInfo" and told["capabilities"] == [], told

    client = await connected(port)
    try:
        await asyncio.wait_for(read(client), seconds)
    except TimeoutError:
        await client.close()
    return {channel["topic"]: channel for channel in channels.values()}, messages


def reader_of(channel):
    """What decodes the messages of a channel by nothing but its schema."""
    schema = channel["schema"]
    if channel["encoding"] == "json":
        numbers = json.loads(schema)["properties"].keys()

        def read(text):
            figures = json.loads(text)
            assert figures.keys() <= numbers, (figures, numbers)
            return figures

        return read
    assert (channel["encoding"], channel["schemaEncoding"]) == ("protobuf", "protobuf"), channel
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(base64.b64decode(schema)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(channel["schemaName"])).FromString


async def main():
    port = free_port()
    (FOLDER / "live.yaml").write_text(GRAPH.replace("PORT", str(port)))
    command = [LIMEN, FOLDER / "live.yaml", "--json", "--duration", "7s", "--out", FOLDER, "--fail-on", "lost > 0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    slow = await connected(port, max_queue=1)
    # One that never reads: it misses messages, and nobody else does.
    await slow.send(json.dumps({"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 1}]}))
    await refused(port, 403, origin="https://evil.example")
    await refused(port, 400, protocol="some.other.v1")
    (old,) = [await connect(port, "foxglove.websocket.v1", origin="https://app.foxglove.dev")]
    await old.send(json.dumps({"op": "setParameters", "parameters": []}))
    while json.loads(await old.recv())["op"] != "status":
        pass
    await old.close()
    channels, messages = await watch(port, 4)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, f"{output}\n{errors}"
    report = json.loads(output)

    with open(FOLDER / "live.mcap", "rb") as file:
        recorded = {}
        for _, channel, message in make_reader(file).iter_messages():
            recorded.setdefault(channel.topic, []).append(message.data)
    for topic in ("/cam", "/boxes", "/numbers", "/imu/data"):
        live = [content for _, content in messages[topic]]
        times = [time for time, _ in messages[topic]]
        assert times == sorted(times), topic
        begin = next((at for at, content in enumerate(recorded[topic]) if content == live[0]), None)
        assert begin is not None, f"{topic}: the first message is not in the recording"
        is_same = live == recorded[topic][begin : begin + len(live)]
        assert is_same, f"{topic}: a message is missing or differs"
        assert len(live) > 3 * (45 if topic in ("/cam", "/boxes") else 180), (topic, len(live))
    image = RawImage.FromString(messages["/cam"][0][1])
    assert (image.width, image.height, image.encoding, len(image.data)) == (320, 240, "rgb8", 320 * 240 * 3), image.encoding
    assert reader_of(channels["/cam"])(messages["/cam"][0][1]).data == image.data
    boxes = ImageAnnotations.FromString(messages["/boxes"][-1][1])
    assert boxes.points and len(boxes.points) == len(boxes.texts)
    assert channels["/imu/data"]["schemaEncoding"] == "ros2msg"
    numbers = reader_of(channels["/numbers"])(messages["/numbers"][0][1])
    assert np.isfinite(list(numbers.values if hasattr(numbers, "values") else numbers.value)).all()

    statistics = {}
    for topic in (topic for topic in channels if topic.startswith("/limen/")):
        read = reader_of(channels[topic])
        statistics[topic] = [read(content) for _, content in messages[topic]]
        assert len(statistics[topic]) >= 2, topic
    calls = [figures["done"] for figures in statistics["/limen/nodes/view"]]
    assert calls == sorted(calls) and calls[-1] > calls[0], calls
    path = statistics["/limen/paths/cam/file"][-1]
    assert 0 < path["p50_us"] <= path["max_us"] < 1e6 and 30 < path["count"] < 300, path
    assert statistics["/limen/edges/cam/image/view/cam"][-1]["capacity"] > 0
    view = next(node for node in report["nodes"] if node["name"] == "view")["metrics"]
    assert view["full"] > 0 and view["connections"] == 3 and view["refused"] == 2, view
    print(f"Foxglove: {sum(map(len, messages.values()))} messages of {len(messages)} topics, a slow client missed {view['full']:.0f}")


asyncio.run(main())
