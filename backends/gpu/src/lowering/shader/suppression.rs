//! One workgroup that chooses boxes, one in each turn of a loop.

use super::dialect::{EntryPoint, ShaderPlace};
use super::text::Text;
use super::{THREADS, WrittenForm};
use crate::lowering::{BOX, Number, Scalar, Suppression};

/// Boxes in a word of bits.
const WORD: usize = 32;

/// Each thread looks after some words of boxes: a bit is set for those that are chosen, removed, or
/// no candidates.
pub(super) fn suppression(text: &mut Text<'_>, rule: &Suppression) -> WrittenForm {
    let Suppression { boxes, is_counted, most, iou, across_classes } = rule;
    let words = boxes.div_ceil(WORD).max(1);
    let block = [THREADS, 1, 1];
    let shared = [("gone", Scalar::I32, words), ("scores", Scalar::F32, THREADS), ("places", Scalar::I32, THREADS)];
    text.entry(&EntryPoint { block, places: &[ShaderPlace::Thread], shared: &shared });
    let first = text.call("i32", &["thread"]);
    text.constant("t", &first);
    let given = boxes.to_string();
    let count = match is_counted {
        true => text.call("min", &[&given, &text.call("i32", &[&format!("a0[{}]", boxes * BOX)])]),
        false => given,
    };
    text.constant("count", &count);
    let none = text.dialect.number(Number::F32(0.0));

    // Boxes that do not exist, and those without a score.
    text.begin_loop("w", "t", words, THREADS);
    text.variable("bits", "0");
    begin_boxes(text);
    text.line("if (n >= count) { bits = bits | mask; }");
    let is_nan = is_nan(text, "a0[n * 6 + 4]");
    text.line(&format!("else if ({is_nan}) {{ bits = bits | mask; }}"));
    text.line("}\ngone[w] = bits; }");
    text.variable("kept", "0");
    text.begin_loop("turn", "0", *most, 1);

    // The best of each thread, then the best of all: the highest score, and of equal ones the
    // first.
    text.variable("best", "-1");
    text.variable("score", &none);
    begin_words(text, words);
    text.line("if ((bits & mask) == 0) {");
    text.constant("own", "a0[n * 6 + 4]");
    text.line("if (best < 0 || own > score) { best = n; score = own; }\n}\n}\n}\n}");
    text.line("scores[t] = score; places[t] = best;");
    text.line(text.dialect.barrier());
    let half = text.dialect.variable("half", &(THREADS / 2).to_string());
    text.line(&format!("for ({half} half > 0; half /= 2) {{\nif (t < half) {{"));
    text.constants(&[("p", "places[t]"), ("q", "places[t + half]"), ("s", "scores[t]"), ("r", "scores[t + half]")]);
    text.line("if (q >= 0 && (p < 0 || r > s || (r == s && q < p))) { places[t] = q; scores[t] = r; }\n}");
    text.line(&format!("{}\n}}", text.dialect.barrier()));
    text.line(&text.dialect.uniform("chosen", "places[0]"));
    text.line("if (chosen < 0) { break; }");
    text.line("if (t < 6) { a1[turn * 6 + t] = a0[chosen * 6 + t]; }\nkept = turn + 1;");

    // It removes what it overlaps.
    for corner in 0..4 {
        text.constant(&format!("x{corner}"), &format!("a0[chosen * 6 + {corner}]"));
    }
    text.constant("class_of", "a0[chosen * 6 + 5]");
    let area = area(text, ["x0", "x1", "x2", "x3"]);
    text.constant("area", &area);
    text.constant("is_whole", &no_nan(text, 'x'));
    begin_words(text, words);
    text.line("if ((bits & mask) == 0) {\nif (n == chosen) { bits = bits | mask; }");
    let is_rival = if *across_classes { "" } else { " if (a0[n * 6 + 5] == class_of)" };
    text.line(&format!("else{is_rival} {{"));
    for corner in 0..4 {
        text.constant(&format!("y{corner}"), &format!("a0[n * 6 + {corner}]"));
    }
    let bounds = [("max", "x0", "y0"), ("max", "x1", "y1"), ("min", "x2", "y2"), ("min", "x3", "y3")];
    let [left, top, right, bottom] = bounds.map(|(function, x, y)| text.call(function, &[x, y]));
    let both = self::area(text, [&left, &top, &right, &bottom]);
    text.constant("both", &both);
    let other = self::area(text, ["y0", "y1", "y2", "y3"]);
    text.constant("all", &format!("area + {other} - both"));
    let is_whole = no_nan(text, 'y');
    // Without an overlap, the quotient is 0, or that of 0 and 0.
    let (iou, zero) = (text.dialect.number(Number::F32(*iou)), &none);
    text.line(&format!("if (all > {zero} && is_whole && {is_whole}) {{"));
    text.line(&format!("if (both / all > {iou}) {{ bits = bits | mask; }}\n}}\n}}\n}}\n}}"));
    text.line("gone[w] = bits;\n}\n}\n}");

    // Zeros behind the last one, and their count.
    let rest = text.dialect.variable("e", "kept * 6 + t");
    text.line(&format!("for ({rest} e < {}; e += {THREADS}) {{ a1[e] = {none}; }}", most * BOX));
    let count = text.call("f32", &["kept"]);
    text.line(&format!("if (t == 0) {{ a1[{}] = {count}; }}\n}}", most * BOX));
    // The boxes of a thread, twice in each turn.
    let turns = most.saturating_mul(words.div_ceil(THREADS) * 2 * WORD);
    WrittenForm { block, groups: [1, 1, 1], turns }
}

/// Begins the loop over the words of a thread that have a box left, in `bits`, and the loop over
/// their boxes.
fn begin_words(text: &mut Text<'_>, words: usize) {
    text.begin_loop("w", "t", words, THREADS);
    text.variable("bits", "gone[w]");
    text.line("if (bits != -1) {");
    begin_boxes(text);
}

/// Begins the loop over the boxes `n` of a word, each with its bit.
fn begin_boxes(text: &mut Text<'_>) {
    text.begin_loop("b", "0", WORD, 1);
    text.constant("n", &format!("w * {WORD} + b"));
    let mask = text.call("shift_left", &["1", "b"]);
    text.constant("mask", &mask);
}

fn area(text: &Text<'_>, [left, top, right, bottom]: [&str; 4]) -> String {
    let zero = text.dialect.number(Number::F32(0.0));
    let side = |low: &str, high: &str| text.call("max", &[&format!("{high} - {low}"), &zero]);
    format!("{} * {}", side(left, right), side(top, bottom))
}

fn is_nan(text: &Text<'_>, number: &str) -> String {
    format!("({} & 0x7fffffffu) > 0x7f800000u", text.dialect.bits(number))
}

/// Whether none of four corners is NaN.
fn no_nan(text: &Text<'_>, of: char) -> String {
    let not = |corner: usize| format!("({} & 0x7fffffffu) <= 0x7f800000u", text.dialect.bits(&format!("{of}{corner}")));
    (0..4).map(not).collect::<Vec<_>>().join(" && ")
}
