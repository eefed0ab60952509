//! Frames of a CAN bus as messages: the kernel's own layout, without what is behind the data.
//!
//! Four bytes of identifier, with flags in the highest three bits, in the machine's order; the
//! length of the data; flags of CAN FD; two bytes without a meaning; the data. The layout:
//! `linux/can.h`, `struct canfd_frame`.

use limen::node::PlanErrors;
use std::io::Write;

/// Bytes before the data.
pub(crate) const HEAD: usize = 8;
/// Bytes of the kernel's frames: classic and FD.
pub(crate) const CLASSIC: usize = 16;
pub(crate) const FD: usize = 72;
/// Flags in an identifier: 29 bits, a request, an error.
pub(crate) const EXTENDED: u32 = 1 << 31;
pub(crate) const REMOTE: u32 = 1 << 30;
pub(crate) const ERROR: u32 = 1 << 29;
/// The greatest identifiers of 11 and of 29 bits.
pub(crate) const STANDARD: u32 = 0x7ff;
pub(crate) const LONGEST: u32 = 0x1fff_ffff;

/// Returns the identifier of a frame with its flags.
pub(crate) fn identifier(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Returns the message of a frame that was read: the kernel's frame up to the end of its data.
/// `None` if it is none.
pub(crate) fn message(frame: &[u8]) -> Option<&[u8]> {
    if frame.len() != CLASSIC && frame.len() != FD {
        return None;
    }
    // A request has a length and no data.
    let length = if identifier(frame) & REMOTE != 0 { 0 } else { usize::from(frame[4]) };
    frame.get(..HEAD + length)
}

/// Checks a name of an interface.
pub(crate) fn check_interface(name: &str, errors: &mut PlanErrors) {
    if name.is_empty() || name.len() > 15 || name.contains(['/', '\0']) || name.chars().any(char::is_whitespace) {
        errors
            .at("interface", format!("`interface` must be the name of a network interface, got {name:?}"))
            .help("write a name that `ip link` lists, such as `can0`");
    }
}

/// The most identifiers; the kernel allows 512 filters.
const MAX_IDS: usize = 512;

/// Checks the identifiers to choose.
pub(crate) fn check_ids(ids: &[u32], errors: &mut PlanErrors) {
    if ids.len() > MAX_IDS {
        errors
            .at("ids", format!("`ids` must have at most {MAX_IDS} entries, got {}", ids.len()))
            .help("remove `ids`, and select frames downstream of this node");
    }
    if let Some(id) = ids.iter().find(|id| **id > LONGEST) {
        errors
            .at("ids", format!("an identifier must have at most 29 bits, got {id:#x}"))
            .help("write an identifier without flag bits, such as 0x1abcdef0");
    }
}

/// The bit of the flags of CAN FD that marks a frame of it.
const IS_FD: u8 = 4;

/// A line of a log: its stamp in ns, its interface, the kernel's frame and how many bytes that has.
pub(crate) type Logged<'a> = (u64, &'a str, [u8; FD], usize);

