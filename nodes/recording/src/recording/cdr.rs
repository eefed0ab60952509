//! The Common Data Representation of ROS 2's messages: plain CDR in either byte order, written in
//! little-endian.
//!
//! The format: Object Management Group, *DDS-XTypes* 1.3, section 7.4.1. The crates that read it
//! through serde copy an image byte by byte.

/// Reads values from a message.
#[derive(Debug)]
pub(crate) struct CdrReader<'a> {
    /// The message behind its header: values are aligned from here.
    data: &'a [u8],
    at: usize,
    is_big: bool,
}

/// Why a message cannot be read.
pub(crate) const CUT: &str = "the message ends within a field";

macro_rules! numbers {
    ($($name:ident $type:ty),+) => {
        $(pub(crate) fn $name(&mut self) -> Result<$type, String> {
            let bytes = *self.take(size_of::<$type>(), size_of::<$type>())?.first_chunk().ok_or(CUT)?;
            Ok(if self.is_big { <$type>::from_be_bytes(bytes) } else { <$type>::from_le_bytes(bytes) })
        })+
    };
}

impl<'a> CdrReader<'a> {
    /// Begins behind the header of four bytes.
    pub(crate) fn new(message: &'a [u8]) -> Result<Self, String> {
        let (header, data) = message.split_first_chunk::<4>().ok_or(CUT)?;
        match (header[0], header[1]) {
            (0, is_little @ 0..=1) => Ok(CdrReader { data, at: 0, is_big: is_little == 0 }),
            (a, b) => Err(format!("expected plain CDR (0x00 0x00 or 0x00 0x01), found {a:#04x} {b:#04x}")),
        }
    }

    pub(crate) fn is_big_endian(&self) -> bool {
        self.is_big
    }

    fn take(&mut self, align: usize, length: usize) -> Result<&'a [u8], String> {
        let start = self.at.next_multiple_of(align);
        let end = start.checked_add(length).filter(|end| *end <= self.data.len()).ok_or(CUT)?;
        self.at = end;
        Ok(&self.data[start..end])
    }

    numbers!(u8 u8, i8 i8, u16 u16, u32 u32, i32 i32, u64 u64, f32 f32, f64 f64);

    /// Reads the length of a sequence of elements that take at least `size` bytes each.
    pub(crate) fn length(&mut self, size: usize) -> Result<usize, String> {
        let length = self.u32()? as usize;
        if length.saturating_mul(size) > self.data.len() - self.at {
            return Err(CUT.into());
        }
        Ok(length)
    }

    /// Reads a sequence of plain numbers of `size` bytes as they lie there.
    pub(crate) fn sequence(&mut self, size: usize) -> Result<&'a [u8], String> {
        self.records(size, 1)
    }

    /// Reads a sequence of records of `count` plain numbers of `size` bytes each, as they lie
    /// there.
    pub(crate) fn records(&mut self, size: usize, count: usize) -> Result<&'a [u8], String> {
        let length = self.length(size * count)?;
        if length == 0 { Ok(&[]) } else { self.take(size, length * size * count) }
    }

    /// Reads text without its final zero.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], String> {
        let length = self.length(1)?;
        let bytes = self.take(1, length)?;
        Ok(bytes.strip_suffix(&[0]).unwrap_or(bytes))
    }

    /// Reads numbers.
    pub(crate) fn doubles<const N: usize>(&mut self) -> Result<[f64; N], String> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Ok(values)
    }

    /// Reads `std_msgs/Header` and returns its stamp in ns since 1970; `None` if it is zero or
    /// before.
    pub(crate) fn header(&mut self) -> Result<Option<u64>, String> {
        let (seconds, nanos) = (self.i32()?, self.u32()?);
        self.text()?;
        let stamp = u64::try_from(seconds).ok().map(|seconds| seconds * 1_000_000_000 + u64::from(nanos));
        Ok(stamp.filter(|stamp| *stamp > 0))
    }
}

/// Writes a message in little-endian, appended to a buffer.
#[derive(Debug)]
pub(crate) struct CdrWriter<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> CdrWriter<'a> {
    /// Begins a message with its header.
    pub(crate) fn new(buffer: &'a mut Vec<u8>) -> Self {
        buffer.extend_from_slice(&[0, 1, 0, 0]);
        let start = buffer.len();
        CdrWriter { buffer, start }
    }

    fn align(&mut self, to: usize) {
        let written = self.buffer.len() - self.start;
        self.buffer.resize(self.start + written.next_multiple_of(to), 0);
    }

    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.align(N);
        self.buffer.extend_from_slice(&bytes);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }

    /// Writes a sequence of plain numbers of `size` bytes.
    pub(crate) fn sequence(&mut self, bytes: &[u8], size: usize) {
        self.sequence_place(bytes.len(), size);
        self.buffer.extend_from_slice(bytes);
    }

    /// As [`sequence`](CdrWriter::sequence), but leaves out its `length` bytes; returns where they
    /// belong. Only values that are not aligned to more than `size` may follow.
    pub(crate) fn sequence_place(&mut self, length: usize, size: usize) -> usize {
        self.u32((length / size) as u32);
        if length > 0 {
            self.align(size);
        }
        self.buffer.len()
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.u32(text.len() as u32 + 1);
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(0);
    }

    pub(crate) fn doubles(&mut self, values: &[f64]) {
        values.iter().for_each(|value| self.put(value.to_le_bytes()));
    }

    /// Writes `std_msgs/Header`.
    pub(crate) fn header(&mut self, stamp: u64, frame: &str) {
        let seconds = i32::try_from(stamp / 1_000_000_000).unwrap_or(i32::MAX);
        self.put(seconds.to_le_bytes());
        self.u32((stamp % 1_000_000_000) as u32);
        self.text(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_cut_message_is_refused() {
        let mut buffer = b"before".to_vec();
        let mut writer = CdrWriter::new(&mut buffer);
        writer.header(1_700_000_000_000_000_005, "cam");
        writer.put([9]);
        writer.doubles(&[1.5, -2.0]);
        writer.sequence(&[1, 0, 2, 0], 2);
        writer.text("");
        let message = &buffer[6..];
        let read = |message: &[u8]| -> Result<(), String> {
            let mut reader = CdrReader::new(message)?;
            assert_eq!(reader.header()?, Some(1_700_000_000_000_000_005));
            assert_eq!(reader.u8()?, 9);
            assert_eq!(reader.doubles::<2>()?, [1.5, -2.0]);
            assert_eq!(reader.sequence(2)?, [1, 0, 2, 0]);
            assert_eq!(reader.text()?, b"");
            Ok(())
        };
        read(message).unwrap();
        for cut in 0..message.len() {
            assert_eq!(read(&message[..cut]), Err(CUT.to_string()), "cut at {cut}");
        }
    }

    #[test]
    fn a_hostile_length_is_refused() {
        let message = [0, 1, 0, 0, 255, 255, 255, 255, 1, 2];
        assert_eq!(CdrReader::new(&message).unwrap().sequence(8), Err(CUT.into()));
        assert!(CdrReader::new(&[0, 7, 0, 0]).unwrap_err().contains("0x00 0x07"));
        let mut big = CdrReader::new(&[0, 0, 0, 0, 0, 0, 1, 2]).unwrap();
        assert_eq!(big.u32(), Ok(258));
    }
}
