//! The greatest lengths of an output whose lengths depend on values.

use super::model::{Model, StarterOutput};
use super::nodes;
use super::side::Length;

/// Lengths that are written if no trial gives more.
const LENGTHS: std::ops::RangeInclusive<usize> = 100..=1000;
/// About the most bytes of the greatest output, and of that of a trial.
const BYTES: usize = 1 << 20;
const TRIAL_BYTES: usize = 16 << 20;
const MAX_TRIAL: usize = 1 << 16;

/// An output whose lengths depend on values.
#[derive(Clone, Debug)]
pub(super) struct VaryingOutput {
    pub(super) port: String,
    /// The dims of an item, if more than one of them is open.
    dims: Vec<Option<usize>>,
    /// Bytes of the part with declared lengths.
    row: usize,
}

impl VaryingOutput {
    /// Returns the bounds that a model needs.
    pub(super) fn all(model: &Model) -> Vec<VaryingOutput> {
        model.outputs.iter().filter_map(|output| VaryingOutput::of(output, model)).collect()
    }

    fn of(output: &StarterOutput, model: &Model) -> Option<VaryingOutput> {
        if !output.depends_on_values {
            return None;
        }
        let shape = output.side.as_ref().map_or(&[][..], |side| &side.shape);
        let is_batch = |dim: &Length| {
            *dim == Length::Fixed(1) || model.inputs.iter().any(|input| input.shape.first() == Some(dim))
        };
        let item = match shape.split_first() {
            Some((first, rest)) if model.no_batch.is_none() && is_batch(first) => rest,
            _ => shape,
        };
        // Lengths that the model declares need none.
        if output.side.is_some() && item.iter().all(|dim| matches!(dim, Length::Fixed(_))) {
            return None;
        }
        let dims: Vec<Option<usize>> =
            item.iter().map(|dim| if let Length::Fixed(length) = dim { Some(*length) } else { None }).collect();
        let row = dims.iter().flatten().fold(4, |bytes: usize, length| bytes.saturating_mul(*length)).max(1);
        // One length is enough for one dim.
        let dims = if dims.iter().filter(|dim| dim.is_none()).count() > 1 { dims } else { Vec::new() };
        Some(VaryingOutput { port: output.port.clone(), dims, row })
    }

    /// Returns the length to write, from the greatest that a trial gave.
    pub(super) fn length(&self, seen: Option<usize>) -> usize {
        let guess = (BYTES / self.row).clamp(*LENGTHS.start(), *LENGTHS.end());
        if self.dims.is_empty() { guess } else { *LENGTHS.start() }.max(seen.unwrap_or(0).saturating_mul(2))
    }

    /// Returns the length for a trial, which shows the length to write.
    pub(super) fn trial_length(&self) -> usize {
        if self.dims.is_empty() {
            (TRIAL_BYTES / self.row).clamp(self.length(None), MAX_TRIAL)
        } else {
            self.length(None)
        }
    }

    /// Returns the config for a length.
    pub(super) fn lengths(&self, length: usize) -> Vec<usize> {
        if self.dims.is_empty() { vec![length] } else { self.dims.iter().map(|dim| dim.unwrap_or(length)).collect() }
    }

    /// Returns `boxes: 100`.
    pub(super) fn show(&self, length: usize) -> String {
        let port = nodes::port(&self.port);
        match &self.lengths(length)[..] {
            [length] => format!("{port}: {length}"),
            lengths => format!("{port}: {lengths:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::side::Side;
    use super::*;

    #[test]
    fn a_bound_is_at_least_a_hundred_and_twice_what_was_seen() {
        let fixed = Length::Fixed;
        let open = |name: &str| Length::Open(name.into());
        let side = |port: &str, shape: &[Length]| Side {
            port: port.into(),
            dtype: "f32".into(),
            shape: shape.to_vec(),
            is_whole: false,
            has_inner_batch: false,
            is_narrowed: false,
        };
        for (shape, seen, expected) in [
            (Some(vec![open("k"), fixed(6)]), None, "y: 1000"),
            (Some(vec![open("k"), fixed(6)]), Some(700), "y: 1400"),
            (Some(vec![open("n"), open("k"), fixed(6)]), Some(7), "y: 1000"),
            (Some(vec![open("k"), fixed(160), fixed(160)]), Some(7), "y: 100"),
            (Some(vec![open("k"), open("l"), fixed(2)]), None, "y: [100, 100, 2]"),
            (None, None, "y: 1000"),
            (Some(vec![fixed(8)]), None, ""),
            (Some(vec![open("n"), fixed(8)]), None, ""),
        ] {
            let declared = shape.map(|shape| side("y", &shape));
            let output =
                StarterOutput { port: "y".into(), side: declared, is_narrowed: false, depends_on_values: true };
            let inputs = vec![side("x", &[open("n"), fixed(4)])];
            let model = Model {
                file: "m.onnx".into(),
                inputs,
                outputs: vec![output],
                computes_f64: false,
                alphabet: None,
                trained: None,
                no_batch: None,
            };
            let bounds = VaryingOutput::all(&model);
            let shown: Vec<String> = bounds.iter().map(|bound| bound.show(bound.length(seen))).collect();
            assert_eq!(shown.join(" "), expected);
        }
    }
}
