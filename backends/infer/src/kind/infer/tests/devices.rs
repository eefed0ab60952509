//! Runtimes on devices, as `auto` and `calibrate` see them.

use super::*;
use crate::backend::RtenRuntime;
use crate::onnx::{Artifact, Call, Deviation, Runner, Runtime, Take};
use crate::plan::RegisterRuntime;
use limen::Registry;
use limen::backend::{BackendError, BatchRef, Capabilities, SessionMetadata};
use std::cell::Cell;

/// What the devices of these tests do.
const RIGHT: u8 = 0;
const WRONG: u8 = 1;
const DEVIATING: u8 = 2;
const ABSENT: u8 = 3;

thread_local! {
    /// How often this thread has looked for a device.
    static LOOKED: Cell<usize> = const { Cell::new(0) };
    /// Whether the devices of this thread are gone.
    static GONE: Cell<bool> = const { Cell::new(false) };
}

/// rten, as if it computed on a device.
struct OnDevice<const WHAT: u8>(RtenRuntime);

/// Those of a device whose operators are not ONNX's.
const DEVIATIONS: &[Deviation] = &[Deviation { op: "Conv", concerns: |_| true, what: "computes something else" }];

impl<const WHAT: u8> Runtime for OnDevice<WHAT> {
    const NAME: &'static str = match WHAT {
        RIGHT => "right-device",
        WRONG => "wrong-device",
        DEVIATING => "deviating-device",
        _ => "absent-device",
    };
    const COMPILES: bool = false;
    const DEVICE: &'static str = "gpu";
    type Shared = <RtenRuntime as Runtime>::Shared;
    type Runner = DeviceRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        LOOKED.set(LOOKED.get() + 1);
        match WHAT {
            _ if WHAT == ABSENT || GONE.get() => Err(BackendError::Unavailable("there is no such device".into())),
            _ => RtenRuntime::probe(options),
        }
    }

    fn deviations() -> &'static [Deviation] {
        if WHAT == DEVIATING { DEVIATIONS } else { &[] }
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        RtenRuntime::load(artifact, options).map(OnDevice)
    }

    fn share(&self, call: &Call) -> Result<Self::Shared, BackendError> {
        self.0.share(call)
    }

    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<DeviceRunner, BackendError> {
        Ok(DeviceRunner { runner: self.0.runner(shared, call)?, adds: if WHAT == WRONG { 1.0 } else { 0.0 } })
    }
}

struct DeviceRunner {
    runner: <RtenRuntime as Runtime>::Runner,
    /// What each number of an output is greater by.
    adds: f32,
}

impl Runner for DeviceRunner {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        let adds = self.adds;
        self.runner.run(batch, inputs, &mut |at, output| {
            let numbers = crate::base::elements::<f32>(output.bytes)?;
            let numbers: Vec<f32> = numbers.iter().map(|number| number + adds).collect();
            take(at, BatchRef { bytes: bytemuck::cast_slice(&numbers), ..output })
        })
    }

    fn metadata(&self) -> SessionMetadata {
        self.runner.metadata()
    }
}

/// Plans the digits in a folder with a cache; `change` changes the config.
fn planned(cache: &Path, calibrate: bool, change: serde_json::Value) -> Result<String, String> {
    let registry = Registry::new().with(crate::register).runtime::<OnDevice<RIGHT>>().runtime::<OnDevice<WRONG>>();
    let registry = registry.runtime::<OnDevice<DEVIATING>>().runtime::<OnDevice<ABSENT>>();
    let options = BackendOptions { cache: Some(cache.into()), calibrate, ..BackendOptions::default() };
    let registry = registry.with_extension(options);
    let mut config = json!({ "model": "digits.onnx", "backend": "auto" });
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    plan_with("digits", config, registry.extensions())
}

/// Sets the measured times of a runtime.
fn set_times(cache: &Path, runtime: &str, ns: u64) {
    let entries = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let file = entries.into_iter().find(|path| path.extension().is_some_and(|found| found == "json")).unwrap();
    let mut table: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let name = format!(" {runtime} (");
    let mut changed = 0;
    for (_, time) in table.as_object_mut().unwrap().iter_mut().filter(|(key, _)| key.contains(&name)) {
        *time = ns.into();
        changed += 1;
    }
    assert!(changed > 0, "{runtime}: {table}");
    std::fs::write(file, table.to_string()).unwrap();
}

