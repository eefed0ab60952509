//! The framing of messages in a byte stream.
//!
//! A [`Deframer`] owns one buffer of fixed size and takes messages out of it. A message that is longer than allowed is
//! skipped without being buffered, however long it is.

use limen::message::Content;
use limen::node::{NodeError, NodeErrorKind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;

/// How the end of a message is marked in a byte stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// Each line is a message, without its line ending (`\n` or `\r\n`).
    #[default]
    Lines,
    /// No marks: a message is what one read gives, at most `max_bytes`. From a `file`, every message but the last has `max_bytes`.
    Raw,
    /// No marks: every message has exactly `max_bytes` bytes, as raw frames of video do. A sink takes messages of one size.
    Fixed,
    /// The length of each message precedes it, as 4 bytes in big-endian order.
    Length,
    /// The length of each message precedes it, as 4 bytes in little-endian order.
    LengthLe,
}

/// Bytes of a length prefix.
const PREFIX: usize = 4;
/// Smallest buffer in bytes, so that one read takes in many short messages.
pub(crate) const MIN_BUFFER: usize = 8 << 10;

impl Framing {
    /// Whether a length precedes each message.
    pub(crate) fn has_length(self) -> bool {
        matches!(self, Framing::Length | Framing::LengthLe)
    }

    /// The default content of messages: lines are text, anything else is bytes.
    pub(crate) fn content(self) -> Content {
        if self == Framing::Lines { Content::Text } else { Content::Bytes }
    }

