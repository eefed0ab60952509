//! Live views in Foxglove.

use crate::recording::inputs::{InputTopics, TopicConfig};
use crate::recording::meaning::{Channel, Schemas};
use crate::stream::web_socket::{CONNECTION_MEMORY, Client, Incoming, Rules, Server, Taken};
use data_encoding::BASE64;
use limen::node::{
    Building, Connected, Cost, DiscardCounter, EdgeStats, Metrics, Node, NodeError, NodeStats, OneOf, PathStats,
    Picked, PlanErrors, Planning, Ports, Progress, RunStats, Sink, Statistics, StatisticsWindow,
};
use limen::unit::Bytes;
use limen::{Clock, Tensor, Time};
use limen_nodes_core::stream::Address;
use limen_nodes_core::stream::tcp::TcpConfig;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Serves the node's inputs to Foxglove while the graph runs. Open `ws://localhost:8765` in
/// Foxglove. Inputs may have any names. Each input is a topic, as in `record`.
///
/// While a client is connected, the node also publishes statistics of the run once a second.
/// `/limen/paths/SOURCE/SINK` contains the age of messages at a sink and the number of missed
/// deadlines. `/limen/nodes/NODE` contains the queue time, the compute time and the lost messages
/// of a node. `/limen/edges/PORT/PORT` contains the queued and lost messages of an edge, and how
/// long a join has waited for the edge. Times are in microseconds, except in fields that end in
/// `_s`, which are in seconds.
///
/// Only clients on the local machine can connect, unless `listen` has another address and the
/// command line contains `--allow-public`. A client receives only the topics to which the client
/// subscribes. A slow client misses messages, but never delays the graph. `full` counts the missed
/// messages. `sent` counts messages that were written to a connection's buffer. `undelivered`
/// counts messages that were still in the buffer when the connection ended. Clients cannot change
/// the run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FoxgloveConfig {
    /// Address to listen on. Default: `8765`, a port that other machines cannot reach.
    #[serde(default = "listen")]
    pub listen: Address,
    /// Topic, meaning and frame of inputs, by input name, as in `record`: `{ boxes: { as: boxes },
    /// cloud: { as: point_cloud } }`.
    #[serde(default)]
    pub topics: BTreeMap<String, TopicConfig>,
    /// Message schemas. Default: `foxglove`.
    #[serde(default)]
    pub schemas: Schemas,
    /// Whether to publish statistics of the run. Default: `true`.
    #[serde(default = "yes")]
    pub statistics: bool,
    /// Maximum number of bytes that may wait for a slow client, at least the size of the largest
    /// message. Default: 4 MiB, or twice the size of the largest message, whichever is larger.
    pub backlog: Option<Bytes>,
    /// Maximum number of clients, up to 64. Default: 4. If no connection is free, a new client
    /// replaces a client that sent no request within 5 s or has read nothing for 5 s. If every
    /// client is active, the node closes a new connection and counts it (`refused`).
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// Additional web pages that may connect to the node, such as `https://viewer.example`, or `*`
    /// for all pages. Pages from Foxglove, from servers on the local machine and from local files
    /// (`file://`) may always connect. A page that may connect can read all topics of this node.
    /// Any page open in a browser on this machine can attempt a connection.
    #[serde(default)]
    pub origins: Vec<String>,
}

fn listen() -> Address {
    Address(([127, 0, 0, 1], 8765).into())
}

fn yes() -> bool {
    true
}

fn max_connections() -> usize {
    4
}

/// The least that may wait for a client.
const BACKLOG: usize = 4 << 20;
/// What a message has beside its content: header, stamp, frame and the like.
const BESIDES: usize = 4 << 10;
/// The announcement of an input, and those of the statistics of a large graph.
const ANNOUNCEMENT: usize = 8 << 10;
const ANNOUNCEMENTS: usize = 1 << 20;
/// Where Foxglove runs in a browser.
const FOXGLOVE: [&str; 2] = ["https://app.foxglove.dev", "https://studio.foxglove.dev"];
/// The protocol's names, new and old; what is used here is the same in both.
const PROTOCOLS: &[&str] = &["foxglove.sdk.v1", "foxglove.websocket.v1"];
/// How long to wait for the last bytes when the stream ends, ns.
const DRAIN_WAIT: u64 = 500_000_000;
/// Time between two readings of the statistics, ns.
const STATISTICS_EVERY: u64 = 1_000_000_000;
/// What a message begins with: its kind, the subscription, the time at which it was logged.
const HEAD: usize = 13;
const MESSAGE_DATA: u8 = 1;
/// Levels of a status message.
const WARNING: u8 = 1;

