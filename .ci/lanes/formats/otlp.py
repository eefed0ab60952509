"""Takes the metrics of a run by OTLP, and compares the last message with the report: `otlp.py LIMEN_RUN`."""

import http.server
import json
import subprocess
import sys
import tempfile
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

GRAPH = """
version: 1
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 2kHz, count: 7000 }, core: 0 }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 1 }, core: 1, on_error: skip, fault: { delay: 2ms, error_every: 50 } }
  end: { kind: 'null', from: slow }
"""
METRICS = {
    "limen.run.info": ("gauge", "1"),
    "limen.worker.info": ("gauge", "1"),
    "limen.node.calls": ("sum", "1"),
    "limen.node.failed": ("sum", "1"),
    "limen.node.queue": ("exponential_histogram", "s"),
    "limen.node.compute": ("exponential_histogram", "s"),
    "limen.path.latency": ("exponential_histogram", "s"),
    "limen.edge.messages": ("sum", "1"),
    "limen.edge.lost": ("sum", "1"),
    "limen.edge.depth": ("gauge", "1"),
    "limen.edge.fill": ("gauge", "1"),
    "limen.edge.highest.fill": ("gauge", "1"),
    "limen.edge.peak.depth": ("gauge", "1"),
    "limen.edge.capacity": ("gauge", "1"),
    "limen.edge.bytes": ("gauge", "By"),
    "limen.edge.starves": ("gauge", "s"),
}
received = []


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1/metrics" and self.headers["Content-Type"] == "application/x-protobuf", (self.path, self.headers)
        received.append(ExportMetricsServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
        # A collector that cannot take a message for now.
        self.send_response(503 if len(received) == 1 else 200)
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def values(message):
    """The points of a message by metric and attributes; checks everything else."""
    (of_run,) = message.resource_metrics
    resource = {one.key: one.value.string_value for one in of_run.resource.attributes}
    assert resource["service.name"] and len(resource["service.instance.id"]) >= 8, resource
    (of_scope,) = of_run.scope_metrics
    assert of_scope.scope.name == "limen"
    found = {}
    for metric in of_scope.metrics:
        kind = metric.WhichOneof("data")
        assert METRICS[metric.name] == (kind, metric.unit) and metric.description.endswith("."), metric
        data = getattr(metric, kind)
        if kind != "gauge":
            assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
        if kind == "sum":
            assert data.is_monotonic
        for point in data.data_points:
            assert 1.7e18 < point.start_time_unix_nano < point.time_unix_nano
            key = (metric.name, tuple(sorted((one.key, one.value.string_value) for one in point.attributes)))
            found[key] = point if kind == "exponential_histogram" else point.as_int
    assert {name for name, _ in found} == set(METRICS), {name for name, _ in found} ^ set(METRICS)
    return found


def median(point):
    """The limits of the bucket with the median."""
    seen, base = point.zero_count, 2 ** 2**-point.scale
    for at, count in enumerate(point.positive.bucket_counts, point.positive.offset):
        seen += count
        if seen * 2 >= point.count:
            return base**at, base ** (at + 1)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as graph:
    graph.write(GRAPH)
    graph.flush()
    url = f"http://127.0.0.1:{server.server_port}"
    run = subprocess.run([sys.argv[1], graph.name, "--json", "--otlp", url], capture_output=True, text=True, timeout=120)
report = json.loads(run.stdout)
assert "1 of 2 messages failed" in run.stderr and "503" in run.stderr, run.stderr
first, last = map(values, received)
assert all(last[key] >= value for key, value in first.items() if key[0] in ("limen.node.calls", "limen.edge.messages"))
for node in report["nodes"]:
    labels = (("kind", node["kind"]), ("node", node["name"]))
    assert last["limen.node.calls", labels] == node["done"] + node["failed"] and last["limen.node.failed", labels] == node["failed"], node
for edge in report["edges"]:
    labels = (("from", edge["from"]), ("to", edge["to"]))
    assert last["limen.edge.messages", labels] == edge["sent"], edge
    assert last["limen.edge.lost", labels] == sum(edge["lost"].values()) - edge["discarded"], edge
for path in report["paths"]:
    point = last["limen.path.latency", (("from", path["from"]), ("to", path["to"]))]
    assert point.count == point.zero_count + sum(point.positive.bucket_counts) == path["count"], (point, path)
    low, high = median(point)
    assert low * 0.98 <= path["p50"] / 1e9 <= high * 1.02, (low, high, path)
print(f"{len(received)} messages, the last with {len(last)} points of {len(METRICS)} metrics, which agree with the report")
