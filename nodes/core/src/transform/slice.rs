//! Some elements of one dim.

use crate::tensor::view::{self, ElementView};
use crate::tensor::{cost, shape};
use limen::message::{Dim, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Selects elements of one dim of a tensor of any type.
///
/// `from` and `to` select a range. `index` selects a single element and removes the dim. Indices
/// count from 0, and negative indices count from the end: -1 is the last element. `step: -1`
/// without `from` and `to` reverses the dim.
///
/// If the length of the dim varies (`≤n`), a range is clipped to the end of the message, as in
/// Python. If a message does not contain the element `index`, the call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SliceConfig {
    /// Dim to select from. A negative number counts from the end: -1 is the last dim. Default: 0.
    #[serde(default)]
    pub dim: i64,
    /// Index of the first selected element. Default: the first element, or the last element if
    /// `step` is negative.
    pub from: Option<i64>,
    /// Index of the end of the range, exclusive. By default, the range includes all elements up to
    /// the end, or down to the first element if `step` is negative.
    pub to: Option<i64>,
    /// Distance between selected elements, not 0. A negative step reverses the order. Default: 1.
    pub step: Option<i64>,
    /// Index of the only element to select. `index` cannot be combined with `from`, `to` or `step`.
    pub index: Option<i64>,
}

/// Runs `kind: slice`; [`SliceConfig`] says what it does.
#[derive(Debug)]
pub struct SliceNode {
    dim: usize,
    selection: Selection,
}

#[derive(Debug, Clone, Copy)]
enum Selection {
    Index(i64),
    Range(IndexRange),
}

/// A range of indices as it is written.
#[derive(Debug, Clone, Copy)]
struct IndexRange {
    from: Option<i64>,
    to: Option<i64>,
    /// Not 0.
    step: i64,
}

impl IndexRange {
    /// Returns the first index and the number of the elements selected of so many, as Python does.
    fn of(self, length: usize) -> (usize, usize) {
        let (length, step) = (length as i128, i128::from(self.step));
        let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let bound = |index: Option<i64>, default: i128| {
            let index = index.map(|index| i128::from(index) + if index < 0 { length } else { 0 });
            index.unwrap_or(default).clamp(least, most)
        };
        let (first, end) = if step > 0 { (least, most) } else { (most, least) };
        let (first, end) = (bound(self.from, first), bound(self.to, end));
        let span = (end - first) * step.signum();
        let count = if span > 0 { (span - 1) / step.abs() + 1 } else { 0 };
        if count > 0 { (first as usize, count as usize) } else { (0, 0) }
    }

    /// Returns the most elements selected of at most so many.
    fn most(self, bound: usize) -> usize {
        // Between the lengths at which an index begins or ceases to count, the number only grows or
        // only shrinks.
        let near = |index: i64| {
            let at = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            [at.saturating_sub(1), at, at.saturating_add(1)]
        };
        let lengths = [self.from, self.to].into_iter().flatten().flat_map(near).chain([bound]);
        lengths.map(|length| self.of(length.min(bound)).1).max().unwrap_or(0)
    }
}

impl SliceConfig {
    /// Returns what is selected, and reports a config that does not say so.
    fn selection(&self, errors: &mut PlanErrors) -> Option<Selection> {
        let has_range = self.from.is_some() || self.to.is_some() || self.step.is_some();
        match (self.index, self.step) {
            (Some(_), _) if has_range => {
                let message = "`index` excludes `from`, `to` and `step`";
                errors.at("index", message).help("remove `index`, or remove `from`, `to` and `step`");
            }
            (Some(index), _) => return Some(Selection::Index(index)),
            (None, Some(0)) => {
                errors
                    .at("step", "`step` must be at least 1, or at most -1, got 0")
                    .help("write 1 or more, or -1 for the reverse order");
            }
            (None, _) if !has_range => {
                errors.node("expected `index`, `from` or `to`, found none").help("add `index`, `from` or `to`");
            }
            (None, step) => {
                return Some(Selection::Range(IndexRange { from: self.from, to: self.to, step: step.unwrap_or(1) }));
            }
        }
        None
    }

