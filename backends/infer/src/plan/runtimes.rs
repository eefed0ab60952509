//! The runtimes of a program, by the names of their backends.

use super::backend_name::{AUTO, MOCK, ORT, STOCK};
use super::candidate::Candidate;
use super::config::InferConfig;
use super::dispatch::Dispatch;
use super::provider::OrtDevice;
use super::registered::{Built, CPU, Isolated, Registered};
use crate::base::BackendOptions;
use crate::cache::Calibration;
use crate::inspect::Inspection;
use crate::onnx::{Op, Runtime};
use limen::Registry;
use limen::node::Extensions;
use std::sync::LazyLock;

/// The CPU's runtimes in the order in which `auto` tries them: the fastest first, as measured on
/// nine models. Others follow.
const FASTEST_FIRST: [&str; 3] = ["ort", "rten", "tract"];

/// The runtimes of a registry: those that this crate was built with, and those of
/// [`RegisterRuntime::runtime`].
#[derive(Clone, Debug)]
pub struct Runtimes(Vec<Registered>);

/// Those that this crate was built with.
impl Default for Runtimes {
    fn default() -> Self {
        let stock = Runtimes(STOCK.iter().map(Registered::missing).collect());
        #[cfg(feature = "rten")]
        let stock = stock.with::<crate::backend::RtenRuntime>(OrtDevice::Cpu);
        #[cfg(feature = "tract")]
        let stock = stock.with::<crate::backend::TractRuntime>(OrtDevice::Cpu);
        #[cfg(feature = "ort")]
        let stock = {
            use crate::backend::{OrtCuda, OrtNvidiaRuntime, OrtRuntime, OrtTensorrt, OrtWebgpuRuntime};
            let stock = stock.with::<OrtRuntime>(OrtDevice::Cpu).with::<OrtWebgpuRuntime>(OrtDevice::Webgpu);
            let stock = stock.with::<OrtNvidiaRuntime<OrtCuda>>(OrtDevice::Cuda);
            stock.with::<OrtNvidiaRuntime<OrtTensorrt>>(OrtDevice::Tensorrt)
        };
        stock
    }
}

impl Runtimes {
    /// The runtimes of a registry.
    pub(crate) fn of(extensions: &Extensions) -> &Runtimes {
        static STOCK: LazyLock<Runtimes> = LazyLock::new(Runtimes::default);
        extensions.get().unwrap_or(&STOCK)
    }

    /// Adds a runtime; it replaces an earlier one of the same backend, for the same `provider:`.
    fn with<R: Runtime>(mut self, device: OrtDevice) -> Self {
        let added = Registered::of::<R>(device);
        let same = |other: &&mut Registered| other.backend == R::BACKEND && other.device == device;
        match self.0.iter_mut().find(same) {
            Some(earlier) => *earlier = added,
            None => self.0.push(added),
        }
        self
    }

    /// Adds the form of a runtime that uses its device in a process of its own.
    fn isolated<R: Runtime>(mut self, argument: &'static str, main: fn() -> !) -> Self {
        let there = self.0.iter_mut().find(|other| other.backend == R::BACKEND);
        let isolated = Isolated { built: Built::of::<R>(), argument, main };
        there.into_iter().for_each(|there| there.isolated = Some(isolated));
        self
    }

    /// Returns the runtimes that have such a form.
    pub(crate) fn all_isolated(&self) -> impl Iterator<Item = Isolated> {
        self.0.iter().filter_map(|known| known.isolated)
    }

    /// Returns the runtime of a backend, without `provider:`.
    pub(crate) fn get(&self, backend: &str) -> Option<&Registered> {
        self.0.iter().find(|known| known.backend == backend && known.device == OrtDevice::Cpu)
    }

