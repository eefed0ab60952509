"""Scrapes a run twice, and compares the last scrape with the report: `metrics.py LIMEN_RUN`."""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

GRAPH = """
version: 1
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 2kHz }, core: 0 }
  fast: { kind: pass, from: cam }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 1 }, core: 1, on_error: skip, fault: { delay: 2ms, error_every: 50 } }
  end: { kind: 'null', from: slow }
  all: { kind: 'null', from: fast }
"""
TYPES = {
    "limen_run_info": "gauge",
    "limen_worker_info": "gauge",
    "limen_node_calls": "counter",
    "limen_node_failed": "counter",
    "limen_node_queue_seconds": "summary",
    "limen_node_compute_seconds": "summary",
    "limen_path_latency_seconds": "summary",
    "limen_edge_messages": "counter",
    "limen_edge_lost": "counter",
    "limen_edge_depth": "gauge",
    "limen_edge_fill": "gauge",
    "limen_edge_highest_fill": "gauge",
    "limen_edge_peak_depth": "gauge",
    "limen_edge_capacity": "gauge",
    "limen_edge_bytes": "gauge",
    "limen_edge_starves_seconds": "gauge",
}

with tempfile.NamedTemporaryFile("w", suffix=".yaml") as graph:
    graph.write(GRAPH)
    graph.flush()
    run = subprocess.Popen([sys.argv[1], graph.name, "--json", "--metrics", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = next(line.split("metrics at ")[1].strip() for line in run.stderr if "metrics at " in line)

    def scrape():
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
            families = list(text_string_to_metric_families(answer.read().decode()))
        assert {family.name: family.type for family in families} == TYPES, [(family.name, family.type) for family in families]
        assert all(family.documentation.endswith(".") for family in families)
        return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}

    # The first intervals end after a second.
    deadline = time.monotonic() + 60
    while True:
        try:
            first = scrape()
            break
        except AssertionError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    time.sleep(2)
    last = scrape()
    counters = [key for key in first if key[0].endswith(("_total", "_count", "_sum"))]
    assert counters and all(last[key] >= first[key] for key in counters)
    quantiles = {dict(labels)["quantile"] for name, labels in last if name == "limen_path_latency_seconds" and "quantile" in dict(labels)}
    assert {"0.5", "0.99"} <= quantiles, quantiles
    for path in ["/", "/metrics/x"]:
        try:
            urllib.request.urlopen(url.replace("/metrics", path), timeout=10)
            raise AssertionError(path)
        except urllib.error.HTTPError as error:
            assert error.code == 404
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
report = json.loads(out)
for node in report["nodes"]:
    calls = last[("limen_node_calls_total", (("kind", node["kind"]), ("node", node["name"])))]
    assert 0 < calls <= node["done"] + node["failed"], node
for edge in report["edges"]:
    labels = (("from", edge["from"]), ("to", edge["to"]))
    lost = sum(edge["lost"].values()) - edge["discarded"]
    assert 0 < last[("limen_edge_messages_total", labels)] <= edge["sent"], edge
    assert last[("limen_edge_lost_total", labels)] <= lost and (lost > 0) == (edge["when_full"] == "drop_oldest"), edge
print(f"{len(last)} samples of {len(TYPES)} families, read while the graph ran")
