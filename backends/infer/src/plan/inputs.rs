//! What the inputs of a model get: a connection, a constant, or the state of a stream. It is
//! checked before a backend is chosen, because it is wrong on each of them.

use super::config::{InferConfig, RecordedModel, StateConfig};
use super::infer_plan::CASE_ADVICE;
use crate::base::port_name;
use crate::onnx::{BoundShapes, Constants, Input, Length, ModelState, Outline, Output, batch_dims};
use crate::steps::{TRIAL, VERIFY_CASE};
use limen::backend::{BackendError, TensorSpec};
use limen::message::{Dim, PortSpec};
use limen::node::{Connected, PlanErrors};
use limen::text::nearest;

/// What the inputs of a model get.
pub(crate) struct ModelInputs {
    pub(super) states: Vec<ModelState>,
    pub(super) constants: Constants,
    pub(super) bound: BoundShapes,
    /// Whether the recorded case can show that the items of a call do not change each other's
    /// numbers: it has two that differ, and they are not successive steps of one stream.
    pub(super) has_batch_case: bool,
}

impl ModelInputs {
    /// # Errors
    /// Inputs that get nothing, states and constants that the model does not have, dims without a
    /// length, and recorded arrays that do not fit.
    pub(crate) fn of(
        config: &InferConfig,
        outline: &Outline,
        given: &Connected,
        recorded: &RecordedModel,
    ) -> Result<Self, PlanErrors> {
        let mut errors = PlanErrors::default();
        let state = |state: &StateConfig| ModelState {
            // The names of the file are accepted too.
            input: port_name(&state.input),
            output: port_name(&state.output),
            batch_dim: state.batch_dim,
        };
        let states: Vec<ModelState> = config.state.iter().map(state).collect();
        let batch_dims = batch_dims(outline, &states).unwrap_or_else(|error| {
            let (BackendError::Unsupported(why) | BackendError::Model(why)) = error else { return Vec::new() };
            let ports = |names: Vec<&str>| if names.is_empty() { "none".into() } else { format!("`{}`", names.join("`, `")) };
            let inputs = ports(outline.inputs.iter().map(|input| &*input.port).collect());
            let outputs = ports(outline.outputs.iter().map(|output| &*output.port).collect());
            errors.at("state", why).help(format!(
                "write `state: [{{ input: INPUT, output: OUTPUT }}]` with an input of {inputs} and an output of {outputs}"
            ));
            Vec::new()
        });
        let constants = constants(config, outline, &states, &mut errors);
        let is_state = |port: &str| states.iter().any(|state| state.input == port);
        let is_port = |input: &&Input| !config.constants.contains_key(&input.port) && !is_state(&input.port);
        let ports: Vec<&Input> = outline.inputs.iter().filter(is_port).collect();
        // With a single input the graph file need not name it.
        let takes = |port: &str, name: &str| name == port || (ports.len() == 1 && name == "in");
        let is_connected = |input: &&Input| given.inputs().any(|(name, _)| takes(&input.port, name));
        // Without its states it is not known which inputs are ports.
        if batch_dims.len() == outline.inputs.len() && !ports.iter().all(is_connected) {
            errors.connections(ports.iter().map(|input| (input.port.clone(), way_out(input, outline, &states))));
        }
        errors.into_result(())?;

        let mut errors = PlanErrors::default();
        let spec_of = |input: &Input| given.inputs().find(|(name, _)| takes(&input.port, name))?.1;
        let bounded = |input: &Input| spec_of(input).filter(|spec| spec.max_elements().is_some());
        // Before dims are bound to what is connected, and compared with what was recorded.
        let given_ports = ports.iter().filter_map(|input| Some((*input, bounded(input)?)));
        let port_of = |input: &Input, batch_dim| {
            let dims = input.item(batch_dim).into_iter().map(|dim| match dim {
                Length::Fixed(length) => Dim::Fixed(*length),
                Length::Symbol(symbol) => Dim::Symbol(symbol.as_str().into()),
            });
            PortSpec::new(input.elem.dtype(), dims)
        };
        let fits = |have: &PortSpec, want: &PortSpec| PlanErrors::default().check_port("", have, want);
        let has_all_dims = given_ports.clone().all(|(input, have)| fits(have, &port_of(input, None)));
        for (input, have) in given_ports {
            let want = port_of(input, input.batch_dim());
            let longer = |spec: &PortSpec| spec.shape.iter().filter(|dim| **dim != Dim::Fixed(1)).count();
            match input.shape.first() {
                // Dims of length 1 are what a `reshape` node adds and removes.
                Some(Length::Symbol(first)) if has_all_dims && longer(have) > longer(&want) => {
                    let port = &input.port;
                    let message =
                        format!("input `{port}` expects {want}, without the dim `{first}` of the model, found {have}");
                    errors.input(port, message).help(format!(
                        "write `batch_dim: none` if `{first}` is part of a message and does not count messages, or connect an output \
                         that produces {want}"
                    ));
                }
                _ => _ = errors.check_port(&input.port, have, &want),
            }
        }
        errors.into_result(())?;

        let mut errors = PlanErrors::default();
        let connected = ports.iter().filter_map(|input| Some((input.port.clone(), bounded(input)?.shape.clone())));
        let fixed = |shape: &[usize]| shape.iter().copied().map(Dim::Fixed).collect();
        let shapes = connected.chain(constants.iter().map(|(port, constant)| (port.clone(), fixed(&constant.shape))));
        let bound = outline.bind(&shapes.collect(), &batch_dims).map_err(|unbound| {
            let of_ports: Vec<_> = unbound.iter().filter(|u| !is_state(&u.input)).map(|u| &u.symbol).collect();
            for unbound in &unbound {
                if !is_state(&unbound.input) {
                    errors.input(&unbound.input, &unbound.why);
                } else if unbound.symbol.is_none() || !of_ports.contains(&&unbound.symbol) {
                    let message = format!("the state `{}`: {}", unbound.input, unbound.why);
                    errors
                        .at("state", message)
                        .help("write the index of the batch dim of the state, if any, such as `batch_dim: 1`");
                }
            }
            errors
        })?;

        let mut errors = PlanErrors::default();
        let specs = std::iter::zip(&outline.inputs, &bound.items).filter(|(input, _)| is_port(input));
        let specs: Vec<TensorSpec> = specs
            .map(|(input, item)| TensorSpec {
                name: input.port.clone(),
                dtype: input.elem.dtype(),
                shape: item.clone(),
            })
            .collect();
        if let (Some(file), Some(items)) = (config.trial_file(), &recorded.trial) {
            let wrong = items.misfits(&specs, &[]);
            for wrong in wrong {
                errors.at(TRIAL, format!("`{file}`: {wrong}")).help("record an item with the shapes of this graph");
            }
        }
        if let (Some(file), Some((case, _))) = (config.case_file(), &recorded.case) {
            let is_output = |output: &&Output| states.iter().all(|state| state.output != output.port);
            let outputs: Vec<&str> = outline.outputs.iter().filter(is_output).map(|output| &*output.port).collect();
            for wrong in case.missing(&specs, &outputs).into_iter().chain(case.misfits(&specs, &outputs)) {
                errors.at(VERIFY_CASE, format!("`{file}`: {wrong}")).help(CASE_ADVICE);
            }
        }
        let has_batch_case =
            states.is_empty() && recorded.case.as_ref().is_some_and(|(case, _)| case.has_different_items(&specs));
        errors.into_result(ModelInputs { states, constants, bound, has_batch_case })
    }
}

