//! Matrices of 4-bit integers with a scale and a zero point for each output and each group of
//! inputs, as GPTQ and AWQ store them.
//!
//! An integer `q` of a group with `scale` and `zero` stands for `scale × (q − zero)`. The matrix
//! has a row for each output, whichever way round it is stored.

use super::encoding::{Encoding, finite, room, widened};
use super::file::FileTensor;
use crate::array::Weights;
use crate::base::Access;
use limen::message::DType;

/// The 4-bit integers of a word.
const PER_WORD: usize = 8;

/// How the integers of a layer are stored.
pub(super) struct Int4Layout {
    name: &'static str,
    /// Whether a word of `qweight` holds eight inputs of an output, and not eight outputs of an
    /// input. Words of `qzeros` always hold eight outputs.
    holds_inputs: bool,
    /// The place of each of eight outputs in a word, from the lowest bits.
    places: [u8; PER_WORD],
    /// What is missing in a stored zero point.
    zero_offset: u32,
}

/// A field of the config, and a message that continues "the file …".
type Wrong = (&'static str, String);

impl Int4Layout {
    /// The layout of an encoding, if it is one of 4 bits.
    pub(super) fn of(encoding: Encoding) -> Option<Int4Layout> {
        let name = encoding.name();
        let in_order = Int4Layout { name, holds_inputs: true, places: [0, 1, 2, 3, 4, 5, 6, 7], zero_offset: 0 };
        match encoding {
            Encoding::Gptq => Some(Int4Layout { zero_offset: 1, ..in_order }),
            Encoding::GptqV2 => Some(in_order),
            // From the lowest bits, a word holds the outputs 0, 2, 4, 6, 1, 3, 5, 7.
            Encoding::Awq => Some(Int4Layout { holds_inputs: false, places: [0, 4, 1, 5, 2, 6, 3, 7], ..in_order }),
            Encoding::F8E4m3 | Encoding::F8E5m2 => None,
        }
    }

    /// The tensors of a layer; the last may be missing.
    pub(super) fn names(&self, layer: Option<&str>) -> Vec<String> {
        let parts = ["qweight", "qzeros", "scales", "g_idx"];
        let parts = &parts[..if self.holds_inputs { 4 } else { 3 }];
        parts.iter().map(|part| layer.map_or((*part).to_string(), |layer| format!("{layer}.{part}"))).collect()
    }

    /// Makes the matrix of a layer from its tensors.
    pub(super) fn widen(&self, layer: Option<&str>, tensors: &[FileTensor]) -> Result<Weights, Wrong> {
        let names = self.names(layer);
        let find = |name: &String| tensors.iter().find(|tensor| tensor.name == *name).map(|tensor| &tensor.weights);
        let part = |at: usize| {
            find(&names[at]).ok_or_else(|| {
                let takes = names[..3].iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let missing = format!("has no tensor `{}`, but `{}` expects {takes}", names[at], self.name);
                ("tensor", format!("{missing}: write the names up to the last dot in `tensor`"))
            })
        };
        let (qweight, qzeros, scales) = (part(0)?, part(1)?, part(2)?);
        let index = names.get(3).and_then(|name| Some((name, find(name)?)));
        let wrong = |why: String| ("encoding", why);

        let (inputs, outputs) = self.sizes(&names[0], qweight).map_err(wrong)?;
        room(&[outputs, inputs]).map_err(|why| wrong(format!("has a matrix that {why}")))?;
        let groups = self.groups(&names[2], scales, inputs, outputs).map_err(wrong)?;
        let zeros = [groups, outputs / PER_WORD];
        if !is_words(qzeros) || qzeros.shape != zeros {
            return Err(wrong(self.unlike(&names[1], qzeros, &format!("i32{zeros:?}"))));
        }
        let group_of = match index {
            Some((name, index)) => self.indices(name, index, inputs, groups),
            None => self.runs(inputs, groups),
        };
        let group_of = group_of.map_err(wrong)?;

        let by = finite(scales).map_err(|why| wrong(format!("has `{}`, which {why}", names[2])))?;
        let (weight_words, zero_words) = (words(qweight), words(qzeros));
        // A zero point has 4 bits as well: 15 is stored for 0.
        let zero = |at: usize| (self.output(&zero_words, at) + self.zero_offset) & 15;
        let zeros: Vec<u8> = (0..groups * outputs).map(|at| zero(at) as u8).collect();
        let value = |at: usize| {
            let (output, input) = (at / inputs, at % inputs);
            let q = if self.holds_inputs {
                (weight_words[input / PER_WORD * outputs + output] >> (4 * (input % PER_WORD))) & 15
            } else {
                self.output(&weight_words, input * outputs + output)
            };
            let group = group_of[input] as usize * outputs + output;
            (f64::from(q) - f64::from(zeros[group])) * f64::from(by[group])
        };
        let (low, high) = zeros.iter().fold((15, 0), |(low, high), zero| (low.min(*zero), high.max(*zero)));
        let from = format!("{}, groups: {groups}, zero points: {low} to {high}", self.name);
        widened(vec![outputs, inputs], (0..inputs * outputs).map(value), from).map_err(wrong)
    }

    /// The integer of one output, where words hold eight outputs.
    fn output(&self, words: &[u32], at: usize) -> u32 {
        (words[at / PER_WORD] >> (4 * self.places[at % PER_WORD])) & 15
    }

    /// The inputs and outputs of a layer.
    fn sizes(&self, name: &str, qweight: &Weights) -> Result<(usize, usize), String> {
        let sizes = match qweight.shape[..] {
            [high, wide] if self.holds_inputs => high.checked_mul(PER_WORD).map(|inputs| (inputs, wide)),
            [high, wide] => wide.checked_mul(PER_WORD).map(|outputs| (high, outputs)),
            _ => None,
        };
        let is_whole =
            |(inputs, outputs): &(usize, usize)| *inputs > 0 && *outputs > 0 && outputs.is_multiple_of(PER_WORD);
        sizes.filter(|sizes| is_words(qweight) && is_whole(sizes)).ok_or_else(|| {
            let takes = if self.holds_inputs { "i32[k/8, n], where n is a multiple of 8" } else { "i32[k, n/8]" };
            self.unlike(name, qweight, takes)
        })
    }

    /// The number of groups.
    fn groups(&self, name: &str, scales: &Weights, inputs: usize, outputs: usize) -> Result<usize, String> {
        match scales.shape[..] {
            [groups, wide] if scales.is_float() && wide == outputs && (1..=inputs).contains(&groups) => Ok(groups),
            _ => {
                let takes = format!("f16, bf16 or f32 [groups, {outputs}] with 1 to {inputs} groups");
                Err(self.unlike(name, scales, &takes))
            }
        }
    }

    /// The group of each input, as a tensor tells.
    fn indices(&self, name: &str, index: &Weights, inputs: usize, groups: usize) -> Result<Vec<u32>, String> {
        if !matches!(index.dtype, DType::I32 | DType::I64) || index.shape != [inputs] {
            return Err(self.unlike(name, index, &format!("i32[{inputs}]")));
        }
        let group = |(at, value): (usize, f64)| {
            if (0.0..groups as f64).contains(&value) {
                Ok(value as u32)
            } else {
                let last = groups - 1;
                Err(format!(
                    "must have groups 0 to {last} in `{name}`, got {value} at {at}: save `{name}` and the scales again"
                ))
            }
        };
        Access::for_dtype(index.dtype).values(&index.bytes).enumerate().map(group).collect()
    }

    /// The group of each input, if all have the same number of inputs in a row.
    fn runs(&self, inputs: usize, groups: usize) -> Result<Vec<u32>, String> {
        let size = inputs / groups;
        // GPTQ lets the last group be smaller, and then the sizes do not tell the size of the
        // others. They do for a power of two.
        let is_clear = inputs.is_multiple_of(groups) && (!self.holds_inputs || groups == 1 || size.is_power_of_two());
        if !is_clear {
            let expected = if self.holds_inputs { "a power of two" } else { "the same number" };
            let help = if self.holds_inputs { "save the layer with `g_idx`" } else { "save the layer again" };
            let found = format!("got {groups} groups for {inputs} inputs");
            return Err(format!("must have {expected} of inputs per group for `{}`, {found}: {help}", self.name));
        }
        Ok((0..inputs).map(|input| (input / size) as u32).collect())
    }

    fn unlike(&self, name: &str, found: &Weights, takes: &str) -> String {
        let Weights { dtype, shape, .. } = found;
        let other = if self.holds_inputs { "awq" } else { "gptq" };
        let help = format!("try `encoding: {other}`, or save the layer as f16");
        format!("has `{name}` as {dtype}{shape:?}, but `{}` expects {takes}: {help}", self.name)
    }
}

fn is_words(weights: &Weights) -> bool {
    matches!(weights.dtype, DType::I32 | DType::U32)
}

fn words(weights: &Weights) -> Vec<u32> {
    weights.bytes.chunks_exact(size_of::<u32>()).map(bytemuck::pod_read_unaligned).collect()
}

#[cfg(test)]
mod tests {
    use crate::base::sha256;
    use crate::weights::config::tests::{ToSave, load, save};
    use limen::message::DType;
    use safetensors::Dtype;
    use serde_json::json;

    /// The bytes of `count` words: multiples of a constant, from the `first`.
    fn words(first: u32, count: u32) -> Vec<u8> {
        (first..first + count).flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect()
    }

    /// Positive f16 with many different bits.
    fn scales(count: u16) -> Vec<u8> {
        (0..count).flat_map(|n| (0x2c00 + 37 * n).to_le_bytes()).collect()
    }

    fn indices(of: impl Fn(i32) -> i32) -> Vec<u8> {
        (0..32).flat_map(|input| of(input).to_le_bytes()).collect()
    }

    /// A layer of 32 inputs and 16 outputs, whose `qweight` has this shape.
    fn layer(qweight: [usize; 2], groups: usize) -> Vec<ToSave<'static>> {
        vec![
            ("l.qweight", Dtype::I32, qweight.to_vec(), words(1, 64)),
            ("l.qzeros", Dtype::I32, vec![groups, 2], words(101, 2 * groups as u32)),
            ("l.scales", Dtype::F16, vec![groups, 16], scales(16 * groups as u16)),
        ]
    }

    /// The checksums are those of the little-endian f32 of NumPy 2.4, from the same words and
    /// scales (`u4` and `f2`), with `s = numpy.arange(0, 32, 4, dtype="u4")`:
    ///
    /// ```text
    /// gptq: q = (qweight.reshape(4, 1, 16) >> s[None, :, None] & 15).reshape(32, 16)
    ///       z = (qzeros.reshape(-1, 2, 1) >> s & 15).reshape(-1, 16) + 1 & 15     without `+ 1` for gptq_v2
    /// awq:  q = (qweight.reshape(32, 2, 1) >> s & 15)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(32, 16), and z in the same way
    /// all:  ((q.astype("f4") - z.astype("f4")[g]) * scales.astype("f4")[g]).T, where g is the group of each input
    /// ```
    ///
    /// The words have zero points from 0 to 15; six of those that GPTQ stores are 15.
    #[test]
    fn every_layout_matches_numpy() {
        let folder = tempfile::tempdir().unwrap();
        let gptq = layer([4, 16], 4);
        let act_order = ("l.g_idx", Dtype::I32, vec![32], indices(|input| input * 7 % 4));
        let in_runs = ("l.g_idx", Dtype::I32, vec![32], indices(|input| input / 8));
        let gptq_sum = "778101396b87414b82c493f8f8bef1dfe362e26155984ef61de04a84f9d34104";
        for (encoding, tensors, widened, first, sum) in [
            ("gptq", gptq.clone(), "gptq, groups: 4, zero points: 0 to 15", [-0.3125, 0.3125, 0.1875], gptq_sum),
            (
                "gptq",
                [&gptq[..], &[in_runs]].concat(),
                "gptq, groups: 4, zero points: 0 to 15",
                [-0.3125, 0.3125, 0.1875],
                gptq_sum,
            ),
            (
                "gptq",
                [&gptq[..], &[act_order]].concat(),
                "gptq, groups: 4, zero points: 0 to 15",
                [-0.3125, -0.216_796_88, -0.144_531_25],
                "65c7267d2ecfd75ac3478701e3d782b58cee277ade1a389439e6f06e124990bb",
            ),
            (
                "gptq",
                layer([4, 16], 1),
                "gptq, groups: 1, zero points: 1 to 15",
                [-0.3125, 0.3125, 0.1875],
                "7aa61150936adacd1f942a8f0c23c82d262f1664f42f4d8f507428749ed7deaf",
            ),
            (
                "gptq_v2",
                gptq.clone(),
                "gptq_v2, groups: 4, zero points: 0 to 15",
                [-0.25, 0.375, 0.25],
                "8695867f5a1f698da135a4c371bdd8a86494ee14c44e26f270bdcaa3a6080633",
            ),
            (
                "awq",
                layer([32, 2], 4),
                "awq, groups: 4, zero points: 0 to 15",
                [-0.25, -0.125, 0.0],
                "6b82afc46ca4f8179ea9b192c80f76d9bb4d15b3a6f13b7c1d68d7d3b3658c25",
            ),
        ] {
            save(&folder.path().join("l.safetensors"), &tensors);
            let config = json!({ "file": "l.safetensors", "tensor": "l", "encoding": encoding });
            let weights = load(folder.path(), config).unwrap();
            assert_eq!((weights.dtype, &weights.shape[..]), (DType::F32, &[16, 32][..]), "{widened}");
            assert_eq!(weights.widened.as_deref(), Some(widened));
            assert_eq!(weights.bytes[..12], first.map(f32::to_le_bytes).concat(), "{widened}");
            assert_eq!(sha256(&weights.bytes), sum, "{widened}");
        }
        let transform = json!([{ "slice": { "to": 8 } }, { "quantize": "symmetric" }]);
        let config = json!({ "file": "l.safetensors", "tensor": "l", "encoding": "awq", "transform": transform });
        let weights = load(folder.path(), config).unwrap();
        assert_eq!((weights.dtype, &weights.shape[..]), (DType::I8, &[8, 32][..]));

        // Without a prefix, the names are those of the parts.
        let parts = layer([4, 16], 4).into_iter().map(|(name, dtype, shape, bytes)| (&name[2..], dtype, shape, bytes));
        save(&folder.path().join("l.safetensors"), &parts.collect::<Vec<_>>());
        let weights = load(folder.path(), json!({ "file": "l.safetensors", "encoding": "gptq" })).unwrap();
        assert_eq!(sha256(&weights.bytes), gptq_sum);
    }

    #[test]
    fn layers_that_do_not_fit_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (gptq, awq) = (layer([4, 16], 4), layer([32, 2], 4));
        let with = |layer: &[ToSave<'static>], name: &'static str, dtype: Dtype, shape: &[usize]| {
            let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
            let others = layer.iter().filter(|part| part.0 != name).cloned();
            others.chain([(name, dtype, shape.to_vec(), bytes)]).collect::<Vec<_>>()
        };
        let without =
            |at: usize| gptq.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, part)| part.clone()).collect();
        let index = |of: fn(i32) -> i32| [&gptq[..], &[("l.g_idx", Dtype::I32, vec![32], indices(of))]].concat();
        let mut infinite = gptq.clone();
        infinite[2].3[62..64].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
        let i32 = Dtype::I32;
        // 96 inputs in groups of 64: the last group has 32.
        let uneven = [
            ("l.qweight", i32, vec![12, 8], vec![0; 384]),
            ("l.qzeros", i32, vec![2, 1], vec![0; 8]),
            ("l.scales", Dtype::F16, vec![2, 8], vec![0; 32]),
        ];
        let awq_uneven = [
            ("l.qweight", i32, vec![9, 1], vec![0; 36]),
            ("l.qzeros", i32, vec![2, 1], vec![0; 8]),
            ("l.scales", Dtype::F16, vec![2, 8], vec![0; 32]),
        ];
        for (encoding, tensors, why) in [
            (
                "gptq",
                without(0),
                "tensor: `l.safetensors` has no tensor `l.qweight`, but `gptq` expects `l.qweight`, `l.qzeros`, `l.scales`: write",
            ),
            ("gptq", without(1), "tensor: `l.safetensors` has no tensor `l.qzeros`"),
            ("gptq", without(2), "tensor: `l.safetensors` has no tensor `l.scales`"),
            (
                "gptq",
                awq.clone(),
                "encoding: `l.safetensors` has `l.qweight` as i32[32, 2], but `gptq` expects i32[k/8, n], where n is a multiple of 8",
            ),
            (
                "awq",
                gptq.clone(),
                "has `l.scales` as f16[4, 16], but `awq` expects f16, bf16 or f32 [groups, 128] with 1 to 4",
            ),
            ("awq", gptq.clone(), ": try `encoding: gptq`"),
            (
                "gptq",
                with(&gptq, "l.qweight", i32, &[64]),
                "`l.qweight` as i32[64], but `gptq` expects i32[k/8, n], where n is a",
            ),
            (
                "gptq",
                with(&gptq, "l.qweight", i32, &[4, 12]),
                "`l.qweight` as i32[4, 12], but `gptq` expects i32[k/8, n]",
            ),
            (
                "gptq",
                with(&gptq, "l.qweight", i32, &[0, 16]),
                "`l.qweight` as i32[0, 16], but `gptq` expects i32[k/8, n]",
            ),
            ("gptq", with(&gptq, "l.qweight", i32, &[1 << 61, 0]), "expects i32[k/8, n]"),
            ("gptq", with(&gptq, "l.qweight", Dtype::F32, &[4, 16]), "`l.qweight` as f32[4, 16]"),
            ("awq", with(&awq, "l.qweight", i32, &[32, 0]), "`l.qweight` as i32[32, 0], but `awq` expects i32[k, n/8]"),
            ("awq", with(&awq, "l.qweight", i32, &[0, 1 << 61]), "`awq` expects i32[k, n/8]"),
            (
                "gptq",
                with(&gptq, "l.scales", Dtype::F16, &[0, 16]),
                "`l.scales` as f16[0, 16], but `gptq` expects f16, bf16 or f32",
            ),
            ("gptq", with(&gptq, "l.scales", Dtype::F16, &[33, 16]), "[groups, 16] with 1 to 32 groups"),
            ("gptq", with(&gptq, "l.scales", Dtype::F16, &[64]), "`l.scales` as f16[64]"),
            ("gptq", with(&gptq, "l.scales", i32, &[4, 16]), "`l.scales` as i32[4, 16]"),
            ("gptq", infinite, "has `l.scales`, which must have finite scales, got inf"),
            ("gptq", with(&gptq, "l.qzeros", i32, &[3, 2]), "`l.qzeros` as i32[3, 2], but `gptq` expects i32[4, 2]"),
            (
                "gptq",
                with(&gptq, "l.qzeros", i32, &[4, 4]),
                "expects i32[4, 2]: try `encoding: awq`, or save the layer as f16",
            ),
            ("gptq", with(&gptq, "l.qzeros", Dtype::U8, &[4, 2]), "`l.qzeros` as u8[4, 2]"),
            ("gptq", with(&gptq, "l.g_idx", i32, &[31]), "`l.g_idx` as i32[31], but `gptq` expects i32[32]"),
            ("gptq", with(&gptq, "l.g_idx", Dtype::F32, &[32]), "`l.g_idx` as f32[32]"),
            ("gptq", index(|input| input / 4), "must have groups 0 to 3 in `l.g_idx`, got 4 at 16: save `l.g_idx`"),
            ("gptq", index(|input| 2 - input), "in `l.g_idx`, got -1 at 3"),
            (
                "gptq",
                uneven.to_vec(),
                "must have a power of two of inputs per group for `gptq`, got 2 groups for 96 inputs",
            ),
            (
                "awq",
                awq_uneven.to_vec(),
                "must have the same number of inputs per group for `awq`, got 2 groups for 9 inputs",
            ),
        ] {
            save(&folder.path().join("l.safetensors"), &tensors);
            let config = json!({ "file": "l.safetensors", "tensor": "l", "encoding": encoding });
            let error = load(folder.path(), config).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let config = json!({ "file": "l.safetensors", "tensor": "l", "encoding": "awq", "scale": "l.scales" });
        let error = load(folder.path(), config).unwrap_err();
        assert_eq!(error, "scale: a 4-bit layer has its own scales: remove `scale:`");
        std::fs::write(folder.path().join("w.bin"), [0; 4]).unwrap();
        let config = json!({ "file": "w.bin", "dtype": "i32", "shape": [1, 1], "encoding": "gptq" });
        let error = load(folder.path(), config).unwrap_err();
        assert!(error.starts_with("tensor: `w.bin` has no tensor `qweight`, but `gptq` expects"), "{error}");
    }

    /// 128 MiB of integers, of which the matrix would take more than weights may.
    #[test]
    fn a_matrix_that_would_be_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut tensors = layer([4, 16], 4);
        tensors[0] = ("l.qweight", Dtype::I32, vec![(1 << 21) + 1, 16], vec![0; ((1 << 21) + 1) * 64]);
        save(&folder.path().join("l.safetensors"), &tensors);
        let config = json!({ "file": "l.safetensors", "tensor": "l", "encoding": "gptq" });
        let error = load(folder.path(), config).unwrap_err();
        let why = "encoding: `l.safetensors` has a matrix that must be at most 1.00 GiB as f32[16, 16777224]";
        assert!(error.starts_with(why), "{error}");
    }
}
