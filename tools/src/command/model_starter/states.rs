//! Which inputs and outputs of a model are a state, by their names and shapes.

use super::model::Model;
use super::side::{Length, Side};

/// The states of a model, and what is not certain of them.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    /// The ports of input and output.
    pub(super) pairs: Vec<(String, String)>,
    /// What a reader of the graph has to check.
    pub(super) notes: Vec<String>,
}

impl States {
    /// A state has one type as input and output. Its names have the same stem; without such names
    /// it has the only shape of its kind, apart from the model's first input and output, and
    /// several of one shape are in one order.
    pub(super) fn of(model: &Model) -> States {
        let mut states = States::default();
        // An output that is an input under its name would be a state that stays zero.
        let passes = |output: &&Side| model.inputs.iter().any(|input| input.port == output.port);
        let outputs: Vec<&Side> =
            model.outputs.iter().filter_map(|output| output.side.as_ref()).filter(|output| !passes(output)).collect();
        let inputs: Vec<&Side> = model.inputs.iter().filter(|input| may_be_state(input)).collect();
        for stem in [Side::numbered_stem, Side::stem] {
            for input in &inputs {
                let mut like = outputs.iter().filter(|output| input.is_like(output) && !states.has(&output.port));
                if let Some(output) = like.find(|output| stem(input) == stem(output))
                    && !states.has(&input.port)
                {
                    states.pairs.push((input.port.clone(), output.port.clone()));
                }
            }
        }
        states.by_shape(&inputs, &outputs, model);
        // A model has at least one input that is no state.
        let others = model.inputs.iter().filter(|input| !input.is_sample_rate()).count();
        if states.pairs.len() == others { States::default() } else { states }
    }

    fn has(&self, port: &str) -> bool {
        self.pairs.iter().any(|(input, output)| input == port || output == port)
    }

    /// Adds the states that only their shapes show, or what may be one.
    fn by_shape(&mut self, inputs: &[&Side], outputs: &[&Side], model: &Model) {
        let firsts = [model.inputs.first(), model.outputs.first().and_then(|output| output.side.as_ref())];
        let mut seen: Vec<&Side> = Vec::new();
        for input in inputs.iter().filter(|input| input.is_state_shape()) {
            if seen.iter().any(|other| other.is_same(input)) {
                continue;
            }
            seen.push(input);
            let is_data = |side: &Side| firsts.iter().flatten().any(|first| first.port == side.port);
            let free = |side: &&&Side| side.is_same(input) && !self.has(&side.port) && !is_data(side);
            let alike: [Vec<&str>; 2] =
                [inputs, outputs].map(|sides| sides.iter().filter(free).map(|side| &*side.port).collect());
            let [from, to] = &alike;
            if from.is_empty() || to.is_empty() {
                continue;
            }
            let is_first = firsts.iter().flatten().any(|first| first.is_same(input));
            let spec = input.spec();
            if from.len() == to.len() && !is_first {
                let pairs: Vec<_> = std::iter::zip(from, to).map(|(a, b)| (a.to_string(), b.to_string())).collect();
                let shown = pairs.iter().map(|(input, output)| format!("`{input}` and `{output}`"));
                let shown = shown.collect::<Vec<_>>().join(", ");
                let order = if pairs.len() > 1 { " in one order" } else { "" };
                self.notes.push(format!(
                    "a guess: {shown} are a state, because the numbers of inputs and outputs of {spec} are equal{order}; \
                     otherwise remove `state` and connect the input"
                ));
                self.pairs.extend(pairs);
            } else {
                let list = |ports: &[&str]| ports.iter().map(|port| format!("`{port}`")).collect::<Vec<_>>().join(", ");
                let why = if is_first {
                    "the first input or output has the same type"
                } else {
                    "the numbers of inputs and outputs differ"
                };
                self.notes.push(format!(
                    "{} and {} have the type {spec}, and {why}: for a state, write `state: [{{ input: {}, output: {} }}]` and \
                     remove the input",
                    list(from),
                    list(to),
                    from[0],
                    to[0],
                ));
            }
        }
    }
}

/// Whether an input can be a state at all: an image that becomes an image is none, unless its name
/// says so.
fn may_be_state(input: &Side) -> bool {
    !input.is_sample_rate() && (input.says_state() || input.shape.len() > 1 && input.image_dims().is_none())
}

impl Side {
    /// Whether it has a shape that only states usually have: several layers or channels of fixed
    /// lengths.
    fn is_state_shape(&self) -> bool {
        let open = self.shape.iter().filter(|dim| matches!(dim, Length::Open(_))).count();
        let is_open_first = matches!(self.shape.first(), Some(Length::Open(_)));
        let is_batch_only = open == 0 || open == 1 && (is_open_first || self.has_inner_batch);
        matches!(&*self.dtype, "f32" | "f16") && self.shape.len() > 2 && is_batch_only && self.image_dims().is_none()
    }

    fn is_same(&self, other: &Side) -> bool {
        self.dtype == other.dtype && self.shape == other.shape
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sides, inspection};
    use super::*;

