//! Where one message of a byte stream ends and the next begins.
//!
//! A [`Deframer`] owns one buffer of a size that is known when it is made, and takes messages out of it. A message that
//! is longer than allowed is passed over, however long it is, without being kept.

use limen::message::Content;
use limen::node::{NodeError, NodeErrorKind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;

/// Where one message of a byte stream ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// A message is a line, without its end (`\n` or `\r\n`).
    #[default]
    Lines,
    /// A message is what is there, up to `max_bytes`.
    Raw,
    /// Each message has its length before it, as 4 bytes, the most significant first.
    Length,
    /// Each message has its length before it, as 4 bytes, the least significant first.
    LengthLe,
}

/// Bytes of a length.
const PREFIX: usize = 4;
/// A buffer is not smaller, so that short messages are read many at a time.
pub(crate) const LEAST_BUFFER: usize = 8 << 10;

impl Framing {
    /// Whether a length goes before each message.
    pub(crate) fn has_length(self) -> bool {
        matches!(self, Framing::Length | Framing::LengthLe)
    }

    /// What messages hold where the graph does not say: a line is text, and of anything else nothing is known.
    pub(crate) fn content(self) -> Content {
        if self == Framing::Lines { Content::Text } else { Content::Bytes }
    }

    /// Adds a message with what marks its end.
    pub(crate) fn write(self, message: &[u8], to: &mut Vec<u8>) -> Result<(), NodeError> {
        if self == Framing::Lines && message.contains(&b'\n') {
            let why = "a message with a line's end in it would be read as two; write `framing: length`";
            return Err(NodeError::input("framing: lines", why));
        }
        if self.has_length() {
            // Checked while planning, for every message that can come.
            let length = u32::try_from(message.len()).map_err(NodeError::other)?;
            let prefix = if self == Framing::Length { length.to_be_bytes() } else { length.to_le_bytes() };
            to.extend_from_slice(&prefix);
        }
        to.extend_from_slice(message);
        if self == Framing::Lines {
            to.push(b'\n');
        }
        Ok(())
    }
}

/// A message that is longer than allowed; how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

impl TooLarge {
    /// The error of the call that came upon it.
    pub(crate) fn error(self, what: impl Into<String>, bound: usize) -> NodeError {
        NodeErrorKind::TooLarge { what: what.into(), size: self.0, bound, key: "max_bytes" }.into()
    }
}

/// Takes messages out of bytes as they come.
#[derive(Debug)]
pub(crate) struct Deframer {
    framing: Framing,
    max: usize,
    buffer: Box<[u8]>,
    /// Bytes of the buffer that have come and are not taken.
    start: usize,
    end: usize,
    /// How many of them hold no end of a line.
    searched: usize,
    /// How many bytes of a line that is too long have been passed over; its end has not come yet.
    passed: usize,
    /// Bytes still to come of a message that was announced as too long.
    to_pass: usize,
}

impl Deframer {
    pub(crate) fn new(framing: Framing, max: usize) -> Self {
        let size = match framing {
            Framing::Raw => max,
            // A line's two last bytes are not its own.
            _ => (max + PREFIX).max(LEAST_BUFFER),
        };
        let buffer = vec![0; size].into_boxed_slice();
        Deframer { framing, max, buffer, start: 0, end: 0, searched: 0, passed: 0, to_pass: 0 }
    }

    /// How many bytes may be waiting to be taken.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Where bytes that come are to be put. Never empty after [`Deframer::take`] has said that there is nothing.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were put there.
    pub(crate) fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// The next message, if it is whole: where its bytes are until something else is asked of this.
    pub(crate) fn take(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        match self.framing {
            Framing::Raw => self.chunk(),
            Framing::Lines => self.line(),
            Framing::Length | Framing::LengthLe => self.sized(),
        }
    }

    /// The bytes of a message that was taken.
    pub(crate) fn bytes(&self, message: Range<usize>) -> &[u8] {
        self.buffer.get(message).unwrap_or_default()
    }

    /// The last message of a stream that has ended: a line may do without its end.
    pub(crate) fn last(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        if self.framing != Framing::Lines || !self.is_partial() {
            return None;
        }
        let (range, passed) = (self.start..self.end, std::mem::take(&mut self.passed));
        (self.start, self.searched) = (self.end, 0);
        let size = passed + range.len();
        Some(if size > self.max { Err(TooLarge(size)) } else { Ok(range) })
    }

    /// Whether a message has begun to come and is not whole; asked when nothing more can be taken.
    pub(crate) fn is_partial(&self) -> bool {
        self.start < self.end || self.passed > 0 || self.to_pass > 0
    }

    /// How many whole messages have come and were not taken.
    pub(crate) fn whole(&self) -> u64 {
        let bytes = &self.buffer[self.start..self.end];
        match self.framing {
            Framing::Raw => bytes.len().div_ceil(self.max.max(1)) as u64,
            Framing::Lines => bytes.iter().filter(|b| **b == b'\n').count() as u64,
            Framing::Length | Framing::LengthLe => {
                let (mut rest, mut n) = (bytes.get(self.to_pass..).unwrap_or_default(), 0);
                while let Some((length, behind)) = self.length(rest) {
                    let Some(after) = behind.get(length..) else { break };
                    (rest, n) = (after, n + 1);
                }
                n
            }
        }
    }

