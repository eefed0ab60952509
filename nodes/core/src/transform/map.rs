//! Formulas over the elements of messages.

use crate::tensor::constant::FormulaConstant;
use crate::tensor::formula::{Block, Formula, LANES, TURN, in_turns};
use crate::tensor::number::{Number, with_type};
use crate::tensor::{cost, joined, shape};
use limen::message::{Content, DType, Dim, Label, PortSpec, Shape};
use limen::node::{
    Building, Connected, Emit, MAX_PORTS, Many, MessageSet, Metrics, Node, NodeError, OutPort, PlanErrors, Planning,
    Ports, Transform,
};
use limen::{Tensor, TensorMut};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Computes each output with a formula over the inputs: `{ speed: 'sqrt(vx*vx + vy*vy)' }`.
///
/// Inputs may have any names. A single input is called `in`. Formulas apply element by element. All
/// inputs that are not scalars must have the same shape. `join` determines the header of the
/// outputs.
///
/// Operators: `+ - * / % ^`, `< <= > >= == !=`, `&& || !`. `^` binds tightest and is
/// right-associative. A sign binds less tightly than `^` but more tightly than `* / %`. The result
/// of `%` has the sign of the dividend.
///
/// Conditions: `if(is, yes, no)`, `is_nan`, `is_finite`. Limits: `min`, `max`, `clamp(x, low,
/// high)`. Rounding: `floor`, `ceil`, `round`, `trunc`. `round` rounds halves away from zero.
///
/// Arithmetic: `abs`, `sign`, `sqrt`, `cbrt`, `hypot`, `pow`, `exp`, `ln`, `log2`, `log10`. Angles:
/// `sin`, `cos`, `tan`, `asin`, `acos`, `atan`, `atan2`, `sinh`, `cosh`, `tanh`, `deg`, `rad`.
/// Constants: `pi` and `e`.
///
/// `age(x)` is the age of the input `x` in seconds: the time from the origin of the message to now.
/// A `sample` join may repeat an old message: `if(age(imu) > 0.1, 0, speed)` produces 0 while `imu`
/// is older than 0.1 s.
///
/// A list contains one number for each element of the last dim: `(x - [0.1, -2]) / [3, 0.5]`. An
/// input with a `value` names a list: `inputs: { x: obs, mean: { value: [0.1, -2] } }`.
///
/// The node computes formulas in `f64`. A condition, such as a comparison, produces `u8`. A formula
/// that reads `f64`, `i32` or `u32` produces `f64`. Any other formula produces `f32`. To change the
/// type of an output, set `dtype`.
///
/// A result outside the range of the output type becomes the nearest value of the type. For a
/// floating-point type, the nearest value may be infinity. Integer types truncate fractions and
/// convert NaN to 0.
///
/// `not_finite` counts messages in which a formula produced infinity or NaN, for example by a
/// division by zero. `clipped` counts messages with a result outside the range of the output type.
/// `rounded` counts messages in which the node rounded a number beyond 2^24 to `f32`.
///
/// A result is an angle if the formula preserves an input angle, as `yaw + 0.1` and `deg(yaw)` do.
/// The result of `atan2` is also an angle. `sin(yaw)` is not an angle. `pick: interpolate` rejects
/// angles.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct MapConfig {
    /// Formula of each output: `{ norm: 'hypot(x, y)', level: { formula: '100*v/3.3', dtype: u8 }
    /// }`.
    pub outputs: BTreeMap<String, MapOutput>,
    /// Numbers and lists by name. Formulas use the constants like inputs. limen adds each input
    /// that has a `value` to the constants: `inputs: { x: obs, mean: { value: [0.1, -2] } }`.
    #[serde(default)]
    pub constants: BTreeMap<String, FormulaConstant>,
}

/// What an output of `map` computes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected a formula such as `x * 2`, or `{ formula: x * 2, dtype: f64 }`"
)]
pub enum MapOutput {
    /// A formula. The elements are `u8` for a comparison, `f64` if the formula reads `f64`, `i32`
    /// or `u32`, and otherwise `f32`.
    Formula(String),
    /// A formula with the type or the unit of its elements.
    Typed {
        /// Formula over the names of the inputs.
        formula: String,
        /// Element type. Default: `u8` for a comparison, `f64` if the formula reads `f64`, `i32` or
        /// `u32`, and otherwise `f32`.
        dtype: Option<DType>,
        /// Unit of the results, such as `m/s`, for tables and recordings.
        unit: Option<String>,
    },
}

