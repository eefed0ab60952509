//! Problems of a graph: where, what was found, what was expected, and a way out.
//!
//! Loading and planning collect [`Problem`]s, each with a place in the graph file and a stable
//! code, and return all of them at once. A node reports problems with its config as [`PlanErrors`],
//! which become [`Problem`]s.

use crate::base::json::object;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A position in a graph file; lines and columns count from one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The file as the user named it; `<graph>` for text from memory.
    pub file: Arc<str>,
    /// Line, from 1; 0 if the text has no such place.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}", Escaped(&self.file))
        } else {
            write!(f, "{}:{}:{}", Escaped(&self.file), self.line, self.column)
        }
    }
}

/// The longest message of a problem, in characters.
const MAX_MESSAGE: usize = 600;

/// A problem in a graph: its code, its place, what was found and expected, and a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Stable code, `E` and four digits.
    pub code: &'static str,
    /// Where it is.
    pub place: Place,
    /// What was found and what was expected.
    pub message: String,
    /// A way out, if one is known.
    pub help: Option<String>,
}

/// The place is not an object of its own: `code`, `file`, `line`, `column`, `message`, `help`.
impl serde::Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Problem { code, place, message, help } = self;
        object!(to, code: code, file: *place.file, line: place.line, column: place.column, message: message, help: help)
    }
}

impl Problem {
    /// Creates a problem at a place.
    pub fn new(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // A message may quote a name of a megabyte.
        if let Some((at, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(at);
            message.push('…');
        }
        Problem { code, place, message, help: None }
    }

    /// Adds a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line each: a name that contains a line break could fake another problem.
        let line = |text: &str| Escaped(text).to_string().replace('\n', " ");
        write!(f, "{}: error[{}]: {}", line(&self.place.to_string()), self.code, line(&self.message))?;
        if let Some(help) = &self.help {
            write!(f, "\n    help: {}", line(help))?;
        }
        Ok(())
    }
}

/// Every problem found in a graph, sorted by place. Never empty when it is an error.
///
/// ```
/// let problems = limen::Spec::from_text("version: 1\nnodes: {}", "g.yaml").unwrap_err();
/// for problem in &problems.0 {
///     println!("line {}: {}", problem.place.line, problem.message);
/// }
/// assert_eq!(problems.0[0].code, "E0113");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Returns true if there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `Ok(value)` if there are no problems.
    ///
    /// # Errors
    /// The problems, sorted by place.
    pub fn into_result<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self.sorted()) }
    }

    /// Sorts by place and removes duplicates.
    pub(crate) fn sorted(mut self) -> Problems {
        self.0.sort_by(|a, b| a.place.cmp(&b.place).then(a.code.cmp(b.code)));
        self.0.dedup();
        self
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// As [`fmt::Display`], so that a `main` that returns the problems prints them for a reader.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Problems {}

/// Problems that a node finds while planning; the engine maps its field names to places in the
/// graph file.
///
/// ```
/// use limen::node::PlanErrors;
/// let mut errors = PlanErrors::default();
/// errors.at("range[1]", "`range[1]` must be above `range[0]`, got 1").help("write `range: [0, 1]`");
/// assert!(errors.into_result(()).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanErrors(pub(crate) Vec<FieldError>);

/// One entry of [`PlanErrors`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    pub(crate) at: NodePart,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NodePart {
    Node,
    Field(String),
    /// A field whose value is not one of a list of names.
    Value(String),
    Input(String),
    /// A connected port, and the specs of its messages and of the port.
    Misfit(String, [String; 2]),
    /// The inputs that the connections of a node do not match, each with a way out where nothing is
    /// connected to it.
    Connections(Vec<(String, Option<String>)>),
}

impl FieldError {
    /// Adds a way out.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }
}

impl PlanErrors {
    /// Adds a problem with the node as a whole.
    pub fn node(&mut self, message: impl Into<String>) -> &mut FieldError {
        self.add(NodePart::Node, message.into())
    }

    /// Adds a problem with a field of the node's config, named as in `batch.max` or `range[1]`.
    pub fn at(&mut self, field: impl Into<String>, message: impl Into<String>) -> &mut FieldError {
        self.add(NodePart::Field(field.into()), message.into())
    }