    /// Forgets what has come: another stream begins.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end, self.searched, self.passed, self.to_pass) = (0, 0, 0, 0, 0);
    }

    fn chunk(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let start = self.start;
        self.start = self.end.min(start + self.max);
        (start < self.start).then_some(Ok(start..self.start))
    }

    fn line(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(at) = bytes[self.searched..].iter().position(|b| *b == b'\n') else {
            self.searched = bytes.len();
            // One more than allowed may be the first byte of the line's end.
            if bytes.len() > self.max + 1 {
                self.passed += bytes.len();
                (self.start, self.searched) = (self.end, 0);
            }
            return None;
        };
        let mut line = self.start..self.start + self.searched + at;
        (self.start, self.searched) = (line.end + 1, 0);
        if self.buffer[line.clone()].last() == Some(&b'\r') {
            line.end -= 1;
        }
        let size = std::mem::take(&mut self.passed) + line.len();
        Some(if size > self.max { Err(TooLarge(size)) } else { Ok(line) })
    }

    /// The length before a message, and what follows it.
    fn length<'a>(&self, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (prefix, behind) = bytes.split_first_chunk::<PREFIX>()?;
        let length =
            if self.framing == Framing::Length { u32::from_be_bytes(*prefix) } else { u32::from_le_bytes(*prefix) };
        Some((length as usize, behind))
    }

    fn sized(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let passed = self.to_pass.min(self.end - self.start);
        self.start += passed;
        self.to_pass -= passed;
        let (length, behind) = self.length(&self.buffer[self.start..self.end])?;
        if length > self.max {
            self.start += PREFIX;
            self.to_pass = length;
            return Some(Err(TooLarge(length)));
        }
        if behind.len() < length {
            return None;
        }
        let start = self.start + PREFIX;
        self.start = start + length;
        Some(Ok(start..start + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of bytes that arrive `step` at a time: messages, `!size` for those that are too long, `~` at the end where
    /// a message is not whole.
    fn frames(framing: Framing, max: usize, bytes: &[u8], step: usize) -> Vec<String> {
        let mut deframer = Deframer::new(framing, max);
        let mut found = Vec::new();
        let word = |deframer: &Deframer, frame: Result<Range<usize>, TooLarge>| match frame {
            Ok(range) => String::from_utf8_lossy(deframer.bytes(range)).into_owned(),
            Err(TooLarge(size)) => format!("!{size}"),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = deframer.space();
            let n = rest.len().min(step).min(space.len());
            assert!(n > 0, "no space for what comes");
            space[..n].copy_from_slice(&rest[..n]);
            deframer.filled(n);
            rest = &rest[n..];
            let (before, whole) = (found.len(), deframer.whole());
            while let Some(frame) = deframer.take() {
                found.push(word(&deframer, frame));
            }
            if !found[before..].iter().any(|word| word.starts_with('!')) {
                assert_eq!(found.len() - before, whole as usize, "{framing:?} {bytes:?}");
            }
        }
        if deframer.is_partial() {
            found.push("~".into());
        }
        if let Some(frame) = deframer.last() {
            found.push(word(&deframer, frame));
        }
        assert!(framing.has_length() || !deframer.is_partial());
        found
    }

    #[test]
    fn messages_end_where_the_framing_says_however_they_come() {
        let long = "x".repeat(20_000);
        let line = |text: &str| format!("{long}{text}");
        for (framing, max, bytes, expected) in [
            (Framing::Lines, 5, &b"one\ntwo\r\n\n12345\r\n"[..], &["one", "two", "", "12345"][..]),
            (Framing::Lines, 5, b"one\ntail", &["one", "~", "tail"]),
            (Framing::Lines, 5, b"123456\n12345\n", &["!6", "12345"]),
            (Framing::Lines, 5, b"123456", &["~", "!6"]),
            (Framing::Lines, 5, line("\nok\n").as_bytes(), &["!20000", "ok"]),
            (Framing::Lines, 5, line("").as_bytes(), &["~", "!20000"]),
            (Framing::Length, 5, b"\0\0\0\x03one\0\0\0\0\0\0\0\x0512345", &["one", "", "12345"]),
            (Framing::LengthLe, 5, b"\x03\0\0\0one", &["one"]),
            (Framing::Length, 5, b"\0\0\0\x06123456\0\0\0\x01x", &["!6", "x"]),
            (Framing::Length, 5, b"\xff\xff\xff\xff123", &["!4294967295", "~"]),
            (Framing::Length, 5, b"\0\0\0\x05123", &["~"]),
            (Framing::Length, 5, b"\0\0", &["~"]),
            (Framing::Lines, 5, b"", &[]),
        ] {
            for step in [1, 2, 3, 7, 100_000] {
                let found = frames(framing, max, bytes, step);
                assert_eq!(found, expected, "{framing:?} step {step} {:?}", &bytes[..bytes.len().min(40)]);
            }
        }
        assert_eq!(frames(Framing::Raw, 4, b"123456789", 100), ["1234", "5678", "9"]);
    }

    #[test]
    fn a_buffer_is_as_large_as_the_graph_says_whatever_is_announced() {
        let mut deframer = Deframer::new(Framing::Length, 100_000);
        assert_eq!(deframer.space().len(), 100_004);
        deframer.space()[..4].fill(0xff);
        deframer.filled(4);
        assert_eq!(deframer.take(), Some(Err(TooLarge(u32::MAX as usize))));
        assert_eq!(deframer.space().len(), 100_004);
    }

    #[test]
    fn what_is_written_reads_back() {
        for framing in [Framing::Lines, Framing::Length, Framing::LengthLe] {
            let messages = ["one", "", "three"];
            let mut bytes = Vec::new();
            messages.iter().for_each(|m| framing.write(m.as_bytes(), &mut bytes).unwrap());
            assert_eq!(frames(framing, 5, &bytes, 3), messages, "{framing:?}");
        }
        assert!(Framing::Lines.write(b"a\nb", &mut Vec::new()).is_err());
        assert!(Framing::Raw.write(b"a\nb", &mut Vec::new()).is_ok());
    }
}
