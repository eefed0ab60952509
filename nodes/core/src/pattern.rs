//! The patterns of the synthetic source. All of them are exact: the same bytes on every machine.

pub(crate) mod scene;

use half::{bf16, f16};
use limen::TensorMut;
use limen::message::DType;
use limen::node::NodeError;
use scene::SplitMix64;

/// A diagonal sawtooth that moves by seven levels per frame, with a different slope for each
/// channel.
///
/// Frames differ by a constant (modulo 256): the first is drawn once, the others add a constant to
/// it.
#[derive(Debug)]
pub(crate) struct Ramp(Vec<u8>);

impl Ramp {
    pub(crate) fn new(width: usize, height: usize, channels: usize) -> Self {
        let pixel = |x: usize, y: usize, c: usize| (x * (c + 1) / 2 + y * (3 - c) / 2) as u8;
        let row = move |y| (0..width).flat_map(move |x| (0..channels).map(move |c| pixel(x, y, c)));
        Ramp((0..height).flat_map(row).collect())
    }

    pub(crate) fn fill(&self, frame: u64, pixels: &mut [u8]) {
        // 7 × frame modulo 256 depends only on the low byte of the frame.
        let shift = (frame as u8).wrapping_mul(7);
        for (pixel, first) in pixels.iter_mut().zip(&self.0) {
            *pixel = first.wrapping_add(shift);
        }
    }
}

/// Fills a tensor with numbers that depend only on seed and frame: floats in [0, 1), integers over
/// their whole range.
pub(crate) fn noise(seed: u64, frame: u64, tensor: &mut TensorMut) -> Result<(), NodeError> {
    // The seed is mixed before it is combined with the frame, so that adjacent seeds do not share
    // frames.
    let mut random = SplitMix64(SplitMix64(seed).next() ^ frame);
    // As many random bits as the type's mantissa holds, so that no number rounds up to 1.
    let mut unit = |bits: u32| (random.next() >> (64 - bits)) as f64 / (1u64 << bits) as f64;
    match tensor.dtype() {
        DType::F32 => tensor.as_mut_slice::<f32>()?.iter_mut().for_each(|v| *v = unit(24) as f32),
        DType::F64 => tensor.as_mut_slice::<f64>()?.iter_mut().for_each(|v| *v = unit(53)),
        DType::F16 => tensor.as_mut_slice::<f16>()?.iter_mut().for_each(|v| *v = f16::from_f64(unit(11))),
        DType::BF16 => tensor.as_mut_slice::<bf16>()?.iter_mut().for_each(|v| *v = bf16::from_f64(unit(8))),
        _ => {
            let (words, rest) = tensor.bytes_mut().as_chunks_mut::<8>();
            words.iter_mut().for_each(|word| *word = random.next().to_le_bytes());
            let last = random.next().to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
    Ok(())
}

/// Writes a number into the first element; a narrow integer type gets the low bits.
#[inline]
pub(crate) fn count(number: u64, tensor: &mut TensorMut) -> Result<(), NodeError> {
    match tensor.dtype() {
        DType::U64 => tensor.as_mut_slice::<u64>()?[0] = number,
        DType::I64 => tensor.as_mut_slice::<i64>()?[0] = number as i64,
        DType::U32 => tensor.as_mut_slice::<u32>()?[0] = number as u32,
        DType::I32 => tensor.as_mut_slice::<i32>()?[0] = number as i32,
        DType::U16 => tensor.as_mut_slice::<u16>()?[0] = number as u16,
        DType::I16 => tensor.as_mut_slice::<i16>()?[0] = number as i16,
        DType::U8 => tensor.as_mut_slice::<u8>()?[0] = number as u8,
        DType::I8 => tensor.as_mut_slice::<i8>()?[0] = number as i8,
        DType::F64 => tensor.as_mut_slice::<f64>()?[0] = number as f64,
        DType::F32 => tensor.as_mut_slice::<f32>()?[0] = number as f32,
        DType::F16 => tensor.as_mut_slice::<f16>()?[0] = f16::from_f64(number as f64),
        DType::BF16 => tensor.as_mut_slice::<bf16>()?[0] = bf16::from_f64(number as f64),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::message::PortSpec;

    fn tensor(dtype: DType, n: usize) -> TensorMut {
        TensorMut::alone(&PortSpec::fixed(dtype, [n])).unwrap()
    }

    #[test]
    fn a_ramp_equals_its_formula() {
        let (width, height, channels) = (37, 300, 3);
        let ramp = Ramp::new(width, height, channels);
        let mut pixels = vec![0; width * height * channels];
        for frame in [0, 1, 89, 1_000_000_007] {
            ramp.fill(frame, &mut pixels);
            for (at, pixel) in pixels.iter().enumerate() {
                let (c, x, y) = (at % channels, at / channels % width, at / channels / width);
                let expected = (x * (c + 1) / 2 + y * (3 - c) / 2 + 7 * frame as usize) % 256;
                assert_eq!(usize::from(*pixel), expected, "x {x} y {y} c {c} frame {frame}");
            }
        }
    }

    #[test]
    fn noise_depends_on_seed_and_frame_alone() {
        let bytes = |seed, frame| {
            let mut t = tensor(DType::U8, 21);
            noise(seed, frame, &mut t).unwrap();
            t.as_slice::<u8>().unwrap().to_vec()
        };
        assert_eq!(bytes(1, 2), bytes(1, 2));
        assert_ne!(bytes(1, 2), bytes(1, 3));
        assert_ne!(bytes(1, 2), bytes(2, 2));
        assert_ne!(bytes(1, 2), bytes(2, 1));
    }

    #[test]
    fn random_floats_are_at_least_0_and_below_1() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let mut t = tensor(dtype, 1000);
            noise(3, 4, &mut t).unwrap();
            let values: Vec<f64> = match dtype {
                DType::F32 => t.as_slice::<f32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
                DType::F64 => t.as_slice::<f64>().unwrap().to_vec(),
                DType::F16 => t.as_slice::<f16>().unwrap().iter().map(|v| v.to_f64()).collect(),
                _ => t.as_slice::<bf16>().unwrap().iter().map(|v| v.to_f64()).collect(),
            };
            assert!(values.iter().all(|v| (0.0..1.0).contains(v)), "{dtype}");
            let mean = values.iter().sum::<f64>() / 1000.0;
            assert!((0.45..0.55).contains(&mean), "{dtype} {mean}");
        }
    }

    #[test]
    fn a_counter_fills_the_first_element_only() {
        for (dtype, expected) in [(DType::U64, vec![44, 1, 0, 0, 0, 0, 0, 0, 0]), (DType::U8, vec![44])] {
            let mut t = tensor(dtype, 3);
            count(300, &mut t).unwrap();
            let bytes = t.freeze().bytes().to_vec();
            assert_eq!(bytes[..expected.len()], expected);
            assert!(bytes[expected.len()..].iter().all(|b| *b == 0));
        }
    }
}
