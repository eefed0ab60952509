//! The data that is written beside a graph, so that it has something to read.

/// Samples per second of the sound.
pub(super) const RATE: u32 = 16_000;

/// An image of 8 × 8 pixels.
pub(super) const IMAGE: &[u8] = include_bytes!("../../../../graphs/digits/data/0000-7.png");

/// A second of a tone of 440 Hz, as a WAV file of 16-bit samples.
pub(super) fn tone() -> Vec<u8> {
    let bytes = 2 * RATE;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(RATE.to_le_bytes());
    file.extend((2 * RATE).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    let sample = |n: u32| (8000.0 * (f64::from(n) * 440.0 / f64::from(RATE) * std::f64::consts::TAU).sin()) as i16;
    file.extend((0..RATE).flat_map(|n| sample(n).to_le_bytes()));
    file
}

/// So many items of a shape as an `.npy` file: numbers from 0 to 1, or ones of a whole type.
pub(super) fn array(dtype: &str, items: usize, item: &[usize]) -> Vec<u8> {
    let shape: Vec<usize> = std::iter::once(items).chain(item.iter().copied()).collect();
    let elements = shape.iter().product::<usize>();
    let (descriptor, one) = match dtype {
        "u8" => ("|u1", vec![1]),
        "i8" => ("|i1", vec![1]),
        "i16" => ("<i2", vec![1, 0]),
        "u16" => ("<u2", vec![1, 0]),
        "f16" => ("<f2", vec![0, 0x38]),
        "u32" => ("<u4", vec![1, 0, 0, 0]),
        "u64" => ("<u8", vec![1, 0, 0, 0, 0, 0, 0, 0]),
        "i32" => ("<i4", vec![1, 0, 0, 0]),
        _ => ("<f4", Vec::new()),
    };
    let mut file = limen_npy::header(descriptor, shape.iter().map(|length| *length as u64));
    match &one[..] {
        [] => {
            // A linear congruential generator (Numerical Recipes): the same numbers on every
            // machine.
            let mut state = 1u32;
            file.extend((0..elements).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as f32 / (1 << 24) as f32).to_le_bytes()
            }));
        }
        one => file.extend(std::iter::repeat_n(one, elements).flatten()),
    }
    file
}
