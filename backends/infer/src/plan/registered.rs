//! A runtime as a registry has it: what a node can name, whether this program was built with it or
//! not.

use super::backend_name::Stock;
use super::candidate::{Candidate, PlanRequest, Refused};
use super::load::reference_onnx;
use super::onnx_plan::plan_onnx;
use super::provider::OrtDevice;
use crate::base::BackendOptions;
use crate::onnx::{Deviation, Op, OpenMemory, Precision, Reference, Runtime, capabilities};
use limen::backend::{BackendError, Capabilities};
use limen::infer::InferPlan;
use limen::message::Device;
use limen::policy::Isolation;
use std::sync::Arc;

/// Where a runtime computes that needs no device.
pub(crate) const CPU: &str = "cpu";

/// A runtime that a node can name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// The name of its backend.
    pub(crate) backend: &'static str,
    /// The `provider:` that takes it, if its backend has a runtime for each.
    pub(crate) device: OrtDevice,
    /// Its name in messages.
    pub(crate) name: &'static str,
    pub(crate) computes_on: &'static str,
    /// The cargo feature with which it is built in.
    pub(crate) feature: &'static str,
    pub(crate) built: Option<Built>,
    /// The form that uses its device in a process of its own.
    pub(super) isolated: Option<Isolated>,
}

/// A runtime in the form that uses its device in a process of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Isolated {
    pub(super) built: Built,
    /// The argument with which this program is started for it.
    pub(crate) argument: &'static str,
    /// What it does then.
    pub(crate) main: fn() -> !,
}

/// The functions of a runtime that is built in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    pub(super) probe: fn(&BackendOptions) -> Result<Capabilities, BackendError>,
    pub(super) listed: fn(&BackendOptions) -> Result<Capabilities, BackendError>,
    pub(super) build: fn(&BackendOptions) -> String,
    pub(super) is_library: bool,
    pub(super) plan: fn(&PlanRequest<'_>) -> Result<InferPlan, Refused>,
    pub(super) reference: fn(&PlanRequest<'_>) -> Result<Reference, Refused>,
    pub(super) rewrites: fn(&str) -> bool,
    pub(super) refuses: fn(&Op) -> Option<&'static str>,
    pub(super) only_folds: fn(&str) -> bool,
    pub(super) lacks: fn(&Op) -> bool,
    pub(super) deviations: fn() -> &'static [Deviation],
    pub(super) precisions: &'static [Precision],
    pub(super) memory: Option<(&'static str, OpenMemory)>,
    pub(crate) opens_first: Option<fn(&BackendOptions)>,
}

impl Built {
    pub(super) fn of<R: Runtime>() -> Built {
        Built {
            probe: capabilities::<R>,
            listed: R::listed,
            build: R::build,
            is_library: R::IS_LIBRARY,
            plan: plan_onnx::<R>,
            reference: reference_onnx::<R>,
            rewrites: R::rewrites,
            refuses: R::refuses,
            only_folds: R::only_folds,
            lacks: R::lacks,
            deviations: R::deviations,
            precisions: R::PRECISIONS,
            memory: R::MEMORY,
            opens_first: R::OPENS_FIRST,
        }
    }
}

impl Registered {
    pub(super) fn of<R: Runtime>(device: OrtDevice) -> Registered {
        let built = Some(Built::of::<R>());
        let (backend, name, computes_on) = (R::BACKEND, R::NAME, R::DEVICE);
        Registered { backend, device, name, computes_on, feature: "", built, isolated: None }
    }

    /// A backend of limen that is not built in.
    pub(super) fn missing(stock: &Stock) -> Registered {
        let Stock(backend, feature, computes_on, _) = *stock;
        Registered { backend, device: OrtDevice::Cpu, name: backend, computes_on, feature, built: None, isolated: None }
    }

    /// The runtime for a program with these options.
    pub(super) fn candidate(self, options: &BackendOptions) -> Candidate<'_> {
        let built = match options.isolation {
            Isolation::Process => self.isolated.map(|isolated| isolated.built).or(self.built),
            _ => self.built,
        };
        Candidate { runtime: Registered { built, ..self }, options }
    }

    /// Whether it can compute with a precision, as far as this is known.
    pub(super) fn takes(&self, precision: Precision) -> bool {
        self.built.map_or(self.computes_on != CPU, |built| built.precisions.contains(&precision))
    }

    /// Returns the name of the device in whose memory it can keep messages.
    pub(crate) fn memory_name(&self) -> Option<&'static str> {
        Some(self.built?.memory?.0)
    }

    /// Returns that device.
    pub(crate) fn memory(self, options: &BackendOptions) -> Option<Arc<dyn Device>> {
        let (_, device) = self.candidate(options).built?.memory?;
        Some(device(options))
    }
}
