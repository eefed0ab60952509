//! The runtimes of this program.

use super::candidate::{Built, Candidate};
use super::config::Choice;
use super::dispatch::Dispatch;
use super::load::reference_onnx;
use super::onnx_plan::plan_onnx;
use crate::inspect::Inspection;
use crate::onnx::Runtime;

#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
fn built<R: Runtime>(choice: Choice) -> Candidate {
    let (plan, reference) = (plan_onnx::<R>, reference_onnx::<R>);
    let built = Built { probe: R::probe, is_library: R::IS_LIBRARY, plan, reference, rewrites: R::rewrites };
    Candidate { choice, name: R::NAME, built: Some(built) }
}

/// Returns every runtime in the default order of `auto`: the fastest first, as measured on nine models.
pub(crate) fn all_runtimes() -> [Candidate; 3] {
    #[cfg(not(all(feature = "rten", feature = "tract", feature = "ort")))]
    let missing = |choice, name| Candidate { choice, name, built: None };
    #[cfg(feature = "ort")]
    let ort = built::<crate::backend::OrtRuntime>(Choice::Ort);
    #[cfg(not(feature = "ort"))]
    let ort = missing(Choice::Ort, "ort");
    #[cfg(feature = "rten")]
    let rten = built::<crate::backend::RtenRuntime>(Choice::Rten);
    #[cfg(not(feature = "rten"))]
    let rten = missing(Choice::Rten, "rten");
    #[cfg(feature = "tract")]
    let tract = built::<crate::backend::TractRuntime>(Choice::Tract);
    #[cfg(not(feature = "tract"))]
    let tract = missing(Choice::Tract, "tract");
    [ort, rten, tract]
}

impl Inspection {
    /// Returns how each backend handles the model's operators. The model is not loaded, so a backend that has an operator may
    /// still refuse the way the model uses it.
    pub fn dispatch(&self) -> Vec<(&'static str, Dispatch)> {
        let operators = self.operators.keys().map(String::as_str);
        all_runtimes().iter().map(|candidate| (candidate.name, candidate.dispatch(operators.clone()))).collect()
    }
}