/// Returns the constant inputs, and reports those that do not fit.
fn constants(config: &InferConfig, outline: &Outline, states: &[ModelState], errors: &mut PlanErrors) -> Constants {
    let mut constants = Constants::new();
    for (port, config) in &config.constants {
        let is_state = states.iter().any(|state| state.input == *port);
        let checked = match is_state {
            true => Err("a state cannot be constant".into()),
            false => config.constant().and_then(|constant| {
                constant.check(port, outline)?;
                Ok(constant)
            }),
        };
        let why = match checked {
            Ok(constant) => {
                constants.insert(port.clone(), constant);
                continue;
            }
            Err(why) => why,
        };
        let names = outline.inputs.iter().map(|input| input.port.as_str());
        let help = match outline.inputs.iter().find(|input| input.port == *port) {
            Some(_) if is_state => format!("remove `{port}` from `inputs`, or from `state`"),
            Some(input) => format!("write {}, or connect a node", value_of(input)),
            None => match nearest(port, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("remove `{port}` from `inputs`"),
            },
        };
        errors.at(format!("constants.{port}"), format!("the value of input `{port}`: {why}")).help(help);
    }
    constants
}

/// Returns how to write the value of an input, if it is the same in every call.
fn value_of(input: &Input) -> String {
    let port = &input.port;
    let value = match &input.item(input.batch_dim())[..] {
        [] if port == "sr" || port.ends_with("rate") => "16000",
        [] => "1",
        [_] => "[1, ..]",
        _ => "[[1, ..], ..]",
    };
    format!("`inputs: {{ {port}: {{ value: {value} }} }}`")
}