    /// Adds a problem with a field whose value has to be one of these names, for names that are
    /// known only when the program runs.
    pub fn not_one_of(&mut self, field: impl Into<String>, found: &str, names: &[&str]) -> &mut FieldError {
        let (message, help) = not_one_of(found, names);
        self.add(NodePart::Value(field.into()), message).help(help)
    }

    /// Adds a problem with the connection of an input port.
    pub fn input(&mut self, port: impl Into<String>, message: impl Into<String>) -> &mut FieldError {
        self.add(NodePart::Input(port.into()), message.into())
    }

    /// Adds a problem with the messages of an input port: their spec, that of the port, and how
    /// they differ.
    pub(crate) fn misfit(&mut self, port: &str, specs: [String; 2], why: String) -> &mut FieldError {
        self.add(NodePart::Misfit(port.into(), specs), why)
    }

    /// Reports that the connections of a node do not match its inputs, for a kind that cannot go on
    /// to its ports then. `inputs` has the name of every input, and a way out where nothing is
    /// connected to it, if there is a better one than to connect it. The engine names the
    /// connections without an input, and the inputs without a connection.
    pub fn connections(&mut self, inputs: impl IntoIterator<Item = (String, Option<String>)>) {
        self.add(
            NodePart::Connections(inputs.into_iter().collect()),
            "the connections must match the inputs of the node".into(),
        );
    }

    /// Appends all problems of `others`.
    pub fn append(&mut self, mut others: PlanErrors) {
        self.0.append(&mut others.0);
    }

    /// Returns the messages, one sentence each, without the places.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|error| error.message.as_str())
    }

    fn add(&mut self, at: NodePart, message: String) -> &mut FieldError {
        self.0.push(FieldError { at, message, help: None });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Returns `Ok(value)` if there are no problems.
    ///
    /// # Errors
    /// The problems.
    pub fn into_result<T>(self, value: T) -> Result<T, PlanErrors> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// Returns whether a terminal acts on a character instead of showing it: control characters,
/// bidirectional controls and line separators.
pub fn is_terminal_control(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || bidi || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Text from files, displayed with terminal control characters escaped.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for c in self.0.chars() {
            if c == '\n' || c == '\t' || !is_terminal_control(c) {
                f.write_char(c)?;
            } else {
                write!(f, "{}", c.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Above this many names, only those of the same length and first letter are compared: a graph of
/// ten thousand nodes may have as many wrong names.
const MANY: usize = 256;
/// The maximum number of names listed when none is similar.
const LISTED: usize = 16;

/// What other tools call things, with the names here.
const ELSEWHERE: [(&str, &str); 32] = [
    ("audio", "wav"),
    ("bfloat16", "bf16"),
    ("double", "f64"),
    ("flatten", "reshape"),
    ("float", "f32"),
    ("float16", "f16"),
    ("float32", "f32"),
    ("float64", "f64"),
    ("gray", "grey"),
    ("grayscale", "grey"),
    ("half", "f16"),
    ("image", "image_files"),
    ("images", "image_files"),
    ("inference", "infer"),
    ("int16", "i16"),
    ("int32", "i32"),
    ("int64", "i64"),
    ("int8", "i8"),
    ("json", "jsonl"),
    ("log", "console"),
    ("model", "infer"),
    ("numpy", "npy"),
    ("onnx", "infer"),
    ("onnxruntime", "ort"),
    ("permute", "transpose"),
    ("print", "console"),
    ("sound", "wav"),
    ("uint16", "u16"),
    ("uint32", "u32"),
    ("uint64", "u64"),
    ("uint8", "u8"),
    ("yolo", "decode_yolo"),
];

/// Returns the name most similar to `name`, for "did you mean"; `None` if none is close enough.
///
/// ```
/// assert_eq!(limen::text::nearest("resise", ["argmax", "resize"]), Some("resize"));
/// assert_eq!(limen::text::nearest("numpy", ["npy", "null"]), Some("npy"), "what other tools call it");
/// assert_eq!(limen::text::nearest("upd", ["csv", "udp"]), Some("udp"));
/// assert_eq!(limen::text::nearest("drop_old", ["drop_newest", "drop_oldest"]), Some("drop_oldest"), "it begins so");
/// assert_eq!(limen::text::nearest("a", ["b"]), None);
/// ```
pub fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_of(name, &first(among))
}

/// The names that are compared, collected so that all callers share the code that compares them; of
/// very many, the first ones.
fn first<'a>(among: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    among.into_iter().take(10 * MANY).collect()
}

fn nearest_of<'a>(name: &str, among: &[&'a str]) -> Option<&'a str> {
    let elsewhere = ELSEWHERE.iter().filter(|(other, _)| *other == name);
    if let Some(same) = elsewhere.filter_map(|(_, ours)| among.iter().find(|one| *one == ours)).next() {
        return Some(same);
    }
    let many = among.len() > MANY;
    let one_off = |candidate: &&str| is_one_letter_off(name.as_bytes(), candidate.as_bytes());
    if !many && let Some(near) = among.iter().copied().filter(one_off).min() {
        return Some(near);
    }
    let alike = |candidate: &&str| !many || (candidate.len() == name.len() && candidate.get(..1) == name.get(..1));
    let most = |candidate: &str| (candidate.len().min(name.len()) / 3).max(1);
    // Each byte more is a letter more, so such a candidate need not be compared.
    let is_near = |candidate: &&str| {
        !candidate.is_ascii() || !name.is_ascii() || candidate.len().abs_diff(name.len()) <= most(candidate)
    };
    among
        .iter()
        .copied()
        .filter(alike)
        .take(MANY / 4)
        .filter(is_near)
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        // A candidate that shares no letter is no typo.
        .filter(|(distance, candidate)| *distance <= most(candidate) && *distance < name.len())
        .min()
        .map(|(_, candidate)| candidate)
        .or_else(|| if many { None } else { completed(name, among) })
}

