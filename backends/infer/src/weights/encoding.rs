//! The encodings that are widened to `f32` on load, FP8 itself, and tensors of scales.
//!
//! What is widened takes at most as much memory as a file may have.

use super::file::MAX_BYTES;
use crate::array::Weights;
use crate::base::Access;
use limen::message::DType;
use limen::unit::show_bytes;
use schemars::JsonSchema;
use serde::Deserialize;

/// An encoding of weights in 4 or 8 bits, which is widened to `f32` on load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// 4-bit integers of GPTQ, with stored zero points reduced by one. The tensors are `qweight`
    /// `i32[k/8, n]`, `qzeros` `i32[groups, n/8]`, `scales` `[groups, n]` and optionally `g_idx`
    /// `i32[k]`. `g_idx` is the group of each input. Without `g_idx`, each group is a range of
    /// consecutive inputs, whose length is a power of two. A single group may have any length. The
    /// result is `f32[n, k]`.
    Gptq,
    /// Like `gptq`, with stored zero points that are not reduced.
    GptqV2,
    /// 4-bit integers of AWQ. The tensors are `qweight` `i32[k, n/8]`, `qzeros` `i32[groups, n/8]`
    /// and `scales` `[groups, n]`. The result is `f32[n, k]`.
    Awq,
    /// FP8 with a 4-bit exponent and without infinities, in a `u8` tensor.
    #[strum(serialize = "f8_e4m3")]
    F8E4m3,
    /// FP8 with a 5-bit exponent, in a `u8` tensor.
    #[strum(serialize = "f8_e5m2")]
    F8E5m2,
}

impl Encoding {
    /// Its name in a config.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// The value of each code of 8 bits; `None` for the encodings of 4 bits.
    fn values(self) -> Option<[f64; 256]> {
        let value = match self {
            Encoding::Gptq | Encoding::GptqV2 | Encoding::Awq => return None,
            Encoding::F8E4m3 => |code: u16| match code & 0x7f {
                0x7f => f64::NAN,
                // As an f16 it has the same bits, and an exponent that is 8 too small.
                rest => half::f16::from_bits(((code & 0x80) << 8) | (rest << 7)).to_f64() * 256.0,
            },
            // The upper half of an f16.
            Encoding::F8E5m2 => |code: u16| half::f16::from_bits(code << 8).to_f64(),
        };
        Some(std::array::from_fn(|code| value(code as u16)))
    }

    /// Widens `u8` that are FP8.
    ///
    /// # Errors
    /// A message that continues "it …".
    pub(super) fn widen(self, weights: &Weights) -> Result<Weights, String> {
        let Weights { dtype, shape, bytes, .. } = weights;
        match self.values() {
            Some(values) if *dtype == DType::U8 => {
                widened(shape.clone(), bytes.iter().map(|code| values[usize::from(*code)]), self.name().into())
            }
            _ => Err(format!("must be u8 for `{}`, got {dtype}{shape:?}: remove `encoding:`", self.name())),
        }
    }
}

impl Weights {
    /// Multiplies by a scale for the whole tensor, or by one for each index of the first dim; the
    /// result is `f32`.
    ///
    /// # Errors
    /// A message that continues "it …", about the scale.
    pub(super) fn scaled(self, scale: &Weights) -> Result<Weights, String> {
        let rows = self.shape.first().copied().unwrap_or(1);
        let scales = match &scale.shape[..] {
            [] => 1,
            [n, rest @ ..] if rest.iter().all(|dim| *dim == 1) => *n,
            _ => 0,
        };
        if !scale.is_float() || scales == 0 || ![1, rows].contains(&scales) {
            let (dtype, shape) = (scale.dtype, &scale.shape);
            let takes = format!("one floating-point number, or one for each of the {rows} rows");
            let help = "multiply the scales of blocks into the weights and save the weights as f16";
            return Err(format!("must be {takes}, got {dtype}{shape:?}: {help}"));
        }
        let by = finite(scale)?;
        room(&self.shape).map_err(|why| format!("scales a tensor that {why}"))?;
        let each = if scales == 1 { "one scale" } else { "a scale for each row" };
        let from = format!("{}, {each}", self.widened.as_deref().unwrap_or(self.dtype.name()));
        let row = (self.elements() / scales).max(1);
        let values = Access::for_dtype(self.dtype).values(&self.bytes).enumerate();
        widened(self.shape.clone(), values.map(|(at, value)| value * f64::from(by[at / row])), from)
    }
}

/// The numbers of a tensor of scales. One that is infinite or NaN would make a whole row or group
/// useless.
pub(super) fn finite(scales: &Weights) -> Result<Vec<f32>, String> {
    let numbers = Access::for_dtype(scales.dtype).values(&scales.bytes).map(|scale| scale as f32);
    let finite = numbers.map(|scale| {
        let wrong = || format!("must have finite scales, got {scale}: save the scales as f32");
        if scale.is_finite() { Ok(scale) } else { Err(wrong()) }
    });
    finite.collect()
}

