//! Whether the scans of a JPEG file are whole, which its decoder does not say: it fills what is
//! missing with grey.
//!
//! Scans are read symbol by symbol, without the values of coefficients: a scan must have as many
//! blocks as the image.

use std::ops::RangeInclusive;

/// How many bytes may follow the last block of a scan, for encoders that pad.
const MOST_PADDING: usize = 1;

/// A file without an end marker.
const CUT: &str = "the file is truncated: the end marker is missing";

/// Checks that a file has all parts of its scans, and an end marker.
///
/// # Errors
/// What is missing.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut coding = Coding::default();
    let mut at = 2;
    let mut has_scan = false;
    // Which coefficients of each block of each component are not 0, by what progressive scans have
    // said so far.
    let mut nonzero: [Vec<u64>; 4] = Default::default();
    loop {
        // Decoders pass over bytes between segments.
        at += bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xFF)).ok_or(CUT)?;
        let marker = *bytes.get(at + 1).ok_or(CUT)?;
        match marker {
            0xFF => at += 1,
            0xD9 if has_scan => return Ok(()),
            // Markers without a length, and bytes that are none.
            0x00 | 0x01 | 0xD0..=0xD9 => at += 2,
            _ => {
                let length = bytes.get(at + 2..at + 4).ok_or(CUT)?;
                let end = at + 2 + usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
                let segment = bytes.get(at + 4..end).ok_or(CUT)?;
                at = end;
                match marker {
                    0xC0..=0xC2 => coding.read_frame(segment, marker).ok_or("the JPEG frame header is too short")?,
                    0xC4 => coding.read_tables(segment).ok_or("a Huffman table is malformed")?,
                    0xDD => coding.interval = segment.first_chunk().map_or(0, |n| u16::from_be_bytes(*n).into()),
                    0xDA => {
                        has_scan = true;
                        let (parts, next) = parts(bytes, at)?;
                        coding.check_scan(segment, &parts, &mut nonzero)?;
                        at = next;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the entropy-coded data of a scan between its restart markers, and where its next other
/// marker is.
fn parts(bytes: &[u8], mut at: usize) -> Result<(Vec<&[u8]>, usize), String> {
    let (mut parts, mut begin) = (Vec::new(), at);
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xFF)) {
        at += next;
        match bytes.get(at + 1) {
            Some(0x00) => at += 2,
            Some(0xFF) => at += 1,
            Some(marker) => {
                // Any number of fill bytes may precede a marker. Data does not end with one: there
                // a zero follows each.
                let fill = bytes[begin..at].iter().rev().take_while(|byte| **byte == 0xFF).count();
                parts.push(&bytes[begin..at - fill]);
                if !matches!(marker, 0xD0..=0xD7) {
                    return Ok((parts, at));
                }
                let expected = (parts.len() - 1) % 8;
                let found = usize::from(marker - 0xD0);
                if found != expected {
                    return Err(format!("expected restart marker {expected}, found {found}"));
                }
                at += 2;
                begin = at;
            }
            None => break,
        }
    }
    Err(CUT.into())
}

/// A component of the image.
#[derive(Debug, Clone, Copy)]
struct Component {
    id: u8,
    /// Its blocks in an MCU, across and down.
    across: usize,
    down: usize,
}

/// What a scan needs of the segments before it.
#[derive(Debug, Default)]
struct Coding {
    width: usize,
    height: usize,
    components: Vec<Component>,
    is_progressive: bool,
    /// The MCUs between two restart markers; 0 without restarts.
    interval: usize,
    /// The Huffman tables for DC and AC.
    tables: [[Option<Box<HuffmanTable>>; 4]; 2],
}

impl Coding {
    fn read_frame(&mut self, segment: &[u8], marker: u8) -> Option<()> {
        let [_, h0, h1, w0, w1, count, rest @ ..] = segment else { return None };
        (self.height, self.width) = (u16::from_be_bytes([*h0, *h1]).into(), u16::from_be_bytes([*w0, *w1]).into());
        let component = |part: &[u8]| {
            let (across, down) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            Component { id: part[0], across: across.clamp(1, 4), down: down.clamp(1, 4) }
        };
        self.components = rest.chunks_exact(3).take((*count).into()).map(component).collect();
        self.is_progressive = marker == 0xC2;
        Some(())
    }

    fn read_tables(&mut self, mut segment: &[u8]) -> Option<()> {
        while let [which, rest @ ..] = segment {
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let (values, rest) = rest.split_at_checked(counts.iter().map(|n| usize::from(*n)).sum())?;
            *self.tables.get_mut(usize::from(which >> 4))?.get_mut(usize::from(which & 15))? =
                Some(Box::new(HuffmanTable::new(counts, values)?));
            segment = rest;
        }
        Some(())
    }

    /// Checks the parts of a scan, of which `header` says what it has. What the decoder refuses, or
    /// reads with tables of its own, is not checked.
    fn check_scan(&self, header: &[u8], parts: &[&[u8]], nonzero: &mut [Vec<u64>; 4]) -> Result<(), String> {
        let Some(Scan { blocks, mcus, band }) = self.scan(header).filter(|_| self.height > 0) else { return Ok(()) };
        let interval = if self.interval > 0 { self.interval } else { mcus };
        let expected = mcus.div_ceil(interval.max(1));
        if parts.len() != expected {
            return Err(format!(
                "expected {1} restart markers, found {0}",
                parts.len() - 1,
                expected.saturating_sub(1)
            ));
        }
        for (i, part) in parts.iter().enumerate() {
            let mut bits = Bits::new(part);
            let of_part = i * interval..mcus.min((i + 1) * interval);
            let is_whole = match (&band, &blocks[..]) {
                (Band::All, blocks) => {
                    of_part.clone().all(|_| blocks.iter().all(|block| bits.skip_block(block.dc, block.ac).is_some()))
                }
                (Band::Dc { is_first: true }, blocks) => {
                    of_part.clone().all(|_| blocks.iter().all(|block| bits.skip_dc(block.dc).is_some()))
                }
                (Band::Dc { is_first: false }, blocks) => bits.skip_many(of_part.len() * blocks.len()).is_some(),
                (Band::Ac { range, is_first }, [block]) => {
                    let known = &mut nonzero[block.component];
                    known.resize(mcus, 0);
                    let mut run = 0;
                    let mut skip = |known| bits.skip_band(block.ac, range.clone(), *is_first, &mut run, known);
                    known[of_part].iter_mut().all(|known| skip(known).is_some()) && run == 0
                }
                // Only scans of one component have other coefficients than the first.
                (Band::Ac { .. }, _) => false,
            };
            if !is_whole {
                return Err("the image data is damaged".into());
            }
            if bits.left() > MOST_PADDING {
                return Err(format!("the image data is damaged: {} bytes follow the image", bits.left()));
            }
        }
        Ok(())
    }

    /// Returns what a scan has.
    fn scan(&self, header: &[u8]) -> Option<Scan<'_>> {
        let (count, rest) = header.split_first()?;
        let (parts, rest) = rest.split_at_checked(2 * usize::from(*count))?;
        let band = match *rest {
            [0, _, bits, ..] if self.is_progressive => Band::Dc { is_first: bits >> 4 == 0 },
            [first, last @ 0..=63, bits, ..] if self.is_progressive => {
                Band::Ac { range: first.into()..=last.into(), is_first: bits >> 4 == 0 }
            }
            _ if self.is_progressive => return None,
            _ => Band::All,
        };
        let (across, down) = self.components.iter().fold((1, 1), |(a, d), c| (a.max(c.across), d.max(c.down)));
        let mut blocks = Vec::new();
        let mut mcus = self.width.div_ceil(8 * across) * self.height.div_ceil(8 * down);
        for part in parts.chunks_exact(2) {
            let at = self.components.iter().position(|component| component.id == part[0]).filter(|at| *at < 4)?;
            let component = self.components[at];
            let table = |class: usize, at: u8| self.tables[class].get(usize::from(at))?.as_deref();
            let (dc, ac) = (table(0, part[1] >> 4), table(1, part[1] & 15));
            let is_complete = match band {
                Band::All => dc.is_some() && ac.is_some(),
                Band::Dc { is_first } => dc.is_some() || !is_first,
                Band::Ac { .. } => ac.is_some(),
            };
            let mut times = component.across * component.down;
            if *count == 1 {
                // An MCU of a scan of one component is a block, and there are as many as its
                // samples need.
                let length = |side: usize, own: usize, most: usize| (side * own).div_ceil(most).div_ceil(8);
                mcus = length(self.width, component.across, across) * length(self.height, component.down, down);
                times = 1;
            }
            let either = dc.or(ac).filter(|_| is_complete)?;
            let block = Block { component: at, dc: dc.unwrap_or(either), ac: ac.unwrap_or(either) };
            blocks.extend(std::iter::repeat_n(block, times));
        }
        Some(Scan { blocks, mcus, band })
    }
}

/// What a scan has of each block.
#[derive(Debug, Clone)]
enum Band {
    /// All coefficients, as in baseline files.
    All,
    /// The upper bits of the first coefficient, or another bit.
    Dc { is_first: bool },
    /// The same of other coefficients.
    Ac { range: RangeInclusive<u32>, is_first: bool },
}

/// A block of an MCU.
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    component: usize,
    dc: &'a HuffmanTable,
    ac: &'a HuffmanTable,
}

