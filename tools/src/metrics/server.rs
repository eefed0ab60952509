//! A server of HTTP/1.1 for one page, which never makes its caller wait.
//!
//! `hyper` speaks HTTP. It has no runtime here: a connection is a future that is polled whenever
//! the server is.

use crate::places::{self, Rank};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The most connections. A further one takes the place of the one that has waited longest.
const MAX_CONNECTIONS: usize = 32;
/// The most bytes of a request's head; the least that `hyper` allows.
const MAX_HEAD: usize = 8 << 10;
/// The time for a request to arrive, and for its answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time for a client to close its connection after the answer.
const LINGER: Duration = Duration::from_secs(1);
/// How often is read from a connection in one go, once it has its answer.
const READS: usize = 16;

/// A server that answers `GET /metrics` whenever its owner calls [`poll`](MetricsServer::poll), and
/// refuses everything else.
///
/// It holds at most 32 connections, reads at most 8 KiB of each, closes those that take longer than
/// 5 seconds, and starts no thread. When all places are taken, a further connection replaces one
/// that has asked for nothing, so silent clients keep nobody out. On a loopback address it answers
/// only requests for this machine by its own names, so that no page of a web browser can read from
/// it.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    timeout: Duration,
    connections: Vec<HttpConnection>,
}

struct HttpConnection {
    stream: Arc<TcpStream>,
    since: Instant,
    until: Instant,
    request: Asked,
    /// `None` once the client has its answer. What still arrives is read then: closing would
    /// discard the answer with it.
    exchange: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// How far a request is, shared by a connection and the answer that it waits for.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Stage>>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Reading,
    /// The page is to be made.
    Waiting,
    Made(String),
    Writing,
}

impl Asked {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.stage(), Stage::Waiting)
    }
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Listens on an address; on any free port if its port is 0.
    ///
    /// # Errors
    /// Those of the socket, such as [`ErrorKind::AddrInUse`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(MetricsServer { listener, address, timeout: TIMEOUT, connections: Vec::new() })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts, reads and answers as far as that needs no wait; to be called about ten times a
    /// second. `text` makes the metrics ([`RunMetrics::text`](crate::RunMetrics::text)); it is
    /// called at most once, and only if a request has arrived.
    pub fn poll(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        self.connections.retain_mut(|one| one.until > now && one.go_on(self.timeout));
        // Bounded: further connections wait in the kernel's queue.
        for _ in 0..2 * MAX_CONNECTIONS {
            // An error is of that connection, or of this moment.
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let mut one = HttpConnection::new(stream, self.address.ip().to_canonical().is_loopback(), self.timeout);
                if one.go_on(self.timeout) {
                    places::seat(&mut self.connections, one, MAX_CONNECTIONS);
                }
            }
        }
        let mut asking = self.connections.iter().filter(|one| one.request.is_waiting());
        if asking.next().is_none() {
            return;
        }
        let page = text();
        self.connections.retain_mut(|one| {
            if !one.request.is_waiting() {
                return true;
            }
            *one.request.stage() = Stage::Made(page.clone());
            one.until = Instant::now() + self.timeout;
            one.go_on(self.timeout)
        });
    }
}

impl Rank for HttpConnection {
    /// Those that have asked for something stay longest.
    fn rank(&self) -> (bool, Instant) {
        (!matches!(*self.request.stage(), Stage::Reading), self.since)
    }
}

impl HttpConnection {
    fn new(stream: TcpStream, is_local: bool, timeout: Duration) -> Self {
        let (stream, request) = (Arc::new(stream), Asked::default());
        let asked = request.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let status = judge(&request, is_local);
            *asked.stage() = if status == StatusCode::OK { Stage::Waiting } else { Stage::Made(format!("{status}\n")) };
            let asked = asked.clone();
            poll_fn(move |_| {
                let mut stage = asked.stage();
                match std::mem::replace(&mut *stage, Stage::Writing) {
                    Stage::Made(body) => Poll::Ready(Ok::<_, Infallible>(answer(status, body))),
                    waiting => {
                        *stage = waiting;
                        Poll::Pending
                    }
                }
            })
        });
        let exchange = http1::Builder::new()
            .keep_alive(false)
            // A client may close its side once it has asked.
            .half_close(true)
            // A connection has a time limit as a whole.
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD)
            .serve_connection(AsyncSocket(stream.clone()), service);
        let since = Instant::now();
        HttpConnection { stream, since, until: since + timeout, request, exchange: Some(Box::pin(exchange)) }
    }

    /// Goes on as far as that needs no wait; returns whether the connection is still needed.
    fn go_on(&mut self, timeout: Duration) -> bool {
        if let Some(exchange) = &mut self.exchange {
            // Nothing needs to be woken: the server is polled.
            if exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                return true;
            }
            // An error has been answered, or the client has gone.
            self.exchange = None;
            self.until = Instant::now() + timeout.min(LINGER);
        }
        for _ in 0..READS {
            match (&*self.stream).read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// A socket that does not block, as `hyper` uses it.
#[derive(Debug)]
struct AsyncSocket(Arc<TcpStream>);

fn polled<T>(mut call: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            result => return Poll::Ready(result),
        }
    }
}