/// Returns the size of `f32` of this shape, if they may have as much memory.
pub(super) fn room(shape: &[usize]) -> Result<usize, String> {
    let takes = shape.iter().try_fold(size_of::<f32>() as u64, |n, dim| n.checked_mul(*dim as u64));
    match takes.map(|takes| (takes, usize::try_from(takes))) {
        Some((takes, Ok(bytes))) if takes <= MAX_BYTES => Ok(bytes),
        _ => {
            let (most, got) = (show_bytes(MAX_BYTES), takes.map_or_else(|| "more".to_string(), show_bytes));
            Err(format!("must be at most {most} as f32{shape:?}, got {got}: split the layer"))
        }
    }
}

/// Makes a tensor of `f32` of values that were something else in the file.
pub(super) fn widened(shape: Vec<usize>, values: impl Iterator<Item = f64>, from: String) -> Result<Weights, String> {
    let mut bytes = vec![0; room(&shape)?];
    Access::for_dtype(DType::F32).write(values, &mut bytes);
    Ok(Weights { widened: Some(from), ..Weights::new(DType::F32, shape, bytes)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sha256;
    use crate::weights::config::tests::{load, save};
    use safetensors::Dtype;
    use serde_json::json;

    /// The checksums of all 256 values, in order, as little-endian f32 with NaN as 0x7fc00000, and
    /// of a few of them, are those of `numpy.arange(256, dtype="u1").view(T).astype("f4")`, where T
    /// is `float8_e4m3fn` and `float8_e5m2` of ml_dtypes 0.6.
    #[test]
    fn every_code_of_fp8_has_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let codes: Vec<u8> = (0..=255).collect();
        std::fs::write(folder.path().join("w.bin"), &codes).unwrap();
        for (encoding, dtype, few, sum) in [
            (
                "f8_e4m3",
                Dtype::F8_E4M3,
                [0.001_953_125, 0.013_671_875, 0.015_625, 1.0, 1.5, 352.0, 384.0, 448.0, -1.0, -448.0],
                "422eccfaa21e72a6b26855bb10cdcfead6c1ce3262ecd813c99d8cbf9677f2e2",
            ),
            (
                "f8_e5m2",
                Dtype::F8_E5M2,
                [
                    1.0 / 65536.0,
                    7.0 / 65536.0,
                    8.0 / 65536.0,
                    0.5,
                    1.0,
                    57344.0,
                    f32::INFINITY,
                    f32::NAN,
                    -0.5,
                    f32::NAN,
                ],
                "229a94c5f728edf2259da970a0e1dfb45cc1d69cce2b30e37659f3212ec4b8b9",
            ),
        ] {
            save(&folder.path().join("w.safetensors"), &[("w", dtype, vec![16, 16], codes.clone())]);
            let found = crate::inspect(&folder.path().join("w.safetensors")).unwrap();
            assert_eq!(found.tensors[0].dtype, encoding);
            let raw = json!({ "file": "w.bin", "dtype": "u8", "shape": [16, 16], "encoding": encoding });
            for config in [json!({ "file": "w.safetensors" }), raw] {
                let weights = load(folder.path(), config.clone()).unwrap();
                assert_eq!((weights.dtype, &weights.shape[..]), (DType::F32, &[16, 16][..]), "{config}");
                assert_eq!(weights.widened.as_deref(), Some(encoding), "{config}");
                let values: Vec<f32> = weights.bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
                let bits = |value: f32| if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
                let picked = [1, 7, 8, 0x38, 0x3c, 0x7b, 0x7c, 0x7e, 0xb8, 0xfe].map(|code: usize| bits(values[code]));
                assert_eq!(picked, few.map(bits), "{config}");
                let bytes: Vec<u8> = values.iter().flat_map(|value| bits(*value).to_le_bytes()).collect();
                assert_eq!(sha256(&bytes), sum, "{config}");
            }
        }
    }

    /// The checksums are those of `(v.astype("f4") * s).astype("<f4").tobytes()` in NumPy, with the
    /// codes 0 to 111 or the integers -56 to 55 in 16 rows, and `s = numpy.arange(16,
    /// dtype="f4")[:, None] / f4(10) - f4(0.7)` or `f4(0.3)`.
    #[test]
    fn a_scale_multiplies_everything_or_each_row() {
        let folder = tempfile::tempdir().unwrap();
        let rows: Vec<u8> = (0..16_u8).flat_map(|row| (f32::from(row) / 10.0 - 0.7).to_le_bytes()).collect();
        let one = || 0.3_f32.to_le_bytes().to_vec();
        let integers = (-56..56_i8).map(i8::cast_unsigned).collect();
        let tensors = [
            ("e4m3", Dtype::F8_E4M3, vec![16, 7], (0..112).collect()),
            ("e5m2", Dtype::F8_E5M2, vec![16, 7], (0..112).collect()),
            ("i8", Dtype::I8, vec![16, 7], integers),
            ("rows", Dtype::F32, vec![16], rows.clone()),
            ("column", Dtype::F32, vec![16, 1], rows),
            ("one", Dtype::F32, vec![], one()),
            ("first", Dtype::F32, vec![1, 1], one()),
        ];
        save(&folder.path().join("w.safetensors"), &tensors);
        let e4m3_rows = "4f53e6a838787f1e571641363ccc37c0269d623ab66c8dcf232f12b6173fc7de";
        let e4m3_one = "3f9e0161c78f630caa30dce6d51628255d6ff6517287726d0ec785167945ca40";
        let e5m2_rows = "423da6fb0ccb07d87806965200c61a73cf2b2de68ce79d9414a225e8a1bb851d";
        let e5m2_one = "24a96d61d2e6cdde52d50d1fc639cc466d831f7809aed9a04a10cd1a326937fb";
        let i8_rows = "903ac323c76819e23e3ae0126ef92fa6738cae58aea98909c503851973d7fbdb";
        for (tensor, scale, widened, sum) in [
            ("e4m3", "rows", "f8_e4m3, a scale for each row", e4m3_rows),
            ("e4m3", "column", "f8_e4m3, a scale for each row", e4m3_rows),
            ("e4m3", "one", "f8_e4m3, one scale", e4m3_one),
            ("e5m2", "rows", "f8_e5m2, a scale for each row", e5m2_rows),
            ("e5m2", "first", "f8_e5m2, one scale", e5m2_one),
            ("i8", "rows", "i8, a scale for each row", i8_rows),
        ] {
            let config = json!({ "file": "w.safetensors", "tensor": tensor, "scale": scale });
            let weights = load(folder.path(), config).unwrap();
            assert_eq!((weights.dtype, &weights.shape[..]), (DType::F32, &[16, 7][..]), "{tensor} {scale}");
            assert_eq!(weights.widened.as_deref(), Some(widened), "{tensor} {scale}");
            assert_eq!(sha256(&weights.bytes), sum, "{tensor} {scale}");
        }
        let turned = json!({ "file": "w.safetensors", "tensor": "e4m3", "transform": [{ "transpose": [1, 0] }] });
        assert_eq!(load(folder.path(), turned).unwrap().shape, [7, 16]);
        // The only tensor beside the scale needs no name.
        save(&folder.path().join("two.safetensors"), &[tensors[0].clone(), tensors[5].clone()]);
        let weights = load(folder.path(), json!({ "file": "two.safetensors", "scale": "one" })).unwrap();
        assert_eq!(sha256(&weights.bytes), e4m3_one);
    }

    #[test]
    fn a_scale_or_encoding_that_does_not_fit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let infinite = half::f16::INFINITY.to_le_bytes().to_vec();
        save(
            &folder.path().join("w.safetensors"),
            &[
                ("w", Dtype::F8_E4M3, vec![4, 4], vec![0x38; 16]),
                ("f", Dtype::F32, vec![4], vec![0; 16]),
                ("blocks", Dtype::F32, vec![2, 2], vec![0; 16]),
                ("columns", Dtype::F32, vec![1, 4], vec![0; 16]),
                ("none", Dtype::F32, vec![0], vec![]),
                ("whole", Dtype::I32, vec![4], vec![0; 16]),
                ("infinite", Dtype::F16, vec![1], infinite),
                ("e8m0", Dtype::F8_E8M0, vec![4], vec![0; 4]),
            ],
        );
        let file = |more: serde_json::Value| {
            let mut config = json!({ "file": "w.safetensors", "tensor": "w" });
            config.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
            config
        };
        let takes = "must be one floating-point number, or one for each of the 4 rows, got";
        for (config, why) in [
            (
                json!({ "scale": "x" }),
                "scale: `w.safetensors` has no tensor `x` for the scale: name another tensor, or remove `scale:`",
            ),
            (json!({ "scale": "w" }), "scale: `w.safetensors` has no tensor `w` for the scale"),
            (json!({ "scale": "blocks" }), &format!("tensor `blocks` of `w.safetensors` {takes} f32[2, 2]")),
            (json!({ "scale": "columns" }), &format!("{takes} f32[1, 4]")),
            (json!({ "scale": "none" }), &format!("{takes} f32[0]")),
            (json!({ "scale": "whole" }), &format!("{takes} i32[4]")),
            (json!({ "scale": "infinite" }), "must have finite scales, got inf"),
            (json!({ "scale": "e8m0" }), "tensor `e8m0`, which has unsupported elements of type F8_E8M0"),
            (
                json!({ "encoding": "f8_e5m2" }),
                "encoding: tensor `w` of `w.safetensors` is f8_e4m3: remove `encoding:`",
            ),
            (
                json!({ "tensor": "f", "encoding": "f8_e5m2" }),
                "encoding: `w.safetensors` must be u8 for `f8_e5m2`, got f32[4]",
            ),
        ] {
            let error = load(folder.path(), file(config)).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        for shape in [vec![1 << 14, (1 << 14) + 1], vec![1 << 62, 1 << 62]] {
            let error = room(&shape).unwrap_err();
            assert!(error.starts_with("must be at most 1.00 GiB as f32["), "{error}");
        }
        assert_eq!(room(&[1 << 14, 1 << 14]), Ok(1 << 30));
        assert_eq!(room(&[0, 3]), Ok(0));
    }
}
