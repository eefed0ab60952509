//! Lines, records or chunks of a file.

use crate::file::input_file;
use crate::pace::Pace;
use crate::stream::framing::{Deframer, Unusable};
use crate::stream::{self, Framing};
use limen::files::InputFile;
use limen::message::Content;
use limen::node::{
    Building, Connected, Cost, Emit, Next, Node, NodeError, NodeErrorKind, PlanErrors, Planning, Ports, Source,
};
use limen::unit::{Bytes, Rate};
use limen::{Folders, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, ErrorKind, Read, Seek};
use std::ops::Range;

/// Reads a file as lines, records or chunks: `bytes` `u8[≤max_bytes]`.
///
/// If a message is longer than `max_bytes`, the call fails. With `on_error: skip`, the node
/// continues with the next message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FileSourceConfig {
    /// Path of the file, relative to the graph's folder.
    pub path: String,
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
    /// Maximum size of a message in bytes, from `1B` to `1GiB`. Default: `64KiB`. With `framing:
    /// fixed`, every message has exactly this size. With `framing: raw`, every message except the
    /// last has this size.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// Type of the content. The sinks `csv`, `jsonl` and `console` write `text` as text. Default:
    /// `text` if `framing` is `lines` or `lines_crlf`, otherwise `bytes`.
    pub content: Option<Content>,
    /// Messages per second, such as `100Hz`. The scheduled time of message `n` is `n` periods after
    /// the first message. The origin of a message is the message's scheduled time, even if the
    /// message is late. By default, the node sends messages as fast as the graph accepts messages.
    pub rate: Option<Rate>,
    /// Number of passes over the file, at least 1. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// Runs `kind: file`; [`FileSourceConfig`] says what it does.
#[derive(Debug)]
pub struct FileSource {
    /// The path as the config has it, for messages.
    path: String,
    file: InputFile,
    max: usize,
    deframer: Deframer,
    pace: Pace,
    passes: u32,
    /// Messages taken in this pass, to number them in errors.
    number: u64,
    /// The file was read to its end.
    is_read: bool,
    /// The next message, or why it cannot be sent; `None` at the end. Reading one message ahead
    /// tells which one is the last.
    ahead: Option<Result<Range<usize>, NodeError>>,
}

impl FileSource {
    fn open(config: &FileSourceConfig, folders: &Folders) -> Result<Self, NodeError> {
        let file = folders.open(&config.path)?;
        let max = config.max_bytes.0 as usize;
        Ok(FileSource {
            path: config.path.clone(),
            file,
            max,
            deframer: Deframer::new(config.framing, max),
            pace: Pace::new(config.rate),
            passes: config.repeat,
            number: 0,
            is_read: false,
            ahead: None,
        })
    }

    /// Finds the next message, starting over at the end of the file while passes are left.
    fn advance(&mut self) {
        self.ahead = loop {
            if let Some(found) = self.deframer.take() {
                break Some(self.numbered(found));
            }
            if !self.is_read {
                if let Err(error) = self.fill() {
                    break Some(Err(NodeError::file(self.file.path(), error)));
                }
                continue;
            }
            if let Some(found) = self.deframer.last() {
                break Some(self.numbered(found));
            }
            let is_cut = self.deframer.is_partial();
            let number = std::mem::take(&mut self.number);
            self.deframer.clear();
            if is_cut {
                let why = "expected a complete message, found the end of the file";
                break Some(Err(NodeError::input(format!("{}: message {}", self.path, number + 1), why)));
            }
            if self.passes <= 1 {
                break None;
            }
            self.passes -= 1;
            self.is_read = false;
            if let Err(error) = self.file.rewind() {
                break Some(Err(NodeError::file(self.file.path(), error)));
            }
        }
    }

    /// Counts a message and adds its number to the error if it is too long.
    fn numbered(&mut self, found: Result<Range<usize>, Unusable>) -> Result<Range<usize>, NodeError> {
        self.number += 1;
        found.map_err(|unusable| unusable.error(format!("{}: message {}", self.path, self.number), self.max))
    }