impl MapOutput {
    fn formula(&self) -> &str {
        match self {
            MapOutput::Formula(formula) | MapOutput::Typed { formula, .. } => formula,
        }
    }

    /// Returns the type of a formula's results, whose inputs have the types `inputs`.
    fn dtype(&self, formula: &Formula, inputs: &[DType]) -> DType {
        // Types of stamps and counters, which `f32` would round.
        let is_wide = |at: usize| matches!(inputs[at], DType::F64 | DType::I32 | DType::U32);
        match self {
            MapOutput::Typed { dtype: Some(dtype), .. } => *dtype,
            _ if formula.is_truth() => DType::U8,
            _ if formula.inputs().any(is_wide) => DType::F64,
            _ => DType::F32,
        }
    }

    fn unit(&self) -> &str {
        match self {
            MapOutput::Typed { unit: Some(unit), .. } => unit.trim(),
            _ => "",
        }
    }

    /// Names and units of its results, whose inputs have `spec`.
    fn labels(&self, name: &str, spec: &PortSpec) -> Vec<Label> {
        let unit = self.unit();
        let of = |name: &str| Label::of(name, unit);
        match (spec.labels(), spec.shape.last()) {
            (_, None) => vec![of(name)],
            (labels @ [_, ..], _) => labels.iter().map(|label| of(label.name())).collect(),
            (_, Some(Dim::Fixed(length))) if !unit.is_empty() && *length <= Label::MAX_COUNT => vec![of(""); *length],
            _ => Vec::new(),
        }
    }
}

/// The name of a formula's field, for messages.
fn field(name: &str, output: &MapOutput) -> String {
    match output {
        MapOutput::Formula(_) => format!("outputs.{name}"),
        MapOutput::Typed { .. } => format!("outputs.{name}.formula"),
    }
}

/// Returns the names of the inputs, and their types. Without a known type it is `f32`.
fn typed<'a>(inputs: impl Iterator<Item = (&'a str, Option<&'a PortSpec>)>) -> (Vec<&'a str>, Vec<DType>) {
    inputs.map(|(name, spec)| (name, spec.map_or(DType::F32, |spec| spec.dtype))).unzip()
}

/// Returns the formulas by output, and reports all that is wrong with them.
fn formulas(
    config: &MapConfig,
    inputs: &[&str],
    dtypes: &[DType],
    errors: &mut PlanErrors,
) -> Vec<(String, DType, Formula)> {
    let mut found = Vec::new();
    for (name, output) in &config.outputs {
        match Formula::parse(output.formula(), inputs, &config.constants) {
            Ok(formula) => found.push((name.clone(), output.dtype(&formula, dtypes), formula)),
            Err(wrong) => {
                let message = format!("character {} of `{}`: {}", wrong.column, output.formula(), wrong.why);
                errors.at(field(name, output), message).help(wrong.help);
            }
        }
    }
    found
}

/// Returns the shape of the outputs, without a type: that of the inputs that are no single numbers.
fn common(given: &Connected, errors: &mut PlanErrors) -> Option<PortSpec> {
    for (name, spec) in given.inputs() {
        let Some(spec) = spec else { continue };
        if matches!(spec.dtype, DType::I64 | DType::U64) {
            let message = format!("expected a type that f64 represents exactly, found {spec}");
            let help = "add a `cast` node with `dtype: f64` upstream (and `scale: 1e-9` for nanoseconds to seconds)";
            errors.input(name, message).help(help);
        }
        if spec.content == Content::Text {
            errors.input(name, format!("expected numbers, found the text {spec}")).help("add a `decode` node upstream");
        }
    }
    let all: Option<Vec<(&str, &PortSpec)>> = given.inputs().map(|(name, spec)| Some((name, spec?))).collect();
    let tensors = all?.into_iter().filter(|(_, spec)| !spec.shape.is_empty());
    let tensors = tensors.map(|(name, spec)| (name.to_string(), Some(spec.clone().with_dtype(DType::F32))));
    let tensors = Connected::of(tensors);
    match tensors.inputs().next() {
        Some(_) => joined::common(&tensors, None, errors),
        None => Some(PortSpec::fixed(DType::F32, [])),
    }
}

