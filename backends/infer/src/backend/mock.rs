//! A backend without a model: outputs of the right shape after a set time, and failures on request.
//!
//! For tests of graphs and of the engine, and for planning a graph before its model exists. Its
//! outputs are a simple function of its inputs, and it spends its latency computing, as a model
//! would.

use crate::base::Access;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Ops, Prepared, Session, SessionMetadata, Signature,
    TensorSpec,
};
use limen::message::{DType, Dim, PortSpec};
use limen::node::PlanErrors;
use limen::unit::Span;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The inputs, outputs, latency and failures of a mock. Each session counts its calls from 1.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct MockConfig {
    /// Name and spec of one item of each input, such as `f32[1,8,8]`.
    pub inputs: BTreeMap<String, String>,
    /// Name and spec of one item of each output. Element j is j plus the sum of the elements of the
    /// item's alphabetically first input.
    pub outputs: BTreeMap<String, String>,
    /// Computing time of a call, for any batch size. Default: 0.
    #[serde(default = "no_time")]
    pub latency: Span,
    /// Additional computing time for each item of a batch. Default: 0.
    #[serde(default = "no_time")]
    pub per_item: Span,
    /// Every n-th call fails. By default, no call fails.
    pub fail_every: Option<u64>,
    /// The n-th call fails.
    pub fail_at: Option<u64>,
    /// The n-th call panics.
    pub panic_at: Option<u64>,
    /// The n-th call never returns.
    pub hang_at: Option<u64>,
    /// Maximum batch size. By default, the batch size is unlimited.
    pub max_batch: Option<usize>,
}

fn no_time() -> Span {
    Span(Duration::ZERO)
}

impl Default for MockConfig {
    fn default() -> Self {
        MockConfig {
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            latency: no_time(),
            per_item: no_time(),
            fail_every: None,
            fail_at: None,
            panic_at: None,
            hang_at: None,
            max_batch: None,
        }
    }
}

impl MockConfig {
    /// Returns the signature, or every error with its field.
    fn signature(&self) -> Result<Signature, Vec<(String, String)>> {
        let mut wrong = Vec::new();
        let mut side = |side: &str, specs: &BTreeMap<String, String>| {
            if specs.is_empty() {
                wrong.push((side.to_string(), format!("`mock.{side}` must have at least one port, got none")));
            }
            let mut parsed = Vec::new();
            for (name, text) in specs {
                match parse_spec(text) {
                    Ok((dtype, shape)) => parsed.push(TensorSpec { name: name.clone(), dtype, shape }),
                    Err(why) => wrong.push((format!("{side}.{name}"), why)),
                }
            }
            parsed
        };
        let inputs = side("inputs", &self.inputs);
        let outputs = side("outputs", &self.outputs);
        let calls = [
            ("fail_every", self.fail_every),
            ("fail_at", self.fail_at),
            ("panic_at", self.panic_at),
            ("hang_at", self.hang_at),
            ("max_batch", self.max_batch.map(|n| n as u64)),
        ];
        for (field, value) in calls {
            if value == Some(0) {
                wrong.push((field.into(), format!("`mock.{field}` must be at least 1, got 0")));
            }
        }
        if wrong.is_empty() { Ok(Signature { inputs, outputs, max_batch: self.max_batch }) } else { Err(wrong) }
    }

    /// Reports every error, as a field of `mock`.
    pub(crate) fn check(&self, errors: &mut PlanErrors) {
        for (field, why) in self.signature().err().into_iter().flatten() {
            let help = match field.starts_with("inputs") || field.starts_with("outputs") {
                true => "write a type and the fixed shape of one item, such as `f32[1,8,8]`",
                false => "write a number of at least 1",
            };
            errors.at(format!("mock.{field}"), why).help(help);
        }
    }
}

/// Reads `f32[1,8,8]`; `f32` and `f32[]` are scalars.
fn parse_spec(text: &str) -> Result<(DType, Vec<Dim>), String> {
    let spec: PortSpec = text.parse()?;
    if let Some(dim) = spec.shape.iter().find(|dim| !matches!(dim, Dim::Fixed(_))) {
        return Err(format!("`{text}`: expected fixed lengths, found `{dim}`"));
    }
    Ok((spec.dtype, spec.shape))
}

