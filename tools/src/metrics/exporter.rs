//! Sends messages of OTLP to a collector, by HTTP, on a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::Uri;

/// The time between two messages.
const EVERY: Duration = Duration::from_secs(10);
/// The time for one message to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The path of a collector for metrics.
const PATH: &str = "/v1/metrics";

/// Sends the metrics of a run to an OpenTelemetry collector, every ten seconds and at the end, by
/// OTLP over HTTP.
///
/// A thread of its own sends; its caller never waits. Metrics are sums since the start of the run,
/// so what a lost message would have said is in the next one, but for the last.
///
/// ```no_run
/// use limen_run::{OtlpExporter, RunMetrics};
/// use std::time::{Duration, SystemTime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = limen::Plan::from_file("graph.yaml", &Default::default(), &limen_run::registry(), &Default::default())?;
/// let mut metrics = RunMetrics::new(&plan);
/// let mut exporter = OtlpExporter::new("http://127.0.0.1:4318")?;
/// let mut running = plan.wire()?.start()?;
/// metrics.set_run_id(running.run_id());
/// while !running.wait_for(Duration::from_millis(100)) {
///     metrics.look(&running.edge_stats());
///     metrics.look_at_paths(&running.path_stats());
///     metrics.add_intervals(&running.intervals());
///     exporter.poll(|| metrics.otlp(&running.stats(), running.started(), SystemTime::now()));
/// }
/// let stats = running.stats();
/// let report = running.wait();
/// metrics.conclude(&report);
/// let last = metrics.otlp(&stats, report.started, SystemTime::now());
/// let exported = exporter.finish(last);
/// println!("{} of {} messages arrived", exported.taken, exported.taken + exported.lost);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OtlpExporter {
    url: String,
    messages: SyncSender<Vec<u8>>,
    thread: JoinHandle<Exported>,
    due: Instant,
    /// Messages that found the thread at work.
    skipped: u64,
}

/// What became of the messages of an [`OtlpExporter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Messages that the collector took, by the status of its answer.
    pub taken: u64,
    /// Messages that it did not take, or that were not sent because the one before was still on its
    /// way.
    pub lost: u64,
    /// Why the first one was not taken.
    pub error: Option<String>,
}

impl OtlpExporter {
    /// Starts the thread. `/v1/metrics` is added to a URL without a path. Connects to nothing yet.
    ///
    /// # Errors
    /// Why the text is not the URL of a collector, or the system's error.
    pub fn new(url: &str) -> Result<Self, String> {
        let url = whole_url(url)?;
        let (messages, receiver) = sync_channel(1);
        let to = url.clone();
        let thread = std::thread::Builder::new().name("otlp".into()).spawn(move || send_all(&to, &receiver));
        let thread = thread.map_err(|error| error.to_string())?;
        // The first interval ends after a second.
        Ok(OtlpExporter { url, messages, thread, due: Instant::now() + Duration::from_secs(2), skipped: 0 })
    }

    /// Returns the URL to which it sends.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a message ([`RunMetrics::otlp`](crate::RunMetrics::otlp)), if one is due; to be called
    /// about ten times a second.
    pub fn poll(&mut self, message: impl FnOnce() -> Vec<u8>) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        if let Err(TrySendError::Full(_)) = self.messages.try_send(message()) {
            self.skipped += 1;
        }
    }

    /// Sends a last message, and waits until it has arrived or is given up, 15 seconds at most.
    pub fn finish(self, message: Vec<u8>) -> Exported {
        // With the thread at work on one and the next waiting, this one is the third.
        let _ = self.messages.send(message);
        drop(self.messages);
        let mut exported = self.thread.join().unwrap_or_default();
        exported.lost += self.skipped;
        exported
    }
}

/// Checks a URL, and adds the path.
fn whole_url(url: &str) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|error| format!("expected a URL such as `http://127.0.0.1:4318` ({error})"))?;
    if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let found = if uri.query().is_some() { "query" } else { "user" };
        return Err(format!("expected a URL without a {found}, such as `http://127.0.0.1:4318`, found a {found}"));
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) if !host.is_empty() => {}
        (Some("https"), _) => {
            return Err(
                "expected `http`, found `https`: send to a collector on this machine that forwards with TLS".into()
            );
        }
        _ => return Err(format!("expected the URL of a collector, such as `http://127.0.0.1:4318`, found `{url}`")),
    }
    let has_path = !matches!(uri.path(), "" | "/");
    Ok(if has_path { url.to_string() } else { format!("{}{PATH}", url.trim_end_matches('/')) })
}

/// Sends messages until there are no more.
fn send_all(url: &str, messages: &Receiver<Vec<u8>>) -> Exported {
    let agent = Agent::config_builder().timeout_global(Some(TIMEOUT)).max_redirects(0).proxy(None).build().new_agent();
    let mut exported = Exported::default();
    for message in messages {
        let sent = agent.post(url).content_type("application/x-protobuf").send(&message[..]);
        match sent {
            Ok(answer) if answer.status().is_success() => exported.taken += 1,
            answered => {
                exported.lost += 1;
                let why = answered.map_or_else(|error| error.to_string(), |answer| answer.status().to_string());
                exported.error.get_or_insert(why);
            }
        }
    }
    exported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_the_path_of_metrics_and_needs_a_host() {
        for (url, expected) in [
            ("http://127.0.0.1:4318", Ok("http://127.0.0.1:4318/v1/metrics")),
            ("http://collector:4318/", Ok("http://collector:4318/v1/metrics")),
            ("http://collector/otlp/v1/metrics", Ok("http://collector/otlp/v1/metrics")),
            ("https://collector:4318", Err("expected `http`, found `https`")),
            ("http://collector:4318?token=x", Err("expected a URL without a query")),
            ("http://me:secret@collector:4318", Err("expected a URL without a user")),
            ("collector:4318", Err("expected ")),
            ("4318", Err("expected ")),
            ("ftp://collector", Err("expected the URL of a collector")),
            ("http://", Err("expected ")),
            ("", Err("expected ")),
        ] {
            match (whole_url(url), expected) {
                (Ok(whole), Ok(expected)) => assert_eq!(whole, expected, "{url}"),
                (Err(why), Err(expected)) => assert!(why.starts_with(expected), "{url}: {why}"),
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_nobody_takes_is_counted_and_keeps_nobody() {
        // A port that was free a moment ago refuses connections.
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let exported = OtlpExporter::new(&format!("http://{free}")).unwrap().finish(vec![1]);
        assert_eq!((exported.taken, exported.lost), (0, 1));
        assert!(exported.error.is_some());
    }
}