/// Reports the lists that do not have one number for each element of the last dim of what the
/// formulas compute.
fn check_lists(config: &MapConfig, formulas: &[(String, DType, Formula)], common: &PortSpec, errors: &mut PlanErrors) {
    for (name, _, formula) in formulas {
        let Some(output) = config.outputs.get(name) else { continue };
        for list in formula.lists() {
            let count = list.len();
            let (wrong, help) = match common.shape.last() {
                Some(Dim::Fixed(length)) if *length == count => continue,
                Some(Dim::Fixed(length)) => (format!("a list of {length}"), format!("write {length} numbers")),
                Some(_) => {
                    let help = "write one number, or connect an input whose last dim has a fixed length";
                    ("one number".to_string(), help.to_string())
                }
                None => ("one number".to_string(), "write one number, without `[` and `]`".to_string()),
            };
            let message = format!("expected {wrong} for the input {common}, found a list of {count}");
            errors.at(field(name, output), message).help(help);
        }
    }
}

/// A formula that is ready to run.
#[derive(Debug)]
struct PlannedFormula {
    formula: Formula,
    limits: Limits,
    store: Store,
    /// The inputs that it reads, each once.
    reads: Vec<usize>,
}

/// Runs `kind: map`; [`MapConfig`] says what it does.
#[derive(Debug)]
pub struct Map {
    outputs: Vec<PlannedFormula>,
    names: Vec<String>,
    /// Bytes of a message of each input, and the elements of an output, if the shapes of all inputs
    /// are fixed.
    fixed: Option<(Vec<usize>, usize)>,
    loads: Vec<Load>,
    /// Whether a formula reads an age.
    reads_ages: bool,
    /// Elements of the inputs, and after these of the lists in a formula, and the ages it reads.
    inputs: Vec<Block>,
    stack: Vec<Block>,
    not_finite: u64,
    clipped: u64,
    rounded: u64,
}

impl Node for Map {
    type Config = MapConfig;

    fn ports(config: &MapConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let (inputs, dtypes) = typed(given.inputs());
        for (count, side) in [(inputs.len(), "inputs"), (config.outputs.len(), "outputs")] {
            if count > MAX_PORTS {
                let message = format!("a node must have at most {MAX_PORTS} {side}, got {count}");
                errors.node(message).help(format!("divide the {side} between several nodes"));
            }
        }
        if inputs.is_empty() {
            errors.node("the node must have at least 1 input, got 0").help("connect an input, such as `from: imu/acc`");
        }
        if config.outputs.is_empty() {
            errors
                .at("outputs", "`outputs` must have at least 1 formula, got 0")
                .help("write `outputs: { y: 'x * 2' }`");
        }
        let formulas = formulas(config, &inputs, &dtypes, &mut errors);
        if formulas.len() == config.outputs.len() {
            let reads = |formula: &Formula, at: usize| {
                formula.inputs().any(|input| input == at) || formula.ages().contains(&at)
            };
            let is_read = |at: usize| formulas.iter().any(|(_, _, formula)| reads(formula, at));
            for (_, name) in inputs.iter().enumerate().filter(|(at, _)| !is_read(*at)) {
                errors.input(*name, format!("no formula reads `{name}`")).help(format!("remove the input `{name}`"));
            }
        }
        for name in config.constants.keys().filter(|name| inputs.contains(&name.as_str())) {
            errors
                .at(format!("constants.{name}"), format!("`{name}` is both an input and a constant"))
                .help(format!("rename the constant `{name}`"));
        }
        for (name, output) in &config.outputs {
            if let Err(why) = Label::new("", output.unit()) {
                let message = format!("`unit` {why}, got {:?}", output.unit());
                errors.at(format!("outputs.{name}.unit"), message).help("write a unit such as `m/s²` or `deg`");
            }
        }
        let common = common(given, &mut errors);
        if let Some(common) = &common {
            check_lists(config, &formulas, common, &mut errors);
        }
        let ports = given.inputs().fold(Ports::new(), |ports, (name, spec)| match spec {
            Some(spec) => ports.input(name, spec.clone()),
            None => ports.input_any(name),
        });
        let steps: usize = formulas.iter().map(|(_, _, formula)| formula.inputs().count()).sum();
        let reads_ages = formulas.iter().any(|(_, _, formula)| !formula.ages().is_empty());
        let elements = common.as_ref().and_then(PortSpec::max_elements).unwrap_or(0);
        let ports = formulas.into_iter().fold(ports, |ports, (name, dtype, formula)| {
            let spec = common.as_ref().map(|common| {
                let labels = config.outputs.get(&name).map(|output| output.labels(&name, common));
                let mut spec = PortSpec::new(dtype, common.shape.clone()).with_labels(labels.unwrap_or_default());
                (spec.layout, spec.memory) = (common.layout, common.memory);
                let read = formula.carried().iter().filter_map(|at| given.inputs().nth(*at)?.1);
                let spec = if formula.makes_angles() { spec.with_orientation() } else { spec };
                read.fold(spec, carry)
            });
            ports.out_port(OutPort { name, spec, emits: 1, rows: 1, forwards: Vec::new() })
        });
        let ports = if reads_ages { ports.by_clock("age") } else { ports };
        errors.into_result(ports.cost(cost::of(elements.saturating_mul(steps.max(1)))))
    }

