//! Frames of a CAN bus as messages: the kernel's own layout, without what is behind the data.
//!
//! Four bytes of identifier, with flags in the highest three bits, in the machine's order; the length of the data; flags of CAN FD; two
//! bytes without a meaning; the data. The layout: `linux/can.h`, `struct canfd_frame`.

use limen::node::PlanErrors;

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
/// The bit of an error that says that the controller left the bus.
pub(crate) const BUS_OFF: u32 = 0x40;

/// Returns the identifier of a frame with its flags.
pub(crate) fn identifier(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Returns the message of a frame that was read: the kernel's frame up to the end of its data. `None` if it is none.
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
            .at("interface", "it is not the name of an interface")
            .help("write a name such as `can0`; `ip link` lists them");
    }
}

/// Lengths of the data of a frame of CAN FD.
const LENGTHS: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64];

/// Makes the kernel's frame of a message; returns it and how many bytes of it are to be sent. Data of FD that does not have one of its
/// lengths is filled up with zeros.
pub(crate) fn frame(message: &[u8], is_fd: bool) -> Result<([u8; FD], usize), String> {
    let data = message
        .len()
        .checked_sub(HEAD)
        .ok_or_else(|| format!("it has {} bytes, a frame at least {HEAD}", message.len()))?;
    let most = if is_fd { 64 } else { 8 };
    let Some(length) = LENGTHS.into_iter().find(|length| *length >= data && *length <= most) else {
        return Err(format!("it has {data} bytes of data, a frame at most {most}"));
    };
    let id = identifier(message);
    if id & EXTENDED == 0 && id & !(REMOTE | ERROR) > STANDARD {
        return Err(format!(
            "the identifier {:#x} has more than 11 bits; set bit 31 for one of 29",
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

    #[test]
    fn frames_are_those_of_the_bus() {
        for (id, data, is_fd, expected) in [
            (0x123, 3, false, Ok((3, 16))),
            (0x123, 8, false, Ok((8, 16))),
            (0x123, 9, false, Err("9 bytes of data")),
            (0x123, 9, true, Ok((12, 72))),
            (0x123, 64, true, Ok((64, 72))),
            (0x123, 65, true, Err("65 bytes of data")),
            (0x800, 1, false, Err("0x800 has more than 11 bits")),
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
        assert!(frame(&[1, 2, 3], false).unwrap_err().contains("3 bytes"));
    }
}
