//! Traces: what every worker did when, in a file for Perfetto's viewer (`ui.perfetto.dev`) and its
//! `trace_processor`.
//!
//! One track for each worker has its turns, in them its calls, and its sleeps; an arrow leads from
//! the call that sent a message to the one that took it. Each edge has a counter of its queue
//! depth, each path one of its latencies.

mod packet;

use limen::files::{NamedOutput, PartialFile};
use limen::report::Term;
use limen::run::{EdgeStats, SpanKind, Spans, TraceSpan};
use limen::text::is_terminal_control;
use limen::{Event, Plan};
use packet::{
    Annotation, COUNTER, Clock, ClockSnapshot, Counter, INSTANT, MONOTONIC, Packet, Process, REALTIME, SLICE_BEGIN,
    SLICE_END, Thread, Trace, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest file: more is only counted.
const MAX_BYTES: u64 = 1 << 30;
/// Ends of calls remembered for each node, to which arrows may lead back.
const SENT: usize = 4096;
/// Parts of waits that a call shows at most, and arrows that end there.
const WAITS: usize = 64;
/// All packets come from one writer.
const SEQUENCE: u32 = 1;

/// The tracks begin with these numbers.
const PROCESS: u64 = 1;
const WORKERS: u64 = 0x1_0000;
const ASIDE: u64 = 0x2_0000_0000;
const EDGES: u64 = 0x4_0000_0000;
const PATHS: u64 = 0x5_0000_0000;
const EVENTS: u64 = 2;

/// A node, as far as a trace needs it.
#[derive(Debug)]
struct NodeTrack {
    name: String,
    /// The nodes that send to it, each with the last call that an arrow led from, and those to
    /// which it sends.
    before: BTreeMap<usize, u64>,
    after: Vec<usize>,
    /// Parts of the wait before its next call: what, how long, until when.
    waits: Vec<(Term, u64, u64)>,
    /// The arrows that end at its next call.
    came: Vec<u64>,
    /// When its latest calls ended, with their numbers.
    sent: VecDeque<(u64, u64)>,
    /// Its last call: several runs of messages may share one.
    last: (u64, u64),
    /// The end of the last call beside its worker's track, by track.
    lanes: Vec<u64>,
}

/// A trace in progress.
#[derive(Debug)]
pub struct TraceFile {
    to: BufWriter<File>,
    /// `None` for a pipe or a device, and once it is complete.
    part: Option<PartialFile>,
    /// Whether anything of a run was written.
    has_begun: bool,
    written: u64,
    nodes: Vec<NodeTrack>,
    workers: Vec<String>,
    /// By worker: the end of the last call on its track.
    busy_until: Vec<u64>,
    /// By path: the number of its track.
    paths: HashMap<(usize, usize), u64>,
    edges: usize,
    calls: u64,
    /// Spans that were not written.
    lost: u64,
}

/// Something of a track at a time. Of one time, what ends comes first, and what encloses another
/// begins before and ends after it.
struct Moment {
    at: u64,
    rank: u8,
    event: TrackEvent,
}

impl TraceFile {
    /// Begins the trace of a plan's run; the file appears under its name when it is complete.
    ///
    /// # Errors
    /// Those of the file.
    pub fn create(path: &Path, plan: &Plan) -> io::Result<Self> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        let (file, part) = NamedOutput::begin(path)?.into_parts();
        let indices: HashMap<&str, usize> =
            plan.nodes().iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let index = |end: &str| indices.get(end.split('/').next().unwrap_or(end)).copied();
        let mut before = vec![Vec::new(); plan.nodes().len()];
        let mut after = vec![BTreeSet::new(); plan.nodes().len()];
        for edge in plan.edges() {
            if let (Some(from), Some(to)) = (index(&edge.from_name), index(&edge.to_name)) {
                before[to].push((from, 0));
                after[from].insert(to);
            }
        }
        let nodes = plan.nodes().iter().zip(before).zip(after).map(|((node, before), after)| NodeTrack {
            name: plain(&node.name),
            before: before.into_iter().collect(),
            after: after.into_iter().collect(),
            waits: Vec::new(),
            came: Vec::new(),
            sent: VecDeque::new(),
            last: (0, 0),
            lanes: Vec::new(),
        });
        let mut trace = TraceFile {
            to: BufWriter::new(file),
            part,
            has_begun: false,
            written: 0,
            nodes: nodes.collect(),
            workers: plan.workers().iter().map(|worker| plain(&worker.name)).collect(),
            busy_until: vec![0; plan.workers().len()],
            paths: HashMap::new(),
            edges: plan.edges().len(),
            calls: 0,
            lost: 0,
        };
        trace.describe(plan)?;
        Ok(trace)
    }

    /// Writes what the tracks are called.
    fn describe(&mut self, plan: &Plan) -> io::Result<()> {
        self.clocks()?;
        let pid = i32::try_from(std::process::id()).unwrap_or(1);
        let process = Process { pid: Some(pid), process_name: Some(format!("limen {}", plain(plan.graph()))) };
        self.track(TrackDescriptor { uuid: Some(PROCESS), process: Some(process), ..TrackDescriptor::default() })?;
        for worker in 0..self.workers.len() {
            // Made up: the kernel's numbers are not known here, and only have to differ.
            let tid = pid.saturating_add(1 + worker as i32);
            let thread_name = Some(self.workers[worker].clone());
            let thread = Thread { pid: Some(pid), tid: Some(tid), thread_name };
            let (uuid, parent_uuid) = (Some(WORKERS + worker as u64), Some(PROCESS));
            self.track(TrackDescriptor { uuid, parent_uuid, thread: Some(thread), ..TrackDescriptor::default() })?;
        }
        for (at, edge) in plan.edges().iter().enumerate() {
            let name = format!("depth of {} -> {}", edge.from_name, edge.to_name);
            self.counter(EDGES + at as u64, plain(&name), "messages")?;
        }
        let (uuid, name, parent_uuid) = (Some(EVENTS), Some("events".to_string()), Some(PROCESS));
        self.track(TrackDescriptor { uuid, name, parent_uuid, ..TrackDescriptor::default() })
    }

    fn counter(&mut self, uuid: u64, name: String, unit: &str) -> io::Result<()> {
        let counter = Some(Counter { unit_name: Some(unit.to_string()) });
        let (uuid, name, parent_uuid) = (Some(uuid), Some(name), Some(PROCESS));
        self.track(TrackDescriptor { uuid, name, parent_uuid, counter, ..TrackDescriptor::default() })
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(Packet { track_descriptor: Some(descriptor), ..Packet::default() })
    }

    fn packet(&mut self, packet: Packet) -> io::Result<()> {
        let packet = Packet { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        let bytes = Trace { packet: vec![packet] }.encode_to_vec();
        self.written += bytes.len() as u64;
        self.to.write_all(&bytes)
    }

    fn is_full(&self) -> bool {
        self.written >= MAX_BYTES
    }

    /// Writes the spans that workers have handed over, and the queue depth of every edge now.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&mut self, spans: &Spans, edges: &[EdgeStats]) -> io::Result<()> {
        self.has_begun = true;
        let mut read = Vec::new();
        spans.read(|span| read.push(span));
        self.lost += spans.take_lost();
        if self.is_full() {
            self.lost += read.len() as u64;
            return Ok(());
        }
        let Some(last) = read.iter().map(|span| span.end.0).max() else { return Ok(()) };
        // Arrows lead from calls that are known already, also from those of other workers.
        read.sort_by_key(|span| span.end);
        let mut moments = Vec::with_capacity(2 * read.len());
        for span in read {
            self.span(&span, &mut moments)?;
        }
        for (at, edge) in edges.iter().enumerate().take(self.edges) {
            moments.push(Moment { at: last, rank: 2, event: count(EDGES + at as u64, edge.depth) });
        }
        moments.sort_by_key(|moment| (moment.at, moment.rank));
        for Moment { at, event, .. } in moments {
            self.event(at, event)?;
        }
        Ok(())
    }

    /// Says which clock the times are of.
    #[allow(clippy::disallowed_methods, reason = "the viewer shows the wall-clock time")]
    fn clocks(&mut self) -> io::Result<()> {
        let now = limen::Clock::Monotonic.now().0;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = |id, timestamp| Clock { clock_id: Some(id), timestamp: Some(timestamp) };
        let clocks = vec![clock(MONOTONIC, now), clock(REALTIME, u64::try_from(wall.as_nanos()).unwrap_or_default())];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(MONOTONIC as i32) };
        let timestamp_clock_id = Some(MONOTONIC);
        let timestamp = Some(now);
        self.packet(Packet { clock_snapshot: Some(snapshot), timestamp, timestamp_clock_id, ..Packet::default() })
    }

    fn event(&mut self, at: u64, event: TrackEvent) -> io::Result<()> {
        let (timestamp, timestamp_clock_id) = (Some(at), Some(MONOTONIC));
        self.packet(Packet { timestamp, timestamp_clock_id, track_event: Some(event), ..Packet::default() })
    }

    fn span(&mut self, span: &TraceSpan, moments: &mut Vec<Moment>) -> io::Result<()> {
        let (begin, end) = (span.begin.0, span.end.0.max(span.begin.0 + 1));
        let worker = WORKERS + span.worker as u64;
        match span.kind {
            SpanKind::Sleep => slice(moments, worker, "sleep", ("worker", 1), begin, end, Vec::new(), Vec::new()),
            SpanKind::Turn { node } => {
                let name = format!("turn of {}", self.nodes[node].name);
                // The first call of a turn begins at the same reading of the clock.
                slice(moments, worker, &name, ("worker", 1), begin.saturating_sub(1), end, Vec::new(), Vec::new());
            }
            SpanKind::Term { node, term: Term::Compute } => {
                if std::mem::replace(&mut self.nodes[node].last, (begin, end)) == (begin, end) {
                    return Ok(());
                }
                self.calls += 1;
                let call = self.calls;
                let track = self.place(span.worker, node, begin, end)?;
                let of = &mut self.nodes[node];
                if of.sent.len() == SENT {
                    of.sent.pop_front();
                }
                of.sent.push_back((span.end.0, call));
                let arrows = of.came.drain(..).chain(of.after.iter().map(|to| arrow(call, *to))).collect();
                let waits = of.waits.drain(..).map(|(term, ns, _)| number(&format!("{} (ns)", term.name()), ns));
                let annotations = std::iter::once(number("messages", span.messages.into())).chain(waits).collect();
                let name = of.name.clone();
                slice(moments, track, &name, ("call", 0), begin, end, arrows, annotations);
            }
            SpanKind::Term { node, term } => self.waited(node, term, span.begin.0, span.end.0),
            SpanKind::Path { from, to } => {
                let next = PATHS + self.paths.len() as u64;
                let track = *self.paths.entry((from, to)).or_insert(next);
                if track == next {
                    let name = format!("latency of {} -> {}", self.nodes[from].name, self.nodes[to].name);
                    self.counter(track, name, "ns")?;
                }
                moments.push(Moment { at: span.end.0, rank: 2, event: count(track, span.end.0 - span.begin.0) });
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes a part of the wait before the next call of a node, and the arrow of the message that
    /// waited.
    fn waited(&mut self, node: usize, term: Term, begin: u64, end: u64) {
        let of = &self.nodes[node];
        if term == Term::Queue {
            // What else it waited for was recorded just before. It was published, to the
            // nanosecond, when the call that made it ended.
            let others = of.waits.iter().filter(|(term, _, until)| *term != Term::Queue && *until == end);
            let published = begin.saturating_sub(others.map(|(_, ns, _)| ns).sum());
            let from = of.before.keys().find_map(|from| {
                let mut sent = self.nodes[*from].sent.iter().rev().take_while(|(at, _)| *at >= published);
                sent.find(|(at, _)| *at == published).map(|(_, call)| (*from, *call))
            });
            // Of a burst that several calls take, the first one has the arrow.
            let of = &mut self.nodes[node];
            if let Some((from, call)) = from
                && let Some(last) = of.before.get_mut(&from)
                && call > *last
                && of.came.len() < WAITS
            {
                *last = call;
                of.came.push(arrow(call, node));
            }
        }
        let waits = &mut self.nodes[node].waits;
        if end > begin && waits.len() < WAITS {
            waits.push((term, end - begin, end));
        }
    }

    /// The track of a call: its worker's, unless another call is still going on there, as those of
    /// devices may.
    fn place(&mut self, worker: usize, node: usize, begin: u64, end: u64) -> io::Result<u64> {
        let busy = &mut self.busy_until[worker];
        if begin >= *busy {
            *busy = end;
            return Ok(WORKERS + worker as u64);
        }
        let lanes = &mut self.nodes[node].lanes;
        let lane = lanes.iter().position(|until| begin >= *until).unwrap_or(lanes.len());
        let uuid = ASIDE + ((node as u64) << 8) + lane as u64;
        if lane < lanes.len() {
            lanes[lane] = end;
            return Ok(uuid);
        }
        lanes.push(end);
        let (name, parent_uuid) = (Some(format!("calls of {}", self.nodes[node].name)), Some(PROCESS));
        self.track(TrackDescriptor { uuid: Some(uuid), name, parent_uuid, ..TrackDescriptor::default() })?;
        Ok(uuid)
    }

    /// Writes an event of the run.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add_event(&mut self, event: &Event) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        let (r#type, track_uuid, name) = (Some(INSTANT), Some(EVENTS), Some(plain(&event.kind.to_string())));
        self.event(event.time.0, TrackEvent { r#type, track_uuid, name, ..TrackEvent::default() })
    }

    /// Completes the file. Returns how many spans are missing, because workers had no page left or
    /// the file was full.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<u64> {
        self.to.flush()?;
        self.part.take().map_or(Ok(()), PartialFile::finish)?;
        Ok(self.lost)
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // What was written of a run that was cut short stays; a trace of a run that did not begin
        // is nothing.
        if !self.has_begun {
            self.part.take().into_iter().for_each(PartialFile::discard);
        }
    }
}

/// The arrow from a call to a node.
fn arrow(call: u64, to: usize) -> u64 {
    call << 16 | (to as u64 & 0xffff)
}

fn number(name: &str, value: u64) -> Annotation {
    Annotation { name: Some(name.into()), uint_value: Some(value) }
}

/// A text without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !is_terminal_control(*c)).collect()
}

fn count(track: u64, value: u64) -> TrackEvent {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    let (r#type, track_uuid, counter_value) = (Some(COUNTER), Some(track), Some(value));
    TrackEvent { r#type, track_uuid, counter_value, ..TrackEvent::default() }
}

/// Adds the begin and the end of a slice; `depth` is 0 for the innermost.
#[allow(clippy::too_many_arguments, reason = "the fields of two events")]
fn slice(
    moments: &mut Vec<Moment>,
    track: u64,
    name: &str,
    (category, depth): (&str, u8),
    begin: u64,
    end: u64,
    flow_ids: Vec<u64>,
    debug_annotations: Vec<Annotation>,
) {
    let (track_uuid, name, categories) = (Some(track), Some(name.to_string()), vec![category.to_string()]);
    let begins = TrackEvent {
        r#type: Some(SLICE_BEGIN),
        track_uuid,
        name,
        categories,
        flow_ids,
        debug_annotations,
        ..TrackEvent::default()
    };
    moments.push(Moment { at: begin, rank: 4 - depth, event: begins });
    let ends = TrackEvent { r#type: Some(SLICE_END), track_uuid, ..TrackEvent::default() };
    moments.push(Moment { at: end, rank: depth, event: ends });
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::{Options, Spec};

    #[test]
    fn every_slice_ends_and_arrows_lead_from_call_to_call() {
        let graph = "version: 1\nnodes:\n  a: { kind: timer, config: { count: 300, rate: 5kHz } }\n  \
                     b: { kind: pass, from: a }\n  c: { kind: pass, from: b }\n  d: { kind: \"null\", from: c }\n";
        let options = Options { spans: true, ..Options::default() };
        let plan = Plan::with_options(Spec::from_text(graph, "g.yaml").unwrap(), &crate::registry(), &options);
        let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/run.pftrace");
        let mut file = TraceFile::create(&path, &plan).unwrap();
        let mut running = plan.wire().unwrap().start().unwrap();
        let spans = running.spans();
        while !running.wait_for(std::time::Duration::from_millis(20)) {
            file.write(&spans, &running.edge_stats()).unwrap();
        }
        running.wait();
        file.write(&spans, &[]).unwrap();
        assert_eq!(file.finish().unwrap(), 0);

        let trace = Trace::decode(&*std::fs::read(&path).unwrap()).unwrap();
        let names: BTreeMap<u64, String> = trace
            .packet
            .iter()
            .filter_map(|packet| packet.track_descriptor.as_ref())
            .map(|track| {
                let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.clone());
                (track.uuid.unwrap(), track.name.clone().or(thread).unwrap_or_default())
            })
            .collect();
        assert!(names.values().any(|name| name == "depth of c/out -> d/in"), "{names:?}");
        assert!(names.values().any(|name| name == "latency of a -> d"), "{names:?}");
        let mut events: Vec<(u64, &TrackEvent)> = trace
            .packet
            .iter()
            .filter_map(|packet| Some((packet.timestamp.unwrap_or_default(), packet.track_event.as_ref()?)))
            .collect();
        events.sort_by_key(|(at, _)| *at);
        let (mut open, mut calls, mut ends) = (BTreeMap::<u64, Vec<&str>>::new(), BTreeMap::new(), BTreeMap::new());
        for (_, event) in events {
            let track = event.track_uuid.unwrap();
            assert!(names.contains_key(&track));
            let open = open.entry(track).or_default();
            match event.r#type {
                Some(SLICE_BEGIN) => {
                    let name = event.name.as_deref().unwrap();
                    if event.categories == ["call"] {
                        // Its turn may have been too short to be told from it, but it is never
                        // within another call.
                        assert!(open.iter().all(|outer| outer.starts_with("turn of ")), "{open:?}");
                        *calls.entry(name).or_insert(0) += 1;
                        event.flow_ids.iter().for_each(|id| ends.entry(*id).or_insert_with(Vec::new).push(name));
                    }
                    open.push(name);
                }
                Some(SLICE_END) => assert!(open.pop().is_some(), "an end without a begin"),
                _ => {}
            }
        }
        assert!(open.values().all(Vec::is_empty), "{open:?}");
        for node in ["a", "b", "c", "d"] {
            assert!(calls[node] > 200, "{calls:?}");
        }
        let arrows: Vec<_> = ends.values().filter(|ends| ends.len() == 2).collect();
        assert!(arrows.len() > 600, "{} of {}", arrows.len(), ends.len());
        assert!(arrows.iter().all(|ends| [["a", "b"], ["b", "c"], ["c", "d"]].contains(&[ends[0], ends[1]])));
    }
}