    /// Returns the output's spec, and reports what is not in the input.
    fn planned(&self, spec: &PortSpec, errors: &mut PlanErrors) -> Option<PortSpec> {
        let (selection, dim) = (self.selection(errors), shape::named_dim(spec, self.dim, errors));
        let (selection, dim) = (selection?, dim?);
        let length = &spec.shape[dim];
        // Without a bound, the input has a problem of its own.
        let most = length.max()?;
        let mut is_inside = true;
        let mut require = |field: &str, index: Option<i64>, includes_end: bool| {
            let Some(index) = index.filter(|index| shape::place(*index, most).is_none()) else { return };
            if !(includes_end && usize::try_from(index) == Ok(most)) {
                let range = format!("-{most} to {}", if includes_end { most } else { most.saturating_sub(1) });
                let message = format!("`{field}` must be {range} for dim {dim} of {spec}, got {index}");
                errors.at(field, message).help(format!("write {range}"));
                is_inside = false;
            }
        };
        let mut out = spec.clone().with_orientation_of(spec);
        if dim + 1 == spec.shape.len() && !spec.labels().is_empty() {
            // Those that are selected, or none if the selection has a problem.
            out = out.with_labels(match &selection {
                Selection::Index(index) if spec.shape.len() == 1 => {
                    shape::place(*index, most).map(|at| spec.labels()[at].clone()).into_iter().collect()
                }
                Selection::Index(_) => Vec::new(),
                Selection::Range(range) => {
                    let (first, count) = range.of(most);
                    let place = |n: usize| usize::try_from(first as i64 + n as i64 * range.step).ok();
                    (0..count).filter_map(|n| spec.labels().get(place(n)?).cloned()).collect()
                }
            });
        }
        match selection {
            Selection::Index(index) => {
                require("index", Some(index), false);
                out.shape.remove(dim);
                out.layout = None;
            }
            Selection::Range(range) => {
                let selected = match length {
                    Dim::Fixed(_) => {
                        require("from", range.from, false);
                        require("to", range.to, true);
                        Dim::Fixed(range.of(most).1)
                    }
                    _ => Dim::AtMost(range.most(most)),
                };
                if is_inside && selected.max() == Some(0) {
                    let message = format!("the range must select at least 1 element of dim {dim} of {spec}, got 0");
                    errors
                        .node(message)
                        .help("write a `to` above `from`, or a negative `step` with a `to` below `from`");
                }
                out.shape[dim] = selected;
            }
        }
        Some(out)
    }
}

impl Node for SliceNode {
    type Config = SliceConfig;

    fn ports(config: &SliceConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let out = match given.single() {
            Some(spec) => config.planned(spec, &mut errors),
            None => config.selection(&mut errors).and(None),
        };
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(shape::takes(given.single().cloned()), out).cost(cost))
    }

    fn build(config: SliceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let dim = spec.and_then(|spec| shape::place(config.dim, spec.shape.len())).unwrap_or(0);
        // `ports` has refused all others.
        let selection = config.selection(&mut PlanErrors::default()).unwrap_or(Selection::Index(0));
        Ok(SliceNode { dim, selection })
    }
}

