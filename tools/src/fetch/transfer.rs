//! One file over HTTP: redirects, retries, and going on where an answer broke off.

use super::address::{Address, Login, is_same_origin, redirected};
use super::cache::Part;
use super::lock::LockedFile;
use super::signature::EMPTY;
use limen::unit::{show_bytes, show_ns};
use std::io::{self, Read};
use std::time::{Duration, Instant, SystemTime};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use ureq::{Agent, Body, Timeout};

/// The most redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// What is read at once.
const PIECE: usize = 64 << 10;
/// The longest pause before another attempt, also when the server asks for one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The bounds of a download.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferLimits {
    /// The most bytes of a file.
    pub(super) max_bytes: u64,
    /// The longest silence, also while connecting.
    pub(super) idle: Duration,
    /// The longest time for a file, with all attempts.
    pub(super) total: Duration,
    /// Attempts in a row that bring no byte.
    pub(super) attempts: u32,
    /// The pause before the second attempt; each further one is twice as long.
    pub(super) pause: Duration,
}

/// A header with a secret for one host.
#[derive(Clone, Debug)]
pub(super) struct HostHeader {
    /// The host, with its port if the URL has one.
    pub(super) host: String,
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

/// A complete file.
#[derive(Debug)]
pub(super) struct Transferred {
    pub(super) sha256: String,
    /// The commit that the server answered with.
    pub(super) commit: Option<String>,
}

/// Is told how many bytes there are, and how many there will be.
pub(super) type ByteProgress<'a> = &'a (dyn Fn(u64, Option<u64>) + Sync);

/// Why an attempt failed.
enum AttemptFailure {
    /// Another one may succeed, after a pause if the server asks for one.
    Again(String, Option<Duration>),
    /// No other one will.
    Final(String),
}

use AttemptFailure::{Again, Final};

fn again(why: impl Into<String>) -> AttemptFailure {
    Again(why.into(), None)
}

/// A failure of the disk.
fn disk(error: io::Error) -> AttemptFailure {
    Final(format!("the cache cannot be written: {error}"))
}

/// Fetches a file into its part.
///
/// # Errors
/// Why it could not be fetched, without anything that may be secret.
pub(super) fn transfer(
    address: &Address,
    headers: &[HostHeader],
    limits: &TransferLimits,
    part: &mut Part,
    expected: Option<&LockedFile>,
    progress: ByteProgress<'_>,
) -> Result<Transferred, String> {
    let end = Instant::now() + limits.total;
    let mut random = fastrand::Rng::new();
    let (mut failures, mut best) = (0, part.len());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let late = || format!("was not complete after {}", show_ns(limits.total.as_nanos() as u64));
        if left.is_zero() {
            return Err(late());
        }
        let request = Request { address, headers, limits, left };
        let (why, asked) = match request.attempt(part, expected, progress) {
            Ok(transferred) => return Ok(transferred),
            Err(Final(why)) => return Err(why),
            Err(Again(why, asked)) => (why, asked),
        };
        // What brings the file forward is no failure, or a large file would need a perfect network.
        failures = if part.len() > best { 1 } else { failures + 1 };
        best = best.max(part.len());
        if failures >= limits.attempts {
            return Err(format!("{why} ({failures} attempts)"));
        }
        let pause = limits.pause * 2u32.saturating_pow(failures - 1);
        // With a random part, so that clients that failed together do not come back together.
        let pause = asked.unwrap_or(pause.mul_f64(0.5 + random.f64())).min(LONGEST_PAUSE);
        if pause >= end.saturating_duration_since(Instant::now()) {
            return Err(format!("{why}; it {}", late()));
        }
        std::thread::sleep(pause);
    }
}

/// One attempt.
struct Request<'a> {
    address: &'a Address,
    headers: &'a [HostHeader],
    limits: &'a TransferLimits,
    /// The time that is left.
    left: Duration,
}