/// The backend `mock`.
#[derive(Debug)]
pub struct Mock;

impl Backend for Mock {
    const NAME: &'static str = "mock";
    type Model = MockConfig;
    type Prepared = MockPrepared;

    fn probe() -> Result<Capabilities, BackendError> {
        use DType::*;
        let dtypes = [F32, F16, BF16, F64, I8, U8, I16, U16, I32, U32, I64, U64];
        Ok(Capabilities::cpu(env!("CARGO_PKG_VERSION"), dtypes, Ops::Unlisted))
    }

    fn prepare(config: MockConfig) -> Result<MockPrepared, BackendError> {
        let signature = config.signature().map_err(|wrong| {
            let all: Vec<_> = wrong.iter().map(|(field, why)| format!("{field}: {why}")).collect();
            BackendError::Unsupported(all.join("; "))
        })?;
        signature.check()?;
        Ok(MockPrepared { config, signature })
    }
}

/// A checked mock.
#[derive(Debug)]
pub struct MockPrepared {
    config: MockConfig,
    signature: Signature,
}

impl MockPrepared {
    /// The time of the shortest call.
    pub(crate) fn least(&self) -> Span {
        Span(self.config.latency.0.saturating_add(self.config.per_item.0))
    }
}

impl Prepared for MockPrepared {
    type Session = MockSession;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: usize) -> Result<MockSession, BackendError> {
        Ok(MockSession { config: self.config.clone(), calls: 0 })
    }
}

