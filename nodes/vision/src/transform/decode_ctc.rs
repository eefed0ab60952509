//! Text from the output of a model for speech or printed text.

use limen::Folders;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::file::input_file::{self, FileProblem};
use limen_nodes_core::tensor::{cost, shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// Decodes the output of a model trained with CTC, `f32[steps,classes]`, to text. The outputs are
/// `text` `u8[≤n]` in UTF-8, and `score` `f32[]`.
///
/// The node selects the best class of each step, merges equal neighbours, and removes blanks. If
/// several classes have the best score, the node selects the first class. `score` is the mean score
/// of the steps that produced a symbol, or 0 if no step produced a symbol. If the model's scores
/// are not probabilities, add a `softmax` node upstream. The node ignores NaN. If all scores of a
/// step are NaN, the call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeCtcConfig {
    /// Text file with the symbols of the model, relative to the graph's folder. The file has one
    /// symbol per line, in class order. The blank has no line. An empty line represents a class
    /// that adds nothing to the text.
    pub alphabet: String,
    /// Position of the blank class, `first` or `last`. Default: `first`.
    #[serde(default)]
    pub blank: Blank,
    /// Whether the model has a space class after the symbols of the file. Default: `false`.
    #[serde(default)]
    pub space: bool,
}

/// Position of the blank class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Blank {
    /// Class 0, before the symbols.
    #[default]
    First,
    /// The class after all symbols.
    Last,
}

/// Bytes of the longest alphabet.
const MAX_ALPHABET: u64 = 4 << 20;
/// Bytes of the longest symbol. Every step may give it, so it decides how long a text can become.
const MAX_SYMBOL: usize = 64;

/// The symbol of each class; that of the blank is empty.
#[derive(Debug)]
struct Alphabet {
    symbols: Vec<Box<str>>,
    blank: usize,
}

impl Alphabet {
    fn open(config: &DecodeCtcConfig, folders: &Folders) -> Result<Self, FileProblem> {
        let text = input_file::read_whole(&config.alphabet, folders, MAX_ALPHABET)?;
        Alphabet::of(&text, config).map_err(|why| {
            (
                format!("`{}`: {why}", config.alphabet),
                "write the path of a text file with one symbol per line, in UTF-8".into(),
            )
        })
    }

    fn of(text: &[u8], config: &DecodeCtcConfig) -> Result<Self, String> {
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("expected UTF-8 text, found another encoding at byte {}", error.valid_up_to()))?;
        let mut symbols: Vec<Box<str>> = text.lines().map(Box::from).collect();
        if symbols.is_empty() {
            return Err("expected a symbol, found an empty file".into());
        }
        if let Some(line) = symbols.iter().position(|symbol| symbol.len() > MAX_SYMBOL) {
            let length = symbols[line].len();
            return Err(format!("expected at most {MAX_SYMBOL} bytes in line {}, found {length}", line + 1));
        }
        if config.space {
            symbols.push(" ".into());
        }
        let blank = if config.blank == Blank::First { 0 } else { symbols.len() };
        symbols.insert(blank, "".into());
        Ok(Alphabet { symbols, blank })
    }

    fn classes(&self) -> usize {
        self.symbols.len()
    }

    /// Returns the bytes of the longest symbol.
    fn longest(&self) -> usize {
        self.symbols.iter().map(|symbol| symbol.len()).max().unwrap_or(0)
    }

    /// Appends the text of the best classes and returns the mean of their scores.
    fn decode(&self, scores: &[f32], text: &mut String) -> Result<f32, NodeError> {
        let (mut before, mut sum, mut kept) = (self.blank, 0.0, 0_u32);
        for (scores, step) in scores.chunks_exact(self.classes()).zip(0..) {
            let (class, score) = greatest(scores).ok_or_else(|| {
                NodeError::input("in", format!("expected a score other than NaN in step {step}, found none"))
            })?;
            if class != before && class != self.blank {
                text.push_str(&self.symbols[class]);
                (sum, kept) = (sum + f64::from(score), kept + 1);
            }
            before = class;
        }
        Ok(if kept == 0 { 0.0 } else { (sum / f64::from(kept)) as f32 })
    }
}

/// Returns the index and value of the first greatest score, ignoring NaN.
fn greatest(scores: &[f32]) -> Option<(usize, f32)> {
    let numbers = scores.iter().copied().enumerate().filter(|(_, score)| !score.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Runs `kind: decode_ctc`; [`DecodeCtcConfig`] says what it does.
#[derive(Debug)]
pub struct DecodeCtc {
    alphabet: Alphabet,
    text: String,
}

impl Node for DecodeCtc {
    type Config = DecodeCtcConfig;

    fn ports(config: &DecodeCtcConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let alphabet = Alphabet::open(config, cx.folders);
        if let Err((message, help)) = &alphabet {
            errors.at("alphabet", message).help(help);
        }
        let shape = shape::matrix_dims(given.single()).cloned();
        if let (Ok(alphabet), Some([_, classes])) = (&alphabet, &shape)
            && *classes != Dim::Fixed(alphabet.classes())
        {
            let (expected, space) = (alphabet.classes(), if config.space { ", the space" } else { "" });
            let message = format!(
                "expected {expected} classes for the symbols of the alphabet{space} and the blank, found {classes}"
            );
            let help = if *classes == Dim::Fixed(expected + 1) && !config.space {
                "write `space: true` if the last class of the model is a space"
            } else {
                "write the alphabet of this model in `alphabet`"
            };
            errors.input("in", message).help(help);
        }
        let shape = shape.unwrap_or_else(|| ["steps", "classes"].map(|name| Dim::Symbol(name.into())));
        let steps = shape[0].max();
        let text = alphabet.ok().zip(steps).map(|(alphabet, steps)| {
            let longest = Dim::AtMost(steps.saturating_mul(alphabet.longest()));
            PortSpec::new(DType::U8, [longest]).with_content(Content::Text)
        });
        // The text is put together in a buffer of its own.
        let buffer = text.as_ref().and_then(PortSpec::max_bytes).unwrap_or(0);
        let ports = Ports::new()
            .memory(buffer)
            .input("in", PortSpec::new(DType::F32, shape))
            .out_port(OutPort { name: "text".into(), spec: text, emits: 1, rows: 1, forwards: Vec::new() })
            .output("score", PortSpec::fixed(DType::F32, []))
            .cost(cost::of_spec(given.single()).max(Cost::Medium));
        errors.into_result(ports)
    }

    fn build(config: DecodeCtcConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let alphabet = Alphabet::open(&config, cx.folders())
            .map_err(|(message, _)| NodeError::input(&*config.alphabet, message))?;
        // The file may have been replaced since planning.
        let classes = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.shape.last()?.max());
        if classes != Some(alphabet.classes()) {
            let planned = classes.map_or_else(|| "none".to_string(), |classes| classes.to_string());
            let found = alphabet.classes();
            let why = format!("expected {planned} classes as planned, found {found} in the file: restart the graph");
            return Err(NodeError::input(&*config.alphabet, why));
        }
        let length = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.max_bytes());
        Ok(DecodeCtc { alphabet, text: String::with_capacity(length.unwrap_or(0)) })
    }
}