/// What a client has asked for: its subscription of each channel.
type Subscriptions = HashMap<u64, u32>;

/// The schema of statistics: its name and the names of the numbers.
type StatisticsSchema = (&'static str, &'static [&'static str]);
const NODE: StatisticsSchema = (
    "limen.NodeStatistics",
    &[
        "done",
        "failed",
        "lost",
        "queue_p50_us",
        "queue_p99_us",
        "queue_max_us",
        "queue_count",
        "compute_p50_us",
        "compute_p99_us",
        "compute_max_us",
        "compute_count",
    ],
);
const PATH: StatisticsSchema =
    ("limen.PathStatistics", &["p50_us", "p99_us", "max_us", "count", "judged", "missed", "silent_s"]);
const EDGE: StatisticsSchema =
    ("limen.EdgeStatistics", &["depth", "peak_depth", "capacity", "lost", "starves_s", "messages", "highest"]);

/// A topic of the statistics.
#[derive(Debug)]
struct Figures {
    /// Its channel.
    id: u64,
    topic: String,
    shape: StatisticsSchema,
    /// What was last read.
    message: Value,
}

/// Runs `kind: foxglove`; [`FoxgloveConfig`] says what it does.
#[derive(Debug)]
pub struct Foxglove {
    server: Server<Subscriptions>,
    /// Those of the inputs, in their order; the number of a channel is its place, from 1.
    channels: Vec<Channel>,
    /// Those of the statistics, whose numbers follow.
    figures: Vec<Figures>,
    statistics: Option<Statistics>,
    /// When to read them next.
    due: Time,
    clock: Clock,
    /// What to add to a time of the run for that of the wall clock.
    offset: u64,
    /// The first messages of a connection.
    greeting: Vec<String>,
    /// A message without its head, and with it.
    encoded: Vec<u8>,
    /// When to stop waiting for the last bytes.
    end: Option<Time>,
    sent: u64,
    full: DiscardCounter,
    /// Messages for a connection that had just ended.
    undelivered: DiscardCounter,
}

impl FoxgloveConfig {
    fn inputs(&self) -> InputTopics<'_> {
        InputTopics { topics: &self.topics, schemas: self.schemas }
    }

    fn tcp(&self) -> TcpConfig {
        TcpConfig { listen: Some(self.listen), connect: None, max_connections: Some(self.max_connections), idle: None }
    }

    /// How many bytes may wait for a client.
    fn backlog(&self, largest: usize) -> usize {
        self.backlog.map_or_else(|| BACKLOG.max(largest.saturating_mul(2)), |backlog| backlog.0 as usize)
    }

    fn check(&self, given: &Connected, errors: &mut PlanErrors) -> usize {
        self.tcp().check(errors);
        self.inputs().check(given, errors);
        let mut largest = 0;
        for (name, spec) in given.inputs() {
            let Some(spec) = spec else { continue };
            let bytes = self.inputs().largest(name, spec).saturating_add(BESIDES);
            match self.backlog {
                _ if bytes > isize::MAX as usize => {
                    let help = format!("bound the dims of `{name}` upstream, or remove the input `{name}`");
                    errors.input(name, format!("expected messages of bounded size, found {spec}")).help(help);
                }
                Some(backlog) if bytes as u64 > backlog.0 => {
                    let message = format!(
                        "`backlog` must be at least {bytes} bytes (the largest message of `{name}`), got {}",
                        backlog.0
                    );
                    errors
                        .at("backlog", message)
                        .help(format!("remove `backlog`, or write `backlog: {bytes}B` or more"));
                }
                _ => {}
            }
            largest = largest.max(bytes);
        }
        for origin in self.origins.iter().filter(|origin| *origin != "*" && !origin.contains("://")) {
            errors
                .at("origins", format!("an origin must have a scheme and a host, got `{origin}`"))
                .help("write scheme, host and port, such as `https://viewer.example:8443`");
        }
        largest
    }
}

/// The announcement of a channel.
fn announcement(id: u64, topic: &str, encoding: &str, schema: (&str, &str, String)) -> Value {
    let (name, language, text) = schema;
    json!({
        "id": id, "topic": topic, "encoding": encoding,
        "schemaName": name, "schemaEncoding": language, "schema": text,
    })
}

fn advertise(channels: Vec<Value>) -> String {
    json!({ "op": "advertise", "channels": channels }).to_string()
}

/// The announcement of statistics.
fn advertise_figures(Figures { id, topic, shape: (name, numbers), .. }: &Figures) -> String {
    let number = |name: &&str| ((*name).to_string(), json!({ "type": "number" }));
    let properties: Map<String, Value> = numbers.iter().map(number).collect();
    let schema = json!({ "type": "object", "properties": properties }).to_string();
    advertise(vec![announcement(*id, topic, "json", (name, "jsonschema", schema))])
}

fn micros(ns: u64) -> Value {
    json!(ns as f64 / 1e3)
}

/// The figures of a window, with a prefix for their names.
fn of_window(prefix: &str, window: &StatisticsWindow, to: &mut Map<String, Value>) {
    let percentiles = [("p50_us", window.p50), ("p99_us", window.p99), ("max_us", window.max)];
    to.extend(percentiles.into_iter().filter_map(|(name, ns)| Some((format!("{prefix}{name}"), micros(ns?)))));
    to.insert(format!("{prefix}count"), window.count.into());
}

fn of_node(node: &NodeStats) -> Value {
    let mut figures = Map::new();
    figures.extend(
        [("done", node.done), ("failed", node.failed), ("lost", node.lost.values().sum())]
            .map(|(name, n)| (name.to_string(), n.into())),
    );
    for (prefix, window) in [("queue_", &node.queue), ("compute_", &node.compute)] {
        if let Some(window) = window {
            of_window(prefix, window, &mut figures);
        }
    }
    Value::Object(figures)
}

fn of_path(path: &PathStats) -> Value {
    let mut figures = Map::new();
    of_window("", &path.latency, &mut figures);
    if path.deadline.is_some() {
        figures
            .extend([("judged", path.judged), ("missed", path.missed)].map(|(name, n)| (name.to_string(), n.into())));
        figures.insert("silent_s".into(), path.silent.unwrap_or_default().as_secs_f64().into());
    }
    Value::Object(figures)
}

fn of_edge(edge: &EdgeStats) -> Value {
    let starves = edge.starves.unwrap_or_default().as_secs_f64();
    json!({
        "depth": edge.depth,
        "peak_depth": edge.peak_depth,
        "capacity": edge.capacity,
        "lost": edge.lost,
        "starves_s": starves,
        // Deprecated names, until 0.2.
        "messages": edge.depth,
        "highest": edge.peak_depth,
    })
}

/// Every topic of the statistics with its message.
fn topics(stats: &RunStats) -> impl Iterator<Item = (String, StatisticsSchema, Value)> {
    let node = |node: &NodeStats| (format!("/limen/nodes/{}", node.node), NODE, of_node(node));
    let path = |path: &PathStats| (format!("/limen/paths/{}/{}", path.from, path.to), PATH, of_path(path));
    let edge = |edge: &EdgeStats| (format!("/limen/edges/{}/{}", edge.from, edge.to), EDGE, of_edge(edge));
    stats.nodes.iter().map(node).chain(stats.paths.iter().map(path)).chain(stats.edges.iter().map(edge))
}

/// What a client may ask for; everything else is for other kinds of servers.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
enum ClientRequest {
    Subscribe {
        subscriptions: Vec<Subscription>,
    },
    #[serde(rename_all = "camelCase")]
    Unsubscribe {
        subscription_ids: Vec<u32>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subscription {
    id: u32,
    channel_id: u64,
}

/// Handles one text message of a client: it subscribes to channels or unsubscribes.
fn answer(client: &mut Client<Subscriptions>, text: &str, channels: u64) {
    match serde_json::from_str(text) {
        Ok(ClientRequest::Subscribe { subscriptions }) => {
            // Bounded by the number of channels.
            let known = subscriptions.iter().filter(|asked| (1..=channels).contains(&asked.channel_id));
            client.data.extend(known.map(|asked| (asked.channel_id, asked.id)));
        }
        Ok(ClientRequest::Unsubscribe { subscription_ids }) => {
            let ids: HashSet<u32> = subscription_ids.into_iter().collect();
            client.data.retain(|_, id| !ids.contains(id));
        }
        Err(_) => {
            let message = "limen serves topics only";
            client.tell(json!({ "op": "status", "level": WARNING, "message": message }).to_string());
        }
    }
}

impl Foxglove {
    /// Sends the encoded message to those who have subscribed to a channel.
    fn publish(&mut self, channel: u64, log_time: u64) {
        for client in &mut self.server.clients {
            let Some(subscription) = client.data.get(&channel) else { continue };
            let mut message = Vec::with_capacity(HEAD + self.encoded.len());
            message.push(MESSAGE_DATA);
            message.extend_from_slice(&subscription.to_le_bytes());
            message.extend_from_slice(&log_time.to_le_bytes());
            message.extend_from_slice(&self.encoded);
            match client.send(message) {
                Taken::Yes => self.sent += 1,
                Taken::Full => self.full += 1,
                Taken::Closed => self.undelivered += 1,
            }
        }
    }

    fn is_watched(&self, channel: u64) -> bool {
        self.server.clients.iter().any(|client| client.data.contains_key(&channel))
    }

    /// Reads the statistics and sends them.
    fn publish_statistics(&mut self, now: Time) {
        let Some(stats) = self.statistics.as_ref().and_then(Statistics::read) else { return };
        let announced = self.figures.len();
        for (topic, shape, message) in topics(&stats) {
            match self.figures.iter_mut().find(|figures| figures.topic == topic) {
                Some(figures) => figures.message = message,
                None => {
                    let id = (self.channels.len() + self.figures.len() + 1) as u64;
                    self.figures.push(Figures { id, topic, shape, message });
                }
            }
        }
        for news in self.figures[announced..].iter().map(advertise_figures) {
            let open = self.server.clients.iter_mut().filter(|client| client.is_open());
            open.for_each(|client| client.tell(news.clone()));
        }
        for at in 0..self.figures.len() {
            let id = self.figures[at].id;
            if self.is_watched(id) {
                self.encoded.clear();
                self.encoded.extend_from_slice(self.figures[at].message.to_string().as_bytes());
                self.publish(id, now.0.saturating_add(self.offset));
            }
        }
    }

    fn poll(&mut self) {
        if self.end.is_some() {
            // What is pending goes out; nothing may follow the end.
            self.server.poll(|_, _| {});
            return;
        }
        let (greeting, figures) = (&self.greeting, &self.figures);
        let channels = (self.channels.len() + figures.len()) as u64;
        self.server.poll(|client, incoming| match incoming {
            Incoming::Opened => {
                greeting
                    .iter()
                    .cloned()
                    .chain(figures.iter().map(advertise_figures))
                    .for_each(|text| client.tell(text));
            }
            Incoming::Text(text) => answer(client, text, channels),
            Incoming::Binary => answer(client, "", channels),
        });
        let now = self.clock.now();
        let is_connected = self.server.clients.iter().any(Client::is_open);
        if is_connected && self.statistics.is_some() && self.due <= now {
            self.due = now + STATISTICS_EVERY;
            self.publish_statistics(now);
        }
    }

    /// When to poll next.
    fn next_poll(&self) -> Time {
        let is_due = self.end.is_none() && self.statistics.is_some() && self.server.clients.iter().any(Client::is_open);
        self.server.next_poll().min(if is_due { self.due } else { Time::NEVER })
    }
}

impl Node for Foxglove {
    type Config = FoxgloveConfig;

    fn ports(config: &FoxgloveConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let largest = config.check(given, &mut errors);
        let mut ports = Ports::new().cost(Cost::Medium);
        for (name, spec) in given.inputs() {
            ports = match spec {
                Some(spec) => ports.input(name, spec.clone()),
                None => ports.input_any(name),
            };
        }
        // A buffer grows to twice of what is in it.
        let told = ANNOUNCEMENTS.saturating_add(given.inputs().count().saturating_mul(ANNOUNCEMENT));
        let each = config.backlog(largest).saturating_add(told).saturating_mul(2).saturating_add(CONNECTION_MEMORY);
        let memory = each.saturating_mul(config.max_connections).saturating_add(largest.saturating_mul(3));
        let ports = config.tcp().claim(ports.memory(memory));
        errors.into_result(ports.note(format!("Foxglove: open ws://{}", config.listen)))
    }

    fn build(config: FoxgloveConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let channels = config.inputs().channels(cx)?;
        let largest = cx.inputs().iter().filter_map(|(name, spec)| Some(config.inputs().largest(name, spec.as_ref()?)));
        let backlog = config.backlog(largest.max().unwrap_or(0).saturating_add(BESIDES));
        let info = json!({
            "op": "serverInfo", "name": format!("limen {}", cx.node()), "capabilities": [], "sessionId": cx.run_id(),
        });
        let mut greeting = vec![info.to_string()];
        greeting.extend((1..).zip(&channels).map(|(id, channel)| {
            let (language, schema) = channel.definition();
            // Definitions in text are sent as they are.
            let text = String::from_utf8(schema).ok().filter(|_| language != "protobuf");
            let text = text.unwrap_or_else(|| BASE64.encode(&channel.definition().1));
            let schema = (channel.schema.as_str(), language, text);
            advertise(vec![announcement(id, &channel.topic, channel.message_encoding(), schema)])
        }));
        let rules = Rules {
            protocols: PROTOCOLS,
            origins: FOXGLOVE.iter().map(|origin| (*origin).to_string()).chain(config.origins).collect(),
        };
        let told: usize = greeting.iter().map(String::len).sum();
        let clock = cx.clock();
        let server = Server::listen(
            config.listen,
            config.max_connections,
            backlog.saturating_add(told).saturating_add(ANNOUNCEMENTS),
            rules,
            clock.clone(),
            cx.descriptors(),
        )?;
        Ok(Foxglove {
            server,
            channels,
            figures: Vec::new(),
            statistics: config.statistics.then(|| cx.statistics()),
            due: Time::ZERO,
            offset: cx.wall_offset(),
            clock,
            greeting,
            encoded: Vec::new(),
            end: None,
            sent: 0,
            full: cx.discarded("full"),
            undelivered: cx.discarded("undelivered"),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        to.discarded("undelivered", self.server.unsure());
        let counts = &self.server.counts;
        to.set("connections", counts.connections as f64);
        to.set("disconnects", counts.disconnects as f64);
        to.set("refused", counts.refused as f64);
    }
}

impl Sink for Foxglove {
    type In = OneOf<Tensor>;
    const WAITS: bool = true;

    fn take(&mut self, input: Picked<Tensor>) -> Result<(), NodeError> {
        let id = input.input as u64 + 1;
        if !self.is_watched(id) {
            return Ok(());
        }
        let stamp = input.message.header().origin.0.saturating_add(self.offset);
        self.channels[input.input].encode(&input.message.body, stamp, &mut self.encoded)?;
        self.publish(id, self.clock.now().0.saturating_add(self.offset));
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        self.poll();
        match self.end {
            Some(end) if self.clock.now() < end && self.server.clients.iter().any(Client::is_pending) => {
                Ok(Progress::WhenReady(end))
            }
            _ => Ok(Progress::Takes(self.next_poll())),
        }
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.end = Some(self.clock.now() + DRAIN_WAIT);
        self.server.stop_accepting();
        self.server.clients.iter_mut().for_each(Client::close);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A viewer plots only numbers that the schema names.
    #[test]
    fn statistics_have_what_their_schemas_name() {
        let window = StatisticsWindow::default();
        let mut path = PathStats::default();
        (path.latency, path.deadline, path.judged, path.missed) = (window, Some(5_000_000), 9, 3);
        path.silent = Some(std::time::Duration::from_secs(4));
        let mut edge = EdgeStats::default();
        (edge.lost, edge.starves) = (7, Some(std::time::Duration::from_secs(2)));
        let mut node = NodeStats::default();
        node.lost.extend([("malformed".into(), 2), ("too_large".into(), 1)]);
        for (found, (_, names), expected) in [
            (of_path(&path), PATH, json!({ "count": 0, "judged": 9, "missed": 3, "silent_s": 4.0 })),
            (of_path(&PathStats::default()), PATH, json!({ "count": 0 })),
            (of_node(&node), NODE, json!({ "done": 0, "failed": 0, "lost": 3 })),
            (
                of_edge(&edge),
                EDGE,
                json!({ "depth": 0, "peak_depth": 0, "capacity": 0, "lost": 7, "starves_s": 2.0, "messages": 0, "highest": 0 }),
            ),
        ] {
            assert_eq!(found, expected);
            assert!(found.as_object().unwrap().keys().all(|key| names.contains(&key.as_str())), "{found}");
        }
    }
}
