"""Runs a graph with --trace and reads the file with the messages of Perfetto's own package: every field is one that Perfetto knows, every
slice ends, slices lie within each other, and arrows lead from a node to one that it sends to."""

import collections
import json
import os
import subprocess
import sys
import tempfile

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def unknown_fields(message):
    """The number of fields that the schema does not have, at any depth."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            count += sum(unknown_fields(one) for one in (value if field.is_repeated else [value]))
    return count


def check(program, folder, graph):
    path = os.path.join(folder, "run.pftrace")
    command = [program, graph, "--out", folder, "--trace", path, "--json", "--telemetry", "full"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    with open(path, "rb") as file:
        trace = perfetto.Trace.FromString(file.read())
    assert unknown_fields(trace) == 0
    assert sum(packet.HasField("clock_snapshot") for packet in trace.packet) == 1
    assert trace.packet[0].clock_snapshot.primary_trace_clock == perfetto.BUILTIN_CLOCK_MONOTONIC
    tracks = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            tracks[track.uuid] = track
    names = {uuid: track.name or track.thread.thread_name or track.process.process_name for uuid, track in tracks.items()}
    for uuid, track in tracks.items():
        assert not track.parent_uuid or track.parent_uuid in tracks, names[uuid]
    events = [(packet.timestamp, packet.track_event) for packet in trace.packet if packet.HasField("track_event")]
    events.sort(key=lambda event: event[0])
    edges = {(edge["from"].split("/")[0], edge["to"].split("/")[0]) for edge in report["edges"]}
    open_slices, calls, arrows, values = collections.defaultdict(list), collections.Counter(), collections.defaultdict(list), collections.defaultdict(list)
    for at, event in events:
        slices = open_slices[event.track_uuid]
        assert event.track_uuid in tracks
        if event.type == BEGIN:
            slices.append(event.name)
            if "call" in event.categories:
                calls[event.name] += 1
                assert [note.name for note in event.debug_annotations][:1] == ["messages"]
                for flow in event.flow_ids:
                    arrows[flow].append(event.name)
        elif event.type == END:
            assert slices, f"an end without a begin on {names[event.track_uuid]}"
            slices.pop()
        elif event.type == COUNTER:
            values[names[event.track_uuid]].append(event.counter_value)
    assert not any(open_slices.values()), open_slices
    whole = [tuple(ends) for ends in arrows.values() if len(ends) == 2]
    assert whole and set(whole) <= edges, set(whole) - edges
    assert not [ends for ends in arrows.values() if len(ends) > 2]
    missing = {(edge["from"].split("/")[0], edge["to"].split("/")[0]) for edge in report["edges"] if edge["received"]} - set(whole)
    for node in report["nodes"]:
        assert calls[node["name"]] > 0 or not node["done"], node["name"]
    assert {f"depth of {edge['from']} -> {edge['to']}" for edge in report["edges"]} <= set(values)
    for path in report["paths"]:
        latencies = values[f"latency of {path['from']} -> {path['to']}"]
        # The histogram has three digits.
        assert abs(max(latencies) - path["max"]) <= path["max"] / 500, (max(latencies), path["max"])
    print(f"{report['graph']}: {sum(calls.values())} calls, {len(whole)} arrows, {len(values)} counters; edges without one: {sorted(missing)}")
    return missing


program = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    # A chain, on three threads: every edge has arrows.
    assert not check(program, folder, "graphs/classify/graph.yaml")
    # Several sinks, a join and batches: of a join's inputs, the message that came last has an arrow.
    check(program, folder, "graphs/digits/graph.yaml")
