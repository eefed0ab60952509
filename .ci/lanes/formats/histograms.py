"""Compares what limen and HdrHistogram's Python port read in each other's files.

`read LOG SUMMARY` compares an interval log with the summary of its run, `write LOG TEXT` writes files with the port, `same LOG JSON JSON`
compares that log, and what limen read in it and in the text.
"""
import json
import random
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter

# Percentiles whose rows the port's text has.
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99}


def logged(log):
    """The sum of each tag's intervals, and their number."""
    reader = HistogramLogReader(log, HdrHistogram(1, 60_000_000_000, 3))
    found, intervals = {}, {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        tag = histogram.get_tag()
        intervals[tag] = intervals.get(tag, 0) + 1
        # The intervals of a tag add up to what the run recorded.
        if tag in found:
            found[tag].add(histogram)
        else:
            found[tag] = histogram
    return found, intervals


def read(log, summary):
    found, intervals = logged(log)
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


def write(log, text):
    random.seed(1)
    with open(log, "w") as file:
        writer = HistogramLogWriter(file)
        writer.output_log_format_version()
        # The port's own method for the start time fails.
        writer.output_comment("[StartTime: 1700000000.000 (seconds since epoch)]")
        writer.output_base_time(1_700_000_000_000)
        writer.output_legend()
        for second in range(5):
            for tag in (None, "arm.compute"):
                histogram = HdrHistogram(1, 60_000_000_000, 3)
                for _ in range(2000):
                    histogram.record_value(int(random.lognormvariate(13, 1)))
                # The port's writer has no tags.
                file.write(f"Tag={tag}," if tag else "")
                writer.output_interval_histogram(histogram, second, second + 1, 1)
    with open(text, "wb") as file:
        logged(log)[0]["arm.compute"].output_percentile_distribution(file, 1)


def same(log, *read_by_limen):
    found, _ = logged(log)
    compared = 0
    for path in read_by_limen:
        for row in json.load(open(path))["histograms"]:
            # The text has no tag, and is that of the tagged histogram.
            histogram = found[row["tag"] or (None if len(compared_tags(path)) > 1 else "arm.compute")]
            assert histogram.get_total_count() == row["sum"]["count"], (path, row["tag"])
            for name, percentile in PERCENTILES.items():
                value, its = row["sum"][name], histogram.get_value_at_percentile(percentile)
                # The port's rows are up to 5 % of the values apart, and what lies between two is counted at the upper one.
                assert its * 0.998 <= value <= its * 1.1, (path, row["tag"], name, value, its)
                compared += 1
    print(f"{compared} percentiles that limen read in files of the port agree")


def compared_tags(path):
    return [row["tag"] for row in json.load(open(path))["histograms"]]


{"read": read, "write": write, "same": same}[sys.argv[1]](*sys.argv[2:])
