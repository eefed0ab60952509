"""Compares an interval log, read with HdrHistogram's Python port, with the summary written beside it."""
import json
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

log, summary = sys.argv[1:3]
reference = HdrHistogram(1, 60_000_000_000, 3)
reader = HistogramLogReader(log, reference)
found, intervals = {}, {}
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    tag = histogram.get_tag()
    intervals[tag] = intervals.get(tag, 0) + 1
    # The intervals of a tag add up to what the run recorded.
    if tag in found:
        found[tag].add(histogram)
    else:
        found[tag] = histogram

expected = {h["tag"]: h for h in json.load(open(summary))["histograms"]}
assert expected, "the summary has no histograms"
assert set(found) == set(expected), set(found) ^ set(expected)
assert max(intervals.values()) > 1, "only one interval in a run that takes longer than a second"
compared = 0
for tag, row in expected.items():
    histogram = found[tag]
    assert histogram.get_total_count() == row["count"], (tag, histogram.get_total_count(), row["count"])
    for name, percentile in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9)):
        if row.get(name) is None:
            continue
        # The two implementations round the rank of a percentile differently (half up, and up), so the value may be that
        # of the neighbouring sample; and they report opposite ends of a bucket, which is 1 % wide.
        neighbour = 100.0 / row["count"]
        low = histogram.get_value_at_percentile(max(0.0, percentile - neighbour))
        high = histogram.get_value_at_percentile(min(100.0, percentile + neighbour))
        assert low * 0.99 - 1 <= row[name] <= high * 1.01 + 1, (tag, name, low, row[name], high)
        compared += 1
print(f"{len(found)} histograms in {sum(intervals.values())} intervals, and {compared} percentiles agree")