/// Returns the only name that begins with another, which has at least half of its letters.
fn completed<'a>(name: &str, among: &[&'a str]) -> Option<&'a str> {
    let mut begin = among.iter().filter(|candidate| candidate.starts_with(name));
    let only = begin.next().filter(|only| name.len() * 2 >= only.len())?;
    begin.next().is_none().then_some(*only)
}

/// Whether one letter was replaced, added or left out, or two neighbours were exchanged, and the
/// names share a letter. Costs less than a distance.
fn is_one_letter_off(name: &[u8], candidate: &[u8]) -> bool {
    let same = name.iter().zip(candidate).take_while(|(a, b)| a == b).count();
    let (name, candidate) = (&name[same..], &candidate[same..]);
    let tail = name.iter().rev().zip(candidate.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&name[..name.len() - tail], &candidate[..candidate.len() - tail]) {
        ([_], []) | ([], [_]) | ([_], [_]) => same + tail > 0,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

/// Lists names in backticks.
pub(crate) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The problem of a value that is not one of these names, and its help.
pub(crate) fn not_one_of(found: &str, names: &[&str]) -> (String, String) {
    let (message, help) = expected_one_of(names, &format!("`{found}`"));
    (message, nearest(found, names.iter().copied()).map_or(help, suggest_one))
}

/// Does the same for any other value, described by `found`.
pub(crate) fn expected_one_of(names: &[&str], found: &str) -> (String, String) {
    let help = names.first().map_or("remove the value".into(), |first| format!("write a value such as `{first}`"));
    (format!("expected one of {}, found {found}", listed(names)), help)
}

/// "did you mean `x`?", or a list of the candidates.
pub(crate) fn suggest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> String {
    suggest_of(name, &first(among))
}

/// The help that suggests a name.
pub(crate) fn suggest_one(name: &str) -> String {
    format!("did you mean `{name}`?")
}

fn suggest_of(name: &str, among: &[&str]) -> String {
    if let Some(near) = nearest_of(name, among) {
        return suggest_one(near);
    }
    let listed: Vec<_> = among.iter().take(LISTED).map(|n| format!("`{n}`")).collect();
    if let [] | [_] = &listed[..] {
        return listed.first().map_or_else(|| format!("remove `{name}`"), |one| format!("write {one}"));
    }
    let more = match among.len().saturating_sub(LISTED).min(MANY) {
        0 => String::new(),
        MANY => " and many more".into(),
        more => format!(" and {more} more"),
    };
    format!("write one of {}{more}", listed.join(", "))
}