/// Returns what to write for an input that is not connected, if it looks like a parameter or the
/// state of a stream.
fn way_out(input: &Input, outline: &Outline, states: &[ModelState]) -> Option<String> {
    let port = &input.port;
    let connect = format!("connect a node: `inputs: {{ {port}: node/port }}`");
    if input.item(input.batch_dim()).is_empty() {
        return Some(format!("if every call reads the same value, write {}; otherwise, {connect}", value_of(input)));
    }
    let is_free = |output: &&Output| states.iter().all(|state| state.output != output.port);
    let output = outline.outputs.iter().filter(is_free).find(|output| is_next(input, output))?;
    Some(format!(
        "if each call reads what the previous call produced, write `state: [{{ input: {port}, output: {} }}]` in `config`; \
         otherwise, {connect}",
        output.port
    ))
}

/// Whether an output may be the next value of an input, by its shape and its name.
fn is_next(input: &Input, output: &Output) -> bool {
    let Some(declared) = &output.declared else { return false };
    let same = |(a, b): (&Length, &Length)| match (a, b) {
        (Length::Fixed(a), Length::Fixed(b)) => a == b,
        _ => true,
    };
    let (a, b) = (&input.port, &output.port);
    let begin = std::iter::zip(a.chars(), b.chars()).take_while(|(a, b)| a == b).count();
    let last = |name: &str| name.rsplit_once('_').map(|(_, last)| last.to_string());
    let ends = last(a).filter(|last| last.chars().all(char::is_alphabetic));
    input.shape.len() > 1
        && (input.elem, input.shape.len()) == (declared.elem, declared.shape.len())
        && std::iter::zip(&input.shape, &declared.shape).all(same)
        && (2 * begin >= a.len().min(b.len()) || (ends.is_some() && ends == last(b)))
}

/// Returns connections to all inputs of a model of which nothing else is known.
#[cfg(test)]
pub(crate) fn all_connected(config: &InferConfig, file: &std::path::Path) -> Connected {
    let outline = crate::onnx::Artifact::open(file, limen::policy::Trials::MAX_SIZE).map(|artifact| artifact.outline);
    let inputs = outline.map(|outline| outline.inputs.clone()).unwrap_or_default();
    let is_port = |input: &Input| {
        !config.constants.contains_key(&input.port)
            && config.state.iter().all(|state| port_name(&state.input) != input.port)
    };
    Connected::of(inputs.into_iter().filter(is_port).map(|input| (input.port, None)))
}

#[cfg(all(test, feature = "rten"))]
mod tests {
    use super::*;
    use crate::onnx::Artifact;
    use crate::onnx::test_models::{Io, model};
    use rten_onnx::onnx::DataType as D;
    use serde_json::{Value, json};

    /// What is wrong with a node of a model with these ports, with connections to some of its
    /// inputs.
    fn wrong(sides: (&[Io<'_>], &[Io<'_>]), config: Value, given: &[(&str, &str)]) -> String {
        let outputs: Vec<String> =
            sides.1.iter().map(|(name, ..)| format!("{name} = Identity {}", sides.0[0].0)).collect();
        let nodes: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let outline = Artifact::parse("m.onnx".as_ref(), model(sides.0, sides.1, &[], &nodes)).unwrap().outline;
        let config: InferConfig = serde_json::from_value(config).unwrap();
        let spec = |text: &str| text.parse::<PortSpec>().ok();
        let given = Connected::of(given.iter().map(|(port, text)| (port.to_string(), spec(text))));
        match ModelInputs::of(&config, &outline, &given, &RecordedModel::default()) {
            Ok(_) => String::new(),
            Err(errors) => format!("{errors:?}"),
        }
    }

