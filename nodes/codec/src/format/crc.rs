//! Checksums behind messages.

use crc::{
    CRC_8_SMBUS, CRC_16_IBM_3740, CRC_16_IBM_SDLC, CRC_16_MODBUS, CRC_16_XMODEM, CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc,
};
use limen_nodes_core::format::field::Endian;
use limen_nodes_core::format::record::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Checksum at the end of a message: an algorithm, or `{ of: crc16_modbus, endian: big }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected crc8, crc16_ccitt, crc16_modbus, crc16_x25, crc16_xmodem, crc32, crc32c or `{ of: crc32, endian: big }`"
)]
pub enum Checksum {
    /// Checksum in the usual byte order of the algorithm.
    Plain(Algorithm),
    /// Checksum in another byte order.
    Ordered {
        /// Algorithm of the checksum.
        of: Algorithm,
        /// Byte order of the checksum.
        endian: Endian,
    },
}

/// Cyclic redundancy check, named after the catalogue of CRC algorithms by Greg Cook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// CRC-8/SMBUS.
    Crc8,
    /// CRC-16/IBM-3740, also called CCITT-FALSE; big-endian.
    Crc16Ccitt,
    /// CRC-16/MODBUS; little-endian.
    Crc16Modbus,
    /// CRC-16/IBM-SDLC, also called X-25; little-endian.
    Crc16X25,
    /// CRC-16/XMODEM; big-endian.
    Crc16Xmodem,
    /// CRC-32/ISO-HDLC, as in Ethernet and zlib; little-endian.
    Crc32,
    /// CRC-32/ISCSI, also called CRC-32C; little-endian.
    Crc32c,
}

static SMBUS: Crc<u8> = Crc::<u8>::new(&CRC_8_SMBUS);
static CCITT: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_3740);
static MODBUS: Crc<u16> = Crc::<u16>::new(&CRC_16_MODBUS);
static X25: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_SDLC);
static XMODEM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
static HDLC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static ISCSI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

impl Algorithm {
    fn bytes(self) -> usize {
        match self {
            Algorithm::Crc8 => 1,
            Algorithm::Crc16Ccitt | Algorithm::Crc16Modbus | Algorithm::Crc16X25 | Algorithm::Crc16Xmodem => 2,
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
        }
    }

    fn of(self, message: &[u8]) -> u32 {
        match self {
            Algorithm::Crc8 => SMBUS.checksum(message).into(),
            Algorithm::Crc16Ccitt => CCITT.checksum(message).into(),
            Algorithm::Crc16Modbus => MODBUS.checksum(message).into(),
            Algorithm::Crc16X25 => X25.checksum(message).into(),
            Algorithm::Crc16Xmodem => XMODEM.checksum(message).into(),
            Algorithm::Crc32 => HDLC.checksum(message),
            Algorithm::Crc32c => ISCSI.checksum(message),
        }
    }

    fn endian(self) -> Endian {
        match self {
            Algorithm::Crc16Ccitt | Algorithm::Crc16Xmodem => Endian::Big,
            _ => Endian::Little,
        }
    }
}

impl Checksum {
    fn parts(self) -> (Algorithm, Endian) {
        match self {
            Checksum::Plain(algorithm) => (algorithm, algorithm.endian()),
            Checksum::Ordered { of, endian } => (of, endian),
        }
    }

    /// How many bytes it has.
    pub(crate) fn bytes(self) -> usize {
        self.parts().0.bytes()
    }

    /// Returns a message without its checksum, which must be that of the message.
    pub(crate) fn strip(self, message: &[u8]) -> Result<&[u8], Fault> {
        let (algorithm, endian) = self.parts();
        let too_short = Fault::Length { found: message.len(), expected: algorithm.bytes(), least: true };
        let at = message.len().checked_sub(algorithm.bytes()).ok_or(too_short)?;
        let (message, checksum) = message.split_at(at);
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        let found = match endian {
            Endian::Big => checksum.iter().fold(0, add),
            Endian::Little => checksum.iter().rev().fold(0, add),
        };
        let expected = algorithm.of(message);
        if found == expected { Ok(message) } else { Err(Fault::Checksum { found, expected }) }
    }

    /// Writes the checksum of the first `len` bytes behind them, where there is room for it.
    pub(crate) fn append(self, message: &mut [u8], len: usize) {
        let (algorithm, endian) = self.parts();
        let (message, to) = message.split_at_mut(len);
        let mut bytes = algorithm.of(message).to_le_bytes();
        let bytes = &mut bytes[..algorithm.bytes()];
        if endian == Endian::Big {
            bytes.reverse();
        }
        to[..bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the catalogue: of the ASCII digits 1 to 9.
    #[test]
    fn checksums_are_those_of_the_catalogue() {
        for (algorithm, expected) in [
            (Algorithm::Crc8, &[0xf4][..]),
            (Algorithm::Crc16Ccitt, &[0x29, 0xb1]),
            (Algorithm::Crc16Modbus, &[0x37, 0x4b]),
            (Algorithm::Crc16X25, &[0x6e, 0x90]),
            (Algorithm::Crc16Xmodem, &[0x31, 0xc3]),
            (Algorithm::Crc32, &[0x26, 0x39, 0xf4, 0xcb]),
            (Algorithm::Crc32c, &[0x83, 0x92, 0x06, 0xe3]),
        ] {
            let plain = Checksum::Plain(algorithm);
            let endian = if algorithm.endian() == Endian::Big { Endian::Little } else { Endian::Big };
            let turned = Checksum::Ordered { of: algorithm, endian };
            let reversed: Vec<u8> = expected.iter().rev().copied().collect();
            for (checksum, expected) in [(plain, expected), (turned, &reversed[..])] {
                let mut message = [b"123456789", expected].concat();
                message[9..].fill(0);
                checksum.append(&mut message, 9);
                assert_eq!(message[9..], *expected, "{checksum:?}");
                assert_eq!(checksum.strip(&message), Ok(&b"123456789"[..]));
                message[4] ^= 1;
                assert!(matches!(checksum.strip(&message), Err(Fault::Checksum { .. })));
                assert!(matches!(checksum.strip(&[]), Err(Fault::Length { found: 0, .. })));
            }
        }
    }
}