/// Returns the stamp in ns of a text such as `1436509052.249713`.
fn parse_stamp(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !seconds.is_empty() && seconds.bytes().chain(fraction.bytes()).all(|c| c.is_ascii_digit());
    if !is_number || fraction.len() > 9 {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Reads hexadecimal digits, two for each byte; returns how many bytes.
fn parse_hex(text: &str, into: &mut [u8]) -> Option<usize> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > into.len() {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16);
    for (pair, into) in digits.chunks(2).zip(into) {
        *into = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(digits.len() / 2)
}

/// Returns the identifier of a frame in a log, with its flags.
fn parse_id(text: &str) -> Result<u32, &'static str> {
    let is_long = text.len() == 8;
    let mut bytes = [0; 4];
    let digits = if is_long { text.to_string() } else { format!("00000{text}") };
    if !is_long && text.len() != 3 || parse_hex(&digits, &mut bytes).is_none() {
        return Err("expected an identifier of 3 or 8 hexadecimal digits");
    }
    match u32::from_be_bytes(bytes) {
        id if is_long && id & ERROR != 0 && id <= ERROR | LONGEST => Ok(id),
        id @ ..=STANDARD if !is_long => Ok(id),
        id @ ..=LONGEST if is_long => Ok(id | EXTENDED),
        _ => Err("expected an identifier of at most 11 bits in 3 digits, or 29 bits in 8 digits"),
    }
}

/// Reads a line of a log as `candump -L` writes it, `(1436509052.249713) can0 123#11223344`; `None`
/// if it is empty.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_log(line: &str) -> Result<Option<Logged<'_>>, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let Some(stamp) = words.next() else { return Ok(None) };
    let stamp = stamp.strip_prefix('(').and_then(|stamp| stamp.strip_suffix(')')).and_then(parse_stamp);
    let stamp = stamp.ok_or("expected a time at the beginning, such as (1436509052.249713)")?;
    let (Some(interface), Some(text)) = (words.next(), words.next()) else {
        return Err("expected an interface and a frame after the time");
    };
    // candump adds the direction with `-x`.
    if words.any(|word| !matches!(word, "R" | "T")) {
        return Err("expected `R`, `T` or the end of the line after the frame");
    }
    let (id, rest) = text.split_once('#').ok_or("expected `#` after the identifier")?;
    let mut id = parse_id(id)?;
    let mut frame = [0; FD];
    let wrong = "expected data as pairs of hexadecimal digits, of a valid frame length";
    let size = if let Some(rest) = rest.strip_prefix('#') {
        let flags = rest.chars().next().and_then(|flags| flags.to_digit(16));
        let flags = flags.ok_or("expected a hexadecimal digit for the flags")? as u8;
        let length = parse_hex(&rest[1..], &mut frame[HEAD..]).filter(|length| LENGTHS.contains(length));
        let length = length.ok_or(wrong)?;
        frame[4] = length as u8;
        // A short frame without flags would be a classic one.
        frame[5] = if flags == 0 && length <= 8 { IS_FD } else { flags };
        FD
    } else if let Some(length) = rest.strip_prefix('R') {
        let length = if length.is_empty() { Some(0) } else { length.parse().ok().filter(|length| *length <= 8) };
        frame[4] = length.ok_or("expected a length of 0 to 8 after `R`")?;
        id |= REMOTE;
        CLASSIC
    } else {
        // Behind `_` is a length code above 8, which stands for 8 bytes.
        let data = rest.split_once('_').map_or(rest, |(data, _)| data);
        frame[4] = parse_hex(data, &mut frame[HEAD..CLASSIC]).ok_or(wrong)? as u8;
        CLASSIC
    };
    frame[..4].copy_from_slice(&id.to_ne_bytes());
    Ok(Some((stamp, interface, frame, size)))
}

/// Appends a message as a line of a log.
///
/// # Errors
/// Why it is not a frame.
pub(crate) fn write_log(message: &[u8], stamp: u64, interface: &str, line: &mut Vec<u8>) -> Result<(), String> {
    let is_fd = message.len() > CLASSIC || message.get(5).is_some_and(|flags| *flags != 0);
    let (frame, _) = frame(message, is_fd)?;
    let id = identifier(&frame);
    if id & REMOTE != 0 && (is_fd || frame[4] > 8) {
        let got = if is_fd { "a CAN FD frame".to_string() } else { format!("{} bytes", frame[4]) };
        return Err(format!("a remote request must be a classic frame of at most 8 bytes, got {got}"));
    }
    let (seconds, micros) = (stamp / 1_000_000_000, stamp % 1_000_000_000 / 1_000);
    // Writing to memory cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| _ = line.write_fmt(text);
    put(format_args!("({seconds:010}.{micros:06}) {interface} "));
    match id {
        _ if id & ERROR != 0 => put(format_args!("{:08X}#", id & (ERROR | LONGEST))),
        _ if id & EXTENDED != 0 => put(format_args!("{:08X}#", id & LONGEST)),
        _ => put(format_args!("{:03X}#", id & STANDARD)),
    }
    if is_fd {
        put(format_args!("#{:X}", frame[5] & 15));
    }
    match frame[4] {
        0 if id & REMOTE != 0 => put(format_args!("R")),
        length if id & REMOTE != 0 => put(format_args!("R{length}")),
        length => frame[HEAD..][..usize::from(length)].iter().for_each(|byte| put(format_args!("{byte:02X}"))),
    }
    line.push(b'\n');
    Ok(())
}

