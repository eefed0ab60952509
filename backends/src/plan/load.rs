//! Loads a model into a runtime and tries it.

use super::candidate::{PlanRequest, Refused};
use super::config::{Guard, Load, MAX_THREADS};
use super::model_file::unusable;
use crate::base::port_name;
use crate::onnx::{
    AnySession, Constants, Input, Loaded, ModelState, NotPrepared, OnnxModel, OnnxPrepared, Reference, Runtime,
    batch_dims,
};
use limen::backend::{Prepared, TensorSpec};
use limen::message::Dim;
use limen::node::PlanErrors;

/// Loads a model into a runtime, binds its shapes and tries it.
pub(super) fn prepare_onnx<R: Runtime>(job: &PlanRequest<'_>) -> Result<OnnxPrepared<R>, Refused> {
    let PlanRequest { config, options, given, model, steps, .. } = job;
    steps.announce(Some(R::NAME), "loaded it");
    let loaded = job
        .files
        .give()
        .and_then(|files| Loaded::<R>::share(files, options))
        .map_err(|error| unusable::<R>(model, &error))?;
    let states: Vec<ModelState> = config
        .state
        .iter()
        .map(|state| ModelState {
            // The names of the file are accepted too.
            input: port_name(&state.input),
            output: port_name(&state.output),
            batch_dim: state.batch_dim,
        })
        .collect();
    let mut errors = PlanErrors::default();
    let batch_dims = match batch_dims(&loaded.outline, &states) {
        Ok(batch_dims) => batch_dims,
        Err(error) => {
            errors.at("state", error.to_string());
            return Err(Refused::Node(errors));
        }
    };
    let mut constants = Constants::new();
    for (port, config) in &config.constants {
        let checked = match states.iter().any(|state| state.input == *port) {
            true => Err("is a state, which cannot be constant".into()),
            false => config.constant().and_then(|constant| {
                constant.check(port, &loaded.outline)?;
                Ok(constant)
            }),
        };
        match checked {
            Ok(constant) => _ = constants.insert(port.clone(), constant),
            Err(why) => _ = errors.at(format!("constants.{port}"), format!("the value of input `{port}`: {why}")),
        }
    }
    errors.into_result(()).map_err(Refused::Node)?;
    let mut errors = PlanErrors::default();
    let is_port = |port: &String| !constants.contains_key(port) && states.iter().all(|state| state.input != *port);
    let inputs = || loaded.outline.inputs.iter().filter(|input| is_port(&input.port));
    let fixed = |shape: &[usize]| shape.iter().copied().map(Dim::Fixed).collect();
    let constant_shapes = constants.iter().map(|(port, constant)| (port.clone(), fixed(&constant.shape)));
    let shapes = inputs()
        .filter_map(|input| {
            // With a single input the graph file need not name it.
            let only = given.inputs().count() == 1 && inputs().count() == 1;
            let spec = given.input(&input.port).or_else(|| given.single().filter(|_| only));
            let spec = spec?;
            spec.max_elements()?;
            Some((input.port.clone(), spec.shape.clone()))
        })
        .chain(constant_shapes)
        .collect();
    let bound = match loaded.outline.bind(&shapes, &batch_dims) {
        Ok(bound) => bound,
        Err(unbound) => {
            for unbound in unbound {
                if states.iter().any(|state| state.input == unbound.input) {
                    let message = format!("the state `{}`: {}", unbound.input, unbound.why);
                    errors.at("state", message).help("write `batch_dim:` if that dim is its batch");
                } else {
                    errors.input(unbound.input, unbound.why);
                }
            }
            return Err(Refused::Node(errors));
        }
    };
    if let (Some(file), Some(items)) = (config.trial_file(), &job.recorded.trial) {
        let spec = |(input, item): (&Input, &Vec<Dim>)| TensorSpec {
            name: input.port.clone(),
            dtype: input.elem.dtype(),
            shape: item.clone(),
        };
        let bound = loaded.outline.inputs.iter().zip(&bound.items);
        let specs: Vec<TensorSpec> = bound.filter(|(input, _)| is_port(&input.port)).map(spec).collect();
        items.misfits(&specs).into_iter().for_each(|wrong| _ = errors.at("trial", format!("`{file}`: {wrong}")));
    }
    errors.into_result(()).map_err(Refused::Node)?;
    let threads = config.threads.clamp(1, MAX_THREADS);
    let finite = config.guard == Guard::Finite;
    let lazy = config.load == Load::Lazy;
    let (buckets, one_item) = (config.buckets.clone(), config.batch.max == 1);
    let how = OnnxModel {
        threads,
        buckets,
        states,
        constants,
        finite,
        lazy,
        one_item,
        max: config.max.iter().map(|(port, max)| (port_name(port), max.lengths().to_vec())).collect(),
        sample: job.recorded.sample().cloned(),
        untried: config.is_untried(),
        plans: config.plans,
        ..OnnxModel::default()
    };
    OnnxPrepared::<R>::new(loaded, bound, &how, steps).map_err(|error| match error {
        NotPrepared::Max(why) => {
            let mut errors = PlanErrors::default();
            errors.at("max", format!("`{model}`: {why}")).help(
                "the greatest lengths are those of one item; messages may be shorter, and a call that gives more fails",
            );
            Refused::Node(errors)
        }
        NotPrepared::Other(error) => unusable::<R>(model, &error).into(),
    })
}

/// Loads a model as the reference of a comparison.
pub(super) fn reference_onnx<R: Runtime>(job: &PlanRequest<'_>) -> Result<Reference, Refused> {
    let prepared = prepare_onnx::<R>(job)?;
    let signature = prepared.signature().clone();
    let is_stateful = prepared.is_stateful();
    let session = move |max_batch| prepared.session(max_batch).map(|session| Box::new(session) as AnySession);
    Ok(Reference { name: R::NAME, signature, is_stateful, session: Box::new(session) })
}