    #[test]
    fn inputs_that_get_nothing_are_named_before_anything_else() {
        let voice: (&[Io<'_>], &[Io<'_>]) = (
            &[("x", D::FLOAT, &["n", "t"]), ("state", D::FLOAT, &["2", "k", "128"]), ("sr", D::INT64, &[])],
            &[("y", D::FLOAT, &["n", "1"]), ("stateN", D::FLOAT, &["a", "b", "c"])],
        );
        let pair: (&[Io<'_>], &[Io<'_>]) = (
            &[("in_h", D::FLOAT, &["n", "4"]), ("input", D::FLOAT, &["n", "4"])],
            &[("out_h", D::FLOAT, &["n", "4"]), ("output", D::FLOAT, &["n", "4"])],
        );
        let state = json!([{ "input": "state", "output": "stateN" }]);
        let sr = json!({ "sr": 16000 });
        let x = ("x", "f32[512]");
        for (sides, config, given, expected, never) in [
            (voice, json!({ "state": state }), &[x][..], &["Connections", "value: 16000"][..], "state: ["),
            (
                voice,
                json!({ "constants": sr }),
                &[x],
                &["Connections", "state: [{ input: state, output: staten }]"],
                "value:",
            ),
            (voice, json!({}), &[x], &["value: 16000", "state: [{ input: state"], "has no length"),
            (voice, json!({}), &[("in", "f32[512]")], &["value: 16000", "state: [{ input: state"], "has no length"),
            (voice, json!({}), &[], &["Connections", "(\"x\", None)"], "has no length"),
            (voice, json!({ "state": state, "constants": sr }), &[("in", "f32[512]")], &[], "E"),
            (
                voice,
                json!({ "state": state, "constants": sr }),
                &[("x", "?")],
                &["dim `t` of f32[t] has no length"],
                "state",
            ),
            (
                voice,
                json!({ "state": [{ "input": "s", "output": "stateN" }] }),
                &[x],
                &["a state must name an input"],
                "not supported",
            ),
            (
                voice,
                json!({ "state": state, "constants": { "sr": [1, 2] } }),
                &[x],
                &["found the shape [2]", "value: 16000"],
                "change `constants",
            ),
            (
                voice,
                json!({ "state": state, "constants": { "rate_of_samples": 1, "sr": 1 } }),
                &[x],
                &["remove `rate_of_samples` from `inputs`"],
                "change `constants",
            ),
            (
                voice,
                json!({ "state": state, "constants": sr }),
                &[("x", "f32[<=512,1]")],
                &["Misfit(\"x\"", "`reshape` node with `shape: [-1]`"],
                "as one item, found",
            ),
            (
                voice,
                json!({ "state": state, "constants": sr }),
                &[("x", "i32[512]")],
                &["expected f32 elements, found i32", "`cast` node with `dtype: f32`"],
                "as one item, found",
            ),
            (
                pair,
                json!({}),
                &[("in_h", "f32[7,4]"), ("input", "f32[7,4]")],
                &["expects f32[4], without the dim `n`", "write `batch_dim: none`"],
                "Misfit",
            ),
            (pair, json!({}), &[("in_h", "f32[7,4]"), ("input", "f32[4]")], &["Misfit(\"in_h\""], "batch_dim"),
            (
                pair,
                json!({}),
                &[("in_h", "f32[1,4]"), ("input", "f32[1,4]")],
                &["`reshape` node with `shape: [4]`"],
                "batch_dim",
            ),
            (pair, json!({}), &[], &["(\"input\", None)", "state: [{ input: in_h, output: out_h }]"], "has no length"),
        ] {
            let found = wrong(sides, config.clone(), given);
            for part in expected {
                assert!(found.contains(part), "{config} {given:?}: {part}: {found}");
            }
            assert!(!found.contains(never), "{config} {given:?}: {never}: {found}");
        }
    }

    /// The dim of a state that follows from an input is not reported beside that input.
    #[test]
    fn a_dim_without_a_length_is_reported_where_it_comes_from() {
        let sides: (&[Io<'_>], &[Io<'_>]) = (
            &[("x", D::FLOAT, &["n", "t"]), ("s", D::FLOAT, &["n", "k", "t"])],
            &[("y", D::FLOAT, &["n", "t"]), ("s2", D::FLOAT, &["n", "k", "t"])],
        );
        let config = json!({ "state": [{ "input": "s", "output": "s2" }] });
        let found = wrong(sides, config.clone(), &[("x", "?")]);
        assert!(found.contains("Input(\"x\")") && found.contains("the state `s`: dim `k`"), "{found}");
        let sides: (&[Io<'_>], &[Io<'_>]) = (
            &[("x", D::FLOAT, &["n", "t"]), ("s", D::FLOAT, &["n", "t"])],
            &[("y", D::FLOAT, &["n", "t"]), ("s2", D::FLOAT, &["n", "t"])],
        );
        let found = wrong(sides, config, &[("x", "?")]);
        assert!(found.contains("Input(\"x\")") && !found.contains("the state"), "{found}");
    }
}
