//! Metrics as a message of OTLP, the protocol of OpenTelemetry.

use super::{Buckets, Families, RunMetrics, Summary};
use limen::run::NodeStats;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point as exponential;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::time::{SystemTime, UNIX_EPOCH};

impl RunMetrics {
    /// Returns all metrics as the message `ExportMetricsServiceRequest` of OTLP: sums and
    /// exponential histograms since `started`, and gauges.
    ///
    /// Names are those of Prometheus with dots, without the ends for seconds and for sums, which
    /// are fields of their own. Resource attributes are `service.name` (the graph),
    /// `service.instance.id` (the run's id), and `service.version`.
    pub fn otlp(&self, nodes: &[NodeStats], started: SystemTime, now: SystemTime) -> Vec<u8> {
        let since_1970 = |time: SystemTime| {
            let passed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
        };
        let mut points = Points { metrics: Vec::new(), start: since_1970(started), now: since_1970(now) };
        self.write(nodes, &mut points);
        // A collector takes a metric without values for an error.
        points.metrics.retain(|metric| metric.data.as_ref().is_some_and(|data| !is_empty(data)));
        let service = [
            ("service.name", &*self.graph),
            ("service.instance.id", &*self.run_id),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let scope = InstrumentationScope {
            name: "limen".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..Default::default()
        };
        let of_scope = ScopeMetrics { scope: Some(scope), metrics: points.metrics, ..Default::default() };
        let resource = Resource { attributes: attributes(&service), ..Default::default() };
        let of_run = ResourceMetrics { resource: Some(resource), scope_metrics: vec![of_scope], ..Default::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![of_run] }.encode_to_vec()
    }
}

fn is_empty(data: &metric::Data) -> bool {
    match data {
        metric::Data::Gauge(gauge) => gauge.data_points.is_empty(),
        metric::Data::Sum(sum) => sum.data_points.is_empty(),
        metric::Data::ExponentialHistogram(histogram) => histogram.data_points.is_empty(),
        metric::Data::Histogram(_) | metric::Data::Summary(_) => false,
    }
}

fn attributes(labels: &[(&str, &str)]) -> Vec<KeyValue> {
    let text = |text: &str| AnyValue { value: Some(any_value::Value::StringValue(text.into())) };
    let attribute =
        |(key, value): &(&str, &str)| KeyValue { key: (*key).into(), value: Some(text(value)), ..Default::default() };
    labels.iter().map(attribute).collect()
}

/// Metrics under construction.
struct Points {
    metrics: Vec<Metric>,
    /// Nanoseconds since 1970.
    start: u64,
    now: u64,
}

impl Points {
    fn family(&mut self, name: &str, help: &str, data: metric::Data) {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let (name, unit) = match name.strip_suffix("_seconds") {
            Some(name) => (name, "s"),
            None => (name, if name.ends_with("_bytes") { "By" } else { "1" }),
        };
        self.metrics.push(Metric {
            name: name.replace('_', "."),
            description: help.into(),
            unit: unit.into(),
            data: Some(data),
            ..Default::default()
        });
    }
}

/// Values are since the start of the run, not since the last message, so that the next one makes up
/// for a lost one.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

impl Families for Points {
    fn counter(&mut self, name: &'static str, help: &'static str) {
        let sum = Sum { aggregation_temporality: CUMULATIVE, is_monotonic: true, ..Default::default() };
        self.family(name, help, metric::Data::Sum(sum));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str) {
        self.family(name, help, metric::Data::Gauge(Gauge::default()));
    }

    fn times(&mut self, name: &'static str, help: &'static str) {
        let times = ExponentialHistogram { aggregation_temporality: CUMULATIVE, ..Default::default() };
        self.family(name, help, metric::Data::ExponentialHistogram(times));
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let points = match self.metrics.last_mut().and_then(|metric| metric.data.as_mut()) {
            Some(metric::Data::Sum(sum)) => &mut sum.data_points,
            Some(metric::Data::Gauge(gauge)) => &mut gauge.data_points,
            _ => return,
        };
        // Counts are integers below 2^53.
        points.push(NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: Some(number_data_point::Value::AsInt(value as i64)),
            ..Default::default()
        });
    }

    fn summary(&mut self, labels: &[(&str, &str)], summary: &Summary) {
        let Some(metric::Data::ExponentialHistogram(times)) =
            self.metrics.last_mut().and_then(|metric| metric.data.as_mut())
        else {
            return;
        };
        let Buckets { first, counts, zeros } = &summary.buckets;
        times.data_points.push(ExponentialHistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: summary.count,
            sum: Some(summary.sum / 1e9),
            scale: Buckets::SCALE,
            zero_count: *zeros,
            positive: Some(exponential::Buckets { offset: *first, bucket_counts: counts.iter().copied().collect() }),
            ..Default::default()
        });
    }
}
