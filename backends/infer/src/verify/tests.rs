//! Tests of recorded cases.

use super::test_files::{f32s, npy, write_npz};
use super::*;
use crate::array::parse_npy;
use crate::backend::{Mock, MockConfig, MockPrepared};
use limen::backend::Backend;
use std::collections::BTreeMap;
use std::path::Path;

fn read(arrays: &[(&str, Vec<u8>)]) -> Result<Case, CaseError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.npz");
    write_npz(&path, arrays);
    Case::read(&path)
}

/// Takes two bytes and returns their sum, and their sum plus one.
fn mock(change: impl FnOnce(&mut MockConfig)) -> MockPrepared {
    let one = |name: &str, spec: &str| BTreeMap::from([(name.to_string(), spec.to_string())]);
    let mut config = MockConfig { inputs: one("x", "u8[2]"), outputs: one("y", "f32[2]"), ..MockConfig::default() };
    change(&mut config);
    Mock::prepare(config).unwrap()
}

fn check(arrays: &[(&str, Vec<u8>)], prepared: &MockPrepared) -> Result<usize, String> {
    let tolerance = Tolerance { atol: 0.1, rtol: 0.01 };
    let wrong = |all: Vec<CaseError>| all.iter().map(CaseError::to_string).collect::<Vec<_>>().join("; ");
    read(arrays).unwrap().check(prepared, 2, tolerance).map_err(wrong)
}

fn x() -> (&'static str, Vec<u8>) {
    ("x", npy("'|u1'", "False", "(3, 2)", &[1, 2, 3, 4, 50, 50]))
}

#[test]
fn a_case_is_run_in_batches_and_compared() {
    let right = ("Y", f32s("(3, 2)", &[3.0, 4.05, 7.0, 8.0, 100.0, 102.0]));
    // Three items in batches of two; `Y` matches the port `y`.
    assert_eq!(check(&[x(), right.clone()], &mock(|_| ())), Ok(3));
    assert_eq!(check(&[x(), right], &mock(|m| m.max_batch = Some(1))), Ok(3));
}

#[test]
fn the_error_names_the_number_furthest_off() {
    let y = ("y", f32s("(3, 2)", &[3.0, 4.2, 7.0, f32::NAN, 100.0, 101.0]));
    assert_eq!(
        check(&[x(), y], &mock(|_| ())),
        Err(
            "output `y` differs from the recorded output: at [1, 1] expected NaN, found 8: the difference NaN exceeds NaN \
             (atol 0.1, rtol 0.01); 2 of 6 numbers differ, this number most"
                .into()
        )
    );
    let y = ("y", f32s("(3, 2)", &[3.0, 4.0, 7.0, 8.0, 100.0, 103.5]));
    let why = check(&[x(), y], &mock(|_| ())).unwrap_err();
    assert!(why.contains("at [2, 1] expected 103.5, found 101: the difference 2.5 exceeds 1.135"), "{why}");
}

#[test]
fn tolerance_follows_numpy() {
    let tolerance = Tolerance { atol: 0.1, rtol: 0.01 };
    for (expected, got, right) in [
        (0.0, 0.1, true),
        (0.0, 0.11, false),
        (100.0, 101.1, true),
        (100.0, 101.2, false),
        (f64::NAN, f64::NAN, true),
        (1.0, f64::NAN, false),
        (f64::INFINITY, f64::INFINITY, true),
        (f64::INFINITY, f64::NEG_INFINITY, false),
        (f64::INFINITY, 1.0, false),
    ] {
        assert_eq!(tolerance.excess(expected, got) == 0.0, right, "{expected} {got}");
    }
    assert!(Tolerance { atol: 0.0, rtol: 0.0 }.excess(0.0, 1e-30) > 0.0);
}

#[test]
fn a_case_that_does_not_fit_reports_every_mismatch() {
    let why = check(&[("x", npy("'<i8'", "False", "(1, 2)", &[0; 16])), ("z", f32s("(1,)", &[0.0]))], &mock(|_| ()));
    let why = why.unwrap_err();
    assert!(why.contains("expected an array for the output `y`, found `x`, `z`"), "{why}");
    assert!(why.contains("expected arrays of the inputs and outputs of the model (`x`, `y`), found `z`"), "{why}");
    let big = ("x", npy("'<i2'", "False", "(1, 2)", &[0, 1, 0, 0]));
    let why = check(&[big, ("y", f32s("(2, 2)", &[0.0; 4]))], &mock(|_| ())).unwrap_err();
    assert!(why.contains("array `x` must have values that fit in u8, got 256"), "{why}");
    assert!(why.contains("array `y`: expected 1 items, as in the other arrays, found [2, 2]"), "{why}");
    let why = check(&[x(), ("y", f32s("(3, 3)", &[0.0; 9]))], &mock(|_| ())).unwrap_err();
    assert_eq!(why, "array `y`: expected [items, 2], found [3, 3]");
}

#[test]
fn failures_and_panics_of_the_model_are_errors() {
    let y = || ("y", f32s("(3, 2)", &[0.0; 6]));
    assert!(check(&[x(), y()], &mock(|m| m.fail_at = Some(2))).unwrap_err().contains("call 2 fails"));
    assert!(
        check(&[x(), y()], &mock(|m| m.panic_at = Some(1))).unwrap_err().contains("the code panicked: mock: call 1")
    );
}

#[test]
fn arrays_of_every_type_are_read() {
    for (descr, data, values) in [
        ("'<f2'", vec![0, 0x3c], [1.0]),
        ("'>f4'", vec![0x3f, 0x80, 0, 0], [1.0]),
        ("'<f8'", 1.5f64.to_le_bytes().to_vec(), [1.5]),
        ("'<i8'", (-7i64).to_le_bytes().to_vec(), [-7.0]),
        ("'<u2'", vec![0, 1], [256.0]),
        ("'|b1'", vec![1], [1.0]),
    ] {
        let array = parse_npy(&npy(descr, "False", "(1,)", &data)).unwrap();
        assert_eq!(super::case::values(&array).collect::<Vec<_>>(), values, "{descr}");
    }
}

#[test]
fn arrays_that_cannot_be_used_are_errors() {
    let deep = format!("({})", "(".repeat(500));
    for (bytes, why) in [
        (npy("'<f4'", "True", "(1, 1)", &[0; 4]), "is in Fortran order"),
        (npy("'<c8'", "False", "(1,)", &[0; 8]), "as elements, got '<c8'"),
        (npy("[('a', '<f4')]", "False", "(1,)", &[0; 4]), "has fields"),
        (npy("'<f4'", "False", "(2,)", &[0; 4]), "array `a` must have 8 bytes for f32[2], got 4"),
        (npy("'<f4'", "False", "(1,)", &[0; 8]), "array `a` must have 4 bytes for f32[1], got 8"),
        (
            npy("'<f4'", "False", "(99999999999,)", &[0; 4]),
            "array `a` must have at most 64.0 MiB (left of 64.0 MiB for a file), got 373 GiB",
        ),
        (npy("'<f4'", "False", "(99999999999, 99999999999)", &[0; 4]), "must have a shape that fits in memory, got"),
        (npy("'<f4'", "False", &deep, &[]), "a header that NumPy does not write"),
        (b"\x93NUMPY\x02\x00\xff\xff".to_vec(), "truncated or oversized header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "truncated or oversized header"),
        (b"".to_vec(), "is not an .npy"),
    ] {
        let error = read(&[("a", bytes)]).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let error = Case::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").as_path()).unwrap_err();
    assert!(error.to_string().starts_with("is not a readable .npz: "), "{error}");
}
