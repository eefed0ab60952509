//! A model on one thread, as programs for the shapes of its calls.

use super::convert::{give, widen};
use super::runtime::ProgramModel;
use super::{MadeProgram, ProgramDevice};
use crate::device::SessionCalls;
use crate::lowering::{Half, lower};
use limen::backend::{BackendError, BatchRef, DeviceCall, EnqueuedCalls, Helpers, SessionMetadata, Ticket};
use limen_infer::internal::Given;
use limen_infer::onnx::{Call, DeviceCalls, Elem, Precision, Runner, Take};
use std::sync::{Arc, PoisonError};
use tract_onnx::prelude::DatumType;

/// Inputs and states of a call; the list of them is kept on the stack.
const MAX_INPUTS: usize = 64;

/// What fractions of 16 bits a precision means.
fn half_of(precision: Precision) -> Option<Half> {
    match precision {
        Precision::F32 | Precision::Tf32 => None,
        Precision::F16 => Some(Half::F16),
        Precision::Bf16 => Some(Half::Bf16),
    }
}

/// A program for calls of one shape.
struct Prepared<B> {
    /// The shapes of its inputs.
    shapes: Vec<Vec<usize>>,
    bound: B,
    /// The types of the model's outputs.
    outputs: Vec<DatumType>,
}

/// A model on one thread, with programs for some shapes.
pub(super) struct ProgramRunner<A: ProgramDevice> {
    model: Arc<ProgramModel<A>>,
    /// The device that `plans` were made for, and its generation.
    device: Option<(u32, Arc<A>)>,
    calls: SessionCalls<A>,
    /// Its inputs, with the values of constant ones.
    given: Vec<Given>,
    /// The most recently used last.
    plans: Vec<Prepared<A::Bound>>,
    /// The shapes of the inputs of the calls that are prepared.
    planned: Vec<Vec<Vec<usize>>>,
    /// How many are kept.
    kept: usize,
    /// Whether shapes may differ from call to call.
    varies: bool,
    precision: Precision,
    elems: Vec<Elem>,
    /// The inputs as the device has them, where that differs.
    wide: Vec<Vec<u32>>,
    /// An output as its port has it, where that differs.
    narrow: Vec<u8>,
    /// Why there is no program for larger calls.
    lacks_memory: Option<String>,
}

impl<A: ProgramDevice> std::fmt::Debug for ProgramRunner<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shapes: Vec<_> = self.plans.iter().map(|plan| &plan.shapes).collect();
        f.debug_struct("ProgramRunner").field("shapes", &shapes).finish_non_exhaustive()
    }
}

impl<A: ProgramDevice> ProgramRunner<A> {
    /// Prepares a model for calls.
    pub(super) fn new(model: &Arc<ProgramModel<A>>, call: &Call) -> Result<Self, BackendError> {
        let n = call.inputs.len();
        if n > MAX_INPUTS {
            let why = format!("the model must have at most {MAX_INPUTS} inputs and states, got {n}");
            return Err(BackendError::Unsupported(why));
        }
        let (generation, api) = model.device.api()?;
        if let Some(lacks) = api.lacks(call.precision) {
            let precision = call.precision.name();
            let why = format!("`precision: {precision}` on `{}`: {lacks}", api.name());
            return Err(BackendError::Unsupported(why));
        }
        let shapes = |batch: &usize| call.inputs.iter().map(|input| input.shape(*batch)).collect::<Vec<_>>();
        let mut runner = ProgramRunner {
            device: None,
            calls: SessionCalls::new(model.device.clone()),
            model: model.clone(),
            given: call.inputs.iter().map(|input| Given::of(input, 1)).collect(),
            plans: Vec::new(),
            planned: call.batches.iter().map(shapes).collect(),
            kept: call.plans.max(call.batches.len()).max(1),
            varies: call.inputs.iter().any(|input| input.varies.contains(&true)),
            precision: call.precision,
            elems: call.inputs.iter().map(|input| input.elem).collect(),
            wide: vec![Vec::new(); n],
            narrow: Vec::new(),
            lacks_memory: None,
        };
        runner.reside(generation, &api);
        for batch in &call.batches {
            match runner.prepare(shapes(batch)) {
                // Calls of so many items are made as several ones.
                Err(BackendError::OutOfMemory(why)) if !runner.plans.is_empty() => {
                    runner.lacks_memory = Some(why.clone());
                    let warning = format!("calls of {batch} items are split into smaller calls: {why}");
                    model.compiled.lock().unwrap_or_else(PoisonError::into_inner).warnings.push(warning);
                    break;
                }
                prepared => prepared?,
            }
        }
        Ok(runner)
    }

    /// Forgets what was made for another device than this.
    fn reside(&mut self, generation: u32, device: &Arc<A>) {
        if self.device.as_ref().is_none_or(|(of, _)| *of != generation) {
            self.plans.clear();
            self.lacks_memory = None;
            self.device = Some((generation, device.clone()));
        }
    }

