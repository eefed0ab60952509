//! A server of HTTP/1.1 for one page, which never makes its caller wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most connections; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 8;
/// The most bytes of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// The time for a request to arrive, and for its answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time for a client to close its connection after the answer.
const LINGER: Duration = Duration::from_secs(1);
/// How often is read from a connection in one go, once it has its answer.
const READS: usize = 16;

/// A server that answers `GET /metrics` whenever its owner calls [`poll`](MetricsServer::poll), and refuses everything else.
///
/// It holds at most 8 connections, reads at most 8 KiB of each, closes those that take longer than 5 seconds, and starts no thread. On a
/// loopback address it answers only requests for this machine by its own names, so that no page of a web browser can read from it.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    until: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing {
        head: Vec<u8>,
        body: Arc<str>,
        sent: usize,
    },
    /// What still arrives is read: closing would discard the answer with it.
    Closing,
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
        Ok(MetricsServer { listener, address, connections: Vec::new() })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts, reads and answers as far as that needs no wait; to be called about ten times a second. `text` makes the metrics
    /// ([`RunMetrics::text`](crate::RunMetrics::text)); it is called at most once, and only if a request has arrived.
    pub fn poll(&mut self, text: impl FnOnce() -> String) {
        while self.connections.len() < MAX_CONNECTIONS {
            // An error is of that connection, or of this moment.
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let until = Instant::now() + TIMEOUT;
                self.connections.push(Connection { stream, until, state: State::Reading(Vec::new()) });
            }
        }
        let mut text = Text { make: Some(text), made: None };
        let is_local = self.address.ip().to_canonical().is_loopback();
        let now = Instant::now();
        // One that has ended leaves its place to the next at the next call.
        self.connections.retain_mut(|one| one.until > now && one.go_on(is_local, &mut || text.get()));
    }
}

/// The page, made when it is asked for first.
struct Text<F> {
    make: Option<F>,
    made: Option<Arc<str>>,
}

impl<F: FnOnce() -> String> Text<F> {
    fn get(&mut self) -> Arc<str> {
        let make = self.make.take();
        self.made.get_or_insert_with(|| make.map_or_else(|| "".into(), |make| make().into())).clone()
    }
}

impl Connection {
    /// Goes on as far as that needs no wait; returns whether the connection is still needed.
    fn go_on(&mut self, is_local: bool, text: &mut dyn FnMut() -> Arc<str>) -> bool {
        let mut reads = 0;
        loop {
            let is_done = match &mut self.state {
                State::Reading(head) => match read_head(&mut self.stream, head) {
                    Ok(Some(request)) => {
                        let answer = judge(request, is_local);
                        let body = if answer == OK { text() } else { format!("{answer}\n").into() };
                        let allow = if answer == NOT_ALLOWED { "Allow: GET\r\n" } else { "" };
                        let head = format!(
                            "HTTP/1.1 {answer}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
                             Content-Length: {}\r\n{allow}Connection: close\r\n\r\n",
                            body.len()
                        );
                        self.until = Instant::now() + TIMEOUT;
                        self.state = State::Writing { head: head.into_bytes(), body, sent: 0 };
                        Ok(true)
                    }
                    Ok(None) => Ok(false),
                    Err(error) => Err(error),
                },
                State::Writing { head, body, sent } => {
                    let rest = if *sent < head.len() { &head[*sent..] } else { &body.as_bytes()[*sent - head.len()..] };
                    if rest.is_empty() {
                        self.until = Instant::now() + LINGER;
                        self.state = State::Closing;
                        self.stream.shutdown(Shutdown::Write).map(|()| true)
                    } else {
                        self.stream.write(rest).map(|n| {
                            *sent += n;
                            n > 0
                        })
                    }
                }
                State::Closing if reads == READS => return true,
                State::Closing => {
                    reads += 1;
                    self.stream.read(&mut [0; 4096]).map(|n| n > 0)
                }
            };
            match is_done {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// A request's head, or that it is too long.
#[derive(Clone, Copy)]
enum Head<'a> {
    Whole(&'a [u8]),
    TooLong,
}

/// Reads on until the head of a request is whole; `None` if the client has closed the connection before.
fn read_head<'a>(stream: &mut TcpStream, head: &'a mut Vec<u8>) -> io::Result<Option<Head<'a>>> {
    let end = loop {
        if let Some(end) = end_of(head) {
            break end;
        }
        if head.len() >= MAX_HEAD {
            return Ok(Some(Head::TooLong));
        }
        let mut piece = [0; 1024];
        let n = stream.read(&mut piece)?;
        if n == 0 {
            return Ok(None);
        }
        head.extend_from_slice(&piece[..n]);
    };
    Ok(Some(if end > MAX_HEAD { Head::TooLong } else { Head::Whole(&head[..end]) }))
}

/// Where the head of a request ends: before an empty line.
fn end_of(head: &[u8]) -> Option<usize> {
    head.windows(4).position(|four| four == b"\r\n\r\n")
}

const OK: &str = "200 OK";
const NOT_ALLOWED: &str = "405 Method Not Allowed";

/// The status of the answer to a request.
fn judge(head: Head<'_>, is_local: bool) -> &'static str {
    let Head::Whole(head) = head else { return "431 Request Header Fields Too Large" };
    let Ok(head) = std::str::from_utf8(head) else { return "400 Bad Request" };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, version] = words[..] else { return "400 Bad Request" };
    if !version.starts_with("HTTP/1.") {
        return "400 Bad Request";
    }
    let host = lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("host"));
    if is_local && host.is_some_and(|(_, host)| !is_this_machine(host.trim())) {
        return "403 Forbidden";
    }
    match (method, path.split('?').next()) {
        ("GET", Some("/metrics")) => OK,
        (_, Some("/metrics")) => NOT_ALLOWED,
        _ => "404 Not Found",
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
        for (head, local, other) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:9464", "200", "200"),
            ("GET /metrics HTTP/1.0", "200", "200"),
            ("GET /metrics?name=x HTTP/1.1\r\nhOsT:127.0.0.1:1", "200", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]:9464", "200", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1", "200", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: rebound.example:9464", "403", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: 10.0.0.1", "403", "200"),
            ("GET / HTTP/1.1\r\nHost: localhost", "404", "404"),
            ("GET /metrics/../x HTTP/1.1", "404", "404"),
            ("POST /metrics HTTP/1.1", "405", "405"),
            ("HEAD /metrics HTTP/1.1", "405", "405"),
            ("GET  /metrics HTTP/1.1", "400", "400"),
            ("GET /metrics HTTP/2", "400", "400"),
            ("\u{16}\u{3}\u{1}", "400", "400"),
            ("", "400", "400"),
        ] {
            for (is_local, expected) in [(true, local), (false, other)] {
                let answer = judge(Head::Whole(head.as_bytes()), is_local);
                assert!(answer.starts_with(expected), "{head:?}: {answer}");
            }
        }
        assert!(judge(Head::Whole(b"\xff\xfe"), true).starts_with("400"));
    }
}