impl Request<'_> {
    fn attempt(
        &self,
        part: &mut Part,
        expected: Option<&LockedFile>,
        progress: ByteProgress<'_>,
    ) -> Result<Transferred, AttemptFailure> {
        // An agent keeps connections to hosts; files may come from many.
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(self.left))
            .timeout_connect(Some(self.limits.idle))
            .timeout_recv_response(Some(self.limits.idle))
            .timeout_per_read(Some(self.limits.idle))
            .timeout_per_write(Some(self.limits.idle))
            .user_agent(concat!("limen-run/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build()
            .new_agent();
        let (mut uri, mut commit) = (self.address.uri.clone(), None);
        for _ in 0..=MAX_REDIRECTS {
            let mut request = agent.get(&uri);
            for (name, value) in &self.headers_for(&uri, part)? {
                request = request.header(name, value);
            }
            let answer = request.call().map_err(|error| self.failure(&error, &uri))?;
            if self.address.has_commit && is_same_origin(&uri, &self.address.uri) {
                commit = commit.or_else(|| answer.headers().get("x-repo-commit").and_then(commit_of));
            }
            let (status, host) = (answer.status(), uri.host().unwrap_or_default().to_string());
            if let (true, Some(location)) = (status.is_redirection(), answer.headers().get(header::LOCATION)) {
                let location = location.to_str().map_err(|_| Final("was redirected to no address".into()))?;
                uri = redirected(&uri, location).map_err(Final)?;
                continue;
            }
            let shown = format!("`{host}` answered {status}");
            match status {
                StatusCode::OK => part.restart().map_err(disk)?,
                StatusCode::PARTIAL_CONTENT if goes_on(answer.headers(), part.len()) => part.resume(),
                StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                    part.restart().map_err(disk)?;
                    return Err(again(shown));
                }
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                    return Err(Again(shown, retry_after(answer.headers())));
                }
                _ if status.is_server_error() => return Err(Again(shown, retry_after(answer.headers()))),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(Final(format!("{shown}; {}", self.advice())));
                }
                _ => return Err(Final(shown)),
            }
            self.receive(answer, part, expected, progress)?;
            let sha256 = part.sha256();
            if let Some(expected) = expected.filter(|expected| expected.sha256 != sha256) {
                let why = format!("expected SHA-256 {} as in the lock, found {sha256}", expected.sha256);
                // The first half may be of another version.
                let is_resumed = part.is_resumed();
                part.restart().map_err(disk)?;
                return Err(if is_resumed { again(why) } else { Final(why) });
            }
            return Ok(Transferred { sha256, commit });
        }
        Err(Final(format!("was redirected more than {MAX_REDIRECTS} times")))
    }

    /// Returns the headers of a request; credentials only where they belong.
    fn headers_for(&self, uri: &Uri, part: &Part) -> Result<HeaderMap, AttemptFailure> {
        let mut headers = HeaderMap::new();
        let text = |name: &str, value: &str| {
            let wrong = |_| Final(format!("the header `{name}` has characters that an HTTP header must not contain"));
            HeaderValue::from_str(value).map_err(wrong)
        };
        let host = uri.authority().map_or("", |host| host.as_str());
        for header in self.headers.iter().filter(|header| header.host.eq_ignore_ascii_case(host)) {
            headers.insert(header.name.clone(), header.value.clone());
        }
        match &self.address.login {
            _ if !is_same_origin(uri, &self.address.uri) => {}
            Login::None => {}
            Login::Header(name, value) => _ = headers.insert(name.clone(), value.clone()),
            Login::Aws(key) => {
                let time = amz_date();
                let mut signed = vec![("host", host), ("x-amz-content-sha256", EMPTY), ("x-amz-date", time.as_str())];
                signed.extend(key.token.as_deref().map(|token| ("x-amz-security-token", token)));
                let authorization = key.authorization("s3", uri.path(), &signed, &time);
                for (name, value) in signed {
                    let mut value = text(name, value)?;
                    value.set_sensitive(true);
                    headers.insert(HeaderName::from_static(name), value);
                }
                let mut value = text("authorization", &authorization)?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
        }
        if let Some(tag) = part.tag() {
            headers.insert(header::RANGE, text("range", &format!("bytes={}-", part.len()))?);
            headers.insert(header::IF_RANGE, text("if-range", tag)?);
        }
        Ok(headers)
    }

    /// Reads a body into the part, up to what is allowed.
    fn receive(
        &self,
        answer: ureq::http::Response<Body>,
        part: &mut Part,
        expected: Option<&LockedFile>,
        progress: ByteProgress<'_>,
    ) -> Result<(), AttemptFailure> {
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(encoding) = text(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            let encoding: String = encoding.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
            return Err(Final(format!("expected the file as it is, found `Content-Encoding: {encoding}`")));
        }
        let announced = answer.body().content_length();
        let all = announced.and_then(|rest| rest.checked_add(part.len()));
        if all.is_none() && expected.is_none() && text(header::TRANSFER_ENCODING).is_none() {
            return Err(Final("expected `Content-Length` or chunks: a lost end could not be recognised".into()));
        }
        let most = expected.map_or(self.limits.max_bytes, |expected| expected.size.min(self.limits.max_bytes));
        let too_long = || match expected {
            Some(expected) if expected.size <= self.limits.max_bytes => {
                format!("expected {} as in the lock, found more", show_bytes(most))
            }
            _ => format!("has more than {}; allow more with `--max-bytes`", show_bytes(most)),
        };
        if all.is_some_and(|all| all > most) {
            return Err(Final(too_long()));
        }
        if part.len() == 0 {
            part.set_tag(text(header::ETAG));
        }
        let (mut body, mut piece) = (answer.into_body().into_reader(), vec![0; PIECE]);
        progress(part.len(), all);
        loop {
            let read = match body.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(&error)),
            };
            if part.len() + read as u64 > most {
                part.restart().map_err(disk)?;
                return Err(Final(too_long()));
            }
            part.append(&piece[..read]).map_err(disk)?;
            progress(part.len(), all);
        }
        match all.or(expected.map(|expected| expected.size)) {
            Some(all) if part.len() < all => {
                Err(again(format!("broke off after {} of {}", show_bytes(part.len()), show_bytes(all))))
            }
            _ => Ok(()),
        }
    }

    /// Returns why a body ended early.
    fn broken(&self, error: &io::Error) -> AttemptFailure {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
            Some(inner) => self.failure(inner, &self.address.uri),
            None => again(format!("broke off: {error}")),
        }
    }

    fn failure(&self, error: &ureq::Error, uri: &Uri) -> AttemptFailure {
        let host = uri.host().unwrap_or_default();
        match error {
            ureq::Error::Timeout(Timeout::Global) => again("ran out of time"),
            ureq::Error::Timeout(_) => {
                let idle = show_ns(self.limits.idle.as_nanos() as u64);
                again(format!("`{host}` was silent for {idle}; allow more with `--idle-timeout`"))
            }
            ureq::Error::HostNotFound => again(format!("the host `{host}` is unknown")),
            ureq::Error::Io(error) => again(format!("`{host}`: {error}")),
            // Its text has the address.
            ureq::Error::BadUri(_) => Final("the address is not valid".into()),
            error => again(format!("`{host}`: {error}")),
        }
    }

    /// Returns which credentials could be missing.
    fn advice(&self) -> &'static str {
        match (&self.address.login, self.address.has_commit) {
            (Login::Header(..), _) => "check HF_TOKEN",
            (Login::Aws(_), _) => "check the key of AWS and AWS_REGION",
            (Login::None, true) => "set HF_TOKEN",
            (Login::None, false) => "name a header with `--header-env`, or for `s3://` set the key of AWS",
        }
    }
}

/// Whether a partial answer begins where the file ends.
fn goes_on(headers: &HeaderMap, at: u64) -> bool {
    let range = headers.get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    let begin = range.and_then(|range| range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse::<u64>().ok());
    at > 0 && begin == Some(at)
}

/// The pause that a server asks for.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The name of a commit, if it is one.
fn commit_of(value: &HeaderValue) -> Option<String> {
    let commit = value.to_str().ok()?;
    (commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit())).then(|| commit.to_string())
}

/// The time of now as signatures have it.
#[allow(clippy::disallowed_methods, reason = "a signature has the wall-clock time")]
fn amz_date() -> String {
    let text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.replace(['-', ':'], "")
}
