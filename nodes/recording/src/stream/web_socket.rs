//! A WebSocket server for a sink: its connections never block, and none can make it use more memory
//! than it was given.

use limen::node::{Descriptors, Interest, NodeError, Watched};
use limen::{Clock, Time};
use limen_nodes_core::stream::Address;
use limen_nodes_core::stream::listener::Listener;
use limen_nodes_core::stream::tcp;
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response, ServerHandshake};
use tungstenite::handshake::{HandshakeError, MidHandshake};
use tungstenite::http::header::{HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Bytes, Error, Message, WebSocket};

/// How long a handshake may take, ns.
const HANDSHAKE: u64 = 5_000_000_000;
/// A client that has taken no byte for so long, although some wait for it, gives its place to
/// another, ns.
const STALLED: u64 = 5_000_000_000;
/// The largest message of a client.
const MAX_INCOMING: usize = 64 << 10;
/// Bytes and messages of one client that are handled at a time, so that the other nodes of the
/// worker have their turns.
const INCOMING_BYTES: usize = 64 << 10;
const INCOMING_BURST: usize = 32;
/// What a connection takes besides what it is sent: a message, one in pieces, and the request at
/// the beginning.
pub(crate) const CONNECTION_MEMORY: usize = 4 * MAX_INCOMING;

/// Which connections are taken.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The protocols spoken, the preferred one first.
    pub(crate) protocols: &'static [&'static str],
    /// The web pages that may connect, such as `https://app.foxglove.dev`, beside those that a
    /// server or a file of this machine holds; `*` for any.
    pub(crate) origins: Vec<String>,
}

impl Rules {
    /// A browser names the page that connects. Without this check every page that the user visits
    /// could read the robot's data.
    fn allows(&self, origin: Option<&str>) -> bool {
        let Some(origin) = origin else { return true };
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        matches!(name, "localhost" | "127.0.0.1" | "[::1]")
            || origin.starts_with("file://")
            || self.origins.iter().any(|allowed| allowed == "*" || allowed == origin)
    }
}

/// The check of a request.
#[derive(Debug)]
struct Check(Rc<Rules>);

impl Callback for Check {
    fn on_request(self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        let refused = |status: u16, why: String| {
            let mut refused = ErrorResponse::new(Some(why));
            // The statuses below are valid.
            *refused.status_mut() = status.try_into().unwrap_or_default();
            refused
        };
        let origin = request.headers().get(ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
        if !self.0.allows(origin) {
            let origin = origin.unwrap_or_default();
            return Err(refused(403, format!("the origin {origin} is not allowed: add {origin} to `origins`\n")));
        }
        let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let offered: Vec<&str> =
            offered.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).collect();
        let chosen = self.0.protocols.iter().find(|spoken| offered.iter().any(|name| name.trim() == **spoken));
        let Some(chosen) = chosen else {
            let found: Vec<&str> = offered.iter().map(|name| name.trim()).collect();
            let found = if found.is_empty() { "none".to_string() } else { found.join(", ") };
            let expected = self.0.protocols.join(", ");
            return Err(refused(400, format!("expected one of the protocols {expected}, found {found}\n")));
        };
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
        Ok(response)
    }
}

/// The socket of a connection, and how the library last used it.
#[derive(Debug)]
struct ConnectionSocket {
    watched: Watched<TcpStream>,
    /// Bytes that may still be read in this turn.
    budget: Cell<usize>,
    /// What there was no byte or no room for.
    blocked: Cell<Interest>,
    /// When the client last took a byte.
    took: Cell<Time>,
    clock: Clock,
}

/// The stream of a connection, shared with what waits for it.
#[derive(Debug)]
struct ConnectionStream(Rc<ConnectionSocket>);

impl ConnectionStream {
    /// Notes what would have blocked.
    fn noted<T>(&self, result: io::Result<T>, interest: Interest) -> io::Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.0.blocked.set(interest);
        }
        result
    }
}

