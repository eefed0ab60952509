//! An input or output as a model declares it, and what its dims and its name hint at.

use limen_infer::Binding;

/// Words in the names of inputs, and of their dims.
const IMAGE_WORDS: [&str; 5] = ["image", "img", "pixel", "picture", "photo"];
const SOUND_WORDS: [&str; 6] = ["audio", "sound", "wav", "speech", "voice", "pcm"];
const FEATURE_WORDS: [&str; 7] = ["spec", "mel", "mfcc", "embed", "feat", "fbank", "stft"];
const SEQUENCE_WORDS: [&str; 6] = ["frame", "time", "seq", "step", "sample", "token"];
const STATE_WORDS: [&str; 8] = ["cache", "state", "hidden", "memory", "past", "present", "lstm", "gru"];

/// What tells an input from an output.
const SIDE_WORDS: [&str; 16] = [
    "next", "new", "prev", "previous", "past", "present", "in", "out", "input", "output", "n", "r", "init", "initial",
    "final", "updated",
];
/// What else differs in the names of an input and an output.
const STEP_WORDS: [&str; 3] = ["0", "1", "t"];

fn has_word(name: &str, words: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    words.iter().any(|word| name.contains(word))
}

/// A dim as the model declares it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Length {
    Fixed(usize),
    Open(String),
}

impl Length {
    pub(super) fn or(&self, open: usize) -> usize {
        match self {
            Length::Fixed(length) => *length,
            Length::Open(_) => open,
        }
    }
}

/// A declared input or output.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) port: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<Length>,
    /// Whether all dims are those of an item, as with `batch_dim: none`.
    pub(super) is_whole: bool,
    /// Whether a dim behind the first is the batch of the inputs, as in the state of a recurrent
    /// layer.
    pub(super) has_inner_batch: bool,
    /// Whether the model takes f64, where messages have f32.
    pub(super) is_narrowed: bool,
}