#[derive(Debug)]
struct Scan<'a> {
    /// The blocks of an MCU.
    blocks: Vec<Block<'a>>,
    mcus: usize,
    band: Band,
}

#[derive(Debug)]
struct HuffmanTable {
    /// The length and the symbol of each code of up to 8 bits, by the 8 bits that begin with it; of
    /// length 0 without one.
    short: [(u8, u8); 256],
    /// Of each length: the first code beyond it, and what to add to a code for the number of its
    /// symbol.
    long: [(i32, i32); 17],
    values: Vec<u8>,
    /// By the next 10 bits: the bits of a code for AC with those of its coefficient, 0 if the code
    /// is longer, and the coefficients up to there.
    steps: [(u8, u8); 1024],
}

/// Coefficients of the code that ends a block.
const END: u8 = 128;

/// Returns the bits after a code for AC, and its coefficients.
fn step(symbol: u8) -> (u8, u8) {
    match (symbol >> 4, symbol & 15) {
        (15, 0) => (0, 16),
        (_, 0) => (0, END),
        (zeros, bits) => (bits, zeros + 1),
    }
}

impl HuffmanTable {
    fn new(counts: &[u8; 16], values: &[u8]) -> Option<HuffmanTable> {
        let (long, steps) = ([(0, 0); 17], [(0, 0); 1024]);
        let mut table = HuffmanTable { short: [(0, 0); 256], long, values: values.to_vec(), steps };
        let (mut code, mut number) = (0i32, 0i32);
        for (length, count) in (1..).zip(counts) {
            table.long[length] = (code + i32::from(*count), number - code);
            for _ in 0..*count {
                if length <= 10 {
                    let (bits, advance) = step(values[number as usize]);
                    let begin = (code as usize) << (10 - length);
                    let steps = table.steps.get_mut(begin..begin + (1 << (10 - length)))?;
                    steps.fill((length as u8 + bits, advance));
                }
                if length <= 8 {
                    let begin = (code as usize) << (8 - length);
                    let codes = table.short.get_mut(begin..begin + (1 << (8 - length)))?;
                    codes.fill((length as u8, values[number as usize]));
                }
                (code, number) = (code + 1, number + 1);
            }
            code <<= 1;
        }
        Some(table)
    }
}

