//! One of several outputs for each message.

use limen::Tensor;
use limen::message::DType;
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, OutPort, PlanErrors, Planning, Ports, ThinnedCounter,
    Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards each message through the first of its `routes` whose condition is true, without copying it. Messages that no route
/// takes are dropped and counted (`stopped`).
///
/// A condition compares a value with a number: `"< 2.5"`, `">= 0.9"`, `"== 3"`, `"!= 0"`; `else` is always true. The value is
/// the first element of the message, or, if the input `by` is connected, of the message that arrives there with it (a class, a
/// score). The inputs are `in` and optionally `by`; the outputs are the routes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Name (`to`) and condition (`when`) of each output, in the order in which they are tried.
    pub routes: Vec<Route>,
}

/// One output and its condition.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Route {
    /// The name of the output.
    pub to: String,
    /// The condition: an operator and a number, or `else`.
    pub when: String,
}

/// The node.
#[derive(Debug)]
pub struct Router {
    routes: Vec<Condition>,
    /// Index of the input that carries the value.
    by: usize,
    stopped: ThinnedCounter,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Condition {
    Below(f64),
    AtMost(f64),
    Above(f64),
    AtLeast(f64),
    Is(f64),
    IsNot(f64),
    Else,
}

impl Condition {
    fn parse(text: &str) -> Option<Condition> {
        let text = text.trim();
        if text == "else" {
            return Some(Condition::Else);
        }
        type Make = fn(f64) -> Condition;
        // Longer operators first: `<=` begins with `<`.
        let makes: [(&str, Make); 6] = [
            ("<=", Condition::AtMost),
            (">=", Condition::AtLeast),
            ("==", Condition::Is),
            ("!=", Condition::IsNot),
            ("<", Condition::Below),
            (">", Condition::Above),
        ];
        let (operator, make) = makes.into_iter().find(|(operator, _)| text.starts_with(operator))?;
        let number: f64 = text[operator.len()..].trim().parse().ok()?;
        (!number.is_nan()).then(|| make(number))
    }

    /// NaN satisfies only `!=` and `else`.
    fn holds(self, value: f64) -> bool {
        match self {
            Condition::Below(n) => value < n,
            Condition::AtMost(n) => value <= n,
            Condition::Above(n) => value > n,
            Condition::AtLeast(n) => value >= n,
            Condition::Is(n) => value == n,
            Condition::IsNot(n) => value != n,
            Condition::Else => true,
        }
    }
}

/// The first element of a tensor.
fn first(tensor: &Tensor) -> Result<f64, NodeError> {
    macro_rules! first {
        ($($dtype:ident $t:ty),*) => {
            match tensor.dtype() {
                $(DType::$dtype => tensor.as_slice::<$t>()?.first().map(|value| *value as f64),)*
                _ => None,
            }
        };
    }
    let value = first!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64);
    value.ok_or_else(|| NodeError::input("by", format!("{tensor:?} has no element that can be compared")))
}

impl Node for Router {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.routes.is_empty() {
            errors.at("routes", "there is no route").help("write `routes: [{ to: near, when: \"< 2.5\" }]`");
        }
        for (i, route) in config.routes.iter().enumerate() {
            if Condition::parse(&route.when).is_none() {
                let message = format!("`{}` is not a condition", route.when);
                errors
                    .at(format!("routes[{i}].when"), message)
                    .help("write an operator and a number, such as `< 2.5`, or `else`");
            }
            if config.routes[..i].iter().any(|other| other.to == route.to) {
                errors
                    .at(format!("routes[{i}].to"), format!("`{}` is already a route", route.to))
                    .help("write another name");
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

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let routes = config.routes.iter().filter_map(|route| Condition::parse(&route.when)).collect();
        // Inputs are in the order in which `ports` declares them.
        Ok(Router { routes, by: usize::from(cx.inputs().len() > 1), stopped: cx.thinned("stopped") })
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
            assert_eq!([-1.0, 2.5, f64::NAN].map(|value| condition.holds(value)), holds, "{text}");
        }
        for text in ["", "2.5", "= 3", "< NaN", "<", "< two", "otherwise"] {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
    }
}
