//! One of several outputs for each message.

use limen::Tensor;
use limen::message::DType;
use limen::node::{
    Building, Connected, DiscardCounter, Emit, Many, MessageSet, Node, NodeError, OutPort, PlanErrors, Planning, Ports,
    Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cmp::Ordering;

/// Forwards each message to the first route with a true condition, without copying the message.
///
/// The inputs are `in` and optionally `by`. The outputs are the routes. If no condition is true,
/// the node discards the message and counts it (`stopped`).
///
/// A condition compares a value with a number: `"< 2.5"`, `">= 0.9"`, `"== 3"`, `"!= 0"`. The
/// condition `else` is always true. The value is the first element of the message at `in`. If `by`
/// is connected, the value is the first element of the matching message at `by`, such as a class or
/// a score.
///
/// The node compares integers exactly. For an `f32` value, the node rounds the number of the
/// condition to `f32`. NaN satisfies only `!=` and `else`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct RouterConfig {
    /// Output name (`to`) and condition (`when`) of each route. The node evaluates the routes in
    /// the order of the list.
    pub routes: Vec<Route>,
}

/// One output and its condition.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Route {
    /// Name of the output.
    pub to: String,
    /// Condition: an operator and a number, or `else`.
    pub when: String,
}

/// Runs `kind: router`; [`RouterConfig`] says what it does.
#[derive(Debug)]
pub struct Router {
    routes: Vec<Condition>,
    /// Index of the input that carries the value.
    by: usize,
    stopped: DiscardCounter,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Condition {
    Compares(Operator, ConditionNumber),
    Else,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Below,
    AtMost,
    Above,
    AtLeast,
    Is,
    IsNot,
}

/// The number of a condition: with all its digits, if it is whole.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ConditionNumber {
    float: f64,
    whole: Option<i128>,
}

/// The first element of a message.
#[derive(Debug, Clone, Copy)]
enum FirstElement {
    Whole(i128),
    Short(f32),
    Float(f64),
}

impl FirstElement {
    /// Integers are compared exactly, and `f32` with the `f32` nearest to the number: 0.1 is at
    /// least 0.1.
    fn compare(self, to: ConditionNumber) -> Option<Ordering> {
        match (self, to.whole) {
            (FirstElement::Whole(value), Some(whole)) => Some(value.cmp(&whole)),
            (FirstElement::Whole(value), None) => (value as f64).partial_cmp(&to.float),
            (FirstElement::Short(value), _) => value.partial_cmp(&(to.float as f32)),
            (FirstElement::Float(value), _) => value.partial_cmp(&to.float),
        }
    }
}

impl Condition {
    fn parse(text: &str) -> Option<Condition> {
        let text = text.trim();
        if text == "else" {
            return Some(Condition::Else);
        }
        // Longer operators first: `<=` begins with `<`.
        let operators = [
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("==", Operator::Is),
            ("!=", Operator::IsNot),
            ("<", Operator::Below),
            (">", Operator::Above),
        ];
        let (written, operator) = operators.into_iter().find(|(written, _)| text.starts_with(written))?;
        let text = text[written.len()..].trim();
        let float: f64 = text.parse().ok()?;
        // Such as 1e9; what is beyond `i128` becomes its nearest number, beyond all elements as
        // well.
        let whole = text.parse().ok().or_else(|| (float.trunc() == float).then_some(float as i128));
        (!float.is_nan()).then_some(Condition::Compares(operator, ConditionNumber { float, whole }))
    }

    /// NaN satisfies only `!=` and `else`.
    fn holds(self, value: FirstElement) -> bool {
        let Condition::Compares(operator, number) = self else { return true };
        let order = value.compare(number);
        match operator {
            Operator::Below => order.is_some_and(Ordering::is_lt),
            Operator::AtMost => order.is_some_and(Ordering::is_le),
            Operator::Above => order.is_some_and(Ordering::is_gt),
            Operator::AtLeast => order.is_some_and(Ordering::is_ge),
            Operator::Is => order.is_some_and(Ordering::is_eq),
            Operator::IsNot => order.is_none_or(Ordering::is_ne),
        }
    }
}

/// The first element of a tensor.
fn first(tensor: &Tensor) -> Result<FirstElement, NodeError> {
    macro_rules! first {
        ($($dtype:ident $t:ty: $value:expr),*) => {
            match tensor.dtype() {
                $(DType::$dtype => tensor.as_slice::<$t>()?.first().copied().map($value),)*
                _ => None,
            }
        };
    }
    fn whole(value: impl Into<i128>) -> FirstElement {
        FirstElement::Whole(value.into())
    }
    let value = first!(
        U8 u8: whole, I8 i8: whole, U16 u16: whole, I16 i16: whole, U32 u32: whole, I32 i32: whole, U64 u64: whole, I64 i64: whole,
        F32 f32: FirstElement::Short, F64 f64: FirstElement::Float
    );
    value.ok_or_else(|| NodeError::input("by", format!("expected an element to compare, found {tensor:?}")))
}