    /// Appends a message with its length prefix or line ending.
    pub(crate) fn write(self, message: &[u8], to: &mut Vec<u8>) -> Result<(), NodeError> {
        if self == Framing::Lines && message.contains(&b'\n') {
            let why = "a message that contains a line ending would be read as two; write `framing: length`";
            return Err(NodeError::input("framing: lines", why));
        }
        if self.has_length() {
            // Planning has checked the largest possible message.
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

/// A message that is longer than allowed, with its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

impl TooLarge {
    /// Returns the error for the call that found it.
    pub(crate) fn error(self, what: impl Into<String>, bound: usize) -> NodeError {
        NodeErrorKind::TooLarge { what: what.into(), size: self.0, bound, key: "max_bytes" }.into()
    }
}

/// Splits a byte stream into messages.
#[derive(Debug)]
pub(crate) struct Deframer {
    framing: Framing,
    max: usize,
    buffer: Box<[u8]>,
    /// The range of the buffer that was received but not yet taken.
    start: usize,
    end: usize,
    /// How many of these bytes were searched for a line ending without finding one.
    searched: usize,
    /// Bytes skipped so far of a line that is too long and has not ended yet.
    skipped: usize,
    /// Bytes still to skip of a message whose announced length is too long.
    to_skip: usize,
}

impl Deframer {
    pub(crate) fn new(framing: Framing, max: usize) -> Self {
        let size = match framing {
            Framing::Raw => max,
            // Room for a length prefix, or for the two bytes of a line ending.
            _ => (max + PREFIX).max(MIN_BUFFER),
        };
        let buffer = vec![0; size].into_boxed_slice();
        Deframer { framing, max, buffer, start: 0, end: 0, searched: 0, skipped: 0, to_skip: 0 }
    }

    /// The size of the buffer in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// The free part of the buffer, to be filled. Never empty after [`Deframer::take`] has returned `None`.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that `n` bytes of [`Deframer::space`] were filled.
    pub(crate) fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// Takes the next complete message: the range of its bytes, valid until the next call that changes the buffer.
    pub(crate) fn take(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        match self.framing {
            Framing::Raw => self.chunk(),
            Framing::Fixed => self.whole_chunk(),
            Framing::Lines => self.line(),
            Framing::Length | Framing::LengthLe => self.sized(),
        }
    }

    /// The bytes of a message taken last.
    pub(crate) fn bytes(&self, message: Range<usize>) -> &[u8] {
        self.buffer.get(message).unwrap_or_default()
    }

    /// Takes the last message of a stream that has ended: a last line without a line ending.
    pub(crate) fn last(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        if self.framing != Framing::Lines || !self.is_partial() {
            return None;
        }
        let (range, skipped) = (self.start..self.end, std::mem::take(&mut self.skipped));
        (self.start, self.searched) = (self.end, 0);
        let size = skipped + range.len();
        Some(if size > self.max { Err(TooLarge(size)) } else { Ok(range) })
    }

    /// Whether the buffer holds an incomplete message. Valid after [`Deframer::take`] has returned `None`.
    pub(crate) fn is_partial(&self) -> bool {
        self.start < self.end || self.skipped > 0 || self.to_skip > 0
    }

    /// The number of complete messages that were received but not taken.
    pub(crate) fn whole_messages(&self) -> u64 {
        let bytes = &self.buffer[self.start..self.end];
        match self.framing {
            Framing::Raw => bytes.len().div_ceil(self.max.max(1)) as u64,
            Framing::Fixed => (bytes.len() / self.max.max(1)) as u64,
            Framing::Lines => bytes.iter().filter(|b| **b == b'\n').count() as u64,
            Framing::Length | Framing::LengthLe => {
                let (mut rest, mut n) = (bytes.get(self.to_skip..).unwrap_or_default(), 0);
                while let Some((length, behind)) = self.length(rest) {
                    let Some(after) = behind.get(length..) else { break };
                    (rest, n) = (after, n + 1);
                }
                n
            }
        }
    }

    /// Discards everything received, because another stream begins.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end, self.searched, self.skipped, self.to_skip) = (0, 0, 0, 0, 0);
    }

    fn chunk(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let start = self.start;
        self.start = self.end.min(start + self.max);
        (start < self.start).then_some(Ok(start..self.start))
    }

    fn whole_chunk(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        (self.end - self.start >= self.max.max(1)).then(|| self.chunk())?
    }

    fn line(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(at) = bytes[self.searched..].iter().position(|b| *b == b'\n') else {
            self.searched = bytes.len();
            // One byte more than allowed may be the `\r` of a line ending.
            if bytes.len() > self.max + 1 {
                self.skipped += bytes.len();
                (self.start, self.searched) = (self.end, 0);
            }
            return None;
        };
        let mut line = self.start..self.start + self.searched + at;
        (self.start, self.searched) = (line.end + 1, 0);
        if self.buffer[line.clone()].last() == Some(&b'\r') {
            line.end -= 1;
        }
        let size = std::mem::take(&mut self.skipped) + line.len();
        Some(if size > self.max { Err(TooLarge(size)) } else { Ok(line) })
    }

    /// The length prefix of a message, and the bytes after it.
    fn length<'a>(&self, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (prefix, behind) = bytes.split_first_chunk::<PREFIX>()?;
        let length =
            if self.framing == Framing::Length { u32::from_be_bytes(*prefix) } else { u32::from_le_bytes(*prefix) };
        Some((length as usize, behind))
    }

    fn sized(&mut self) -> Option<Result<Range<usize>, TooLarge>> {
        let skipped = self.to_skip.min(self.end - self.start);
        self.start += skipped;
        self.to_skip -= skipped;
        let (length, behind) = self.length(&self.buffer[self.start..self.end])?;
        if length > self.max {
            self.start += PREFIX;
            self.to_skip = length;
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

    /// Feeds `bytes` in steps of `step`. Returns the messages, `!size` for each that is too long, `~` at the end if a message
    /// is incomplete.
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
            assert!(n > 0, "there is always space");
            space[..n].copy_from_slice(&rest[..n]);
            deframer.filled(n);
            rest = &rest[n..];
            let (before, whole_messages) = (found.len(), deframer.whole_messages());
            while let Some(frame) = deframer.take() {
                found.push(word(&deframer, frame));
            }
            if !found[before..].iter().any(|word| word.starts_with('!')) {
                assert_eq!(found.len() - before, whole_messages as usize, "{framing:?} {bytes:?}");
            }
        }
        if deframer.is_partial() {
            found.push("~".into());
        }
        if let Some(frame) = deframer.last() {
            found.push(word(&deframer, frame));
        }
        assert!(framing.has_length() || framing == Framing::Fixed || !deframer.is_partial());
        found
    }

    #[test]
    fn messages_are_split_by_their_framing_however_they_arrive() {
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
            (Framing::Fixed, 3, b"one\n\r\ntwo", &["one", "\n\r\n", "two"]),
            (Framing::Fixed, 3, b"onetw", &["one", "~"]),
            (Framing::Fixed, 20_000, long.as_bytes(), &[&long]),
        ] {
            for step in [1, 2, 3, 7, 100_000] {
                let found = frames(framing, max, bytes, step);
                assert_eq!(found, expected, "{framing:?} step {step} {:?}", &bytes[..bytes.len().min(40)]);
            }
        }
        assert_eq!(frames(Framing::Raw, 4, b"123456789", 100), ["1234", "5678", "9"]);
    }

    #[test]
    fn an_announced_length_does_not_grow_the_buffer() {
        let mut deframer = Deframer::new(Framing::Length, 100_000);
        assert_eq!(deframer.space().len(), 100_004);
        deframer.space()[..4].fill(0xff);
        deframer.filled(4);
        assert_eq!(deframer.take(), Some(Err(TooLarge(u32::MAX as usize))));
        assert_eq!(deframer.space().len(), 100_004);
    }

    #[test]
    fn written_messages_read_back_unchanged() {
        for framing in [Framing::Lines, Framing::Length, Framing::LengthLe] {
            let messages = ["one", "", "three"];
            let mut bytes = Vec::new();
            messages.iter().for_each(|m| framing.write(m.as_bytes(), &mut bytes).unwrap());
            assert_eq!(frames(framing, 5, &bytes, 3), messages, "{framing:?}");
        }
        assert!(Framing::Lines.write(b"a\nb", &mut Vec::new()).is_err());
        for framing in [Framing::Raw, Framing::Fixed] {
            let mut bytes = Vec::new();
            framing.write(b"a\nb", &mut bytes).unwrap();
            assert_eq!(bytes, b"a\nb", "{framing:?}");
        }
    }
}