    fn states(inputs: Sides<'_>, outputs: Sides<'_>) -> (Vec<String>, String) {
        let model = Model::of(&inspection(inputs, outputs), "m.onnx").unwrap();
        let States { pairs, notes } = States::of(&model);
        (pairs.into_iter().map(|(a, b)| format!("{a} {b}")).collect(), notes.join("\n"))
    }

    #[test]
    fn a_state_has_a_like_name_and_shape() {
        let (x, y) = (("x", "f32[n,t]"), ("y", "f32[n,4]"));
        for (inputs, outputs, expected) in [
            (
                &[x, ("h", "f32[2,n,64]"), ("c", "f32[2,n,64]")][..],
                &[("cn", "f32[2,n,64]"), ("hn", "f32[2,n,64]")][..],
                &["h hn", "c cn"][..],
            ),
            (&[x, ("state", "f32[2,n,64]")], &[("next_state", "f32[2,n,64]")], &["state next_state"]),
            (&[x, ("past_key", "f32[1,n,8]")], &[("present_key", "f32[1,n,8]")], &["past_key present_key"]),
            // As many layers as an image has colours.
            (&[x, ("h0", "f32[3,n,64]")], &[("hn", "f32[3,n,64]")], &["h0 hn"]),
            // The shape of an image; four of one shape, whose outputs have another order.
            (
                &[x, ("in_cache0", "f32[1,128,19,1]"), ("in_cache1", "f32[1,128,19,1]")],
                &[y, ("out_cache1", "f32[1,128,l,1]"), ("out_cache0", "f32[1,128,l,1]")],
                &["in_cache0 out_cache0", "in_cache1 out_cache1"],
            ),
            (
                &[x, ("past_key_values_0_key", "f32[n,8,99,64]"), ("past_key_values_1_key", "f32[n,8,99,64]")],
                &[y, ("present_1_key", "f32[n,8,99,64]"), ("present_0_key", "f32[n,8,99,64]")],
                &["past_key_values_0_key present_0_key", "past_key_values_1_key present_1_key"],
            ),
            (
                &[x, ("cache_last_channel", "f32[n,17,70,512]"), ("cache_last_channel_len", "i32[n]")],
                &[y, ("cache_last_channel_next", "f32[n,17,70,512]"), ("cache_last_channel_len_next", "i32[n]")],
                &["cache_last_channel cache_last_channel_next", "cache_last_channel_len cache_last_channel_len_next"],
            ),
            (
                &[x, ("att_cache", "f32[12,4,8,128]")],
                &[y, ("r_att_cache", "f32[12,4,8,128]")],
                &["att_cache r_att_cache"],
            ),
            (&[x, ("r1i", "f32[n,16,h,w]")], &[y, ("r1o", "f32[n,16,h,w]")], &["r1i r1o"]),
            (&[x, ("h", "f32[2,n,64]")], &[y, ("h", "f32[2,n,64]")], &[]),
            // All inputs cannot be states.
            (&[("state", "f32[2,n,64]")], &[("next_state", "f32[2,n,64]")], &[]),
            // Another shape, or nothing in common but the shape of the data.
            (&[x, ("state", "f32[2,n,64]")], &[("staten", "f32[2,n,32]")], &[]),
            (&[("x", "f32[n,4]")], &[("y", "f32[n,4]")], &[]),
            (&[x, ("img_in", "f32[n,3,h,w]")], &[y, ("img_out", "f32[n,3,h,w]")], &[]),
        ] {
            assert_eq!(
                states(inputs, outputs),
                (expected.iter().map(|pair| pair.to_string()).collect(), String::new())
            );
        }
    }

    #[test]
    fn a_shape_of_its_own_shows_a_state_and_others_are_noted() {
        let (x, y) = (("input_2", "f32[1,1,257]"), ("activation_2", "f32[1,1,257]"));
        let (a, b) = (("input_3", "f32[1,2,128,2]"), ("stack_2", "f32[1,2,128,2]"));
        let (c, d) = (("input_4", "f32[1,2,128,2]"), ("stack_5", "f32[1,2,128,2]"));
        for (inputs, outputs, expected, note) in [
            (&[x, a][..], &[y, b][..], &["input_3 stack_2"][..], "a guess: `input_3` and `stack_2` are a state"),
            (&[x, a, c], &[y, b, d], &["input_3 stack_2", "input_4 stack_5"], "are equal in one order"),
            (
                &[x, a, c],
                &[y, b],
                &[],
                "`input_3`, `input_4` and `stack_2` have the type f32[1,2,128,2], and the numbers",
            ),
            (
                &[x, ("input_4", "f32[1,1,257]")],
                &[y, ("z", "f32[1,1,257]")],
                &[],
                "the first input or output has the same type",
            ),
            // A row of numbers may be anything.
            (&[x, ("style", "f32[n,256]")], &[y, ("z", "f32[n,256]")], &[], ""),
        ] {
            let (found, notes) = states(inputs, outputs);
            assert_eq!(found, expected, "{inputs:?}");
            assert!(notes.contains(note) && notes.is_empty() == note.is_empty(), "{notes}");
        }
    }
}