    fn build(config: MapConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let names = joined::names(cx);
        let (inputs, dtypes) = typed(cx.inputs().iter().map(|(name, spec)| (name.as_str(), spec.as_ref())));
        // Errors of the config were reported while planning.
        let formulas = formulas(&config, &inputs, &dtypes, &mut PlanErrors::default());
        let unnamed = |formula: &Formula| formula.lists().len() + formula.ages().len();
        let unnamed = formulas.iter().map(|(_, _, formula)| unnamed(formula)).max().unwrap_or(0);
        let reads_ages = formulas.iter().any(|(_, _, formula)| !formula.ages().is_empty());
        let depth = formulas.iter().map(|(_, _, formula)| formula.depth()).max().unwrap_or(0);
        let planned = formulas.into_iter().map(|(_, dtype, formula)| {
            let mut reads: Vec<usize> = formula.inputs().collect();
            reads.sort_unstable();
            reads.dedup();
            PlannedFormula { formula, limits: Limits::of(dtype), store: with_type!(dtype, T, store::<T>), reads }
        });
        let (inputs, stack) = (vec![[0.0; LANES]; names.len() + unnamed], vec![[0.0; LANES]; depth]);
        let loads = dtypes.into_iter().map(|dtype| with_type!(dtype, T, load::<T> as Load)).collect();
        let fixed = fixed(cx.inputs().iter().map(|(_, spec)| spec.as_ref()));
        let outputs = planned.collect();
        Ok(Map { outputs, fixed, loads, reads_ages, inputs, stack, names, not_finite: 0, clipped: 0, rounded: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("not_finite", self.not_finite as f64);
        to.set("clipped", self.clipped as f64);
        to.set("rounded", self.rounded as f64);
        if self.rounded > 0 {
            to.note(format!("messages in which f32 rounded numbers beyond 2^24: {}: write `dtype: f64`", self.rounded));
        }
    }
}

/// Marks results that are orientations or angles if those of an input are.
fn carry(spec: PortSpec, input: &PortSpec) -> PortSpec {
    if input.has_named_angle() { spec.with_orientation() } else { spec.with_orientation_of(input) }
}

/// Returns the bytes of a message of each input, and the elements of an output; `None` if the shape
/// of an input is not fixed.
fn fixed<'a>(specs: impl Iterator<Item = Option<&'a PortSpec>>) -> Option<(Vec<usize>, usize)> {
    let (mut bytes, mut elements) = (Vec::new(), 1);
    for spec in specs {
        let spec = spec?;
        let shape = spec.fixed_shape()?;
        let of_one: usize = shape.iter().product();
        bytes.push(of_one * spec.dtype.size());
        elements = if shape.is_empty() { elements } else { of_one };
    }
    Some((bytes, elements))
}

/// Reads elements from a place on, as many as there is room for; of a single number, that one each
/// time. It is chosen when the node is built, by the type of the elements.
type Load = fn(&Tensor, usize, &mut [f64]) -> Result<(), NodeError>;

fn load<T: Number>(from: &Tensor, at: usize, into: &mut [f64]) -> Result<(), NodeError> {
    match from.as_slice::<T>()? {
        [only] => into.fill(only.to_f64()),
        from => in_turns(into, &from[at..], |to, from| *to = from.to_f64()),
    }
    Ok(())
}

/// Repeats a list over elements from a place on.
fn repeat(list: &[f64], at: usize, into: &mut [f64]) {
    let repeated = list.iter().cycle().skip(at % list.len().max(1));
    std::iter::zip(into, repeated).for_each(|(to, from)| *to = *from);
}

/// Writes elements from a place on.
type Store = fn(&[f64], &mut TensorMut, usize) -> Result<(), NodeError>;

fn store<T: Number>(numbers: &[f64], into: &mut TensorMut, at: usize) -> Result<(), NodeError> {
    in_turns(&mut into.as_mut_slice::<T>()?[at..], numbers, |to, from| *to = T::from_f64(*from));
    Ok(())
}

/// The whole numbers up to which `f32` has every one.
const EXACT_IN_F32: f64 = 16_777_216.0;

/// Which numbers fit a type: those between the two.
#[derive(Debug, Clone, Copy)]
struct Limits {
    below: f64,
    above: f64,
    /// Whether it is `f32`, for which `below` and `above` are [`EXACT_IN_F32`].
    is_f32: bool,
}

/// What a type does to numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fit {
    /// All are finite.
    is_finite: bool,
    /// All are within the type's range, or are not finite.
    is_within: bool,
    /// None is a number beyond [`EXACT_IN_F32`] that `f32` rounds.
    is_kept: bool,
}

