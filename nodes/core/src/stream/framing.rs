//! The framing of messages in a byte stream.
//!
//! A [`Deframer`] owns one buffer of fixed size and takes messages out of it. A message that is
//! longer than allowed is skipped without being buffered, however long it is.

use crate::format::excerpt::{SHOWN, excerpt};
use limen::message::Content;
use limen::node::{LossCounter, NodeError, NodeErrorKind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;

/// How messages are separated in a byte stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// One message per line. A source removes the line ending (`\n` or `\r\n`). A sink adds `\n`.
    #[default]
    Lines,
    /// Like `lines`, but a sink ends each line with `\r\n`, which NMEA 0183 requires.
    LinesCrlf,
    /// No framing. A source sends the bytes from each read call as one message of at most
    /// `max_bytes`. A `file` source sends messages of exactly `max_bytes`, except the last message.
    Raw,
    /// Every message has exactly `max_bytes` bytes, like a raw video frame. A sink expects messages
    /// of a fixed size.
    Fixed,
    /// A length prefix of 4 bytes in big-endian order precedes each message.
    Length,
    /// A length prefix of 4 bytes in little-endian order precedes each message.
    LengthLe,
    /// Consistent Overhead Byte Stuffing (COBS). A zero byte ends each message. The encoding
    /// replaces zero bytes within the message. If bytes are lost, a source resumes at the next
    /// message.
    Cobs,
    /// SLIP (RFC 1055). The byte 0xC0 ends each message and is escaped within the message. If bytes
    /// are lost, a source resumes at the next message.
    Slip,
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

    /// Whether each message is a line of text.
    pub(crate) fn is_lines(self) -> bool {
        matches!(self, Framing::Lines | Framing::LinesCrlf)
    }

    /// The default content of messages: lines are text, anything else is bytes.
    pub(crate) fn content(self) -> Content {
        if self.is_lines() { Content::Text } else { Content::Bytes }
    }

    /// The byte that ends each message, if there is one.
    pub(crate) fn delimiter(self) -> Option<u8> {
        match self {
            Framing::Lines | Framing::LinesCrlf => Some(b'\n'),
            Framing::Cobs => Some(0),
            Framing::Slip => Some(slip::END),
            Framing::Raw | Framing::Fixed | Framing::Length | Framing::LengthLe => None,
        }
    }

    /// The most bytes that a message of at most `max` takes in the stream, without what ends it.
    fn stuffed(self, max: usize) -> usize {
        match self {
            Framing::Cobs => max.saturating_add(max / cobs::LONGEST + 1),
            Framing::Slip => max.saturating_mul(2),
            _ => max,
        }
    }

    /// The bytes of a deframer's buffer.
    pub(crate) fn buffer(self, max: usize) -> usize {
        match self {
            Framing::Raw => max,
            // Room for a length prefix, or for the two bytes of a line ending.
            _ => self.stuffed(max).saturating_add(PREFIX).max(MIN_BUFFER),
        }
    }

    /// Appends a message with its length prefix or what ends it.
    pub(crate) fn write(self, message: &[u8], to: &mut Vec<u8>) -> Result<(), NodeError> {
        if self.is_lines() && message.contains(&b'\n') {
            let why = "a line must not contain a line ending: write `framing: length`";
            return Err(NodeError::input("framing", why));
        }
        if self.has_length() {
            // Planning has checked the largest possible message.
            let length = u32::try_from(message.len()).map_err(NodeError::other)?;
            let prefix = if self == Framing::Length { length.to_be_bytes() } else { length.to_le_bytes() };
            to.extend_from_slice(&prefix);
        }
        match self {
            Framing::Cobs => {
                cobs::stuff(message, to);
            }
            Framing::Slip => slip::escape(message, to),
            Framing::LinesCrlf => {
                to.extend_from_slice(message);
                to.push(b'\r');
            }
            _ => to.extend_from_slice(message),
        }
        to.extend(self.delimiter());
        Ok(())
    }
}

/// Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999): a message without zeros. Before
/// each run of other bytes stands its length, counted from 1; behind it was a zero, unless the run
/// is as long as one can be.
mod cobs {
    /// The longest run.
    pub(super) const LONGEST: usize = 254;

    pub(super) fn stuff(message: &[u8], to: &mut Vec<u8>) {
        let mut runs = message.split(|byte| *byte == 0).peekable();
        while let Some(run) = runs.next() {
            let mut parts = run.chunks(LONGEST).peekable();
            if parts.peek().is_none() {
                to.push(1);
            }
            while let Some(part) = parts.next() {
                to.push(part.len() as u8 + 1);
                to.extend_from_slice(part);
                // A run that was cut says nothing of a zero; one that ends so needs another length,
                // which does.
                if part.len() == LONGEST && parts.peek().is_none() && runs.peek().is_some() {
                    to.push(1);
                }
            }
        }
    }

    /// Undoes it in place, and returns the length of the message; `None` if a run is longer than
    /// what is left.
    pub(super) fn unstuff(bytes: &mut [u8]) -> Option<usize> {
        let (mut from, mut to) = (0, 0);
        while let Some(length) = bytes.get(from) {
            let run = usize::from(*length).checked_sub(1)?;
            from += 1;
            if from + run > bytes.len() {
                return None;
            }
            bytes.copy_within(from..from + run, to);
            (from, to) = (from + run, to + run);
            if run < LONGEST && from < bytes.len() {
                bytes[to] = 0;
                to += 1;
            }
        }
        Some(to)
    }
}

/// SLIP (RFC 1055).
mod slip {
    pub(super) const END: u8 = 0xc0;
    const ESCAPE: u8 = 0xdb;
    const ESCAPED_END: u8 = 0xdc;
    const ESCAPED_ESCAPE: u8 = 0xdd;

    pub(super) fn escape(message: &[u8], to: &mut Vec<u8>) {
        for byte in message {
            match *byte {
                END => to.extend([ESCAPE, ESCAPED_END]),
                ESCAPE => to.extend([ESCAPE, ESCAPED_ESCAPE]),
                byte => to.push(byte),
            }
        }
    }

    /// Undoes it in place, and returns the length of the message; `None` if there is an escape of
    /// nothing.
    pub(super) fn unescape(bytes: &mut [u8]) -> Option<usize> {
        let (mut from, mut to) = (0, 0);
        while let Some(byte) = bytes.get(from) {
            let byte = match byte {
                &ESCAPE => {
                    from += 1;
                    match *bytes.get(from)? {
                        ESCAPED_END => END,
                        ESCAPED_ESCAPE => ESCAPE,
                        _ => return None,
                    }
                }
                byte => *byte,
            };
            bytes[to] = byte;
            (from, to) = (from + 1, to + 1);
        }
        Some(to)
    }
}

/// A message that cannot be sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It is longer than allowed: its length in bytes, with what its framing adds.
    TooLarge(usize),
    /// It is not framed as it should be: its first bytes as they came, and its length.
    Malformed([u8; SHOWN], usize),
}

impl Unusable {
    /// Counts it as lost, with the reason.
    pub(crate) fn lose(self, bound: usize, too_large: &mut LossCounter, malformed: &mut LossCounter) {
        match self {
            Unusable::TooLarge(size) => {
                too_large.lose(1, || format!("a message must be at most {bound} bytes (`max_bytes`), got {size}"));
            }
            Unusable::Malformed(came, length) => malformed.lose(1, || wrong_framing(&came, length)),
        }
    }

    /// Returns the error for the call that found it.
    pub(crate) fn error(self, what: impl Into<String>, bound: usize) -> NodeError {
        match self {
            Unusable::TooLarge(size) => {
                NodeErrorKind::TooLarge { what: what.into(), size, bound, key: "max_bytes" }.into()
            }
            Unusable::Malformed(came, length) => NodeError::input(what.into(), wrong_framing(&came, length)),
        }
    }
}