impl Node for Router {
    type Config = RouterConfig;

    fn ports(config: &RouterConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.routes.is_empty() {
            errors
                .at("routes", "`routes` must have at least 1 entry, got 0")
                .help("write `routes: [{ to: near, when: \"< 2.5\" }]`");
        }
        for (i, route) in config.routes.iter().enumerate() {
            if Condition::parse(&route.when).is_none() {
                let message = format!("expected a condition such as `< 2.5`, found `{}`", route.when);
                errors
                    .at(format!("routes[{i}].when"), message)
                    .help("write an operator and a number, such as `< 2.5`, or `else`");
            }
            if config.routes[..i].iter().any(|other| other.to == route.to) {
                errors
                    .at(format!("routes[{i}].to"), format!("duplicate output `{}`", route.to))
                    .help("write another `to`");
            }
        }
        let by = given.inputs().find(|(name, _)| *name == "by");
        let spec = given.inputs().find(|(name, _)| *name != "by").and_then(|(_, spec)| spec.cloned());
        let input = |ports: Ports, name: &str, spec: Option<limen::message::PortSpec>| match spec {
            Some(spec) => ports.input(name, spec),
            None => ports.input_any(name),
        };
        let mut ports = input(Ports::new(), "in", spec.clone());
        if let Some((_, by)) = by {
            ports = input(ports, "by", by.cloned());
        }
        for route in &config.routes {
            ports = ports.out_port(OutPort {
                name: route.to.clone(),
                spec: spec.clone(),
                emits: 1,
                rows: 1,
                forwards: vec!["in".into()],
            });
        }
        errors.into_result(ports.selective().routes())
    }

    fn build(config: RouterConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let routes = config.routes.iter().filter_map(|route| Condition::parse(&route.when)).collect();
        // Inputs are in the order in which `ports` declares them.
        Ok(Router { routes, by: usize::from(cx.inputs().len() > 1), stopped: cx.discarded("stopped") })
    }
}

impl Transform for Router {
    type In = Many<Tensor>;
    type Out = Many<Tensor>;

    fn apply(&mut self, mut input: MessageSet<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let value = first(&input[self.by].body)?;
        match self.routes.iter().position(|condition| condition.holds(value)) {
            Some(route) => out[route].send(input.swap_remove(0)),
            None => self.stopped += 1,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_an_operator_and_a_number() {
        for (text, holds) in [
            ("< 2.5", [true, false, false]),
            ("<=2.5", [true, true, false]),
            ("> 2.5", [false, false, false]),
            (">= 2.5", [false, true, false]),
            ("== 2.5", [false, true, false]),
            ("!= 2.5", [true, false, true]),
            ("else", [true, true, true]),
        ] {
            let condition = Condition::parse(text).unwrap();
            assert_eq!([-1.0, 2.5, f64::NAN].map(|value| condition.holds(FirstElement::Float(value))), holds, "{text}");
            assert_eq!([-1.0, 2.5, f32::NAN].map(|value| condition.holds(FirstElement::Short(value))), holds, "{text}");
        }
        for (text, value, holds) in [
            ("== 9007199254740993", FirstElement::Whole(9_007_199_254_740_993), true),
            ("== 9007199254740993", FirstElement::Whole(9_007_199_254_740_992), false),
            ("> 9007199254740992", FirstElement::Whole(9_007_199_254_740_993), true),
            ("== 1e18", FirstElement::Whole(1_000_000_000_000_000_001), false),
            ("< 1e300", FirstElement::Whole(u64::MAX.into()), true),
            ("> -inf", FirstElement::Whole(i64::MIN.into()), true),
            ("< 2.5", FirstElement::Whole(2), true),
            (">= 2.5", FirstElement::Whole(2), false),
            // As numpy.float32(0.9) >= 0.9.
            (">= 0.9", FirstElement::Short(0.9), true),
            ("== 0.1", FirstElement::Short(0.1), true),
            ("< 0.9", FirstElement::Short(0.9), false),
            ("== 0.1", FirstElement::Float(0.1_f32.into()), false),
        ] {
            assert_eq!(Condition::parse(text).unwrap().holds(value), holds, "{value:?} {text}");
        }
        for text in ["", "2.5", "= 3", "< NaN", "<", "< two", "otherwise"] {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
    }
}