impl Transform for DecodeCtc {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        self.text.clear();
        let mean = self.alphabet.decode(input.body.as_slice()?, &mut self.text)?;
        if out.0.is_connected() {
            let mut text = out.0.loan(input.header())?;
            text.set_len(0, self.text.len())?;
            text.bytes_mut().copy_from_slice(self.text.as_bytes());
            out.0.send(text);
        }
        if out.1.is_connected() {
            let mut score = out.1.loan(input.header())?;
            score.as_mut_slice::<f32>()?[0] = mean;
            out.1.send(score);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(blank: Blank, space: bool) -> DecodeCtcConfig {
        DecodeCtcConfig { alphabet: "a.txt".into(), blank, space }
    }

    /// Returns scores whose best class of each step is given, with its score; the others have a
    /// third of it.
    fn scores(classes: usize, best: &[(usize, f32)]) -> Vec<f32> {
        best.iter()
            .flat_map(|(best, score)| (0..classes).map(move |n| if n == *best { *score } else { score / 3.0 }))
            .collect()
    }

    /// The expected texts and scores were computed with NumPy from the same scores, in the way of
    /// PaddleOCR: `best = scores.argmax(1)`; `keep` is true for the first step, then
    /// `best[1:] != best[:-1]`, and `keep &= best != blank`; the score is
    /// `scores.max(1)[keep].mean()`, 0 if nothing is kept.
    #[test]
    fn equal_neighbours_are_merged_and_blanks_removed() {
        let alphabet = "a\nb\né\n\n".as_bytes();
        for (blank, space, best, expected, score) in [
            (Blank::First, false, &[(1, 0.9), (1, 0.5), (0, 0.9), (1, 0.7), (2, 0.5), (0, 0.8)][..], "aab", 0.7),
            (Blank::Last, false, &[(4, 0.9), (0, 0.25), (0, 0.5), (2, 0.75)], "aé", 0.5),
            (Blank::First, true, &[(1, 0.6), (5, 0.6), (5, 0.7), (3, 0.6)], "a é", 0.6),
            (Blank::Last, true, &[(4, 0.5), (5, 0.9), (4, 1.0)], "  ", 0.75),
            // The symbol of an empty line has a score, but no text.
            (Blank::First, false, &[(1, 0.5), (4, 1.0), (1, 0.5)], "aa", 2.0 / 3.0),
            (Blank::First, false, &[(0, 0.9), (0, 0.9)], "", 0.0),
            (Blank::First, false, &[], "", 0.0),
        ] {
            let alphabet = Alphabet::of(alphabet, &config(blank, space)).unwrap();
            assert_eq!(alphabet.classes(), 5 + usize::from(space));
            let mut text = String::new();
            let mean = alphabet.decode(&scores(alphabet.classes(), best), &mut text).unwrap();
            assert_eq!(text, expected, "{best:?}");
            assert!((mean - score).abs() < 1e-6, "{best:?}: {mean}");
        }
    }

    #[test]
    fn of_equal_scores_the_first_wins_and_nan_is_ignored() {
        let alphabet = Alphabet::of(b"a\nb", &config(Blank::First, false)).unwrap();
        let mut text = String::new();
        let steps = [0.1, 0.4, 0.4, f32::NAN, f32::NAN, 0.2, 0.1, f32::NAN, 0.0];
        assert!((alphabet.decode(&steps, &mut text).unwrap() - 0.3).abs() < 1e-6);
        assert_eq!(text, "ab");
        let error = alphabet.decode(&[0.0, 0.0, 0.0, f32::NAN, f32::NAN, f32::NAN], &mut text).unwrap_err();
        assert!(error.to_string().contains("step 1"), "{error}");
    }

    #[test]
    fn alphabets_that_cannot_be_used_are_refused() {
        let long = "x".repeat(MAX_SYMBOL + 1);
        for (text, expected) in [
            (&b""[..], "expected a symbol"),
            (b"a\n\xff\n", "at byte 2"),
            (format!("a\n{long}").as_bytes(), "in line 2, found 65"),
        ] {
            let message = Alphabet::of(text, &config(Blank::First, true)).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let windows = Alphabet::of(b"a\r\n \r\n", &config(Blank::Last, false)).unwrap();
        assert_eq!(windows.symbols, ["a", " ", ""].map(Box::from));
    }
}