/// Spins, not sleeps: a mock occupies its core as the model it stands for will.
fn spend(started: Instant, time: Duration) {
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A mock on one thread.
#[derive(Debug)]
pub struct MockSession {
    config: MockConfig,
    calls: u64,
}

impl Session for MockSession {
    type Lane = ();

    fn keep_warm(&mut self) -> Result<(), BackendError> {
        spend(Instant::now(), self.config.latency.0);
        Ok(())
    }

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        let started = Instant::now();
        self.calls += 1;
        let call = self.calls;
        let config = &self.config;
        if config.hang_at == Some(call) {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        assert!(config.panic_at != Some(call), "mock: call {call} panics as configured");
        if config.fail_at == Some(call) || config.fail_every.is_some_and(|n| call.is_multiple_of(n.max(1))) {
            return Err(BackendError::Call(format!("mock: call {call} fails as configured")));
        }
        if let Some(max) = config.max_batch.filter(|max| batch > *max) {
            return Err(BackendError::Call(format!("mock: the batch size must be at most {max}, got {batch}")));
        }
        let first = inputs.first().ok_or_else(|| BackendError::Call("mock: expected an input, found none".into()))?;
        let item_bytes = first.bytes.len() / batch.max(1);
        let access = Access::for_dtype(first.dtype);
        for output in outputs {
            let (written, row_bytes) = (Access::for_dtype(output.dtype), output.bytes.len() / batch.max(1));
            let rows = output.bytes.chunks_exact_mut(row_bytes.max(1));
            for (item, row) in first.bytes.chunks_exact(item_bytes.max(1)).zip(rows) {
                let sum: f64 = access.values(item).sum();
                written.write((0u32..).map(|j| sum + f64::from(j)), row);
            }
        }
        let wait = config.per_item.0.saturating_mul(u32::try_from(batch).unwrap_or(u32::MAX));
        let wait = wait.saturating_add(config.latency.0);
        spend(started, wait);
        Ok(())
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "cpu".into(), threads: 1, ..SessionMetadata::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::answers;
    use super::*;

    fn map(specs: &[(&str, &str)]) -> BTreeMap<String, String> {
        specs.iter().map(|(name, spec)| (name.to_string(), spec.to_string())).collect()
    }

    fn config() -> MockConfig {
        MockConfig { inputs: map(&[("x", "u8[2]")]), outputs: map(&[("y", "f32[3]")]), ..MockConfig::default() }
    }

    /// Runs a batch of two items on a session.
    fn call(session: &mut MockSession) -> Result<Vec<f32>, BackendError> {
        call_with(session, &[1, 2, 200, 100])
    }

    fn call_with(session: &mut MockSession, bytes: &[u8; 4]) -> Result<Vec<f32>, BackendError> {
        let mut y = [0f32; 6];
        let x = BatchRef { dtype: DType::U8, shape: &[2], bytes };
        let out = BatchMut { dtype: DType::F32, shape: &mut [3], bytes: bytemuck::cast_slice_mut(&mut y) };
        session.infer_batch(2, &[x], &mut [out], &mut [()]).map(|()| y.to_vec())
    }

    fn session(config: MockConfig) -> MockSession {
        Mock::prepare(config).unwrap().session(8).unwrap()
    }

    #[test]
    fn specs_are_a_dtype_and_fixed_dims() {
        for (text, shape) in
            [("f32[1,8,8]", vec![1, 8, 8]), ("f32", vec![]), (" f32 [ ] ", vec![]), ("f32[ 2 , 3 ]", vec![2, 3])]
        {
            let shape: Vec<_> = shape.into_iter().map(Dim::Fixed).collect();
            assert_eq!(parse_spec(text), Ok((DType::F32, shape)), "{text}");
        }
        for (text, why) in [
            ("f31[1]", "unknown element type `f31`, expected one of `f32`"),
            ("f32[1", "expected `]`"),
            ("f32[<=4]", "expected fixed lengths, found `≤4`"),
            ("f32[1,]", "found ``"),
            ("f32[0]", "found `0`"),
            ("f32[1,1,1,1,1,1,1]", "at most 6 dims, got 7"),
            ("", "unknown element type ``"),
        ] {
            let error = parse_spec(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn all_errors_are_reported_together() {
        let config =
            MockConfig { inputs: map(&[("a", "x"), ("b", "f32[-1]")]), fail_at: Some(0), ..MockConfig::default() };
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let errors = format!("{errors:?}");
        for field in ["mock.inputs.a", "mock.inputs.b", "mock.outputs", "mock.fail_at"] {
            assert!(errors.contains(&format!("{field:?}")), "{field}: {errors}");
        }
        assert!(matches!(Mock::prepare(config), Err(BackendError::Unsupported(_))));
    }

    #[test]
    fn outputs_are_the_sum_of_the_first_input_plus_the_index() {
        let mut mock = session(config());
        let found = answers(&[[1, 2, 200, 100], [0, 0, 7, 0]], |bytes| call_with(&mut mock, bytes).unwrap());
        assert_eq!(found, [[3.0, 4.0, 5.0, 300.0, 301.0, 302.0], [0.0, 1.0, 2.0, 7.0, 8.0, 9.0]]);
        assert_eq!(found[0], call(&mut session(config())).unwrap());
    }

    #[test]
    fn calls_fail_as_configured() {
        let mut mock = session(MockConfig { fail_every: Some(3), fail_at: Some(4), ..config() });
        let failed: Vec<u64> = (1..=7).filter(|_| call(&mut mock).is_err()).collect();
        assert_eq!(failed, [3, 4, 6]);
        let mut mock = session(MockConfig { panic_at: Some(2), ..config() });
        assert!(call(&mut mock).is_ok());
        let panicked = crate::base::caught(|| call(&mut mock)).unwrap_err();
        assert!(panicked.contains("call 2 panics"), "{panicked}");
        let error = call(&mut session(MockConfig { max_batch: Some(1), ..config() })).unwrap_err();
        assert!(error.to_string().contains("at most 1, got 2"), "{error}");
    }

    #[test]
    fn a_call_takes_its_latency() {
        let ms = |n| Span(Duration::from_millis(n));
        let mut mock = session(MockConfig { latency: ms(4), per_item: ms(3), ..config() });
        let started = Instant::now();
        call(&mut mock).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(10));
    }

    #[test]
    fn the_mock_is_always_available() {
        assert_eq!(Mock::probe().unwrap().dtypes.len(), 12);
        assert_eq!(Mock::prepare(config()).unwrap().signature().inputs[0].shape, [Dim::Fixed(2)]);
    }
}
