//! The end of a file that is appended to: an earlier run, or another program, may have left a
//! message unfinished.

use super::OutputFile;
use limen::node::NodeError;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

/// How a reader finds the end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageEnd {
    /// By the byte that follows it.
    Mark(u8),
    /// By the length before it, 4 bytes.
    Length {
        /// Whether the length is big-endian.
        is_big: bool,
    },
    /// By its size: all have so many bytes.
    Size(u64),
}

impl OutputFile {
    /// Makes sure that the next message of a file that is appended to begins where a reader expects
    /// one. After an unfinished message with a mark at its end the mark is written; another
    /// unfinished message is removed. The report says so.
    ///
    /// # Errors
    /// The file cannot be read, or its first message is unfinished, so that it may not be a file of
    /// such messages.
    pub fn resume(&mut self, end: MessageEnd) -> Result<(), NodeError> {
        if !self.continues {
            return Ok(());
        }
        let mut file = self.open_existing()?;
        let size = file.size();
        let whole = match end {
            MessageEnd::Mark(mark) => {
                let mut last = [0];
                let read = file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last));
                read.map_err(|error| self.write_error(error))?;
                if last[0] != mark {
                    self.push(&[mark]);
                    self.torn = Some(match mark {
                        b'\n' => "added the missing end of the last line".into(),
                        _ => "added the missing end of the last message".into(),
                    });
                }
                return Ok(());
            }
            MessageEnd::Length { is_big } => {
                let whole = whole_frames(BufReader::new(file), size, is_big);
                whole.map_err(|error| self.write_error(error))?
            }
            MessageEnd::Size(bytes) => size - size % bytes.max(1),
        };
        if whole == 0 {
            let what = match end {
                MessageEnd::Size(bytes) => format!("messages of {bytes} bytes"),
                _ => "messages with a length prefix".into(),
            };
            let why = format!("expected {what}, found an incomplete first message");
            return Err(NodeError::input(self.path.display().to_string(), why));
        }
        if whole < size {
            self.whole = Some(whole);
            self.torn = Some(format!("removed the incomplete last message ({} B)", size - whole));
        }
        Ok(())
    }
}

/// Returns the bytes of the messages that are whole, each after its length.
fn whole_frames(mut file: impl Read + Seek, size: u64, is_big: bool) -> std::io::Result<u64> {
    let mut whole = 0;
    loop {
        let mut length = [0; 4];
        match file.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(whole),
            Err(error) => return Err(error),
        }
        let length = if is_big { u32::from_be_bytes(length) } else { u32::from_le_bytes(length) };
        let end = whole + 4 + u64::from(length);
        if end > size {
            return Ok(whole);
        }
        file.seek_relative(length.into())?;
        whole = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::output_file::{Exists, FullDisk};
    use limen::Folders;

    #[test]
    fn a_message_begins_after_an_unfinished_one() {
        let (line, big, little) =
            (MessageEnd::Mark(b'\n'), MessageEnd::Length { is_big: true }, MessageEnd::Length { is_big: false });
        for (end, before, after, is_torn) in [
            (line, &b""[..], Some(&b"X"[..]), false),
            (line, b"a\n", Some(b"a\nX"), false),
            (line, b"a\nb", Some(b"a\nb\nX"), true),
            (MessageEnd::Mark(0xC0), b"a\xC0b", Some(b"a\xC0b\xC0X"), true),
            (big, b"\0\0\0\x01a", Some(b"\0\0\0\x01aX"), false),
            (big, b"\0\0\0\x01a\0\0\0\x02b", Some(b"\0\0\0\x01aX"), true),
            (big, b"\0\0\0\x01a\0\0", Some(b"\0\0\0\x01aX"), true),
            (little, b"\x01\0\0\0a\xFF\xFF\xFF\xFF", Some(b"\x01\0\0\0aX"), true),
            (big, b"some other file", None, false),
            (MessageEnd::Size(2), b"aabb", Some(b"aabbX"), false),
            (MessageEnd::Size(2), b"aabbc", Some(b"aabbX"), true),
            (MessageEnd::Size(8), b"aabbc", None, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let folders = Folders { graph: folder.path().into(), ..Folders::default() };
            let path = folder.path().join("f");
            std::fs::write(&path, before).unwrap();
            let mut file = OutputFile::open(&folders, "f", Exists::Append, FullDisk::default()).unwrap();
            let resumed = file.resume(end);
            assert_eq!(resumed.is_ok(), after.is_some(), "{before:?}");
            assert_eq!(std::fs::read(&path).unwrap(), before, "the file changes when the run writes");
            let Some(after) = after else { continue };
            file.write(b"X").unwrap();
            file.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), after);
            assert_eq!(file.torn.is_some(), is_torn, "{before:?}");
        }
    }
}
