//! The other end: a client of a monitor.

use super::socket;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer; that of the largest graph is shorter.
const LONGEST: u64 = 64 << 20;

/// A connection to a [`Monitor`](crate::Monitor).
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// for path in limen_run::MonitorClient::running()? {
///     let answer = limen_run::MonitorClient::connect(&path)?.ask(r#"{"ask":"stats"}"#)?;
///     println!("{} runs for {} s", answer["stats"]["graph"], answer["stats"]["elapsed_s"]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MonitorClient {
    stream: BufReader<UnixStream>,
}

impl MonitorClient {
    /// Returns the sockets of the runs that this user can watch, by name.
    ///
    /// # Errors
    /// The folder of sockets belongs to another user or may be entered by others; or the system's
    /// error. A folder that is not there is none.
    pub fn running() -> io::Result<Vec<PathBuf>> {
        let folder = socket::folder();
        match socket::check(&folder).and_then(|()| socket::names(&folder)) {
            Ok(names) => Ok(names.into_iter().filter(|path| !socket::is_refused(path)).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Connects to a socket.
    ///
    /// # Errors
    /// Another user listens there; or the system's error.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let stream = UnixStream::connect(path)?;
        if !socket::is_own_user(&stream) {
            let why = format!("expected a socket of this user, found another user at `{}`", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(MonitorClient { stream: BufReader::new(stream) })
    }

    /// Sends a request, one line of JSON, and returns the answer.
    ///
    /// # Errors
    /// No answer within five seconds ([`ErrorKind::TimedOut`]); the run has ended
    /// ([`ErrorKind::UnexpectedEof`]); an answer that is not JSON ([`ErrorKind::InvalidData`]); or
    /// the system's error.
    pub fn ask(&mut self, request: &str) -> io::Result<Value> {
        let late = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => {
                io::Error::new(ErrorKind::TimedOut, "no answer within 5 s: the run may be starting, or may hang")
            }
            _ => error,
        };
        self.stream.get_mut().write_all(format!("{}\n", request.trim()).as_bytes()).map_err(late)?;
        let mut line = Vec::new();
        (&mut self.stream).take(LONGEST).read_until(b'\n', &mut line).map_err(late)?;
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the run has ended"));
        }
        Ok(serde_json::from_slice(&line)?)
    }
}