/// The bits of a part of a scan.
struct Bits<'a> {
    data: &'a [u8],
    /// The next bits, from the highest, and how many there are: at least 32 after `fill`, or all.
    ahead: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(data: &'a [u8]) -> Self {
        Bits { data, ahead: 0, count: 0 }
    }

    fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some((four, rest)) = self.data.split_first_chunk()
            && !four.contains(&0xFF)
        {
            self.ahead |= u64::from(u32::from_be_bytes(*four)) << (32 - self.count);
            self.count += 32;
            self.data = rest;
            return;
        }
        while self.count <= 56
            && let [byte, rest @ ..] = self.data
        {
            // A zero after FF belongs to it.
            self.data = if *byte == 0xFF && rest.first() == Some(&0) { &rest[1..] } else { rest };
            self.ahead |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The whole bytes that were not read.
    fn left(&self) -> usize {
        self.data.len() + self.count as usize / 8
    }

    fn skip(&mut self, bits: u32) -> Option<()> {
        self.count = self.count.checked_sub(bits)?;
        self.ahead <<= bits;
        Some(())
    }

    fn symbol(&mut self, table: &HuffmanTable) -> Option<u8> {
        self.fill();
        let (length, symbol) = table.short[(self.ahead >> 56) as usize];
        if length > 0 {
            return self.skip(length.into()).map(|()| symbol);
        }
        let next = (self.ahead >> 48) as i32;
        let length = (9..=16).find(|length| (next >> (16 - length)) < table.long[*length].0)?;
        self.skip(length as u32)?;
        table.values.get(((next >> (16 - length)) + table.long[length].1) as usize).copied()
    }

    fn skip_many(&mut self, mut bits: usize) -> Option<()> {
        while bits > 0 {
            self.fill();
            let now = bits.min(32);
            self.skip(now as u32)?;
            bits -= now;
        }
        Some(())
    }

    /// Reads the code of a first coefficient; `None` if it is not in its table, or if there are too
    /// few bits.
    fn skip_dc(&mut self, dc: &HuffmanTable) -> Option<()> {
        let bits = self.symbol(dc)?;
        self.skip(u32::from(bits).min(16))
    }

    /// Reads the codes that a progressive scan has of a block. `run` is how many blocks follow that
    /// have none, from this one on.
    fn skip_band(
        &mut self,
        ac: &HuffmanTable,
        range: RangeInclusive<u32>,
        is_first: bool,
        run: &mut u32,
        nonzero: &mut u64,
    ) -> Option<()> {
        // Later scans have a bit for each coefficient that is known not to be 0.
        let known = if is_first { 0 } else { *nonzero };
        let (mut at, last) = range.into_inner();
        while *run == 0 && at <= last {
            let symbol = self.symbol(ac)?;
            let (mut zeros, bits) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            if bits == 0 && zeros < 15 {
                *run = 1 << zeros;
                *run += self.ahead.checked_shr(64 - zeros).unwrap_or(0) as u32;
                self.skip(zeros)?;
                break;
            }
            self.skip(bits)?;
            while at <= last && (zeros > 0 || known >> at & 1 == 1) {
                if known >> at & 1 == 1 {
                    self.skip_many(1)?;
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
            if bits > 0 {
                *nonzero |= 1u64.checked_shl(at).filter(|_| at <= last)?;
            }
            at += 1;
        }
        if *run > 0 {
            *run -= 1;
            let rest = (at..=last).filter(|at| known >> at & 1 == 1).count();
            self.skip_many(rest)?;
        }
        Some(())
    }

    /// Reads the codes of a block; `None` if one is not in its table, or if there are too few bits.
    fn skip_block(&mut self, dc: &HuffmanTable, ac: &HuffmanTable) -> Option<()> {
        self.skip_dc(dc)?;
        let mut at = 1;
        while at < 64 {
            self.fill();
            let (bits, advance) = match ac.steps[(self.ahead >> 54) as usize] {
                (0, _) => step(self.symbol(ac)?),
                known => known,
            };
            self.skip(bits.into())?;
            at += advance;
        }
        (at == 64 || at >= END).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each file of the tests: whether it has restart markers every two MCUs, and whether it is
    /// progressive.
    const FILES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

    /// A JPEG of noise, 64 × 48 pixels in colour.
    fn noise((restarts, is_progressive): (bool, bool)) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        let pixels: Vec<u8> = (0..64 * 48 * 3).map(|_| random.u8(..)).collect();
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
        encoder.set_progressive(is_progressive);
        if restarts {
            encoder.set_restart_interval(2);
        }
        encoder.encode(&pixels, 64, 48, jpeg_encoder::ColorType::Rgb).unwrap();
        bytes
    }

    #[test]
    fn a_whole_file_passes_and_a_cut_one_does_not() {
        for kind in FILES {
            let file = noise(kind);
            assert_eq!(check(&file), Ok(()));
            // Bytes after the end marker are no part of the image.
            assert_eq!(check(&[&file[..], b"rest"].concat()), Ok(()));
            // Fill bytes may precede each marker.
            let mut filled = file.clone();
            for at in (1..file.len() - 1).rev().filter(|at| file[*at] == 0xFF && file[at + 1] != 0) {
                filled.splice(at..at, [0xFF; 3]);
            }
            assert_eq!(check(&filled), Ok(()));
            for end in 0..file.len() {
                assert!(check(&file[..end]).is_err(), "{end} of {}", file.len());
                // With an end marker after what is there, which is less than half of the last MCU
                // may hide. Progressive files may have fewer scans.
                let is_between_scans = kind.1
                    && (end.saturating_sub(1)..=end)
                        .any(|at| file.get(at..at + 2).is_some_and(|two| matches!(two, [0xFF, 0xC4 | 0xDA])));
                if end < file.len() - 40 && !is_between_scans {
                    assert!(check(&[&file[..end], b"\xFF\xD9"].concat()).is_err(), "{end} of {}", file.len());
                }
            }
        }
    }

    #[test]
    fn data_that_is_missing_or_overwritten_is_found() {
        for kind in FILES {
            let file = noise(kind);
            let first = file.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap() + 14;
            // Codes find their way back after damage, so in a few cases as many blocks are there as
            // before.
            let (mut damaged, mut missed) = (0, 0);
            for begin in (first..file.len() - 320).step_by(10) {
                let without = [&file[..begin], &file[begin + 300..]].concat();
                let zeros = [&file[..begin], &[0; 300][..], &file[begin + 300..]].concat();
                damaged += 2;
                missed += usize::from(check(&without).is_ok()) + usize::from(check(&zeros).is_ok());
            }
            assert!(damaged > 200 && missed * 10 <= damaged, "{missed} of {damaged} were missed");
        }
    }
}