    /// Lowers the model for calls of a shape and makes the first call, in which drivers generate
    /// code.
    fn prepare(&mut self, shapes: Vec<Vec<usize>>) -> Result<(), BackendError> {
        let given = std::iter::zip(&self.given, &shapes);
        let given: Vec<Given> = given.map(|(given, shape)| given.with_shape(shape)).collect();
        let model = self.model.tract.typed(&given)?;
        let mut program = lower(&model).map_err(BackendError::Unsupported)?;
        if let Some(half) = half_of(self.precision) {
            program.halve(half);
        }
        program.tf32 = self.precision == Precision::Tf32;
        let outlets = model.output_outlets().map_err(BackendError::call)?.iter();
        let outputs = outlets.map(|outlet| Ok(model.outlet_fact(*outlet).map_err(BackendError::call)?.datum_type));
        let outputs = outputs.collect::<Result<_, BackendError>>()?;
        let (_, device) = self.device.as_ref().ok_or_else(|| BackendError::Call("the device is not open".into()))?;
        let bound = device.bind(Arc::new(program), self.model.cache.as_deref())?;
        self.model.compiled.lock().unwrap_or_else(PoisonError::into_inner).add(bound.compiled());
        while self.plans.len() >= self.kept {
            self.plans.remove(0);
        }
        self.plans.push(Prepared { shapes, bound, outputs });
        Ok(())
    }

    /// Returns the place of the program for these inputs.
    fn plan(&mut self, inputs: &[BatchRef<'_>]) -> Result<usize, BackendError> {
        let fits = |plan: &Prepared<A::Bound>| {
            plan.shapes.iter().map(Vec::as_slice).eq(inputs.iter().map(|input| input.shape))
        };
        if let Some(at) = self.plans.iter().position(fits) {
            let plan = self.plans.remove(at);
            self.plans.push(plan);
            return Ok(self.plans.len() - 1);
        }
        if let (false, Some(why)) = (self.varies, &self.lacks_memory) {
            return Err(BackendError::OutOfMemory(why.clone()));
        }
        // After a device was opened again, what was planned is prepared when it is called.
        let is_planned =
            |shapes: &Vec<Vec<usize>>| shapes.iter().map(Vec::as_slice).eq(inputs.iter().map(|input| input.shape));
        if !self.varies && !self.planned.iter().any(is_planned) {
            let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
            return Err(BackendError::Call(format!("expected inputs of a planned shape, found {shapes:?}")));
        }
        self.prepare(inputs.iter().map(|input| input.shape.to_vec()).collect())?;
        Ok(self.plans.len() - 1)
    }
}

impl<A: ProgramDevice> Runner for ProgramRunner<A> {
    fn run(&mut self, _: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        // One that was lost is opened again.
        let (generation, api) = self.model.device.api()?;
        self.reside(generation, &api);
        let at = self.plan(inputs)?;
        let ProgramRunner { plans, elems, wide, narrow, .. } = self;
        let Prepared { bound, outputs, .. } = &mut plans[at];
        for ((input, elem), wide) in std::iter::zip(inputs, elems.iter()).zip(wide.iter_mut()) {
            widen(input, *elem, wide)?;
        }
        let given = std::iter::zip(inputs, wide.iter());
        let given: arrayvec::ArrayVec<&[u8], MAX_INPUTS> =
            given.map(|(input, wide)| if wide.is_empty() { input.bytes } else { bytemuck::cast_slice(wide) }).collect();
        let program = bound.program().clone();
        for (array, given) in std::iter::zip(&program.inputs, &given) {
            let bytes = program.arrays[*array].words() * 4;
            if bytes != given.len() {
                return Err(BackendError::Call(format!("an input must have {bytes} bytes, got {}", given.len())));
            }
        }
        bound.run(&given, &mut |at, bytes| {
            let (array, shape) = &program.outputs[at];
            // A buffer is never empty, an output may be.
            let bytes = &bytes[..program.arrays[*array].len * 4];
            let scalar = program.arrays[*array].scalar;
            give(at, outputs[at], scalar, shape, bytes, narrow, take)
        })
    }

    fn on_device(&mut self) -> Option<&mut dyn DeviceCalls> {
        Some(self)
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata {
            device: self.device.as_ref().map(|(_, device)| device.name().to_string()).unwrap_or_default(),
            threads: 1,
            memory: self.plans.iter().map(|plan| plan.bound.memory()).sum(),
            ..SessionMetadata::default()
        }
    }
}

impl<A: ProgramDevice> ProgramRunner<A> {
    /// Returns the shapes of a call with one item.
    fn item_shapes(&self) -> Vec<Vec<usize>> {
        self.given.iter().map(|given| given.shape().to_vec()).collect()
    }

    /// Returns the place of the program for one item, on this device.
    fn item_plan(&mut self, generation: u32, device: &Arc<A>) -> Result<usize, BackendError> {
        self.reside(generation, device);
        let shapes = self.item_shapes();
        if let Some(at) = self.plans.iter().position(|plan| plan.shapes == shapes) {
            return Ok(at);
        }
        self.prepare(shapes)?;
        Ok(self.plans.len() - 1)
    }
}

impl<A: ProgramDevice> DeviceCalls for ProgramRunner<A> {
    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        // Apart while the rest is borrowed.
        let none = SessionCalls::new(self.model.device.clone());
        let mut calls = std::mem::replace(&mut self.calls, none);
        let enqueued = calls.enqueue(call.inputs, call.outputs, false, |on| {
            let at = self.item_plan(on.generation, on.api)?;
            self.plans[at].bound.encode(on, call)
        });
        self.calls = calls;
        enqueued
    }

    fn enqueued(&mut self) -> &mut dyn EnqueuedCalls {
        &mut self.calls
    }
}
