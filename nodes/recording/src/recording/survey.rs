//! What a recording holds, while a graph is planned: its topics, and the tensors of those that the
//! graph takes.

use super::reader::{RecordingReader, Unreadable};
use super::topic::Topic;
use limen::Folders;
use limen::files::InputFile;
use limen::message::{Dim, MAX_PORTS, PortSpec};
use limen_nodes_core::file::input_file::{self, FileProblem};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Seek, SeekFrom};
use std::path::PathBuf;

/// How much of a file, and of its chunks, is read while planning.
const SURVEYED: u64 = 256 << 20;
/// So many times as much of its chunks, or the bytes of the file if they are more, are searched for
/// a topic that has not come yet.
const SEARCHED: u64 = 16;
/// A stamp further from the log time than this is of another clock, ns.
pub(crate) const OTHER_CLOCK: u64 = 86_400_000_000_000;
/// The most topics that a message lists.
const MAX_LISTED: usize = 20;

pub(crate) type FileReader = RecordingReader<BufReader<InputFile>>;

/// Opens a recording.
pub(crate) fn open(path: &str, folders: &Folders) -> Result<(PathBuf, FileReader), FileProblem> {
    let file = input_file::open(path, folders)?;
    let shown = file.path().to_path_buf();
    let problem = |error: std::io::Error| {
        (format!("`{}`: {error}", shown.display()), "write the path of an MCAP file".to_string())
    };
    let reader = begin(file).map_err(problem)?;
    Ok((shown, reader))
}

pub(crate) fn begin(mut file: InputFile) -> std::io::Result<FileReader> {
    file.seek(SeekFrom::Start(0))?;
    let size = file.size();
    RecordingReader::new(BufReader::with_capacity(256 << 10, file), size)
}

/// Returns the port of a topic that the graph does not name: `camera.image_raw` for
/// `/Camera/image_raw`.
fn port_of(topic: &str) -> String {
    let parts = topic.split('/').filter(|part| !part.is_empty()).map(|part| {
        let part: String = part
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c.to_ascii_lowercase() } else { '_' })
            .collect();
        if part.starts_with(|c: char| c.is_ascii_lowercase()) { part } else { format!("t{part}") }
    });
    parts.collect::<Vec<_>>().join(".")
}

/// The ports of a node, and the topics of those whose names do not say it.
#[derive(Debug)]
pub(crate) struct TopicPorts<'a> {
    pub(crate) names: Vec<&'a str>,
    pub(crate) topics: &'a BTreeMap<String, String>,
}

impl TopicPorts<'_> {
    /// Returns the port that sends a topic.
    pub(crate) fn find(&self, topic: &str) -> Option<usize> {
        self.names.iter().position(|port| match self.topics.get(*port) {
            Some(written) => written == topic,
            None => port_of(topic) == *port,
        })
    }
}

/// What the survey knows of a port.
#[derive(Debug, Default)]
pub(crate) struct SurveyedPort {
    pub(crate) topic: String,
    pub(crate) schema: String,
    pub(crate) spec: Option<PortSpec>,
    pub(crate) longest: usize,
    pub(crate) messages: u64,
    pub(crate) is_unknown: bool,
    /// A recording says what its tensors are.
    is_recorded: bool,
    /// Why no message could be read so far.
    pub(crate) malformed: Option<String>,
    /// A stamp is further than a day from the log time.
    pub(crate) has_other_clock: bool,
}

/// What a survey found.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) ports: Vec<SurveyedPort>,
    /// All topics with their schemas.
    pub(crate) topics: BTreeMap<String, String>,
    /// Those that have had messages.
    used: BTreeSet<String>,
    /// Whether the whole file was read.
    pub(crate) is_whole: bool,
    pub(crate) unreadable: Unreadable,
}

/// The topic of a channel.
pub(crate) fn topic_of<R: std::io::Read>(reader: &RecordingReader<R>, number: u16) -> Option<Topic> {
    let channel = reader.channel(number)?;
    Some(Topic::new(&channel.topic, reader.schema(channel.schema), &channel.encoding, &channel.metadata))
}

