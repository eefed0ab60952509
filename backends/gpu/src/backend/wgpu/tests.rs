//! Tests on the adapter of this machine, which may compute on the CPU; without one they are
//! skipped.

use super::device::Device;
use super::loaded::Loaded;
use super::resident::shared_device;
use crate::backend::program::tests::{check_each, check_run};
use crate::lowering::test_cases::{TestCase, bytes, compare, conv, matmul, operators, small_graphs, wide_integers};
use crate::lowering::{Half, Width, lower};
use crate::test_models::{floats, graphs, model_of_opset};
use limen_infer::BackendOptions;
use rten_onnx::onnx::DataType as D;
use std::path::Path;
use std::sync::Arc;

/// The device, if there is one.
fn device() -> Option<Arc<Device>> {
    match shared_device(&BackendOptions { allow_software: true, ..BackendOptions::default() }).api() {
        Ok((_, api)) => Some(api.device.clone()),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Compares calls of a model with tract.
fn check(device: &Arc<Device>, case: &TestCase) {
    check_width(device, case, device.width);
}

fn check_width(device: &Arc<Device>, case: &TestCase, width: Width) {
    let name = &case.name;
    let program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
    let loaded = Loaded::new(device, &program, width, None).unwrap_or_else(|error| panic!("{name}: {error}"));
    check_run(
        &program,
        case,
        |inputs, read| loaded.run(inputs, read),
        |found, expected| compare(name, found, expected),
    );
}

fn check_all(cases: impl IntoIterator<Item = TestCase>) {
    check_all_by(cases, check);
}

fn check_all_by(cases: impl IntoIterator<Item = TestCase>, check: impl Fn(&Arc<Device>, &TestCase)) {
    let Some(device) = device() else { return };
    check_each(cases, |case| check(&device, case));
}

#[test]
fn operators_give_the_numbers_of_tract() {
    check_all(operators().into_iter().chain(bytes()));
}

#[test]
fn a_call_whose_integers_do_not_fit_fails_and_the_next_one_does_not() {
    let Some(device) = device() else { return };
    for (case, fits, fails) in wide_integers() {
        let program = lower(&case.model).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let loaded =
            Loaded::new(&device, &program, device.width, None).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let run = |bits: u32| loaded.run(&[bytemuck::cast_slice(&[bits; 4])], &mut |_, _| Ok(()));
        for _ in 0..2 {
            run(fits).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let error = run(fails).unwrap_err().to_string();
            assert!(error.contains(" of node `") && error.contains("32 bits"), "{}: {error}", case.name);
        }
    }
}

/// The first call, which makes drivers generate code, is on zeros: a model that fails on them is
/// prepared all the same.
#[test]
fn a_first_call_whose_integers_do_not_fit_is_no_error() {
    let Some(device) = device() else { return };
    let nodes = ["d = Div one x", "y = Cast d to==7"];
    let (x, y) = (("x", D::FLOAT, &["2"][..]), ("y", D::INT64, &["2"][..]));
    let case = TestCase::of("1/x", model_of_opset(18, &[x], &[y], &[floats("one", &[], &[1.0])], &nodes), 1);
    let program = lower(&case.model).unwrap();
    let loaded = Loaded::new(&device, &program, device.width, None).unwrap();
    loaded.warm_up(&[&[0; 8]]).unwrap();
    let error = loaded.run(&[&[0; 8]], &mut |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("32 bits"), "{error}");
    loaded.run(&[bytemuck::cast_slice(&[0.5f32, 0.1])], &mut |_, _| Ok(())).unwrap();
}

/// The callback of one thread's call may run in the poll of another.
#[test]
fn threads_that_share_a_device_get_their_own_numbers() {
    let Some(device) = device() else { return };
    std::thread::scope(|scope| {
        for threads in 0..4 {
            let device = &device;
            scope.spawn(move || (0..50).for_each(|_| check(device, &matmul(2, 3 + threads, 5))));
        }
    });
}

#[test]
fn the_models_of_graphs_give_the_numbers_of_tract() {
    let large = ["classify/classifier.onnx", "detect/detector.onnx"];
    check_all(small_graphs().into_iter().chain(large.map(|path| TestCase::file(&graphs(path), 1))));
}

/// With 16 bits between operators, the numbers of a model keep two or three digits, and its weights
/// take half the memory.
#[test]
fn half_precision_keeps_two_digits() {
    let Some(device) = device() else { return };
    if !device.has_halves {
        return println!("skipped: {} has no fractions of 16 bits", device.info.name);
    }
    let mut seen = 0;
    for path in ["digits/digits.onnx", "classify/classifier.onnx", "listen/listener.onnx"] {
        let case = TestCase::of(path, std::fs::read(graphs(path)).unwrap(), 1);
        let whole = lower(&case.model).unwrap();
        let mut half = whole.clone();
        half.halve(Half::F16);
        let [whole, loaded] = [&whole, &half].map(|program| Loaded::new(&device, program, device.width, None).unwrap());
        assert!(loaded.memory < whole.memory * 3 / 4, "{path}: {} of {} bytes", loaded.memory, whole.memory);
        check_run(
            &half,
            &case,
            |inputs, read| loaded.run(inputs, read),
            |found, expected| {
                for (found, expected) in std::iter::zip(found, expected) {
                    let scale = expected.iter().fold(0.0f32, |scale, value| scale.max(value.abs()));
                    for (found, expected) in std::iter::zip(found, expected) {
                        assert!(
                            (found - expected).abs() <= 0.02 * scale,
                            "{path}: {found} is not {expected} of {scale}"
                        );
                    }
                }
            },
        );
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Where tiles end: an implementation of others is wrong at 129 channels.
#[test]
fn lengths_around_those_of_tiles_are_right() {
    let lengths = [1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 127, 128, 129];
    let channels = lengths.into_iter().flat_map(|n| [conv(1, n, 17, 5), conv(2, 5, n, 9), conv(1, 3, 9, n)]);
    let products = lengths
        .into_iter()
        .flat_map(|n| [matmul(n, 33, 20), matmul(18, n, 65), matmul(129, 9, n), matmul(1, n * 9, n)]);
    let batches = [1, 3, 4, 5, 15, 16, 17].map(|batch| conv(batch, 4, 9, 4));
    // On a device of many workgroups, and on one of few, whose tiles are larger.
    check_all_by(channels.chain(products).chain(batches), |device, case| {
        [4, 128].into_iter().for_each(|busy| check_width(device, case, Width { busy, ..device.width }));
    });
}

#[test]
#[ignore = "takes a folder of models in LIMEN_MODELS, and minutes"]
fn models_of_a_folder_give_the_numbers_of_tract() {
    let folder = std::env::var_os("LIMEN_MODELS").expect("LIMEN_MODELS");
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "onnx"));
    files.sort();
    for file in files {
        let begun = std::time::Instant::now();
        check_all([TestCase::file(&file, 1)]);
        println!("{}: {:.1} s", file.display(), begun.elapsed().as_secs_f64());
    }
}

/// The second start takes what the driver compiled in the first one; an entry that somebody else
/// may have written, and one that is damaged, are not given to the driver.
#[test]
fn pipelines_are_kept_for_the_next_start() {
    use std::os::unix::fs::PermissionsExt;
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let case = &small_graphs()[0];
    let load = || {
        let program = crate::lowering::lower(&case.model).unwrap();
        let loaded = Loaded::new(&device, &program, device.width, Some(folder.path())).unwrap();
        (loaded.compiled.compiled, loaded.compiled.from_disk, loaded.compiled.warnings.clone())
    };
    assert_eq!(load(), (1, 0, vec![]));
    let entry = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    println!("{} bytes", std::fs::metadata(&entry).unwrap().len());
    assert_eq!(load(), (0, 1, vec![]));
    std::fs::set_permissions(&entry, std::fs::Permissions::from_mode(0o620)).unwrap();
    let (compiled, from_disk, warnings) = load();
    assert_eq!((compiled, from_disk), (1, 0));
    assert!(warnings[0].ends_with("the file must be writable by this user only"), "{warnings:?}");
    // Written anew.
    assert_eq!(load(), (0, 1, vec![]));
    let mut changed = std::fs::read(&entry).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(&entry, changed).unwrap();
    let (compiled, from_disk, warnings) = load();
    assert_eq!((compiled, from_disk), (1, 0));
    assert!(warnings[0].ends_with("is truncated or changed"), "{warnings:?}");
}