impl Fit {
    const ALL: Fit = Fit { is_finite: true, is_within: true, is_kept: true };

    fn and(self, other: Fit) -> Fit {
        Fit {
            is_finite: self.is_finite && other.is_finite,
            is_within: self.is_within && other.is_within,
            is_kept: self.is_kept && other.is_kept,
        }
    }
}

impl Limits {
    fn of(dtype: DType) -> Limits {
        let (low, high) = match dtype {
            DType::F64 => (f64::NEG_INFINITY, f64::INFINITY),
            DType::F32 => (-EXACT_IN_F32, EXACT_IN_F32),
            DType::F16 => (-65_504.0, 65_504.0),
            DType::BF16 => (-3.39e38, 3.39e38),
            DType::I8 => (-128.0, 127.0),
            DType::U8 => (0.0, 255.0),
            DType::I16 => (-32_768.0, 32_767.0),
            DType::U16 => (0.0, 65_535.0),
            DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            DType::U32 => (0.0, f64::from(u32::MAX)),
            DType::I64 => (i64::MIN as f64, i64::MAX as f64),
            DType::U64 => (0.0, u64::MAX as f64),
        };
        // A fraction beyond is cut off.
        Limits { below: low - 1.0, above: high + 1.0, is_f32: dtype == DType::F32 }
    }

    fn fits(self, numbers: &[f64]) -> Fit {
        let is_within = |all, number: &f64| all & (*number > self.below) & (*number < self.above);
        // Without an early end the compiler makes a loop of several numbers at a time.
        let (turns, rest) = numbers.as_chunks::<TURN>();
        let all = turns.iter().fold(true, |all, turn| all & turn.iter().fold(true, is_within));
        if rest.iter().fold(all, is_within) {
            return Fit::ALL;
        }
        let finite = || numbers.iter().filter(|number| number.is_finite());
        let is_finite = finite().count() == numbers.len();
        if !self.is_f32 {
            return Fit { is_finite, is_within: !is_finite, is_kept: true };
        }
        let rounded = |number: &f64| f64::from(*number as f32);
        let is_kept = |number: &f64| number.abs() < EXACT_IN_F32 || rounded(number) == *number;
        let is_within = finite().all(|number| rounded(number).is_finite());
        Fit { is_finite, is_within, is_kept: !is_within || finite().all(is_kept) }
    }
}

impl Map {
    /// Returns the lengths of the tensors in a set, which have one shape.
    fn lengths(&self, input: &MessageSet<Tensor>) -> Result<Shape, NodeError> {
        let first = input.iter().position(|message| !message.body.shape().is_empty());
        let lengths = input[first.unwrap_or(0)].body.shape();
        for (message, name) in std::iter::zip(input.iter(), self.names.iter()) {
            let other = message.body.shape();
            if !other.is_empty() && other != lengths {
                let of = first.map_or("", |at| &self.names[at]);
                let why = format!("expected the shape {lengths:?} of `{of}`, found {:?}", message.body);
                return Err(NodeError::input(name, why));
            }
        }
        Ok(lengths)
    }
}

