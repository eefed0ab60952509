//! Reading a file's bytes from the front. No length of the file is trusted: what is read lies in
//! the file.

/// The bytes that are still to be read.
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        ByteReader { bytes, at: 0 }
    }

    /// The place of the next byte in the file.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Reads so many bytes.
    ///
    /// # Errors
    /// A message that continues "the file …", if fewer are left.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(format!("is truncated: expected {count} bytes at {}, found {}", self.at, self.left()));
        };
        self.at += taken.len();
        Ok(taken)
    }

    /// Reads the bytes of a number.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads up to the end of a line, without it.
    pub(super) fn line(&mut self) -> Result<&'a [u8], String> {
        let end = self.bytes[self.at..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else { return Err(format!("is truncated: expected a line at {}, found none", self.at)) };
        let line = self.take(end as u64)?;
        self.at += 1;
        Ok(line)
    }
}
