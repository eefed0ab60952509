//! Checksums of files.

use limen::files::{InputFile, read_up_to};
use limen::unit::show_bytes;
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read};
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

/// What one thread reads while another hashes what it read before.
const PIECE: usize = 1 << 20;

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    digits(Sha256::new_with_prefix(bytes))
}

/// Returns the SHA-256 of all that a reader yields, read in pieces.
///
/// # Errors
/// The system's error.
pub fn sha256_of(mut from: &mut dyn Read) -> io::Result<String> {
    let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match read_up_to(&mut from, &mut piece)? {
            0 => return Ok(digits(sum)),
            read => sum.update(&piece[..read]),
        }
    }
}

fn digits(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares a file's SHA-256 with the expected one.
pub(crate) fn check_sum(found: &str, expected: &str) -> Result<(), String> {
    if expected.eq_ignore_ascii_case(found) {
        Ok(())
    } else {
        Err(format!("must have the SHA-256 {expected}, got {found}"))
    }
}

/// Reads a file from its start, at most `most` bytes, and returns its content and SHA-256. A second
/// thread hashes a large file while this one reads it: to hash 14 MB takes as long as to read them.
///
/// # Errors
/// The system's error; [`ErrorKind::FileTooLarge`] if there are more bytes.
pub(crate) fn read_and_sum(file: &mut InputFile, most: u64) -> io::Result<(Vec<u8>, String)> {
    let size = usize::try_from(file.size()).unwrap_or(usize::MAX);
    if size as u64 > most {
        let why = format!("the file must be at most {}, got {}", show_bytes(most), show_bytes(size as u64));
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    if size <= PIECE {
        let bytes = file.read_whole(most)?;
        let sum = sha256(&bytes);
        return Ok((bytes, sum));
    }
    let mut bytes = vec![0; size];
    let (read, mut sum) = thread::scope(|scope| -> io::Result<(usize, Sha256)> {
        let (pieces, given) = mpsc::sync_channel::<&[u8]>(size.div_ceil(PIECE));
        let hash = move || given.into_iter().fold(Sha256::new(), Sha256::chain_update);
        let hashing = thread::Builder::new().name("limen-checksum".into()).spawn_scoped(scope, hash)?;
        let mut read = 0;
        for piece in bytes.chunks_mut(PIECE) {
            let there = read_up_to(file, piece)?;
            read += there;
            // The thread takes all of them, and the channel has room for all.
            let _ = pieces.send(&piece[..there]);
        }
        drop(pieces);
        Ok((read, hashing.join().unwrap_or_else(|panic| resume_unwind(panic))))
    })?;
    // The file can have become shorter or longer since it was opened.
    bytes.truncate(read);
    let more = most.saturating_add(1).saturating_sub(read as u64);
    file.take(more).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("the file must be at most {}, got more", show_bytes(most));
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    sum.update(&bytes[read..]);
    Ok((bytes, digits(sum)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_read_as_it_is_and_summed_once_whatever_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7] {
            let content: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            let read = |most: u64| read_and_sum(&mut InputFile::open(&path).unwrap(), most);
            assert_eq!(read(size as u64).unwrap(), (content.clone(), sha256(&content)), "{size} bytes");
            assert_eq!(sha256_of(&mut &content[..]).unwrap(), sha256(&content), "{size} bytes");
            let too_large = size.checked_sub(1).map(|most| read(most as u64).unwrap_err().kind());
            assert!(too_large.is_none_or(|kind| kind == ErrorKind::FileTooLarge), "{size} bytes");

            // A file that grows after it was opened, and one that shrinks.
            let mut open = InputFile::open(&path).unwrap();
            std::fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
            let longer = [&content[..], b"more"].concat();
            assert_eq!(read_and_sum(&mut open, u64::MAX).unwrap(), (longer.clone(), sha256(&longer)), "{size} bytes");
            let mut open = InputFile::open(&path).unwrap();
            assert_eq!(read_and_sum(&mut open, size as u64).unwrap_err().kind(), ErrorKind::FileTooLarge);
            let mut open = InputFile::open(&path).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_len(size as u64 / 2).unwrap();
            let shorter = &content[..size / 2];
            assert_eq!(read_and_sum(&mut open, u64::MAX).unwrap(), (shorter.to_vec(), sha256(shorter)), "{size} bytes");
        }
    }
}