fn wrong_framing(came: &[u8], length: usize) -> String {
    format!("the framing is invalid{}", excerpt(&came[..length.min(SHOWN)], length, false))
}

/// Splits a byte stream into messages.
#[derive(Debug)]
pub struct Deframer {
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
    /// Creates the buffer for a stream whose messages have at most `max` bytes.
    pub fn new(framing: Framing, max: usize) -> Self {
        let buffer = vec![0; framing.buffer(max)].into_boxed_slice();
        Deframer { framing, max, buffer, start: 0, end: 0, searched: 0, skipped: 0, to_skip: 0 }
    }

    /// The size of the buffer in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// The free part of the buffer, to be filled. Never empty after [`Deframer::take`] has returned
    /// `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that `n` bytes of [`Deframer::space`] were filled.
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// Takes the next complete message: the range of its bytes, valid until the next call that
    /// changes the buffer.
    pub fn take(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        match self.framing {
            Framing::Raw => self.chunk(),
            Framing::Fixed => self.whole_chunk(),
            Framing::Lines | Framing::LinesCrlf => self.line(),
            Framing::Cobs => self.stuffed(cobs::unstuff),
            Framing::Slip => self.stuffed(slip::unescape),
            Framing::Length | Framing::LengthLe => self.sized(),
        }
    }

    /// The bytes of a message taken last.
    pub fn bytes(&self, message: Range<usize>) -> &[u8] {
        self.buffer.get(message).unwrap_or_default()
    }

    /// The longest message, in bytes.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Takes the last message of a stream that has ended: a last line without a line ending.
    pub fn last(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        if !self.framing.is_lines() || !self.is_partial() {
            return None;
        }
        let (range, skipped) = (self.start..self.end, std::mem::take(&mut self.skipped));
        (self.start, self.searched) = (self.end, 0);
        let size = skipped + range.len();
        Some(if size > self.max { Err(Unusable::TooLarge(size)) } else { Ok(range) })
    }

    /// Whether the buffer holds an incomplete message. Valid after [`Deframer::take`] has returned
    /// `None`.
    pub(crate) fn is_partial(&self) -> bool {
        self.start < self.end || self.skipped > 0 || self.to_skip > 0
    }

