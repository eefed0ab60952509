//! Files for graphs to read, written without the product's own code.

/// An array as NumPy writes it, an item of the first dim per message.
pub fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes(), format!("{header:<117}\n").as_bytes(), data].concat()
}

/// An array of `f32`.
pub fn npy_of(shape: &[usize], values: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<f4", shape, &data)
}

/// A WAV file of 16-bit sound.
pub fn wav(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
    let samples: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let chunk = |name: &[u8], content: &[u8]| [name, &(content.len() as u32).to_le_bytes(), content].concat();
    let block = channels * 2;
    let format = [
        &1u16.to_le_bytes()[..],
        &channels.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(block)).to_le_bytes(),
        &block.to_le_bytes(),
        &16u16.to_le_bytes(),
    ];
    chunk(b"RIFF", &[b"WAVE".as_slice(), &chunk(b"fmt ", &format.concat()), &chunk(b"data", &samples)].concat())
}