impl Read for ConnectionStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // A client that sends without end would keep the library reading: what is over comes in the
        // next turn.
        let most = bytes.len().min(self.0.budget.get());
        if most == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let read = self.noted((&*self.0.watched).read(&mut bytes[..most]), Interest::Read)?;
        self.0.budget.set(self.0.budget.get() - read);
        Ok(read)
    }
}

impl Write for ConnectionStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.noted((&*self.0.watched).write(bytes), Interest::Write)?;
        self.0.took.set(self.0.clock.now());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
enum ConnectionState {
    /// Until a time.
    Handshake(Box<MidHandshake<ServerHandshake<ConnectionStream, Check>>>, Time),
    Open(Box<WebSocket<ConnectionStream>>),
    Closed,
}

/// Whether a message was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// The client has not yet read what was sent before.
    Full,
    /// The connection is closed, or not open yet.
    Closed,
}

/// What a client did.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Opened,
    Text(&'a str),
    Binary,
}

/// A connection, and what the node knows of its client.
#[derive(Debug)]
pub(crate) struct Client<T> {
    pub(crate) data: T,
    socket: Rc<ConnectionSocket>,
    state: ConnectionState,
    is_pending: bool,
    was_open: bool,
    /// Whether it has sent a message, and when it connected.
    has_asked: bool,
    since: Time,
    /// Messages since nothing was pending: what the client may not have got.
    unsure: u64,
    /// Whether messages may be left that were read and not handled.
    has_more: bool,
}