impl hyper::rt::Read for AsyncSocket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        let most = to.remaining().min(bytes.len());
        polled(|| (&*self.0).read(&mut bytes[..most])).map_ok(|read| to.put_slice(&bytes[..read]))
    }
}

impl hyper::rt::Write for AsyncSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        polled(|| (&*self.0).write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(Shutdown::Write))
    }
}

fn answer(status: StatusCode, body: String) -> Response<String> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET"));
    }
    answer
}

/// The status of the answer to a request.
fn judge<T>(request: &Request<T>, is_local: bool) -> StatusCode {
    let host = request.headers().get(HOST);
    if is_local && host.is_some_and(|host| !host.to_str().is_ok_and(|host| is_this_machine(host.trim()))) {
        return StatusCode::FORBIDDEN;
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => StatusCode::OK,
        (_, "/metrics") => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    }
}

/// Whether the host of a request is this machine by a name that nobody can give to it in the DNS.
fn is_this_machine(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().to_canonical().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.parse::<u16>().is_ok() { name } else { host });
    name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_page_is_served_and_only_to_this_machine() {
        for (method, path, host, local, other) in [
            ("GET", "/metrics", Some("localhost:9464"), 200, 200),
            ("GET", "/metrics", None, 200, 200),
            ("GET", "/metrics?name=x", Some("127.0.0.1:1"), 200, 200),
            ("GET", "/metrics", Some("[::1]:9464"), 200, 200),
            ("GET", "/metrics", Some("127.0.0.1"), 200, 200),
            ("GET", "/metrics", Some("rebound.example:9464"), 403, 200),
            ("GET", "/metrics", Some("10.0.0.1"), 403, 200),
            ("GET", "/metrics", Some("\u{e9}"), 403, 200),
            ("GET", "/", Some("localhost"), 404, 404),
            ("GET", "/metrics/../x", None, 404, 404),
            ("POST", "/metrics", None, 405, 405),
            ("HEAD", "/metrics", None, 405, 405),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = host.into_iter().fold(request, |request, host| request.header(HOST, host.as_bytes()));
            let request = request.body(()).unwrap();
            for (is_local, expected) in [(true, local), (false, other)] {
                assert_eq!(judge(&request, is_local).as_u16(), expected, "{method} {path} {host:?}");
            }
        }
    }

    #[test]
    fn silent_and_slow_clients_keep_nobody_out() {
        let mut server = MetricsServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
        // No place becomes free by itself.
        server.timeout = Duration::from_secs(3600);
        let address = server.address;
        let ask = |sent: &[u8]| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(sent).unwrap();
            stream
        };
        let whole = b"GET /metrics HTTP/1.1\r\n\r\n";
        for sent in [&b""[..], b"GET /metrics HTTP/1.1\r\nX: ", whole] {
            let (silent, mut asking): (Vec<_>, _) = ((0..64).map(|_| ask(sent)).collect(), ask(whole));
            // Larger than what the kernel takes: the clients that ask and do not read wait for
            // ever.
            let page = "x 1\n".repeat(1 << 20);
            asking.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let client = std::thread::spawn(move || {
                let mut answer = Vec::new();
                asking.read_to_end(&mut answer).map(|_| answer.len())
            });
            while !client.is_finished() {
                server.poll(|| page.clone());
                assert!(server.connections.len() <= MAX_CONNECTIONS);
                std::thread::yield_now();
            }
            let answer = client.join().unwrap().unwrap();
            assert!(answer > page.len(), "{answer} of {}", page.len());
            drop(silent);
        }
    }
}