    /// Returns the names that `backend:` can have.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let models = self.0.iter().filter(|known| known.device == OrtDevice::Cpu).map(|known| known.backend);
        let (stock, own): (Vec<_>, Vec<_>) = models.partition(|name| STOCK.iter().any(|stock| stock.0 == *name));
        stock.into_iter().chain([AUTO, MOCK]).chain(own).collect()
    }

    /// Returns the names of the runtimes, by which `against:` and `shadow:` call them.
    pub(crate) fn of_models(&self) -> Vec<&'static str> {
        self.0.iter().map(|known| known.name).collect()
    }

    /// Returns every runtime: those on the CPU, in the order in which `auto` tries them, and those
    /// on a device.
    fn all<'a>(&self, options: &'a BackendOptions) -> Vec<Candidate<'a>> {
        let place = |candidate: &Candidate<'_>| match candidate.computes_on {
            CPU => { FASTEST_FIRST.iter() }.position(|name| *name == candidate.backend).unwrap_or(FASTEST_FIRST.len()),
            _ => usize::MAX,
        };
        let mut all: Vec<_> = self.0.iter().map(|known| known.candidate(options)).collect();
        all.sort_by_key(place);
        all
    }

    /// Returns the runtimes that a node may use, in the order in which `auto` tries them: those on
    /// the CPU, and those on a device if the node names them, with `auto`, and to measure them.
    pub(crate) fn candidates<'a>(&self, config: &InferConfig, options: &'a BackendOptions) -> Vec<Candidate<'a>> {
        let is_asked = |candidate: &Candidate<'_>| {
            let is_named = candidate.serves(config) || config.names(candidate.name);
            candidate.computes_on == CPU || is_named || candidate.needs_measuring(config) || options.calibrate
        };
        let mut candidates: Vec<_> = self.all(options).into_iter().filter(is_asked).collect();
        if config.serving() == ORT && !candidates.iter().any(|candidate| candidate.serves(config)) {
            let missing = self.get(ORT).map(|cpu| Registered { device: config.provider, ..*cpu });
            candidates.extend(missing.map(|known| known.candidate(options)));
        }
        candidates
    }

    /// Returns the candidates of a node without the devices that `auto` does not look for: no model
    /// was measured on them.
    pub(crate) fn considered<'a>(&self, config: &InferConfig, options: &'a BackendOptions) -> Vec<Candidate<'a>> {
        let candidates = self.candidates(config, options).into_iter();
        let table = options.cache.as_deref().map(Calibration::read).unwrap_or_default();
        let is_considered = |candidate: &Candidate<'_>| {
            let is_free = candidate.needs_measuring(config) && !config.names(candidate.name) && !options.calibrate;
            !is_free || (candidate.built.is_some() && table.has_any(candidate.name))
        };
        candidates.filter(is_considered).collect()
    }
}

/// Adds runtimes to a [`Registry`], for the kind `infer`.
pub trait RegisterRuntime {
    /// Adds a runtime, which `backend:` names by [`Runtime::BACKEND`]. It replaces an earlier one
    /// of that name. `auto` tries it after those of this crate, unless it was measured to be
    /// faster. If [`Runtime::DEVICE`] is not `cpu`, `auto` selects it only by such a measurement.
    ///
    /// Models are tried with it in a process of their own only if that process has it, too
    /// ([`trial::serve`](crate::trial::serve)).
    #[must_use]
    fn runtime<R: Runtime>(self) -> Self;

    /// Adds the form of a runtime of this registry that uses its device in a process of its own
    /// (`run: { isolation: process }`). That process is this program, started with `argument`
    /// alone: [`trial::serve`](crate::trial::serve) then calls `main`.
    #[must_use]
    fn isolated<R: Runtime>(self, argument: &'static str, main: fn() -> !) -> Self;
}

impl RegisterRuntime for Registry {
    fn runtime<R: Runtime>(self) -> Self {
        let runtimes = Runtimes::of(self.extensions()).clone().with::<R>(OrtDevice::Cpu);
        let is_stock = STOCK.iter().any(|stock| stock.0 == R::BACKEND);
        let registry = self.with_extension(runtimes);
        if is_stock {
            return registry;
        }
        registry.with_name("infer", "BackendName", R::BACKEND).with_name("infer", "RuntimeName", R::NAME)
    }

    fn isolated<R: Runtime>(self, argument: &'static str, main: fn() -> !) -> Self {
        let runtimes = Runtimes::of(self.extensions()).clone().isolated::<R>(argument, main);
        self.with_extension(runtimes)
    }
}

impl Inspection {
    /// Returns the nodes that a backend computes otherwise than ONNX.
    pub(crate) fn deviating(&self, runtimes: &Runtimes, options: &BackendOptions) -> Vec<Op> {
        let candidates = runtimes.all(options);
        let found = candidates.iter().flat_map(|candidate| candidate.deviations(&self.details.ops));
        found.map(|(op, _)| op.clone()).collect()
    }

    /// Returns how each backend of a registry handles the model's operators. The model is not
    /// loaded, so a backend that has an operator may still refuse its attributes or types. No
    /// driver of a device is looked for.
    pub fn dispatch(&self, extensions: &Extensions) -> Vec<(&'static str, Dispatch)> {
        let operators = self.operators.keys().map(String::as_str);
        let options = extensions.get().cloned().unwrap_or_default();
        let candidates = Runtimes::of(extensions).all(&options);
        let dispatch = |candidate: &Candidate<'_>| candidate.dispatch(operators.clone(), &self.details.ops);
        candidates.iter().map(|candidate| (candidate.name, dispatch(candidate))).collect()
    }
}