    /// Reads until the buffer is full or the file has ended.
    fn fill(&mut self) -> io::Result<()> {
        while !self.is_read {
            let space = self.deframer.space();
            if space.is_empty() {
                break;
            }
            match self.file.read(space) {
                Ok(0) => self.is_read = true,
                Ok(n) => self.deframer.filled(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Finds the next message. The first message of another pass begins a segment.
    fn move_on(&mut self, out: &mut Emit<Tensor>) {
        let passes = self.passes;
        self.advance();
        if self.passes != passes {
            out.begin_segment();
        }
    }
}

/// Checks the config and returns the ports.
fn ports(config: &FileSourceConfig, folders: &Folders) -> Result<Ports, PlanErrors> {
    let mut errors = PlanErrors::default();
    if config.repeat == 0 {
        errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
    }
    if let Err((message, help)) = input_file::open(&config.path, folders) {
        errors.at("path", message).help(help);
    }
    let spec = stream::spec(config.max_bytes, config.framing, config.content, &mut errors);
    let ports =
        Ports::new().output("bytes", spec).cost(Cost::Medium).memory(stream::buffer(config.max_bytes, config.framing));
    errors.into_result(Pace::declare(config.rate, ports))
}

impl Node for FileSource {
    type Config = FileSourceConfig;

    fn ports(config: &FileSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        ports(config, cx.folders)
    }

    fn build(config: FileSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut node = FileSource::open(&config, cx.folders())?;
        node.advance();
        Ok(node)
    }
}

impl Source for FileSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.ahead.is_none() {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        match self.ahead.take() {
            Some(Ok(message)) => {
                stream::send(self.deframer.bytes(message), origin, out)?;
                self.move_on(out);
            }
            Some(Err(error)) => {
                // Retrying does not help if the file cannot be read; a bad message is skipped.
                if !matches!(error.kind(), NodeErrorKind::File { .. }) {
                    self.move_on(out);
                }
                return Err(error);
            }
            None => {}
        }
        Ok(if self.ahead.is_none() { Next::Done } else { self.pace.then(out.now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every message or error of a file as text.
    fn messages(bytes: &[u8], framing: Framing, max: u64, repeat: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), bytes).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let config =
            FileSourceConfig { path: "f".into(), framing, max_bytes: Bytes(max), content: None, rate: None, repeat };
        let mut node = FileSource::open(&config, &folders).unwrap();
        let mut said = Vec::new();
        node.advance();
        while let Some(found) = node.ahead.take() {
            said.push(match found {
                Ok(message) => String::from_utf8_lossy(node.deframer.bytes(message)).into_owned(),
                Err(error) => error.to_string(),
            });
            node.advance();
        }
        said
    }

    #[test]
    fn a_file_is_read_to_its_end_in_every_pass() {
        assert_eq!(messages(b"a\nbc\n\nd", Framing::Lines, 8, 1), ["a", "bc", "", "d"]);
        assert_eq!(messages(b"a\nb", Framing::Lines, 8, 2), ["a", "b", "a", "b"]);
        assert_eq!(messages(b"1234567", Framing::Raw, 3, 2), ["123", "456", "7", "123", "456", "7"]);
        assert_eq!(messages(b"\0\0\0\x01a\0\0\0\x02bc", Framing::Length, 8, 1), ["a", "bc"]);
        let cut = "f: message 3: expected a complete message, found the end of the file";
        assert_eq!(messages(b"1234567", Framing::Fixed, 3, 1)[..2], ["123", "456"]);
        assert!(messages(b"1234567", Framing::Fixed, 3, 1)[2].starts_with(cut));
        assert_eq!(messages(b"", Framing::Lines, 8, 3), [""; 0]);
        let long = format!("{}\n", "x".repeat(30_000));
        assert_eq!(messages(long.repeat(9).as_bytes(), Framing::Lines, 30_000, 1), [&long[..30_000]; 9]);
    }

    #[test]
    fn a_bad_message_is_reported_with_its_number_and_skipped() {
        let said = messages(b"a\n123456789\nb\n123456789", Framing::Lines, 8, 1);
        assert_eq!(said[0], "a");
        assert!(
            said[1].starts_with("f: message 2 must be at most the planned 8, got 9: write a larger `max_bytes`"),
            "{said:?}"
        );
        assert_eq!(said[2], "b");
        assert!(said[3].starts_with("f: message 4"), "{said:?}");
        let said = messages(b"\0\0\0\x01a\xff\xff\xff\xffbc", Framing::Length, 8, 2);
        let expected = [
            "a",
            "f: message 2 must be at most the planned 8, got 4294967295",
            "f: message 3: expected a complete message, found the end of the file",
        ];
        for (n, expected) in expected.iter().enumerate() {
            assert!(said[n].starts_with(expected) && said[n + 3].starts_with(expected), "{said:?}");
        }
        assert_eq!(said.len(), 6);
    }
}
