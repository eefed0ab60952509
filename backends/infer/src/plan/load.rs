//! Loads a model into a runtime and tries it.

use super::candidate::{PlanRequest, Refused};
use super::config::{Guard, Load, MAX_THREADS};
use super::model_file::unusable;
use crate::base::port_name;
use crate::onnx::{AnySession, Loaded, NotPrepared, OnnxModel, OnnxPrepared, Provider, Reference, Runtime};
use crate::steps::TRIAL;
use limen::backend::Prepared;
use limen::node::PlanErrors;

/// Loads a model into a runtime, binds its shapes and tries it.
pub(super) fn prepare_onnx<R: Runtime>(job: &PlanRequest<'_>) -> Result<OnnxPrepared<R>, Refused> {
    let PlanRequest { config, options, model, inputs, steps, .. } = job;
    steps.announce(Some(R::NAME), "loaded the model");
    let loaded = job
        .files
        .give()
        .and_then(|files| Loaded::<R>::share(files, options))
        .map_err(|error| unusable::<R>(model, &error))?;
    let threads = config.threads.clamp(1, MAX_THREADS);
    let finite = config.guard == Guard::Finite;
    let lazy = config.load == Load::Lazy;
    let required = config.require.as_ref().map_or(0, |require| require.max_batch);
    let (buckets, one_item) = (config.buckets.clone(), config.batch.max == 1 && required <= 1);
    let how = OnnxModel {
        threads,
        buckets,
        states: inputs.states.clone(),
        constants: inputs.constants.clone(),
        finite,
        lazy,
        one_item,
        max: config.max.iter().map(|(port, max)| (port_name(port), max.lengths().to_vec())).collect(),
        sample: job.recorded.sample().cloned(),
        untried: config.is_untried(),
        plans: config.plans,
        precision: config.precision,
        // Those of the node are for its own device.
        provider: if R::DEVICE == config.provider.name() { config.provider() } else { Provider::default() },
        ..OnnxModel::default()
    };
    OnnxPrepared::<R>::new(loaded, inputs.bound.clone(), &how, steps).map_err(|error| match error {
        NotPrepared::Field(field, why) => {
            let mut errors = PlanErrors::default();
            errors.at(field, format!("`{model}`: {why}")).help(match field {
                "max" => "write the greatest length of each dim of one item in `max`",
                "state" => "pair the input in `state` with an output of the same shape and type, or connect a node to the input",
                TRIAL => "remove `trial: first_message`, or export the model with the types of its outputs",
                _ => "export the model with inputs and outputs that ports support",
            });
            Refused::Node(errors)
        }
        NotPrepared::Call { why, help } => {
            let mut errors = PlanErrors::default();
            // A constant is what a user can change.
            let mut ports = config.constants.keys();
            let field = match (ports.next(), ports.next()) {
                (Some(port), None) => format!("constants.{port}"),
                _ => "model".into(),
            };
            errors.at(&field, format!("`{model}`: {why}")).help(help);
            Refused::Call(errors)
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
