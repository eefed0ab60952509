//! The structure of a JPEG file: whether it has all parts of its scans up to its end marker, which the decoder does not check.

/// Markers without a length: TEM, RST0 to RST7, SOI.
fn is_bare(marker: u8) -> bool {
    matches!(marker, 0x01 | 0xD0..=0xD8)
}

/// Where restart markers are expected in a scan.
#[derive(Default)]
struct Frame {
    /// The MCUs of a scan of all components.
    mcus: usize,
    components: u8,
    is_progressive: bool,
    /// The MCUs between two restart markers; 0 without restarts.
    interval: usize,
}

impl Frame {
    /// Reads the header of a frame: its size and the sampling factors.
    fn read(&mut self, segment: &[u8], marker: u8) -> Option<()> {
        let [_, h0, h1, w0, w1, components, rest @ ..] = segment else { return None };
        let (height, width) = (u16::from_be_bytes([*h0, *h1]), u16::from_be_bytes([*w0, *w1]));
        let factors = rest.chunks_exact(3).take((*components).into()).map(|component| component[1]);
        let (mut across, mut down) = (1, 1);
        for factor in factors {
            across = across.max(usize::from(factor >> 4));
            down = down.max(usize::from(factor & 15));
        }
        if *components == 1 {
            (across, down) = (1, 1);
        }
        self.mcus = usize::from(width).div_ceil(8 * across) * usize::from(height).div_ceil(8 * down);
        (self.components, self.is_progressive) = (*components, marker == 0xC2);
        Some(())
    }

    /// Returns how many restart markers a scan has, if that is known.
    fn restarts(&self, scan: &[u8]) -> Option<usize> {
        let has_all = scan.first() == Some(&self.components);
        (has_all && !self.is_progressive && self.interval > 0)
            .then(|| self.mcus.div_ceil(self.interval).saturating_sub(1))
    }
}

/// Checks that a file has an end marker after its last scan, and that its restart markers follow each other.
///
/// # Errors
/// What is missing.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let cut = || "the file is cut: it has no end marker".to_string();
    let mut frame = Frame::default();
    let mut at = 2;
    let mut has_scan = false;
    loop {
        // Bytes between segments are allowed by decoders.
        at += bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xFF)).ok_or_else(cut)?;
        let marker = *bytes.get(at + 1).ok_or_else(cut)?;
        match marker {
            0xFF => at += 1,
            0x00 => at += 2,
            0xD9 if has_scan => return Ok(()),
            _ if is_bare(marker) => at += 2,
            _ => {
                let length = bytes.get(at + 2..at + 4).ok_or_else(cut)?;
                let end = at + 2 + usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
                let segment = bytes.get(at + 4..end).ok_or_else(cut)?;
                at = end;
                match marker {
                    0xC0..=0xC2 => frame.read(segment, marker).ok_or("its frame header is too short")?,
                    0xDD => frame.interval = segment.first_chunk().map_or(0, |n| u16::from_be_bytes(*n).into()),
                    0xDA => {
                        has_scan = true;
                        at = scan(bytes, at, frame.restarts(segment))?;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Passes over the entropy-coded data of a scan, up to its next marker that is no restart.
fn scan(bytes: &[u8], mut at: usize, expected: Option<usize>) -> Result<usize, String> {
    let mut restarts = 0;
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xFF)) {
        at += next;
        match bytes.get(at + 1) {
            Some(0x00) => at += 2,
            Some(0xFF) => at += 1,
            Some(marker @ 0xD0..=0xD7) => {
                if usize::from(marker - 0xD0) != restarts % 8 {
                    return Err(format!("restart marker {} is missing", restarts % 8));
                }
                restarts += 1;
                at += 2;
            }
            Some(_) => match expected {
                Some(expected) if expected != restarts => {
                    return Err(format!("it has {restarts} restart markers, expected {expected}"));
                }
                _ => return Ok(at),
            },
            None => break,
        }
    }
    Err("the file is cut: it has no end marker".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grey image of 16 × 8 pixels with a scan of these bytes; a restart marker after each of its two MCUs if `restarts`.
    fn file(restarts: bool, scan: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 11, 8, 0, 8, 0, 16, 1, 1, 0x11, 0];
        if restarts {
            bytes.extend([0xFF, 0xDD, 0, 4, 0, 1]);
        }
        bytes.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0]);
        bytes.extend(scan);
        bytes
    }

    #[test]
    fn a_scan_is_whole_up_to_the_end_marker() {
        for (restarts, scan, expected) in [
            (false, &[1, 2, 0xFF, 0, 3, 0xFF, 0xD9][..], Ok(())),
            (false, &[1, 0xFF, 0xD9, 7, 7], Ok(())),
            (false, &[1, 2, 0xFF, 0, 3], Err("the file is cut: it has no end marker")),
            (false, &[1, 2, 0xFF], Err("the file is cut: it has no end marker")),
            (true, &[1, 0xFF, 0xD0, 2, 0xFF, 0xD9], Ok(())),
            (true, &[1, 2, 0xFF, 0xD9], Err("it has 0 restart markers, expected 1")),
            (true, &[1, 0xFF, 0xD1, 2, 0xFF, 0xD9], Err("restart marker 0 is missing")),
        ] {
            assert_eq!(check(&file(restarts, scan)), expected.map_err(String::from), "{restarts} {scan:?}");
        }
    }
}