/// Lengths of the data of a frame of CAN FD.
const LENGTHS: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64];

/// Makes the kernel's frame of a message; returns it and how many bytes of it are to be sent. Data
/// of FD that does not have one of its lengths is filled up with zeros.
pub(crate) fn frame(message: &[u8], is_fd: bool) -> Result<([u8; FD], usize), String> {
    let data = message
        .len()
        .checked_sub(HEAD)
        .ok_or_else(|| format!("expected a frame of at least {HEAD} bytes, found {}", message.len()))?;
    let most = if is_fd { 64 } else { 8 };
    let Some(length) = LENGTHS.into_iter().find(|length| *length >= data && *length <= most) else {
        return Err(format!("expected at most {most} bytes of data, found {data}"));
    };
    let id = identifier(message);
    if id & EXTENDED == 0 && id & !(REMOTE | ERROR) > STANDARD {
        return Err(format!(
            "expected an identifier of at most 11 bits, found {:#x}: set bit 31 for an identifier of 29 bits",
            id & !(REMOTE | ERROR)
        ));
    }
    let mut frame = [0; FD];
    frame[..message.len()].copy_from_slice(message);
    if id & REMOTE == 0 {
        frame[4] = length as u8;
    }
    Ok((frame, if is_fd { FD } else { CLASSIC }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: u32, length: u8, data: &[u8]) -> Vec<u8> {
        [&id.to_ne_bytes()[..], &[length, 0, 0, 0], data].concat()
    }

    #[test]
    fn a_message_is_the_frame_up_to_its_data() {
        let mut classic = with(0x123, 3, &[1, 2, 3, 9, 9, 9, 9, 9]);
        assert_eq!(message(&classic), Some(&with(0x123, 3, &[1, 2, 3])[..]));
        classic[4] = 9;
        assert_eq!(message(&classic), None);
        assert_eq!(message(&classic[..15]), None);
        let request = with(0x123 | REMOTE, 8, &[0; 8]);
        assert_eq!(message(&request), Some(&request[..8]));
    }

    /// The lines are of can-utils.
    #[test]
    fn a_log_is_read_and_written_as_candump_does() {
        let read = |line: &str| {
            parse_log(line).unwrap().map(|(stamp, name, frame, size)| (stamp, name.to_string(), frame, size))
        };
        let written = |line: &str| {
            let (stamp, interface, frame, size) = read(line).unwrap();
            let mut written = Vec::new();
            write_log(message(&frame[..size]).unwrap(), stamp, &interface, &mut written).unwrap();
            String::from_utf8(written).unwrap()
        };
        for (line, id, length, data) in [
            ("(1436509052.249713) vcan0 044#2A366C2BBA", 0x44, 16, &b"\x2a\x36\x6c\x2b\xba"[..]),
            ("(0000000000.000000) can0 123#", 0x123, 16, b""),
            ("(1436509052.650094) slcan0 18FEF100#01020304", 0x18fe_f100 | EXTENDED, 16, b"\x01\x02\x03\x04"),
            ("(1436509052.650094) can0 123#R", 0x123 | REMOTE, 16, b""),
            ("(1436509052.650094) can0 00000123#R8", 0x123 | EXTENDED | REMOTE, 16, b""),
            (
                "(1436509052.650094) can0 213##1000102030405060708090A0B",
                0x213,
                72,
                b"\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b",
            ),
            ("(1436509052.650094) can0 213##5", 0x213, 72, b""),
            ("(1436509052.650094) can0 20000004#0004000000000000", 4 | ERROR, 16, b"\0\x04\0\0\0\0\0\0"),
        ] {
            let (_, _, frame, size) = read(line).unwrap();
            assert_eq!((identifier(&frame), size), (id, length), "{line}");
            assert_eq!(&message(&frame[..size]).unwrap()[HEAD..], data, "{line}");
            assert_eq!(written(line), format!("{line}\n"));
        }
        // Others write it in other ways.
        for (line, same) in [
            ("(1.5) can0 123#11 T", "(0000000001.500000) can0 123#11\n"),
            ("(1.123456789) can0 123#aB", "(0000000001.123456) can0 123#AB\n"),
            ("(1) can0 123#1122334455667788_B R", "(0000000001.000000) can0 123#1122334455667788\n"),
            ("(1.0) can0 123##0AA", "(0000000001.000000) can0 123##4AA\n"),
        ] {
            assert_eq!(written(line), same);
        }
        for (line, why) in [
            ("1.5 can0 123#11", "expected a time"),
            ("(nan) can0 123#11", "expected a time"),
            ("(1.1234567890) can0 123#11", "expected a time"),
            ("(99999999999999999999.0) can0 123#11", "expected a time"),
            ("(-1.5) can0 123#11", "expected a time"),
            ("(1.5) can0", "an interface and a frame"),
            ("(1.5) can0 123#11 22", "after the frame"),
            ("(1.5) can0 12311", "expected `#`"),
            ("(1.5) can0 1234#11", "3 or 8"),
            ("(1.5) can0 +23#11", "3 or 8"),
            ("(1.5) can0 é1#11", "3 or 8"),
            ("(1.5) can0 800#11", "at most 11 bits"),
            ("(1.5) can0 4FFFFFFF#11", "at most 11 bits"),
            ("(1.5) can0 123#1", "pairs"),
            ("(1.5) can0 123#1g", "pairs"),
            ("(1.5) can0 123#112233445566778899", "pairs"),
            ("(1.5) can0 123##1112233445566778899", "pairs"),
            ("(1.5) can0 123##", "flags"),
            ("(1.5) can0 123##é1", "flags"),
            ("(1.5) can0 123#R9", "0 to 8"),
        ] {
            assert!(parse_log(line).is_err_and(|error| error.contains(why)), "{line}: {:?}", parse_log(line));
        }
        assert_eq!(parse_log("  "), Ok(None));
        for request in [with(0x123 | REMOTE, 200, &[]), [&(0x123 | REMOTE).to_ne_bytes()[..], &[8, 4, 0, 0]].concat()] {
            assert!(write_log(&request, 0, "can0", &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn frames_are_those_of_the_bus() {
        for (id, data, is_fd, expected) in [
            (0x123, 3, false, Ok((3, 16))),
            (0x123, 8, false, Ok((8, 16))),
            (0x123, 9, false, Err("bytes of data, found 9")),
            (0x123, 9, true, Ok((12, 72))),
            (0x123, 64, true, Ok((64, 72))),
            (0x123, 65, true, Err("bytes of data, found 65")),
            (0x800, 1, false, Err("at most 11 bits, found 0x800")),
            (0x800 | EXTENDED, 1, false, Ok((1, 16))),
        ] {
            let made = frame(&with(id, 0, &vec![7; data]), is_fd);
            match (made, expected) {
                (Ok((bytes, size)), Ok((length, of))) => {
                    assert_eq!((usize::from(bytes[4]), size), (length, of));
                    assert_eq!(message(&bytes[..size]).unwrap()[HEAD..HEAD + data], vec![7; data]);
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (made, _) => panic!("{id:#x} {data}: {made:?}"),
            }
        }
        assert!(frame(&[1, 2, 3], false).unwrap_err().contains("found 3"));
    }
}