/// Reads the first part of a file: what the messages of each port are.
pub(crate) fn survey(reader: &mut FileReader, ports: &TopicPorts<'_>) -> std::io::Result<Survey> {
    let mut seen: Vec<SurveyedPort> = ports.names.iter().map(|_| SurveyedPort::default()).collect();
    let mut topics: BTreeMap<u16, Option<(usize, Topic)>> = BTreeMap::new();
    let mut is_whole = true;
    loop {
        let read = reader.position().max(reader.unpacked());
        let is_far = read > SURVEYED && seen.iter().all(|seen| seen.spec.is_some());
        if is_far || read > SEARCHED * reader.position().max(SURVEYED) {
            is_whole = false;
            break;
        }
        let Some(message) = reader.next_message()? else { break };
        let header = message.header;
        let number = header.channel_id;
        let found = || topic_of(reader, number).and_then(|topic| Some((ports.find(&topic.name)?, topic)));
        let Some((port, topic)) = topics.entry(number).or_insert_with(found) else { continue };
        let seen = &mut seen[*port];
        if seen.topic.is_empty() {
            (seen.topic, seen.schema, seen.is_unknown) = (topic.name.clone(), topic.schema.clone(), topic.is_unknown());
        }
        seen.messages += 1;
        // Nothing more is to be learnt of a topic that a recording describes.
        if seen.spec.is_some() && topic.is_recorded() {
            continue;
        }
        match topic.decode(reader.message()) {
            Ok(decoded) => {
                seen.has_other_clock |=
                    decoded.stamp.is_some_and(|stamp| stamp.abs_diff(header.log_time) > OTHER_CLOCK);
                seen.longest = seen.longest.max(decoded.shape().first().copied().unwrap_or(0));
                match &mut seen.spec {
                    None => {
                        (seen.spec, seen.is_recorded) = (Some(topic.spec(&decoded, seen.longest)), topic.is_recorded())
                    }
                    // The first message gives the shape; those that are longer are planned for.
                    Some(spec) => {
                        if let Some(Dim::AtMost(most)) = spec.shape.first_mut() {
                            *most = seen.longest.max(1);
                        }
                    }
                }
            }
            Err(why) => {
                seen.malformed.get_or_insert(why);
            }
        }
    }
    if !is_whole {
        // Longer ones may follow.
        for seen in seen.iter_mut().filter(|seen| !seen.is_recorded) {
            if let Some(Dim::AtMost(most)) = seen.spec.as_mut().and_then(|spec| spec.shape.first_mut()) {
                *most = most.saturating_mul(2);
            }
        }
    }
    let schema = |number: u16| reader.schema(number).map_or("no schema", |schema| schema.name.as_str()).to_string();
    let used = topics.keys().filter_map(|number| Some(reader.channel(*number)?.topic.clone())).collect();
    let topics = reader.channels().map(|(_, channel)| (channel.topic.clone(), schema(channel.schema))).collect();
    Ok(Survey { ports: seen, topics, used, is_whole, unreadable: reader.unreadable().clone() })
}

impl Survey {
    /// Returns the ports of all topics with messages, those that the graph names and the others.
    pub(crate) fn ports(&self, named: &BTreeMap<String, String>) -> Vec<String> {
        let port = |topic: &String| {
            let named = named.iter().find(|(_, other)| *other == topic);
            named.map_or_else(|| port_of(topic), |(port, _)| port.clone())
        };
        let ports: BTreeSet<String> = self.used.iter().map(port).collect();
        ports.into_iter().take(MAX_PORTS).collect()
    }

    /// Lists the topics of the file.
    pub(crate) fn list(&self) -> String {
        let mut listed: Vec<String> = self
            .topics
            .iter()
            .filter(|(topic, _)| self.used.contains(*topic))
            .take(MAX_LISTED)
            .map(|(topic, schema)| format!("`{}` for {topic} ({schema})", port_of(topic)))
            .collect();
        if self.used.len() > MAX_LISTED {
            listed.push(format!("{} more", self.used.len() - MAX_LISTED));
        }
        if listed.is_empty() { "none".into() } else { listed.join(", ") }
    }
}
