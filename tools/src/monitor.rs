//! Serves a running graph to monitors such as `limen-top`, through a Unix socket that only its user
//! may open.
//!
//! Requests and answers are JSON objects, one a line:
//!
//! ```text
//! {"ask":"stats"}                                              -> {"version":1,"ok":true,"stats":{..}}
//! {"ask":"set","node":"throttle","name":"rate","value":20}     -> {"version":1,"ok":true}
//! {"ask":"stop"}                                               -> {"version":1,"ok":true}
//! anything else                                                -> {"version":1,"ok":false,"error":".."}
//! ```
//!
//! There is no thread: the loop that watches the run polls the monitor, so a client can neither
//! keep a worker waiting nor ask more often than that loop turns. Everything is bounded: the
//! clients, the line of a request, the requests that wait, and the answers, of which a client is
//! given the next only after it has read the one before. When all places are taken, a new client
//! replaces the one that has asked for nothing for longest.

mod client;
mod connection;
mod request;
mod socket;
mod stats;

pub use client::MonitorClient;
pub(crate) use socket::remove_own;
pub use stats::{MonitorNode, MonitorStats, MonitorWorker};

use crate::places;
use connection::MonitorConnection;
use limen::run::EdgeStats;
use limen::{Plan, Running};
use request::MonitorRequest;
use socket::Socket;
use stats::Peaks;
use std::io;
use std::path::Path;

/// The version of the protocol, in every answer. Keys may be added within a version, but are never
/// removed.
const VERSION: u32 = 1;
/// The most clients at once. A further one takes the place of the one that has asked for nothing
/// for longest.
const CLIENTS: usize = 32;

/// Serves a run to monitors through a Unix socket, `$XDG_RUNTIME_DIR/limen/GRAPH-PID.sock`, or
/// `limen-UID/GRAPH-PID.sock` in the folder of temporary files. Folder and socket belong to the
/// user alone, and the kernel is asked who a client is.
///
/// The program polls it, about ten times a second. Dropping it removes the socket.
///
/// ```
/// use limen::{Options, Plan, Spec};
/// use limen_run::{Monitor, MonitorClient};
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # const GRAPH: &str = "version: 1\ngraph: shown\nnodes:\n  ticks: { kind: synthetic, config: { pattern: counter, rate: 100Hz } }\n  \
/// #                      end: { kind: 'null', from: ticks }\n";
/// let plan = Plan::new(Spec::from_text(GRAPH, "graph.yaml")?, &limen_run::registry())?;
/// let mut monitor = Monitor::new(&plan)?;
/// let path = monitor.path().to_path_buf();
/// let mut running = plan.wire()?.start()?;
/// let client = std::thread::spawn(move || MonitorClient::connect(&path)?.ask(r#"{"ask":"stop"}"#));
/// while !running.wait_for(Duration::from_millis(100)) {
///     monitor.poll(&running);
/// }
/// # let answer = client.join().unwrap()?;
/// # assert_eq!(answer["ok"], true);
/// # assert!(running.wait().bugs.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    connections: Vec<MonitorConnection>,
    stats: MonitorStats,
    peaks: Peaks,
}

impl Monitor {
    /// Opens the socket for a plan's run. Clients may connect at once, and are answered when the
    /// run is polled. Removes the sockets that dead processes have left.
    ///
    /// # Errors
    /// The folder cannot be made, belongs to another user or may be entered by others; or the
    /// system's error.
    pub fn new(plan: &Plan) -> io::Result<Self> {
        let socket = Socket::bind(plan.graph())?;
        Ok(Monitor { socket, connections: Vec::new(), stats: MonitorStats::new(plan), peaks: Peaks::default() })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Takes the requests that have arrived and answers them; waits for no client. A request for
    /// statistics takes as long as [`Running::stats`].
    pub fn poll(&mut self, running: &Running) {
        let edges = if self.read() { running.edge_stats() } else { Vec::new() };
        self.answer(running, &edges);
    }

    /// Takes the requests that have arrived. Returns whether any needs the queue depth of the
    /// edges.
    pub(crate) fn read(&mut self) -> bool {
        self.connections.retain_mut(MonitorConnection::read);
        // More than can be taken at once wait in the kernel.
        for _ in 0..2 * CLIENTS {
            let Some(stream) = self.socket.accept() else { break };
            let mut connection = MonitorConnection::new(stream);
            if connection.read() {
                places::seat(&mut self.connections, connection, CLIENTS);
            }
        }
        self.connections.iter().any(|connection| connection.asks_for_stats())
    }

    /// Answers the requests that were read. `edges` is what [`Running::edge_stats`] returned just
    /// now; it may be empty if [`read`](Self::read) returned false. Every such return is needed
    /// here, because an edge tells its peak depth only once.
    pub(crate) fn answer(&mut self, running: &Running, edges: &[EdgeStats]) {
        if !edges.is_empty() {
            self.peaks.look(edges);
        }
        // One text for all clients.
        let mut text_of_all = None;
        for connection in &mut self.connections {
            while let Some(request) = connection.next() {
                let answer = match request {
                    Ok(MonitorRequest::Stats {}) => {
                        let text = || {
                            self.stats.look(running, edges, &self.peaks);
                            request::accepted_with(&self.stats)
                        };
                        text_of_all.get_or_insert_with(text).clone()
                    }
                    Ok(MonitorRequest::Set { node, name, value }) => match running.set(&node, &name, value) {
                        Ok(()) => request::accepted(),
                        Err(error) => request::refused(&error.to_string()),
                    },
                    Ok(MonitorRequest::Stop {}) => {
                        running.stopper().stop();
                        request::accepted()
                    }
                    Err(why) => request::refused(&why),
                };
                connection.answer(&answer);
            }
        }
        self.connections.retain(|connection| !connection.is_over());
    }
}
