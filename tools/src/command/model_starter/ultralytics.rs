//! What the exporter of Ultralytics writes into a model's metadata: the task, the size of images,
//! the names of the classes.
//!
//! The texts are those of Python. They are read, not run; one that does not fit the model's shapes
//! is left out.

use limen_infer::Inspection;

/// The greatest height and width of an image, and the most pixels: in f32 they have 48 MiB.
const MAX_SIDE: usize = 4096;
const MAX_PIXELS: usize = 2048 * 2048;
/// The most classes, and the most letters of a name.
const MAX_NAMES: usize = 10_000;
const MAX_NAME: usize = 200;

/// What a model does, as its metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelTask {
    /// Boxes.
    Detect,
    /// Boxes, each followed by the coefficients of a mask or the points of a pose.
    Parts,
    /// Anything else.
    Other,
}

/// The metadata of a model that Ultralytics exported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ultralytics {
    pub(super) task: ModelTask,
    /// Height and width of its images.
    pub(super) sides: Option<[usize; 2]>,
    /// The names of its classes, in their order; empty if they cannot be read.
    pub(super) names: Vec<String>,
    /// Whether the model chooses among overlapping boxes itself.
    pub(super) is_end_to_end: bool,
}

impl Ultralytics {
    /// Reads it, if the file has it.
    pub(super) fn of(found: &Inspection) -> Option<Ultralytics> {
        let (names_text, _) = found.metadata("names").zip(found.metadata("stride"))?;
        let is_true = |key: &str| found.metadata(key).is_some_and(|text| text.trim() == "True");
        let task = match found.metadata("task").map_or("detect", str::trim) {
            "detect" => ModelTask::Detect,
            "segment" | "pose" => ModelTask::Parts,
            _ => ModelTask::Other,
        };
        Some(Ultralytics {
            task,
            sides: found.metadata("imgsz").and_then(sides),
            names: names(names_text).unwrap_or_default(),
            is_end_to_end: is_true("end2end")
                || found.metadata("args").is_some_and(|args| args.contains("'nms': True")),
        })
    }
}

/// Reads `640` or `[480, 640]`.
fn sides(text: &str) -> Option<[usize; 2]> {
    let text = text.trim();
    let inner = text.strip_prefix(['[', '(']).and_then(|text| text.strip_suffix([']', ')'])).unwrap_or(text);
    let lengths: Option<Vec<usize>> = inner.split(',').map(|side| side.trim().parse().ok()).collect();
    let sides = match &lengths?[..] {
        [side] => [*side; 2],
        [height, width] => [*height, *width],
        _ => return None,
    };
    let fits = sides.iter().all(|side| (1..=MAX_SIDE).contains(side)) && sides[0] * sides[1] <= MAX_PIXELS;
    fits.then_some(sides)
}

/// Reads `{0: 'person', 1: "dog's bowl"}` or a list of names; their numbers must be in order.
fn names(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    let map = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let mut rest = map.or(list)?.trim_start();
    let mut names = Vec::new();
    while !rest.is_empty() {
        if map.is_some() {
            let (number, behind) = rest.split_once(':')?;
            rest = behind.trim_start();
            if number.trim().parse() != Ok(names.len()) {
                return None;
            }
        }
        let (name, behind) = string(rest)?;
        names.push(name);
        rest = match behind.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if behind.is_empty() => "",
            None => return None,
        };
        if names.len() > MAX_NAMES {
            return None;
        }
    }
    Some(names)
}

/// Reads a string of Python, and returns what follows it.
fn string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut letters = text.char_indices().skip(1);
    let mut name = String::new();
    loop {
        match letters.next()? {
            (at, c) if c == quote => return Some((name, text[at + 1..].trim_start())),
            (_, '\\') => name.push(letters.next().filter(|(_, c)| matches!(c, '\\' | '\'' | '"'))?.1),
            (_, c) => name.push(c),
        }
        if name.len() > MAX_NAME {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_python_writes_them() {
        for (text, expected) in [
            ("{0: 'code', 1: 'text', 2: 'bar'}", Some(&["code", "text", "bar"][..])),
            (r#"{0: "dog's bowl", 1: 'a \'b\' \\'}"#, Some(&["dog's bowl", r"a 'b' \"])),
            ("['a', 'b']", Some(&["a", "b"])),
            ("{}", Some(&[])),
            // Numbers that a list would have to be as long as.
            ("{0: 'a', 4294967295: 'b'}", None),
            ("{1: 'a'}", None),
            ("{0: __import__('os')}", None),
            ("{0: 'a' 'b'}", None),
            ("{0: 'a", None),
            (r"{0: '\x41'}", None),
            ("", None),
        ] {
            let expected = expected.map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
            assert_eq!(names(text), expected, "{text}");
        }
        let many = |n: usize| format!("[{}]", vec!["'a'"; n].join(","));
        assert_eq!(names(&many(80)).unwrap().len(), 80);
        assert_eq!(names(&many(MAX_NAMES + 1)), None);
    }

    #[test]
    fn sizes_beyond_an_image_are_left_out() {
        for (text, expected) in [
            ("[480, 640]", Some([480, 640])),
            ("640", Some([640, 640])),
            ("(320, 320)", Some([320, 320])),
            ("[0, 640]", None),
            ("[99999, 640]", None),
            ("[2048, 2049]", None),
            ("[18446744073709551616]", None),
            ("[1, 2, 3]", None),
            ("[-640]", None),
        ] {
            assert_eq!(sides(text), expected, "{text}");
        }
    }
}