fn check(planned: Result<String, String>, parts: &[&str], absent: &[&str]) {
    let planned = planned.unwrap();
    parts.iter().for_each(|part| assert!(planned.contains(part), "{part}: {planned}"));
    absent.iter().for_each(|part| assert!(!planned.contains(part), "{part}: {planned}"));
}

const UNMEASURED: &str = "was not measured on this machine";

/// Promise (models): Without a measurement, `backend: auto` looks for no device, and its plan lists
/// each device with the reason.
#[test]
fn auto_looks_for_no_device_without_a_measurement() {
    let cache = tempfile::tempdir().unwrap();
    LOOKED.set(0);
    let listed = ["right-device", "wrong-device", "deviating-device", "absent-device"];
    let listed = listed.map(|name| format!("`{name}` {UNMEASURED}"));
    for _ in 0..2 {
        let found = planned(cache.path(), false, json!({}));
        let parts: Vec<&str> = listed.iter().map(String::as_str).collect();
        check(found, &[&parts[..], &["default order: nothing was measured"]].concat(), &["-device` runs the model"]);
    }
    assert_eq!(LOOKED.get(), 0);
}

/// Promise (models): `calibrate` compares the outputs of each device with those of the CPU, and
/// `backend: auto` then selects the fastest backend whose outputs are right.
#[test]
fn auto_selects_the_fastest_device_that_was_verified() {
    let cache = tempfile::tempdir().unwrap();
    let found = planned(cache.path(), true, json!({}));
    let parts = [
        "with the copies to the device and back",
        "`wrong-device` computed other numbers: output `logits` is up to 1.00e0 from the output of `",
        "`deviating-device` computes differently from ONNX: Conv computes something else",
        "`absent-device` is not available: there is no such device",
    ];
    check(found, &parts, &["`right-device` was not measured", "`deviating-device`: ", "`wrong-device`: "]);

    set_times(cache.path(), "right-device", 1);
    let parts = [
        "backend right-device",
        "the fastest first: `right-device` 1 ns",
        "`right-device` runs the model",
        "`auto`: each call copies its messages to the device and back",
        "`wrong-device` computed other numbers in the measurement",
        &format!("`deviating-device` {UNMEASURED}"),
        &format!("`absent-device` {UNMEASURED}"),
    ];
    check(planned(cache.path(), false, json!({})), &parts, &[]);
    // A device that is gone is missed, and the plan and the run say so.
    GONE.set(true);
    let missed = "` was measured to be faster, but is not available: there is no such device";
    check(planned(cache.path(), false, json!({})), &["`right-device", missed], &["backend right-device"]);
    GONE.set(false);
    // Another call was not measured.
    check(planned(cache.path(), false, json!({ "threads": 2 })), &["nothing was measured"], &["`right-device` runs"]);
    // What is measured to be slower is the second choice.
    set_times(cache.path(), "right-device", u64::MAX / 2);
    check(
        planned(cache.path(), false, json!({})),
        &["`right-device` supports the operators"],
        &["backend right-device"],
    );
}

/// A recorded case lifts the refusal of a deviation for a backend that the node names, and not for
/// a device that `auto` would choose.
#[test]
fn auto_selects_no_device_that_deviates() {
    let cache = tempfile::tempdir().unwrap();
    let case = json!({ "verify": { "case": "verify.npz" } });
    let deviates = "`deviating-device` computes differently from ONNX";
    check(planned(cache.path(), true, case), &[deviates], &[]);
    let named = json!({ "backend": "deviating-device", "verify": { "case": "verify.npz" } });
    check(planned(cache.path(), false, named), &["backend deviating-device", "verified with the 8 items"], &[]);
}

/// `require:` is about the backend that serves.
#[test]
fn a_backend_to_compare_with_need_not_meet_what_the_node_requires() {
    let cache = tempfile::tempdir().unwrap();
    for against in ["rten", "right-device"] {
        let config = json!({ "backend": "rten", "require": { "device": "cpu" }, "verify": { "against": against } });
        check(planned(cache.path(), false, config), &[&format!("against `{against}`, 32 calls")], &[]);
    }
    let config = json!({ "backend": "rten", "verify": { "against": "absent-device" } });
    let why = planned(cache.path(), false, config).unwrap_err();
    assert!(why.contains("there is no such device"), "{why}");
    for name in ["auto", "mock", "npu"] {
        let why = planned(cache.path(), false, json!({ "verify": { "against": name } })).unwrap_err();
        let expected = format!("`absent-device`, found `{name}`");
        assert!(why.contains("\"verify.against\"") && why.contains(&expected), "{why}");
    }
}
