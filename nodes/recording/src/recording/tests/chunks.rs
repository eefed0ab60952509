//! Chunks: compressed, damaged, large, and those that unpack to far more than they have.

use super::sequences;
use crate::recording::reader::{Progress, RecordingReader};
use mcap::records::op;
use std::io::Write;

/// A file with one chunk, compressed as told.
fn compressed(compression: &str, records: &[u8], data: &[u8], size: u64) -> Vec<u8> {
    let mut chunk = Vec::new();
    chunk.extend_from_slice(&[0; 16]);
    chunk.extend_from_slice(&size.to_le_bytes());
    chunk.extend_from_slice(&crc32fast::hash(records).to_le_bytes());
    chunk.extend_from_slice(&(compression.len() as u32).to_le_bytes());
    chunk.extend_from_slice(compression.as_bytes());
    chunk.extend_from_slice(&(data.len() as u64).to_le_bytes());
    chunk.extend_from_slice(data);
    let mut file = mcap::MAGIC.to_vec();
    file.push(op::CHUNK);
    file.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
    file.extend_from_slice(&chunk);
    file
}

/// The records of a channel and a message.
fn records() -> Vec<u8> {
    let record = |opcode: u8, fields: &[&[u8]]| {
        let fields = fields.concat();
        [&[opcode][..], &(fields.len() as u64).to_le_bytes(), &fields].concat()
    };
    let channel: [&[u8]; 5] = [&[1, 0, 0, 0], &[2, 0, 0, 0], b"/a", &[4, 0, 0, 0], b"json\0\0\0\0"];
    let message: [&[u8]; 4] = [&[1, 0], &[5, 0, 0, 0], &[0; 16], &[b'x'; 3000]];
    [record(op::CHANNEL, &channel), record(op::MESSAGE, &message)].concat()
}

#[test]
fn compressed_chunks_are_read_and_bombs_are_not() {
    let records = records();
    let size = records.len() as u64;
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(&records).unwrap();
    let lz4 = encoder.finish().unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&records[..], level);
    for (compression, data) in [("", &records), ("lz4", &lz4), ("zstd", &zstd)] {
        let file = compressed(compression, &records, data, size);
        assert_eq!(sequences(&file).0, [5], "{compression}");
        for (wrong, why) in [
            (compressed(compression, &records, data, size + 1), "bytes from a chunk, found"),
            (compressed(compression, &records, data, size - 1), "bytes from a chunk, found"),
            (compressed(compression, b"others", data, size), "checksum"),
            (compressed(compression, &records, data, 1 << 63), "bytes, got 9223372036854775808"),
            (compressed("gzip", &records, data, size), "or nothing, found `gzip`"),
        ] {
            let (found, unreadable) = sequences(&wrong);
            let (at, first) = unreadable.first.unwrap();
            assert!(found.is_empty() && at == 8 && first.contains(why), "{compression}: {first}");
        }
        // Damage anywhere is found, or does not matter.
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..3000 {
            let mut damaged = file.clone();
            let at = random.usize(8..damaged.len());
            damaged[at] ^= 1 << random.u8(..8);
            damaged.truncate(random.usize(8..=damaged.len()));
            sequences(&damaged);
        }
    }
    // 16 MiB of zeros in a few kilobytes, announced as 3000 bytes: no more than that is
    // decompressed.
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(&vec![0; 16 << 20]).unwrap();
    let bombs = [
        ("lz4", encoder.finish().unwrap()),
        ("zstd", ruzstd::encoding::compress_to_vec(&vec![0; 16 << 20][..], level)),
    ];
    for (compression, data) in bombs {
        let (found, unreadable) = sequences(&compressed(compression, &[], &data, 3000));
        let (_, why) = unreadable.first.unwrap();
        assert!(found.is_empty() && why.contains("expected 3000 bytes from a chunk, found 3001"), "{why}");
    }
}

/// A record of a type that nobody knows, without its content.
fn head(size: usize) -> Vec<u8> {
    [&[0x80][..], &(size as u64 - 9).to_le_bytes()].concat()
}

/// A chunk of zstd that unpacks to so many bytes, a record of zeros: blocks of one byte each that
/// is repeated 128 KiB times.
fn bomb(size: usize) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend_from_slice(&(size as u32).to_le_bytes());
    let head = head(size);
    frame.extend_from_slice(&((head.len() as u32) << 3).to_le_bytes()[..3]);
    frame.extend_from_slice(&head);
    let size = size - head.len();
    for at in (0..size).step_by(BLOCK) {
        let length = BLOCK.min(size - at);
        let header = (length as u32) << 3 | 1 << 1 | u32::from(at + length == size);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Promise (files): A recording is read in short calls, even if it is compressed or has
/// attachments.
///
/// A node leaves off after a few pieces, whatever it is that takes long: a chunk is read and
/// unpacked in pieces, attachments are passed over in pieces, and small records count.
#[test]
fn reading_goes_on_in_short_steps() {
    const SIZE: usize = 40 << 20;
    const MOST: u64 = 4 << 20;
    let mut zeros = head(SIZE);
    zeros.resize(SIZE, 0);
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(&zeros).unwrap();
    let plain =
        |opcode: u8, body: &[u8]| [mcap::MAGIC, &[opcode], &(body.len() as u64).to_le_bytes()[..], body].concat();
    let empty = [6, 0, 0, 0, 0, 0, 0, 0, 0].repeat(SIZE / 64);
    let cut = plain(op::CHUNK, &[&[0; 40][..], &zeros].concat());
    for (what, file) in [
        ("a chunk", compressed("", &zeros, &zeros, SIZE as u64)),
        ("an lz4 chunk", compressed("lz4", &zeros, &encoder.finish().unwrap(), SIZE as u64)),
        ("a zstd chunk", compressed("zstd", &zeros, &bomb(SIZE), SIZE as u64)),
        ("a chunk of empty records", compressed("", &empty, &empty, empty.len() as u64)),
        ("a chunk that is damaged", compressed("", b"other", &zeros, SIZE as u64)),
        ("a chunk that is cut", cut[..cut.len() - 1].to_vec()),
        ("an attachment", plain(op::ATTACHMENT, &zeros)),
    ] {
        let mut reader = RecordingReader::new(&file[..], file.len() as u64).unwrap();
        let mut calls = 1;
        while let Progress::NotYet = {
            let before = reader.work();
            let progress = reader.read_on(before + MOST).unwrap();
            // What goes beyond is a step's.
            assert!(reader.work() - before < MOST + (2 << 20), "{what}");
            progress
        } {
            calls += 1;
        }
        assert!(calls as u64 >= SIZE as u64 / (6 << 20), "{what}: {calls} calls");
    }
}

/// Promise (files): The data that a recording decompresses to is bounded.
#[test]
fn a_file_of_bombs_is_given_up() {
    let mut file = compressed("zstd", &[], &bomb(48 << 20), 48 << 20);
    let chunk = file[mcap::MAGIC.len()..].to_vec();
    (0..20).for_each(|_| file.extend_from_slice(&chunk));
    let mut reader = RecordingReader::new(&file[..], file.len() as u64).unwrap();
    assert!(reader.next_message().unwrap().is_none());
    assert!((64 << 20..66 << 20).contains(&reader.unpacked()), "{}", reader.unpacked());
    let unreadable = reader.unreadable();
    let (at, why) = unreadable.first.as_ref().unwrap();
    assert!(why.contains("more than 1000 times the size of the file"), "{why}");
    assert_eq!((*at, unreadable.bytes), (8 + chunk.len() as u64, (20 * chunk.len()) as u64));
}