impl<T> Client<T> {
    /// Whether messages can be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open(_))
    }

    /// Whether part of a message is still to be written.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending && self.is_open()
    }

    /// Whether it must give its place to another client, and how soon: first those that open no
    /// connection, then those that ask for nothing, then those that take nothing; among these the
    /// ones that do so for longest.
    fn gives_way(&self, now: Time) -> Option<(u8, Time)> {
        match self.state {
            ConnectionState::Closed | ConnectionState::Handshake(..) => Some((0, self.since)),
            ConnectionState::Open(_) if !self.has_asked => Some((1, self.since)),
            ConnectionState::Open(_) if self.is_pending && self.socket.took.get() + STALLED <= now => {
                Some((2, self.socket.took.get()))
            }
            ConnectionState::Open(_) => None,
        }
    }

    /// Notes what a write or a flush returned.
    fn written(&mut self, result: Result<(), Error>) -> Taken {
        let taken = match result {
            Ok(()) => {
                (self.is_pending, self.unsure) = (false, 0);
                Taken::Yes
            }
            // It is in the buffer.
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                self.is_pending = true;
                Taken::Yes
            }
            Err(Error::WriteBufferFull(_)) => Taken::Full,
            Err(_) => {
                self.state = ConnectionState::Closed;
                Taken::Closed
            }
        };
        self.socket.watched.set_interest(if self.is_pending { Interest::Both } else { Interest::Read });
        taken
    }

    fn write(&mut self, message: Message) -> Taken {
        let ConnectionState::Open(socket) = &mut self.state else { return Taken::Closed };
        let result = socket.write(message);
        self.written(result)
    }

    /// Sends bytes as a message.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> Taken {
        let taken = self.write(Message::Binary(Bytes::from(bytes)));
        self.unsure += u64::from(taken == Taken::Yes && self.is_pending);
        taken
    }

    /// Sends a text without which the client would go on with wrong assumptions: if there is no
    /// room, the connection is closed.
    pub(crate) fn tell(&mut self, text: String) {
        if self.write(Message::text(text)) == Taken::Full {
            self.state = ConnectionState::Closed;
        }
    }

    /// Begins to close the connection, after what is pending.
    pub(crate) fn close(&mut self) {
        if let ConnectionState::Open(socket) = &mut self.state {
            let result = socket.close(None);
            self.written(result);
        }
    }

    fn flush(&mut self) {
        if let (true, ConnectionState::Open(socket)) = (self.is_pending, &mut self.state) {
            let result = socket.flush();
            self.written(result);
        }
    }

    /// Goes on with the handshake. Returns whether the connection is open now.
    fn shake(&mut self, now: Time) -> bool {
        let ConnectionState::Handshake(handshake, until) = std::mem::replace(&mut self.state, ConnectionState::Closed)
        else {
            return false;
        };
        match handshake.handshake() {
            Ok(socket) => {
                self.socket.watched.set_interest(Interest::Read);
                self.state = ConnectionState::Open(Box::new(socket));
                true
            }
            Err(HandshakeError::Interrupted(handshake)) if now < until => {
                // Only for what it lacks: an idle socket can always be written.
                self.socket.watched.set_interest(self.socket.blocked.get());
                self.state = ConnectionState::Handshake(Box::new(handshake), until);
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the next message; `None` if there is none yet, or the connection has ended.
    fn read(&mut self) -> Option<Message> {
        let ConnectionState::Open(socket) = &mut self.state else { return None };
        match socket.read() {
            Ok(message) => Some(message),
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => {
                self.state = ConnectionState::Closed;
                None
            }
        }
    }
}

/// Counts of connections so far.
#[derive(Debug, Default)]
pub(crate) struct LinkCounts {
    pub(crate) connections: u64,
    pub(crate) disconnects: u64,
    /// Connections that came when there was no place, whose handshake failed, or that gave their
    /// place away before it ended.
    pub(crate) refused: u64,
    /// Messages that a client may not have got when its connection ended.
    pub(crate) unsure: u64,
}

/// The listener and its connections.
#[derive(Debug)]
pub(crate) struct Server<T> {
    listener: Listener,
    most: usize,
    rules: Rc<Rules>,
    config: WebSocketConfig,
    clock: Clock,
    descriptors: Descriptors,
    pub(crate) clients: Vec<Client<T>>,
    pub(crate) counts: LinkCounts,
}

impl<T: Default> Server<T> {
    /// Listens on an address, for at most so many connections with so many bytes each that the
    /// client has yet to read. When all places are taken, a further client replaces one that is
    /// silent or stalled, if there is one.
    pub(crate) fn listen(
        address: Address,
        most: usize,
        backlog: usize,
        rules: Rules,
        clock: Clock,
        descriptors: Descriptors,
    ) -> Result<Self, NodeError> {
        let listener = Listener::bind(address, &descriptors)?;
        let config = WebSocketConfig::default()
            .read_buffer_size(4 << 10)
            // Each message goes to the kernel at once, as far as it takes it.
            .write_buffer_size(0)
            .max_write_buffer_size(backlog)
            .max_message_size(Some(MAX_INCOMING))
            .max_frame_size(Some(MAX_INCOMING));
        Ok(Server {
            listener,
            most,
            rules: Rc::new(rules),
            config,
            clock,
            descriptors,
            clients: Vec::with_capacity(most),
            counts: LinkCounts::default(),
        })
    }

    fn accept(&mut self, now: Time) {
        if !self.listener.poll(now) {
            return;
        }
        // Bounded: further connections wait for the next call.
        for _ in 0..=self.most {
            let is_full = self.clients.len() >= self.most;
            let is_new = |client: &Client<T>| client.has_more && matches!(client.state, ConnectionState::Handshake(..));
            if is_full && self.clients.iter().any(is_new) {
                // Its request may have arrived, so that it is no silent one.
                return;
            }
            let Some(stream) = self.listener.accept(now) else { return };
            if is_full {
                let ranks = self.clients.iter_mut().filter_map(|client| Some((client.gives_way(now)?, client)));
                if let Some((_, client)) = ranks.min_by_key(|(rank, _)| *rank) {
                    client.state = ConnectionState::Closed;
                    self.remove_closed();
                }
            }
            let watched = if self.clients.len() < self.most {
                tcp::set_up(&stream).and_then(|()| self.descriptors.watch(stream, Interest::Read)).ok()
            } else {
                None
            };
            let Some(watched) = watched else {
                self.counts.refused += 1;
                continue;
            };
            let socket = Rc::new(ConnectionSocket {
                watched,
                budget: Cell::new(0),
                blocked: Cell::new(Interest::Read),
                took: Cell::new(now),
                clock: self.clock.clone(),
            });
            let check = Check(self.rules.clone());
            let handshake = ServerHandshake::start(ConnectionStream(socket.clone()), check, Some(self.config));
            self.clients.push(Client {
                data: T::default(),
                socket,
                state: ConnectionState::Handshake(Box::new(handshake), now + HANDSHAKE),
                is_pending: false,
                was_open: false,
                has_asked: false,
                since: now,
                unsure: 0,
                has_more: true,
            });
        }
    }

    /// Handles everything that is ready, without blocking, and tells `on` what clients did.
    pub(crate) fn poll(&mut self, mut on: impl FnMut(&mut Client<T>, Incoming<'_>)) {
        let now = self.clock.now();
        for client in &mut self.clients {
            let is_late = matches!(client.state, ConnectionState::Handshake(_, until) if until <= now);
            if !(client.socket.watched.is_ready() || client.has_more || is_late) {
                continue;
            }
            client.has_more = false;
            client.socket.budget.set(INCOMING_BYTES);
            if matches!(client.state, ConnectionState::Handshake(..)) {
                if !client.shake(now) {
                    continue;
                }
                client.was_open = true;
                self.counts.connections += 1;
                on(client, Incoming::Opened);
            }
            client.flush();
            for _ in 0..INCOMING_BURST {
                client.has_more = match client.read() {
                    None => false,
                    Some(message) => {
                        client.has_asked |= message.is_text() || message.is_binary();
                        match &message {
                            Message::Text(text) => on(client, Incoming::Text(text)),
                            Message::Binary(_) => on(client, Incoming::Binary),
                            // Answered by the library, as soon as there is room.
                            Message::Ping(_) | Message::Close(_) => client.is_pending = true,
                            Message::Pong(_) | Message::Frame(_) => {}
                        }
                        client.flush();
                        true
                    }
                };
                if !client.has_more {
                    break;
                }
            }
            client.has_more |= client.is_open() && client.socket.budget.get() == 0;
        }
        self.remove_closed();
        // After the places of those that have gone are free.
        self.accept(now);
    }

    /// Counts the connections that have ended, and frees their places.
    fn remove_closed(&mut self) {
        let counts = &mut self.counts;
        self.clients.retain(|client| {
            if !matches!(client.state, ConnectionState::Closed) {
                return true;
            }
            let count = if client.was_open { &mut counts.disconnects } else { &mut counts.refused };
            *count += 1;
            counts.unsure += client.unsure;
            false
        });
    }

    /// Takes no more connections.
    pub(crate) fn stop_accepting(&mut self) {
        self.most = 0;
        self.listener.end();
    }

    /// Returns how many messages the clients may not have got.
    pub(crate) fn unsure(&self) -> u64 {
        self.counts.unsure + self.clients.iter().map(|client| client.unsure).sum::<u64>()
    }

    /// When to call [`poll`](Self::poll) next, even if no descriptor is ready.
    pub(crate) fn next_poll(&self) -> Time {
        let mut next = self.listener.next();
        for client in &self.clients {
            match client.state {
                _ if client.has_more => return Time::ZERO,
                ConnectionState::Handshake(_, until) => next = next.min(until),
                ConnectionState::Closed => return Time::ZERO,
                ConnectionState::Open(_) => {}
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_machine_and_those_named_connect() {
        let rules = Rules { protocols: &["a"], origins: vec!["https://viewer.example".into()] };
        for (origin, is_allowed) in [
            (None, true),
            (Some("http://localhost:8080"), true),
            (Some("https://127.0.0.1"), true),
            (Some("http://[::1]:3000"), true),
            (Some("file://"), true),
            (Some("https://viewer.example"), true),
            (Some("https://evil.example"), false),
            (Some("https://localhost.evil.example"), false),
            (Some("https://evil.example:443/localhost"), false),
            (Some("null"), false),
            (Some(""), false),
        ] {
            assert_eq!(rules.allows(origin), is_allowed, "{origin:?}");
        }
        assert!(Rules { protocols: &[], origins: vec!["*".into()] }.allows(Some("https://any.example")));
    }
}