impl Transform for SliceNode {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(input.header())?;
        let shape = input.body.shape();
        let (whole, length) = (ElementView::whole(&shape), shape.get(self.dim).copied().unwrap_or(0));
        let source = match self.selection {
            Selection::Index(index) => {
                let Some(at) = shape::place(index, length) else {
                    let why = format!("expected an element {index} in dim {}, found {:?}", self.dim, input.body);
                    return Err(NodeError::input("in", why));
                };
                whole.index(self.dim, at)
            }
            Selection::Range(range) => {
                let (first, count) = range.of(length);
                whole.part(self.dim, first, count, range.step as isize)
            }
        };
        view::take(&input.body, &source, &mut tensor)?;
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SliceConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn ranges_select_what_python_selects() {
        // c = checksum = 0, then for length, from, to, step in this order, None first and 0 left
        // out of the steps: r = range(length)[from:to:step]; c = (c * 31 + len(r) * 16 + (r[0] if r
        // else 0)) % 1000003.
        let all = || (-8..9).map(|n| if n == -8 { None } else { Some(n) });
        let mut checksum = 0;
        for length in 0..7 {
            for (from, to) in all().flat_map(|from| all().map(move |to| (from, to))) {
                for step in (-4..5).filter(|step| *step != 0) {
                    let range = IndexRange { from, to, step };
                    let (first, count) = range.of(length);
                    checksum = (checksum * 31 + count * 16 + first) % 1_000_003;
                    let counts = (0..=length).map(|length| range.of(length).1);
                    assert_eq!(counts.max(), Some(range.most(length)), "at most {length}: {range:?}");
                }
            }
        }
        assert_eq!(checksum, 292781);
        for index in [Some(i64::MIN), Some(-1), None, Some(i64::MAX)] {
            for step in [i64::MIN, -1, 1, i64::MAX] {
                for length in [0, 1, usize::MAX] {
                    let (first, count) = IndexRange { from: index, to: index, step }.of(length);
                    assert!(first < length.max(1) && count <= length);
                    IndexRange { from: index, to: None, step }.most(length);
                }
            }
        }
    }

    #[test]
    fn what_is_selected_must_be_there() {
        for (text, spec, expected) in [
            (r#"{"from":1,"to":4}"#, "f32[5,2]", "f32[3,2]"),
            (r#"{"from":-2}"#, "f32[5,2]", "f32[2,2]"),
            (r#"{"dim":-1,"step":-1}"#, "u8[5,4,3]", "u8[5,4,3]"),
            (r#"{"dim":1,"index":-2}"#, "u8[5,4,3]", "u8[5,3]"),
            (r#"{"index":0}"#, "u8[<=5]", "u8[]"),
            (r#"{"to":10}"#, "f32[<=300,6]", "f32[≤10,6]"),
            (r#"{"from":-3,"to":2}"#, "f32[<=300,6]", "f32[≤2,6]"),
            (r#"{"to":500}"#, "f32[<=300,6]", "f32[≤300,6]"),
            (r#"{"to":6}"#, "f32[5]", "`to` must be -5 to 5 for dim 0 of f32[5], got 6"),
            (r#"{"from":5}"#, "f32[5]", "`from` must be -5 to 4"),
            (r#"{"from":-6,"to":-6}"#, "f32[5]", "got -6"),
            (r#"{"index":5}"#, "f32[<=5]", "write -5 to 4"),
            (r#"{"from":3,"to":3}"#, "f32[5]", "at least 1 element of dim 0"),
            (r#"{"from":9}"#, "f32[<=5]", "at least 1 element of dim 0"),
            (r#"{"from":1,"step":0}"#, "f32[5]", "`step` must be at least 1, or at most -1, got 0"),
            (r#"{"index":1,"step":2}"#, "f32[5]", "excludes"),
            ("{}", "f32[5]", "expected `index`, `from` or `to`, found none"),
            (r#"{"dim":1,"index":0}"#, "f32[5]", "`dim` must be -1 to 0 for f32[5], got 1"),
            (r#"{"index":0}"#, "f32", "at least one dim"),
        ] {
            let mut errors = PlanErrors::default();
            let out = config(text).planned(&spec.parse().unwrap(), &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(out.unwrap().to_string(), expected, "{text}"),
                Err(errors) => assert!(format!("{errors:?}").contains(expected), "{text}: {errors:?}"),
            }
        }
    }
}