impl Side {
    /// Reads `f32[n,3,8,8]`; `None` without a declared type.
    pub(super) fn of(binding: &Binding) -> Option<Side> {
        let (dtype, dims) = binding.spec.as_ref()?.split_once('[')?;
        let mut depth = 0;
        // The name of a dim may be an expression: `floor(a,2)`.
        let is_end = |letter: char| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            letter == ',' && depth == 0
        };
        let dims = dims.strip_suffix(']')?.split(is_end).filter(|dim| !dim.is_empty());
        let length = |dim: &str| dim.parse().map_or_else(|_| Length::Open(dim.to_string()), Length::Fixed);
        Some(Side {
            port: binding.port.clone(),
            dtype: dtype.to_string(),
            shape: dims.map(length).collect(),
            is_whole: false,
            has_inner_batch: false,
            is_narrowed: false,
        })
    }

    /// Returns its type, with `?` for dims that are open: `f32[?,3,8,8]`.
    pub(super) fn spec(&self) -> String {
        let show = |length: &Length| match length {
            Length::Fixed(length) => length.to_string(),
            Length::Open(_) => "?".into(),
        };
        format!("{}[{}]", self.dtype, self.shape.iter().map(show).collect::<Vec<_>>().join(","))
    }

    /// The shape of one item, without the batch.
    pub(super) fn item(&self) -> &[Length] {
        match self.shape.split_first() {
            Some((Length::Open(_) | Length::Fixed(1), item)) if !self.is_whole => item,
            _ => &self.shape,
        }
    }

    /// Returns height, width, channels, and whether the channels come first, if it can be an image.
    pub(super) fn image_dims(&self) -> Option<([&Length; 3], bool)> {
        let channels = |length: &Length| matches!(length, Length::Fixed(1 | 3));
        if self.has_inner_batch || !matches!(&*self.dtype, "f32" | "f16" | "u8") {
            return None;
        }
        match self.item() {
            [c, h, w] if channels(c) => Some(([h, w, c], true)),
            [h, w, c] if channels(c) => Some(([h, w, c], false)),
            _ => None,
        }
    }

    /// Whether its name says that it is an image.
    pub(super) fn says_image(&self) -> bool {
        has_word(&self.port, &IMAGE_WORDS)
    }

    /// Whether its name says that it is a recording, or the name of a dim that it has samples.
    pub(super) fn says_sound(&self) -> bool {
        let is_named = has_word(&self.port, &SOUND_WORDS) || self.has_dim(&["sample", "audio"]);
        is_named && !has_word(&self.port, &FEATURE_WORDS)
    }

    /// Whether names say that it is no image, even if it has the shape of one: sound, features, or
    /// a sequence.
    pub(super) fn says_no_image(&self) -> bool {
        let is_named = has_word(&self.port, &SOUND_WORDS) || has_word(&self.port, &FEATURE_WORDS);
        (is_named || self.has_dim(&SEQUENCE_WORDS)) && !self.says_image()
    }

    /// Whether it can be a recording with at least 10 ms in an item, as far as its shape says.
    pub(super) fn may_be_sound(&self) -> bool {
        let is_long = |dim: &Length| matches!(dim, Length::Open(_) | Length::Fixed(160..));
        self.is_row() && self.item().iter().any(is_long) && !has_word(&self.port, &FEATURE_WORDS)
    }

    /// Whether its items are numbers in a row: at most one length is not 1.
    pub(super) fn is_row(&self) -> bool {
        let item = self.item();
        self.dtype == "f32" && !item.is_empty() && item.iter().filter(|dim| **dim != Length::Fixed(1)).count() <= 1
    }

    /// Whether the name of an open dim of an item has one of these words.
    fn has_dim(&self, words: &[&str]) -> bool {
        self.item().iter().any(|dim| matches!(dim, Length::Open(name) if has_word(name, words)))
    }

    /// Whether it is a number of samples per second.
    pub(super) fn is_sample_rate(&self) -> bool {
        matches!(&*self.port, "sr" | "rate" | "sample_rate" | "sampling_rate" | "samplerate")
            && self.elements() == Some(1)
    }

    /// Whether it has the lengths of another side, as far as both declare them.
    pub(super) fn is_like(&self, other: &Side) -> bool {
        let same = |(a, b): (&Length, &Length)| a == b || matches!(a, Length::Open(_)) || matches!(b, Length::Open(_));
        self.dtype == other.dtype
            && self.shape.len() == other.shape.len()
            && std::iter::zip(&self.shape, &other.shape).all(same)
    }

    /// Whether its name says that it is a state.
    pub(super) fn says_state(&self) -> bool {
        has_word(&self.port, &STATE_WORDS)
    }

    /// The name without what tells an input from an output: `state` for `state_in`, `stateN` and
    /// `next_state`.
    pub(super) fn stem(&self) -> String {
        self.stem_without(&[&SIDE_WORDS[..], &STEP_WORDS].concat(), &["n", "0", "out", "in"])
    }

    /// Like [`stem`](Side::stem), with the numbers of a name: `cache1` for `in_cache1`.
    pub(super) fn numbered_stem(&self) -> String {
        self.stem_without(&SIDE_WORDS, &["n", "out", "in"])
    }

    fn stem_without(&self, words: &[&str], endings: &[&str]) -> String {
        // `present.0.key` is what `past_key_values.0.key` becomes.
        let mut stem = self.port.replace("past_key_values_", "past_");
        loop {
            let before = stem.clone();
            for word in words {
                for (head, tail) in [(format!("{word}_"), String::new()), (String::new(), format!("_{word}"))] {
                    let rest = stem.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail));
                    stem = rest.filter(|rest| !rest.is_empty()).map_or(stem.clone(), str::to_string);
                }
            }
            for ending in endings {
                let rest = stem.strip_suffix(ending).filter(|rest| !rest.is_empty() && self.shape.len() > 1);
                stem = rest.map_or(stem.clone(), |rest| rest.trim_end_matches('_').to_string());
            }
            // `r1o` for `r1i`.
            let is_numbered = |rest: &&str| rest.ends_with(|c: char| c.is_ascii_digit());
            stem = stem.strip_suffix(['i', 'o']).filter(is_numbered).map_or(stem.clone(), str::to_string);
            if stem == before || stem.is_empty() {
                return before;
            }
        }
    }

    /// Returns the number of elements of an item, if its lengths are declared.
    pub(super) fn elements(&self) -> Option<usize> {
        let lengths = self.item().iter().map(|length| if let Length::Fixed(n) = length { Some(*n) } else { None });
        lengths.product()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::super::tests::inspection;

    #[test]
    fn names_say_what_an_input_is_no_image_of() {
        for (port, spec, no_image, sound, may_be_sound) in [
            ("degraded_audio", "f32[n,1,frames,257]", true, true, false),
            ("input", "f32[n,3,frames,160]", true, false, false),
            ("mel_window", "f32[n,1,80,40]", true, false, false),
            ("audio_embed", "f32[n,512]", true, false, false),
            ("rater_embed", "f32[n,64]", true, false, false),
            ("waveform", "f32[n,1,t]", true, true, true),
            ("input", "f32[n,samples]", true, true, true),
            ("input", "f32[n,43844,1]", false, false, true),
            ("input", "f32[n,4]", false, false, false),
            ("x", "f32[n,3,h,w]", false, false, false),
            ("images", "f32[frames,3,h,w]", false, false, false),
            ("image_features", "f32[n,1,h,w]", false, false, false),
        ] {
            let model = Model::of(&inspection(&[(port, spec)], &[("y", "f32[n,4]")]), "m.onnx").unwrap();
            let x = &model.inputs[0];
            let found = (x.says_no_image(), x.says_sound(), x.may_be_sound());
            assert_eq!(found, (no_image, sound, may_be_sound), "{port} {spec}");
        }
    }
}
