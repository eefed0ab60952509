//! A client of a monitor.

use super::request::MonitorRequest;
use crate::places::Rank;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest line of a request.
const LONGEST: usize = 64 << 10;
/// The most requests that wait; the rest stays in the kernel.
const WAITING: usize = 16;
/// A client that takes nothing of an answer for so long is dropped.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(5) };

/// A client, its requests, and what it has not read of its answers.
#[derive(Debug)]
pub(super) struct MonitorConnection {
    stream: UnixStream,
    input: Vec<u8>,
    requests: VecDeque<Result<MonitorRequest, String>>,
    has_asked: bool,
    /// When it last asked, or connected.
    asked: Instant,
    output: Vec<u8>,
    /// When it last took a byte of the output, or had none to take.
    took: Instant,
    /// Whether no more is read: it has closed its side, or its line is too long.
    is_ended: bool,
    is_broken: bool,
}

impl MonitorConnection {
    /// A client; its stream does not block.
    pub(super) fn new(stream: UnixStream) -> Self {
        let (input, output, requests) = (Vec::new(), Vec::new(), VecDeque::new());
        let now = Instant::now();
        MonitorConnection {
            stream,
            input,
            requests,
            has_asked: false,
            asked: now,
            output,
            took: now,
            is_ended: false,
            is_broken: false,
        }
    }

    /// Reads requests as far as there is room for them. Returns whether the client is still there.
    pub(super) fn read(&mut self) -> bool {
        self.flush();
        let mut buffer = [0; 4096];
        while !self.is_ended && !self.is_broken && self.output.is_empty() && self.requests.len() < WAITING {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_ended = true,
                Ok(read) => {
                    self.input.extend_from_slice(&buffer[..read]);
                    self.split();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_broken = true,
            }
        }
        self.split();
        !self.is_over()
    }

    /// Makes requests of the lines that are complete.
    fn split(&mut self) {
        let mut from = 0;
        while self.requests.len() < WAITING
            && let Some(length) = self.input[from..].iter().position(|byte| *byte == b'\n')
        {
            let line = self.input[from..from + length].trim_ascii();
            // A blank line asks for nothing.
            if !line.is_empty() {
                self.requests.push_back(MonitorRequest::read(line));
            }
            from += length + 1;
        }
        if from > 0 {
            (self.has_asked, self.asked) = (true, Instant::now());
        }
        self.input.drain(..from);
        if self.is_ended && !self.input.is_empty() && self.requests.len() < WAITING {
            // The last line needs no end.
            self.requests.push_back(MonitorRequest::read(&std::mem::take(&mut self.input)));
        }
        if self.input.len() > LONGEST && self.requests.len() < WAITING {
            // Where the next line begins is unknown.
            self.input = Vec::new();
            self.is_ended = true;
            self.requests.push_back(Err(format!("a line must be at most {LONGEST} bytes, got more")));
        }
    }

    /// Whether it asks for statistics and can be answered.
    pub(super) fn asks_for_stats(&self) -> bool {
        self.output.is_empty() && self.requests.iter().any(|request| matches!(request, Ok(MonitorRequest::Stats {})))
    }

    /// Returns the next request, once the client has read the answers before it.
    pub(super) fn next(&mut self) -> Option<Result<MonitorRequest, String>> {
        if self.output.is_empty() { self.requests.pop_front() } else { None }
    }

    /// Sends an answer as far as the client takes it; the rest waits.
    pub(super) fn answer(&mut self, line: &str) {
        self.output.extend_from_slice(line.as_bytes());
        self.took = Instant::now();
        self.flush();
    }

    fn flush(&mut self) {
        while !self.output.is_empty() && !self.is_broken {
            match self.stream.write(&self.output) {
                Ok(0) => self.is_broken = true,
                Ok(written) => {
                    self.output.drain(..written);
                    self.took = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_broken = self.took.elapsed() > PATIENCE;
                    return;
                }
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// Whether there is nothing more to do for it.
    pub(super) fn is_over(&self) -> bool {
        self.is_broken || (self.is_ended && self.input.is_empty() && self.requests.is_empty() && self.output.is_empty())
    }
}

impl Rank for MonitorConnection {
    fn rank(&self) -> (bool, Instant) {
        (self.has_asked, self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, MonitorConnection) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, MonitorConnection::new(server))
    }

    #[test]
    fn a_client_that_does_not_read_is_dropped_and_little_is_kept_for_it() {
        let (client, mut connection) = pair();
        client.set_nonblocking(true).unwrap();
        let line = "x".repeat(100_000);
        while (&client).write(b"{\"ask\":\"stats\"}\n").is_ok() {}
        let (mut answered, mut most) = (0, 0);
        let end = Instant::now() + Duration::from_secs(60);
        while connection.read() {
            assert!(Instant::now() < end);
            while connection.next().is_some() {
                connection.answer(&line);
                answered += 1;
            }
            most = connection.output.len().max(most);
            assert!(connection.requests.len() <= WAITING && connection.input.len() <= LONGEST + 4096);
        }
        assert!(answered > 0 && most <= line.len(), "{answered}, {most}");
    }

    #[test]
    fn a_client_that_reads_late_gets_every_answer() {
        let (mut client, mut connection) = pair();
        client.write_all(&b"{\"ask\":\"stop\"}\n".repeat(100)).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let (mut answered, line) = (0, "x".repeat(50_000));
        let mut got = 0;
        while connection.read() {
            while connection.next().is_some() {
                connection.answer(&line);
                answered += 1;
            }
            let mut buffer = vec![0; 60_000];
            got += client.read(&mut buffer).unwrap();
        }
        drop(connection);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!((answered, got + rest.len()), (100, 100 * line.len()));
    }
}