    /// The number of complete messages that were received but not taken.
    pub(crate) fn whole_messages(&self) -> u64 {
        let bytes = &self.buffer[self.start..self.end];
        match self.framing {
            Framing::Raw => bytes.len().div_ceil(self.max.max(1)) as u64,
            Framing::Fixed => (bytes.len() / self.max.max(1)) as u64,
            Framing::Lines | Framing::LinesCrlf => bytes.iter().filter(|b| **b == b'\n').count() as u64,
            Framing::Cobs | Framing::Slip => {
                let end = self.framing.delimiter().unwrap_or_default();
                let mut parts = bytes.split(|byte| *byte == end);
                // What is behind the last end is not whole. Of one that is skipped, the end is
                // here.
                let _ = parts.next_back();
                let first = parts.next().map_or(0, |first| u64::from(!first.is_empty() || self.skipped > 0));
                first + parts.filter(|part| !part.is_empty()).count() as u64
            }
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
    pub fn clear(&mut self) {
        (self.start, self.end, self.searched, self.skipped, self.to_skip) = (0, 0, 0, 0, 0);
    }

    fn chunk(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        let start = self.start;
        self.start = self.end.min(start + self.max);
        (start < self.start).then_some(Ok(start..self.start))
    }

    fn whole_chunk(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        (self.end - self.start >= self.max.max(1)).then(|| self.chunk())?
    }

    /// Takes the bytes up to what ends a message.
    fn delimited(&mut self, end: u8) -> Option<Range<usize>> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(at) = bytes[self.searched..].iter().position(|byte| *byte == end) else {
            self.searched = bytes.len();
            // One byte more than allowed may be the `\r` of a line ending.
            if bytes.len() > self.framing.stuffed(self.max) + 1 {
                self.skipped += bytes.len();
                (self.start, self.searched) = (self.end, 0);
            }
            return None;
        };
        let found = self.start..self.start + self.searched + at;
        (self.start, self.searched) = (found.end + 1, 0);
        Some(found)
    }

    /// Takes a message whose bytes `undo` restores in place.
    fn stuffed(&mut self, undo: fn(&mut [u8]) -> Option<usize>) -> Option<Result<Range<usize>, Unusable>> {
        loop {
            let found = self.delimited(self.framing.delimiter()?)?;
            let skipped = std::mem::take(&mut self.skipped);
            if skipped > 0 {
                return Some(Err(Unusable::TooLarge(skipped + found.len())));
            }
            // Ends in a row are one: a sender may also put one in front.
            if found.is_empty() {
                continue;
            }
            // What is wrong with it shows when a part of it is undone.
            let mut came = [0; SHOWN];
            let kept = found.len().min(SHOWN);
            came[..kept].copy_from_slice(&self.buffer[found.start..found.start + kept]);
            return Some(match undo(&mut self.buffer[found.clone()]) {
                Some(length) if length > self.max => Err(Unusable::TooLarge(length)),
                Some(length) => Ok(found.start..found.start + length),
                None => Err(Unusable::Malformed(came, found.len())),
            });
        }
    }

    fn line(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        let mut line = self.delimited(b'\n')?;
        if self.buffer[line.clone()].last() == Some(&b'\r') {
            line.end -= 1;
        }
        let size = std::mem::take(&mut self.skipped) + line.len();
        Some(if size > self.max { Err(Unusable::TooLarge(size)) } else { Ok(line) })
    }

    /// The length prefix of a message, and the bytes after it.
    fn length<'a>(&self, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (prefix, behind) = bytes.split_first_chunk::<PREFIX>()?;
        let length =
            if self.framing == Framing::Length { u32::from_be_bytes(*prefix) } else { u32::from_le_bytes(*prefix) };
        Some((length as usize, behind))
    }

