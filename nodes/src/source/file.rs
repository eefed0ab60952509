//! Lines or chunks of a file.

use crate::file::input_file;
use crate::pace::Pace;
use crate::stream::framing::{Deframer, TooLarge};
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

/// Reads a file in lines or in chunks: `bytes` `u8[≤max_bytes]`.
///
/// A line that is too long fails one call; with `on_error: skip` the next line follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Where one message ends and the next begins; `lines` by default.
    #[serde(default)]
    pub framing: Framing,
    /// Bytes of the longest message, such as `4KiB`; `64KiB` by default. With `framing: raw`, bytes of every message but
    /// the last.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// What a message holds: `text`, which tables and JSON write as text, or `bytes`; text by default with `framing: lines`.
    pub content: Option<Content>,
    /// How many messages a second, such as `100Hz`: message `n` is sent `n` periods after the first, and late ones keep
    /// their intended time as origin. As fast as they are taken by default.
    pub rate: Option<Rate>,
    /// How many times the file is gone through; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// The node.
#[derive(Debug)]
pub struct File {
    written: String,
    file: InputFile,
    max: usize,
    deframer: Deframer,
    pace: Pace,
    passes: u32,
    /// Messages found in this pass, to say which one is wrong.
    number: u64,
    /// The file has been read to its end.
    is_read: bool,
    /// The message to be sent next, or why it cannot be; `None` at the end. It is found ahead, so that the last one is
    /// known to be the last.
    ahead: Option<Result<Range<usize>, NodeError>>,
}

impl File {
    fn open(config: &Config, folders: &Folders) -> Result<Self, NodeError> {
        let file = folders.open(&config.path)?;
        let max = config.max_bytes.0 as usize;
        Ok(File {
            written: config.path.clone(),
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

    /// Finds the message to be sent next, from the beginning again while passes are left.
    fn advance(&mut self) {
        self.ahead = loop {
            if let Some(found) = self.deframer.take() {
                break Some(self.name(found));
            }
            if !self.is_read {
                if let Err(error) = self.fill() {
                    break Some(Err(NodeError::file(self.file.path(), error)));
                }
                continue;
            }
            if let Some(found) = self.deframer.last() {
                break Some(self.name(found));
            }
            let is_cut = self.deframer.is_partial();
            let number = std::mem::take(&mut self.number);
            self.deframer.clear();
            if is_cut {
                let why = "the file ends within it, and it is not sent; write the file anew";
                break Some(Err(NodeError::input(format!("{}: message {}", self.written, number + 1), why)));
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

    fn name(&mut self, found: Result<Range<usize>, TooLarge>) -> Result<Range<usize>, NodeError> {
        self.number += 1;
        found.map_err(|large| large.error(format!("{}: message {}", self.written, self.number), self.max))
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

    /// Finds what is to be sent next. Where that is the first of another pass, it begins a segment.
    fn move_on(&mut self, out: &mut Emit<Tensor>) {
        let passes = self.passes;
        self.advance();
        if self.passes != passes {
            out.begin_segment();
        }
    }
}

/// What a source says of itself while planning that reads a file in messages.
fn ports(config: &Config, folders: &Folders) -> Result<Ports, PlanErrors> {
    let mut errors = PlanErrors::default();
    if config.repeat == 0 {
        errors.at("repeat", "0 passes over the file send nothing").help("write 1 or more");
    }
    if let Err((message, help)) = input_file::open(&config.path, folders) {
        errors.at("path", message).help(help);
    }
    let spec = stream::spec(config.max_bytes, config.content.unwrap_or(config.framing.content()), &mut errors);
    let ports = Ports::new().output("bytes", spec).cost(Cost::Medium).memory(stream::buffer(config.max_bytes));
    errors.into_result(ports.rate(config.rate))
}

impl Node for File {
    type Config = Config;

    fn ports(config: &Config, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        ports(config, cx.folders)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut node = File::open(&config, cx.folders())?;
        node.advance();
        Ok(node)
    }
}

impl Source for File {
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
                // A file that cannot be read does not become readable by asking again; a bad message is passed over.
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

    /// Every message or error of a file, in words.
    fn messages(bytes: &[u8], framing: Framing, max: u64, repeat: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), bytes).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let config = Config { path: "f".into(), framing, max_bytes: Bytes(max), content: None, rate: None, repeat };
        let mut node = File::open(&config, &folders).unwrap();
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
    fn a_file_is_read_to_its_end_as_often_as_asked() {
        assert_eq!(messages(b"a\nbc\n\nd", Framing::Lines, 8, 1), ["a", "bc", "", "d"]);
        assert_eq!(messages(b"a\nb", Framing::Lines, 8, 2), ["a", "b", "a", "b"]);
        assert_eq!(messages(b"1234567", Framing::Raw, 3, 2), ["123", "456", "7", "123", "456", "7"]);
        assert_eq!(messages(b"\0\0\0\x01a\0\0\0\x02bc", Framing::Length, 8, 1), ["a", "bc"]);
        assert_eq!(messages(b"", Framing::Lines, 8, 3), [""; 0]);
        let long = format!("{}\n", "x".repeat(30_000));
        assert_eq!(messages(long.repeat(9).as_bytes(), Framing::Lines, 30_000, 1), [&long[..30_000]; 9]);
    }

    #[test]
    fn what_is_wrong_is_named_and_passed_over() {
        let said = messages(b"a\n123456789\nb\n123456789", Framing::Lines, 8, 1);
        assert_eq!(said[0], "a");
        assert!(
            said[1].starts_with("f: message 2: 9 is more than the 8 that were planned; raise max_bytes"),
            "{said:?}"
        );
        assert_eq!(said[2], "b");
        assert!(said[3].starts_with("f: message 4"), "{said:?}");
        let said = messages(b"\0\0\0\x01a\xff\xff\xff\xffbc", Framing::Length, 8, 2);
        let expected = ["a", "f: message 2: 4294967295", "f: message 3: the file ends within it"];
        for (n, expected) in expected.iter().enumerate() {
            assert!(said[n].starts_with(expected) && said[n + 3].starts_with(expected), "{said:?}");
        }
        assert_eq!(said.len(), 6);
    }
}
