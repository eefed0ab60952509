//! The rows of a comma-separated file, read without buffering a row that is too long.

use csv_core::{ReadRecordResult, Reader};
use limen::files::InputFile;
use std::io::{self, ErrorKind, Read as _, Seek, SeekFrom};
use std::ops::Range;

/// Bytes per read.
const INPUT: usize = 64 << 10;
/// Bytes of a row that is too long which are read at once: other nodes of the core wait meanwhile.
const AT_ONCE: u64 = if cfg!(test) { 1 << 17 } else { 4 << 20 };

/// The result of reading a row.
pub(super) enum RowRead {
    /// A row with this many fields.
    Row(usize),
    /// A row that is too long, with its bytes.
    TooLong(usize),
    /// A part of a row that is too long: the next call reads on.
    NotYet,
    End,
}

/// The rows of a file. A row longer than `max` is read to its end without being buffered.
#[derive(Debug)]
pub(super) struct CsvRows {
    pub(super) file: InputFile,
    parser: Reader,
    input: Box<[u8]>,
    /// The range of `input` that was read but not yet parsed.
    ahead: Range<usize>,
    /// The byte offset in the file up to which it was parsed.
    at: u64,
    /// The row's fields, one byte longer than a row may be.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// What was read of a row that is too long: its bytes in `fields`, its fields, its other bytes.
    begun: Option<(usize, usize, usize)>,
    /// The number of the line in which the row begins.
    pub(super) line: u64,
}

impl CsvRows {
    pub(super) fn new(file: InputFile, max: usize) -> Self {
        CsvRows {
            file,
            parser: Reader::new(),
            input: vec![0; INPUT].into_boxed_slice(),
            ahead: 0..0,
            at: 0,
            fields: vec![0; max + 1],
            ends: vec![0; 16],
            begun: None,
            line: 1,
        }
    }

    /// Reads the next row. Fields beyond the first `keep` are counted but not kept.
    pub(super) fn read(&mut self, keep: usize) -> io::Result<RowRead> {
        if self.begun.is_none() {
            self.line = self.parser.line();
        }
        let (mut filled, mut count, mut too_long) = self.begun.take().unwrap_or_default();
        let until = self.at + AT_ONCE;
        loop {
            if self.ahead.is_empty() {
                let n = self.file.read(&mut self.input).or_else(|error| match error.kind() {
                    ErrorKind::Interrupted => self.file.read(&mut self.input),
                    _ => Err(error),
                })?;
                self.ahead = 0..n;
            }
            if count == self.ends.len() && count < keep {
                self.ends.resize((2 * count).min(keep), 0);
            }
            // Fields that are not kept overwrite each other.
            let ends_at = if count < self.ends.len() { count } else { self.ends.len() - 1 };
            let (result, taken, put, ended) = self.parser.read_record(
                &self.input[self.ahead.clone()],
                &mut self.fields[filled..],
                &mut self.ends[ends_at..],
            );
            self.ahead.start += taken;
            self.at += taken as u64;
            filled += put;
            count += ended;
            if filled == self.fields.len() {
                too_long += filled;
                filled = 0;
            }
            match result {
                ReadRecordResult::Record if too_long > 0 => return Ok(RowRead::TooLong(too_long + filled)),
                ReadRecordResult::Record => return Ok(RowRead::Row(count)),
                ReadRecordResult::End => return Ok(RowRead::End),
                _ if too_long > 0 && self.at >= until => {
                    self.begun = Some((filled, count, too_long));
                    return Ok(RowRead::NotYet);
                }
                _ => {}
            }
        }
    }

    pub(super) fn field(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.fields[begin..self.ends[at]]
    }

    pub(super) fn rewind(&mut self, (at, line): (u64, u64)) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.parser.reset();
        self.parser.set_line(line);
        (self.ahead, self.at, self.begun) = (0..0, at, None);
        Ok(())
    }

    /// Returns the place of the next row, for [`CsvRows::rewind`].
    pub(super) fn place(&self) -> (u64, u64) {
        (self.at, self.parser.line())
    }

    /// Returns the most bytes that a row may have.
    pub(super) fn longest(&self) -> usize {
        self.fields.len() - 1
    }
}