    fn sized(&mut self) -> Option<Result<Range<usize>, Unusable>> {
        let skipped = self.to_skip.min(self.end - self.start);
        self.start += skipped;
        self.to_skip -= skipped;
        let (length, behind) = self.length(&self.buffer[self.start..self.end])?;
        if length > self.max {
            self.start += PREFIX;
            self.to_skip = length;
            return Some(Err(Unusable::TooLarge(length)));
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

    /// Feeds `bytes` in steps of `step`. Returns the messages, `!size` for each that is too long,
    /// `~` at the end if a message is incomplete.
    fn frames(framing: Framing, max: usize, bytes: &[u8], step: usize) -> Vec<String> {
        let mut deframer = Deframer::new(framing, max);
        let mut found = Vec::new();
        let word = |deframer: &Deframer, frame: Result<Range<usize>, Unusable>| match frame {
            Ok(range) => String::from_utf8_lossy(deframer.bytes(range)).into_owned(),
            Err(Unusable::TooLarge(size)) => format!("!{size}"),
            Err(Unusable::Malformed(..)) => "?".into(),
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
            if !found[before..].iter().any(|word| word.starts_with('!') || word == "?") {
                assert_eq!(found.len() - before, whole_messages as usize, "{framing:?} {bytes:?}");
            }
        }
        if deframer.is_partial() {
            found.push("~".into());
        }
        if let Some(frame) = deframer.last() {
            found.push(word(&deframer, frame));
        }
        let is_ended = framing.has_length() || matches!(framing, Framing::Fixed | Framing::Cobs | Framing::Slip);
        assert!(is_ended || !deframer.is_partial());
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
            (Framing::Cobs, 5, b"\x04one\0\0\x02a\x02b\0\x01\x01\0", &["one", "a\0b", "\0"]),
            (Framing::Cobs, 5, b"\x01\0\x09one\0\x02x\0\x04tw", &["", "?", "x", "~"]),
            (Framing::Cobs, 5, b"\x07123456\0\x02x\0", &["!6", "x"]),
            (Framing::Cobs, 5, [&[1; 20_000][..], b"\0\x02x\0"].concat().leak(), &["!20000", "x"]),
            (Framing::Slip, 5, b"\xc0one\xc0\xc0tw\xdb\xdco\xc0\xdb\xdd\xc0", &["one", "tw\u{fffd}o", "\u{fffd}"]),
            (Framing::Slip, 5, b"one\xdbx\xc0a\xdb\xc0b\xc0c", &["?", "?", "b", "~"]),
            (Framing::Slip, 5, b"123456\xc0x\xc0", &["!6", "x"]),
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
    fn a_malformed_message_is_shown_as_it_came() {
        for (framing, bytes, expected) in [
            (Framing::Cobs, &b"\x02x\0\x09one\0\x08no\0"[..], "the framing is invalid: 09 6f 6e 65"),
            (Framing::Slip, b"a\xdb\xc0", "the framing is invalid: 61 db"),
        ] {
            let mut deframer = Deframer::new(framing, 20);
            deframer.space()[..bytes.len()].copy_from_slice(bytes);
            deframer.filled(bytes.len());
            let unusable = std::iter::from_fn(|| deframer.take()).find_map(Result::err);
            let Some(Unusable::Malformed(came, length)) = unusable else { panic!("{framing:?}: {unusable:?}") };
            assert_eq!(wrong_framing(&came, length), expected, "{framing:?}");
        }
    }

    #[test]
    fn an_announced_length_does_not_grow_the_buffer() {
        let mut deframer = Deframer::new(Framing::Length, 100_000);
        assert_eq!(deframer.space().len(), 100_004);
        deframer.space()[..4].fill(0xff);
        deframer.filled(4);
        assert_eq!(deframer.take(), Some(Err(Unusable::TooLarge(u32::MAX as usize))));
        assert_eq!(deframer.space().len(), 100_004);
    }

    #[test]
    fn written_messages_read_back_unchanged() {
        for framing in
            [Framing::Lines, Framing::LinesCrlf, Framing::Length, Framing::LengthLe, Framing::Cobs, Framing::Slip]
        {
            let messages = ["one", "", "three"];
            let mut bytes = Vec::new();
            messages.iter().for_each(|m| framing.write(m.as_bytes(), &mut bytes).unwrap());
            // An empty message of SLIP is none.
            let messages: Vec<&str> =
                messages.into_iter().filter(|text| framing != Framing::Slip || !text.is_empty()).collect();
            assert_eq!(frames(framing, 5, &bytes, 3), messages, "{framing:?}");
        }
        // Every byte, and runs longer than COBS counts.
        let all: Vec<u8> = (0..=255).cycle().take(1000).chain([7; 600]).chain([0; 3]).collect();
        for framing in [Framing::Cobs, Framing::Slip] {
            let mut bytes = Vec::new();
            framing.write(&all, &mut bytes).unwrap();
            let mut deframer = Deframer::new(framing, all.len());
            deframer.space()[..bytes.len()].copy_from_slice(&bytes);
            deframer.filled(bytes.len());
            let found = deframer.take().unwrap().unwrap();
            assert_eq!(deframer.bytes(found), all, "{framing:?}");
        }
        for (framing, expected) in [(Framing::Lines, &b"a\n"[..]), (Framing::LinesCrlf, b"a\r\n")] {
            let mut bytes = Vec::new();
            framing.write(b"a", &mut bytes).unwrap();
            assert_eq!(bytes, expected);
            assert!(framing.write(b"a\nb", &mut Vec::new()).is_err());
        }
        for framing in [Framing::Raw, Framing::Fixed] {
            let mut bytes = Vec::new();
            framing.write(b"a\nb", &mut bytes).unwrap();
            assert_eq!(bytes, b"a\nb", "{framing:?}");
        }
    }
}
