//! Samples as floats and as a device has them.

use crate::PcmFormat;

/// What a device's greatest sample stands for.
const S16: f32 = (1u32 << 15) as f32;
const S24: f32 = (1u32 << 23) as f32;
const S32: f64 = (1u64 << 31) as f64;

/// Converts a device's samples to floats from −1 to 1.
pub(crate) fn decode(format: PcmFormat, bytes: &[u8], into: &mut [f32]) {
    if format == PcmFormat::S16 {
        for (from, to) in bytes.as_chunks().0.iter().zip(into) {
            *to = f32::from(i16::from_le_bytes(*from)) / S16;
        }
        return;
    }
    for (from, to) in bytes.as_chunks().0.iter().zip(into) {
        *to = match format {
            PcmFormat::F32 => f32::from_le_bytes(*from),
            // The highest byte is not defined.
            PcmFormat::S24 => ((i32::from_le_bytes(*from) << 8) >> 8) as f32 / S24,
            _ => (f64::from(i32::from_le_bytes(*from)) / S32) as f32,
        };
    }
}

/// Converts floats to a device's samples. Those beyond −1 to 1 become the nearest sample that the
/// device has, and NaN silence.
pub(crate) fn encode(format: PcmFormat, samples: &[f32], into: &mut [u8]) {
    if format == PcmFormat::S16 {
        for (from, to) in samples.iter().zip(into.as_chunks_mut().0) {
            // A conversion to an integer stops at its bounds, and makes 0 of NaN.
            *to = ((from * S16).round() as i16).to_le_bytes();
        }
        return;
    }
    for (from, to) in samples.iter().zip(into.as_chunks_mut().0) {
        *to = match format {
            PcmFormat::F32 if from.is_nan() => [0; 4],
            PcmFormat::F32 => from.clamp(-1.0, 1.0).to_le_bytes(),
            PcmFormat::S24 => ((from * S24).round().clamp(-S24, S24 - 1.0) as i32).to_le_bytes(),
            _ => ((f64::from(*from) * S32).round() as i32).to_le_bytes(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_of_16_bits_survives_every_format() {
        let samples: Vec<f32> = (i16::MIN..=i16::MAX).map(|n| f32::from(n) / S16).collect();
        for format in PcmFormat::ALL {
            let mut bytes = vec![0; samples.len() * format.bytes()];
            encode(format, &samples, &mut bytes);
            let mut back = vec![9.0; samples.len()];
            decode(format, &bytes, &mut back);
            assert!(back == samples, "{format}");
        }
    }

    #[test]
    fn samples_out_of_range_become_the_nearest_and_nan_silence() {
        let samples = [1.0, 7.0, f32::INFINITY, -1.0, -7.0, f32::NEG_INFINITY, f32::NAN];
        for (format, most) in [
            (PcmFormat::F32, 1.0),
            (PcmFormat::S32, 1.0),
            (PcmFormat::S24, 1.0 - 1.0 / S24),
            (PcmFormat::S16, 1.0 - 1.0 / S16),
        ] {
            let mut bytes = vec![0xee; samples.len() * format.bytes()];
            encode(format, &samples, &mut bytes);
            let mut back = [9.0; 7];
            decode(format, &bytes, &mut back);
            assert_eq!(back, [most, most, most, -1.0, -1.0, -1.0, 0.0], "{format}");
        }
        // Of S24, only three bytes count.
        let mut one = [0.0];
        decode(PcmFormat::S24, &[0, 0, 0x40, 0x7f], &mut one);
        assert_eq!(one, [0.5]);
    }
}
