//! ONNX Runtime on webgpu. These tests need the plugin and a driver, and do nothing without
//! `LIMEN_ONNXRUNTIME_PLUGIN`.

use super::*;
use crate::backend::{OrtRuntime, OrtWebgpuRuntime};
use crate::onnx::Provider;

type Sessions = (OnnxSession<OrtWebgpuRuntime>, OnnxSession<OrtRuntime>);

/// The options with the plugin, if the environment names it.
fn with_plugin() -> Option<BackendOptions> {
    let plugin = std::env::var_os("LIMEN_ONNXRUNTIME_PLUGIN").filter(|path| !path.is_empty())?;
    Some(BackendOptions { onnxruntime_plugin: Some(plugin.into()), allow_software: true, ..BackendOptions::default() })
}

fn provider(options: &[(&str, &str)]) -> Provider {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    Provider { options, ..Provider::default() }
}

/// A session on webgpu and one on the CPU.
fn both(model: &OnnxModel, most: usize) -> Sessions {
    let webgpu = Onnx::<OrtWebgpuRuntime>::prepare(model.clone()).unwrap();
    let cpu = Onnx::<OrtRuntime>::prepare(model.clone()).unwrap();
    (webgpu.session(most).unwrap(), cpu.session(most).unwrap())
}

fn digits(options: &BackendOptions) -> OnnxModel {
    OnnxModel { path: graphs("digits/digits.onnx"), options: options.clone(), ..OnnxModel::default() }
}

/// Whether all numbers are near those expected.
fn is_near(found: &[f32], expected: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
    found.len() == expected.len() && std::iter::zip(found, expected).all(near)
}

#[test]
fn digits_have_the_labels_of_the_cpu() {
    let Some(options) = with_plugin() else { return };
    let (mut webgpu, mut cpu) = both(&digits(&options), 8);
    for batch in [1, 8, 3] {
        let x = pixels(batch);
        let found = [numbers(&mut webgpu, &[1, 8, 8], &x, 10).unwrap(), numbers(&mut cpu, &[1, 8, 8], &x, 10).unwrap()];
        assert!(is_near(&found[0], &found[1]), "{batch}: {found:?}");
        let labels = |logits: &[f32]| -> Vec<usize> {
            let best = |item: &[f32]| (0..10).max_by(|a, b| item[*a].total_cmp(&item[*b])).unwrap();
            logits.chunks(10).map(best).collect()
        };
        assert_eq!(labels(&found[0]), labels(&found[1]), "{batch}");
    }
    let device = webgpu.metadata().device;
    assert!(device.starts_with("webgpu"), "{device}");
    assert_eq!(cpu.metadata().device, "cpu");
}

/// With channels last the plugin 0.4.0 computes this convolution wrong. If it no longer does, the
/// default here may change.
#[test]
fn six_channels_are_right_with_channels_first() {
    let Some(options) = with_plugin() else { return };
    let file = model(
        &[("x", D::FLOAT, &["1", "6", "1", "3"])],
        &[("y", D::FLOAT, &["1", "4", "1", "2"])],
        &[floats("w", &[4, 6, 1, 2], &[1.0; 48])],
        &["y = Conv x w"],
    );
    let of = |layout: &[(&str, &str)]| {
        let model = OnnxModel {
            path: "six.onnx".into(),
            bytes: Some(file.clone()),
            provider: provider(layout),
            options: options.clone(),
            ..OnnxModel::default()
        };
        let (mut webgpu, mut cpu) = both(&model, 1);
        let x: Vec<f32> = (0..18).map(|n| n as f32).collect();
        // ONNX Runtime on the CPU does not take the plugin once it is there.
        let expected = numbers(&mut cpu, &[6, 1, 3], &x, 8).unwrap();
        assert!(is_near(&expected, &[96.0, 108.0, 96.0, 108.0, 96.0, 108.0, 96.0, 108.0]), "{expected:?}");
        is_near(&numbers(&mut webgpu, &[6, 1, 3], &x, 8).unwrap(), &expected)
    };
    assert!(of(&[]) && of(&[("preferredLayout", "NCHW")]));
    assert!(!of(&[("preferredLayout", "NHWC")]), "the fault is gone");
}

#[test]
fn operators_that_the_provider_does_not_run_need_permission() {
    let Some(options) = with_plugin() else { return };
    let file = model(&[("x", D::FLOAT, &["2", "2", "2"])], &[("y", D::FLOAT, &["2"])], &[], &["y = Det x"]);
    let of = |cpu_fallback: bool| {
        let provider = Provider { cpu_fallback, ..Provider::default() };
        let bytes = Some(file.clone());
        let model =
            OnnxModel { path: "m.onnx".into(), bytes, provider, options: options.clone(), ..OnnxModel::default() };
        Onnx::<OrtWebgpuRuntime>::prepare(model)
    };
    let why = of(false).unwrap_err().to_string();
    for part in ["`cpu_fallback: true`", "`backend: wgpu`", "`provider: cpu`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(of(true).is_ok());
}

/// Without the lock of the plugin this ends the process.
#[test]
fn several_threads_open_call_and_release_sessions() {
    let Some(options) = with_plugin() else { return };
    let model = digits(&options);
    let x = pixels(1);
    let expected = numbers(&mut both(&model, 1).1, &[1, 8, 8], &x, 10).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let (mut webgpu, mut cpu) = both(&model, 1);
                    for _ in 0..25 {
                        assert!(is_near(&numbers(&mut webgpu, &[1, 8, 8], &x, 10).unwrap(), &expected));
                        assert!(is_near(&numbers(&mut cpu, &[1, 8, 8], &x, 10).unwrap(), &expected));
                    }
                }
            });
        }
    });
}

#[test]
fn a_driver_that_computes_on_the_cpu_needs_permission() {
    let Some(options) = with_plugin() else { return };
    let found = OrtWebgpuRuntime::probe(&options).unwrap();
    let is_software = found.version.contains("computes on the CPU");
    assert_eq!(found.devices, if is_software { vec!["webgpu"] } else { vec!["webgpu", "gpu"] });
    let strict = BackendOptions { allow_software: false, ..options };
    match OrtWebgpuRuntime::probe(&strict) {
        Ok(_) => assert!(!is_software),
        Err(why) => assert!(why.to_string().contains("`--allow-software` allows that"), "{why}"),
    }
}

/// Compiled models would hold operators of the provider's own.
#[test]
fn no_compiled_model_is_cached() {
    let Some(options) = with_plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (cache, warnings) in [(None, 0), (Some(folder.path().to_path_buf()), 1)] {
        let model = digits(&BackendOptions { cache, ..options.clone() });
        let compiled = Onnx::<OrtWebgpuRuntime>::prepare(model).unwrap().compiled().unwrap();
        assert_eq!((compiled.compiled > 0, compiled.warnings.len()), (true, warnings), "{compiled:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
