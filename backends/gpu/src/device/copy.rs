//! Copies between host memory and a device, for the kinds `to_device` and `to_host`.

use super::api::Api;
use super::call::SessionCalls;
use super::memory::{COUNT, buffer_of, count_place, is_counted};
use super::shared::SharedDevice;
use crate::base::CopyDevice;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, TensorSpec, Ticket,
};
use limen::infer::{Batch, DeviceSide, InferPlan};
use limen::message::{DType, PortSpec};
use limen::node::{Cost, Metrics};
use std::marker::PhantomData;
use std::sync::Arc;

impl<A: Api> CopyDevice for SharedDevice<A> {
    fn to_device(self: Arc<Self>, spec: &PortSpec) -> InferPlan {
        copy_plan::<A, ToDevice>(self, spec, DeviceSide::Outputs)
    }

    fn to_host(self: Arc<Self>, spec: &PortSpec) -> InferPlan {
        copy_plan::<A, ToHost>(self, spec, DeviceSide::Inputs)
    }
}

fn copy_plan<A: Api, D: Direction>(device: Arc<SharedDevice<A>>, spec: &PortSpec, side: DeviceSide) -> InferPlan
where
    Copy<A, D>: Backend<Prepared = PreparedCopy<A, D>>,
{
    let port = |name: &str| TensorSpec { name: name.into(), dtype: spec.dtype, shape: spec.shape.clone() };
    let signature = Signature { inputs: vec![port("in")], outputs: vec![port("out")], max_batch: Some(1) };
    let place = count_place(spec).unwrap_or(0);
    let count = is_counted(spec).then_some(Count { place, is_float: spec.dtype == DType::F32 });
    let bytes = count.map_or(place, |count| count.place.saturating_add(COUNT)).max(4);
    let prepared =
        PreparedCopy { device: device.clone(), signature, bytes, count, direction: PhantomData::<fn() -> D> };
    let plan = InferPlan::new::<Copy<A, D>>(Arc::new(prepared), Batch::default());
    // Counted messages are taken apart in memory of their own.
    let buffers = A::CALLS + usize::from(count.is_some());
    let staging = if side == DeviceSide::Inputs { bytes.saturating_mul(buffers) } else { 0 };
    plan.carries(spec).cost(Cost::Light).memory(staging).on_device(device, side, A::CALLS)
}

/// The count of a message's first dim, behind its elements: a number of their type.
#[derive(Clone, Copy, Debug)]
struct Count {
    place: usize,
    is_float: bool,
}

impl Count {
    fn bytes(self, count: usize) -> [u8; COUNT] {
        if self.is_float { (count as f32).to_le_bytes() } else { (count as u32).to_le_bytes() }
    }

    /// Reads a count, which may be that of a fault.
    fn read(self, bytes: &[u8]) -> Option<usize> {
        let count = *bytes.get(self.place..)?.first_chunk::<COUNT>()?;
        let float = f32::from_le_bytes(count);
        match self.is_float {
            true => (0.0..16_777_216.0).contains(&float).then_some(float as usize),
            false => usize::try_from(u32::from_le_bytes(count)).ok(),
        }
    }
}

/// The direction of a copy.
trait Direction: 'static {}

#[derive(Debug)]
struct ToDevice;
impl Direction for ToDevice {}

/// To host memory.
#[derive(Debug)]
struct ToHost;
impl Direction for ToHost {}

/// A copy as a backend: planning and stages are those of models.
struct Copy<A, D>(PhantomData<fn() -> (A, D)>);

struct PreparedCopy<A: Api, D> {
    device: Arc<SharedDevice<A>>,
    signature: Signature,
    bytes: usize,
    count: Option<Count>,
    direction: PhantomData<fn() -> D>,
}

fn not_a_model() -> BackendError {
    BackendError::Unsupported("expected a model, found a copy".into())
}

macro_rules! backend {
    ($direction:ident, $session:ident) => {
        impl<A: Api> Backend for Copy<A, $direction> {
            const NAME: &'static str = A::NAME;
            type Model = ();
            type Prepared = PreparedCopy<A, $direction>;

            fn probe() -> Result<Capabilities, BackendError> {
                Ok(Capabilities::cpu("", Vec::new(), Ops::Unlisted))
            }

            fn prepare((): ()) -> Result<Self::Prepared, BackendError> {
                Err(not_a_model())
            }
        }

        impl<A: Api> Prepared for PreparedCopy<A, $direction> {
            type Session = $session<A>;

            fn signature(&self) -> &Signature {
                &self.signature
            }

            fn session(&self, _: usize) -> Result<$session<A>, BackendError> {
                Ok($session::new(self))
            }
        }
    };
}
backend!(ToDevice, Upload);
backend!(ToHost, Download);

/// Copies to a device.
struct Upload<A: Api> {
    calls: SessionCalls<A>,
    count: Option<Count>,
}