impl Transform for Map {
    type In = Many<Tensor>;
    type Out = Many<Tensor>;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let is_fixed = |(bytes, _): &&(Vec<usize>, usize)| {
            std::iter::zip(input.iter(), bytes).all(|(message, bytes)| message.body.bytes().len() == *bytes)
        };
        // The shapes of messages that are as planned need no look.
        let (elements, lengths) = match self.fixed.as_ref().filter(is_fixed) {
            Some((_, elements)) => (*elements, None),
            None => {
                let lengths = self.lengths(&input)?;
                (lengths.elements(), Some(lengths))
            }
        };
        // The time of the turn may be older than a message.
        let now = self.reads_ages.then(|| out.clock());
        let Map { outputs, loads, inputs, stack, .. } = self;
        let mut fit = Fit::ALL;
        for (port, output) in out.iter_mut().zip(outputs.iter()).filter(|(port, _)| port.is_connected()) {
            let mut tensor = port.loan(header)?;
            if let Some(lengths) = &lengths {
                shape::set_shape(&mut tensor, lengths)?;
            }
            if let Some(now) = now {
                let ages = &mut inputs[loads.len() + output.formula.lists().len()..];
                for (read, block) in std::iter::zip(output.formula.ages(), ages) {
                    block.fill(input[*read].header().age(now).as_secs_f64());
                }
            }
            let mut at = 0;
            while at < elements {
                let n = LANES.min(elements - at);
                for read in &output.reads {
                    loads[*read](&input[*read].body, at, &mut inputs[*read][..n])?;
                }
                for (list, block) in std::iter::zip(output.formula.lists(), &mut inputs[loads.len()..]) {
                    repeat(list, at, &mut block[..n]);
                }
                output.formula.compute(n, inputs, stack);
                let numbers = &stack[0][..n];
                fit = fit.and(output.limits.fits(numbers));
                (output.store)(numbers, &mut tensor, at)?;
                at += n;
            }
            port.send(tensor);
        }
        self.not_finite += u64::from(!fit.is_finite);
        self.clipped += u64::from(!fit.is_within);
        self.rounded += u64::from(!fit.is_kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outputs of a config with these inputs, or all that is wrong.
    fn planned(outputs: &str, inputs: &[(&str, &str)]) -> Result<String, String> {
        let constants = r#"{ "two": [1, 2], "scale": 0.5 }"#;
        let config = format!("{{\"outputs\": {{{outputs}}}, \"constants\": {constants}}}");
        let config: MapConfig = serde_json::from_str(&config).unwrap();
        let given = inputs.iter().map(|(name, spec)| (name.to_string(), spec.parse().ok()));
        let given = Connected::of(given);
        let mut errors = PlanErrors::default();
        let (names, dtypes) = typed(given.inputs());
        let formulas = formulas(&config, &names, &dtypes, &mut errors);
        let common = common(&given, &mut errors);
        check_lists(&config, &formulas, common.as_ref().unwrap_or(&PortSpec::fixed(DType::F32, [])), &mut errors);
        errors.into_result(()).map_err(|errors| format!("{errors:?}"))?;
        let show = |(name, dtype, _): &(String, DType, Formula)| {
            format!("{name} {}", common.clone().map(|spec| spec.with_dtype(*dtype)).unwrap())
        };
        Ok(formulas.iter().map(show).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn outputs_have_the_shape_of_the_tensors_and_the_type_of_the_formula() {
        for (outputs, inputs, expected) in [
            (r#""y": "x + 1""#, &[("x", "i16[]")][..], "y f32[]"),
            (r#""y": "x > 1", "z": {"formula": "x", "dtype": "u8"}"#, &[("x", "f64[2,3]")], "y u8[2,3], z u8[2,3]"),
            (
                r#""y": "x - 1.7e9", "z": "g", "t": "x > g""#,
                &[("x", "f64[]"), ("g", "f32[]")],
                "t u8[], y f64[], z f32[]",
            ),
            (r#""y": "x * g""#, &[("x", "u32[2]"), ("g", "f32[]")], "y f64[2]"),
            (r#""y": "-x", "z": {"formula": "x", "dtype": "f32"}"#, &[("x", "i32[]")], "y f64[], z f32[]"),
            (r#""y": "x * g""#, &[("x", "u8[4,<=3]"), ("g", "f32[]")], "y f32[4,≤3]"),
            (r#""y": "(x - [1, 2]) * g / [3, 4]""#, &[("x", "f32[3,2]"), ("g", "f32[]")], "y f32[3,2]"),
            (
                r#""y": "x - [1, 2]""#,
                &[("x", "f32[2,3]")],
                "expected a list of 3 for the input f32[2,3], found a list of 2",
            ),
            (r#""y": "x - [1, 2]""#, &[("x", "f32[2,3]")], "write 3 numbers"),
            (r#""y": "(x - two) * scale""#, &[("x", "f32[3,2]")], "y f32[3,2]"),
            (
                r#""y": "x - two""#,
                &[("x", "f32[2,3]")],
                "expected a list of 3 for the input f32[2,3], found a list of 2",
            ),
            (r#""y": "x - tow""#, &[("x", "f32[2]")], "did you mean `two`?"),
            (r#""y": "x - [1, 2]""#, &[("x", "f32[<=2]")], "connect an input whose last dim has a fixed length"),
            (r#""y": "x - [1, 2]""#, &[("x", "f32[]")], "expected one number for the input f32[], found a list of 2"),
            (r#""y": "x * g""#, &[("g", "f32[]"), ("x", "f32[2]")], "y f32[2]"),
            (r#""y": "x + z""#, &[("x", "f32[2]"), ("z", "u8[2]")], "y f32[2]"),
            (r#""y": "x + z""#, &[("x", "f32[2]"), ("z", "f32[3]")], "expected the shape of `x`"),
            (r#""y": "x""#, &[("x", "i64[2]")], "`dtype: f64` upstream"),
            (r#""y": "x +", "z": "q""#, &[("x", "f32[2]")], "character 4 of `x +`: expected a number or a name"),
            (r#""y": "x +", "z": "q""#, &[("x", "f32[2]")], "unknown input `q`"),
        ] {
            match planned(outputs, inputs) {
                Ok(found) => assert_eq!(found, expected, "{outputs}"),
                Err(errors) => assert!(errors.contains(expected), "{outputs}: {errors}"),
            }
        }
    }

    #[test]
    fn a_list_is_repeated_over_the_last_dim() {
        for (list, at, expected) in [
            (&[1.0, 2.0, 3.0][..], 0, [1.0, 2.0, 3.0, 1.0]),
            (&[1.0, 2.0, 3.0], LANES, [2.0, 3.0, 1.0, 2.0]),
            (&[1.0, 2.0, 3.0], 2 * LANES, [3.0, 1.0, 2.0, 3.0]),
            (&[5.0], 7, [5.0; 4]),
        ] {
            let mut into = [0.0; 4];
            repeat(list, at, &mut into);
            assert_eq!(into, expected, "{list:?} {at}");
        }
    }

    #[test]
    fn numbers_that_are_none_or_do_not_fit_are_noticed() {
        // Whether all are finite, within the type's range, and kept.
        for (dtype, numbers, expected) in [
            (DType::U8, &[0.0, 255.9, -0.9][..], (true, true, true)),
            (DType::U8, &[0.0, 256.0], (true, false, true)),
            (DType::I8, &[-129.0], (true, false, true)),
            (DType::F32, &[1e39], (true, false, true)),
            (DType::F32, &[0.1, 16_777_216.0, -33_554_432.0, f64::from(f32::MAX)], (true, true, true)),
            (DType::F32, &[1_700_000_000.0], (true, true, true)),
            (DType::F32, &[16_777_217.0], (true, true, false)),
            (DType::F32, &[1_700_000_001.0, f64::INFINITY], (false, true, false)),
            (DType::F32, &[-1_700_000_000.5], (true, true, false)),
            (DType::F64, &[1e300, 1_700_000_000.5], (true, true, true)),
            (DType::F64, &[f64::NAN], (false, true, true)),
            (DType::F32, &[1.0, f64::NAN], (false, true, true)),
            (DType::I32, &[f64::INFINITY], (false, true, true)),
        ] {
            let (is_finite, is_within, is_kept) = expected;
            assert_eq!(Limits::of(dtype).fits(numbers), Fit { is_finite, is_within, is_kept }, "{dtype} {numbers:?}");
        }
    }
}