impl<A: Api> Upload<A> {
    fn new(of: &PreparedCopy<A, ToDevice>) -> Self {
        Upload { calls: SessionCalls::new(of.device.clone()), count: of.count }
    }
}

impl<A: Api> Session for Upload<A> {
    type Lane = ();

    fn infer_batch(
        &mut self,
        _: usize,
        _: &[BatchRef<'_>],
        _: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        Err(not_a_model())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let count = self.count;
        self.calls.enqueue(&[], call.outputs, false, |to| {
            for (input, output) in std::iter::zip(call.host_inputs, call.outputs) {
                let Some(output) = output else { continue };
                let (buffer, at) = buffer_of::<A>(output)?;
                to.api.upload(to.stream, input.bytes, &buffer, at)?;
                if let Some(count) = count {
                    let length = input.shape.first().copied().unwrap_or(0);
                    to.api.upload(to.stream, &count.bytes(length), &buffer, at + count.place)?;
                }
            }
            Ok(())
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: A::NAME.into(), threads: 1, ..SessionMetadata::default() }
    }
}

/// Copies to host memory.
struct Download<A: Api> {
    calls: SessionCalls<A>,
    bytes: usize,
    staging: Vec<Staging<A>>,
    /// Where the count of a message lies, and memory for it and its elements.
    counted: Option<(Count, Vec<u8>)>,
}

/// Host memory for a copy.
struct Staging<A: Api> {
    generation: u32,
    api: Arc<A>,
    memory: A::Staging,
    /// The call that writes it.
    used_by: Option<Ticket>,
}

impl<A: Api> Download<A> {
    fn new(of: &PreparedCopy<A, ToHost>) -> Self {
        let counted = of.count.map(|count| (count, vec![0; of.bytes]));
        Download { calls: SessionCalls::new(of.device.clone()), bytes: of.bytes, staging: Vec::new(), counted }
    }
}

impl<A: Api> Session for Download<A> {
    type Lane = ();

    fn infer_batch(
        &mut self,
        _: usize,
        _: &[BatchRef<'_>],
        _: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        Err(not_a_model())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let Download { calls, bytes, staging, .. } = self;
        let mut place = 0;
        let ticket = calls.enqueue(call.inputs, &[], true, |from| {
            // Those in use go with their call.
            staging.retain(|staging| staging.generation == from.generation || staging.used_by.is_some());
            let is_free = |staging: &Staging<A>| staging.generation == from.generation && staging.used_by.is_none();
            place = match staging.iter().position(is_free) {
                Some(place) => place,
                None => {
                    let memory = from.api.staging(*bytes)?;
                    let (generation, api) = (from.generation, from.api.clone());
                    staging.push(Staging { generation, api, memory, used_by: None });
                    staging.len() - 1
                }
            };
            let tensor = call.inputs.first().and_then(|tensor| tensor.on_device()).ok_or(BackendError::InputLost)?;
            let (buffer, at) = buffer_of::<A>(&tensor)?;
            Ok(from.api.download(from.stream, &buffer, at, &mut staging[place].memory)?)
        })?;
        self.staging[place].used_by = Some(ticket);
        Ok(ticket)
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn collect(&mut self, ticket: Ticket, outputs: &mut [BatchMut<'_>]) -> Result<(), BackendError> {
        let ended = self.calls.finish(ticket);
        let at = self.staging.iter().position(|staging| staging.used_by == Some(ticket));
        // Of a call that failed, the device may still have it, or may never write it.
        let staging = at.map(|at| self.staging.swap_remove(at));
        ended?;
        let mut staging =
            staging.ok_or_else(|| BackendError::Call("the host memory of the call was already released".into()))?;
        let output = outputs.first_mut().ok_or_else(not_a_model)?;
        match &mut self.counted {
            None => staging.api.read(&mut staging.memory, output.bytes)?,
            Some((count, whole)) => {
                staging.api.read(&mut staging.memory, whole)?;
                let most = output.shape.first().copied().unwrap_or(0);
                let read = count.read(whole);
                let length = read.filter(|length| *length <= most).ok_or_else(|| {
                    let got = read.map_or_else(|| "an invalid count".to_string(), |length| length.to_string());
                    BackendError::Call(format!("a message must have at most {most} rows, got {got}"))
                })?;
                let bytes = output.bytes.len() / most.max(1) * length;
                output.bytes[..bytes].copy_from_slice(&whole[..bytes]);
                output.shape.iter_mut().take(1).for_each(|first| *first = length);
            }
        }
        self.staging.push(Staging { used_by: None, ..staging });
        Ok(())
    }

    fn figures(&self, metrics: &mut Metrics) {
        metrics.set("host_waits", self.calls.waits as f64);
        self.calls.figures(metrics);
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: A::NAME.into(), threads: 1, copied_out: self.bytes, ..SessionMetadata::default() }
    }
}
