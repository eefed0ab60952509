//! Verification of results: random inputs, poisoned outputs, comparison with the CPU; and statistics of samples.
//!
//! A call that returns success proves nothing. An output that was never written contains poison, which no comparison accepts.
//! Inputs differ in every run, so that stale memory of an earlier run is not accepted either.

use std::time::{Duration, Instant};

/// The content of outputs before they are written: a NaN with bits that no computation produces.
pub const POISON: f32 = f32::from_bits(0x7fc0_dead);

/// Values in [-1, 1).
pub fn random(n: usize) -> Vec<f32> {
    (0..n).map(|_| fastrand::f32() * 2.0 - 1.0).collect()
}

pub fn poisoned(n: usize) -> Vec<f32> {
    vec![POISON; n]
}

/// Returns the largest difference, if none exceeds `absolute + relative * |want|`.
pub fn compare(got: &[f32], want: &[f32], absolute: f64, relative: f64) -> Result<f64, String> {
    if got.len() != want.len() {
        return Err(format!("{} values instead of {}", got.len(), want.len()));
    }
    let mut largest = 0f64;
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - f64::from(w)).abs();
        // Written so that NaN fails.
        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "a comparison with NaN is false")]
        if !(error <= absolute + relative * f64::from(w).abs()) {
            return Err(format!("value {i} is {} instead of {w}", named(g)));
        }
        largest = largest.max(error);
    }
    Ok(largest)
}

/// A value in messages; poison is named, because it shows that nothing was written.
fn named(value: f32) -> String {
    if value.to_bits() == POISON.to_bits() { "still poison".into() } else { value.to_string() }
}

/// Checks `c = a b` for square matrices in row order: no element is NaN, and up to `picks` random ones equal sums in double
/// precision. `relative` is the allowed error relative to the sum of magnitudes, which bounds the rounding error of a long sum;
/// `rounding` is that of the result's format.
pub fn product(
    c: &[f32],
    a: &[f32],
    b: &[f32],
    n: usize,
    picks: usize,
    relative: f64,
    rounding: f64,
) -> Result<f64, String> {
    if let Some(i) = c.iter().position(|value| !value.is_finite()) {
        return Err(format!("value {i} is {}", named(c[i])));
    }
    let one = |row: usize, column: usize| {
        let (mut sum, mut magnitude) = (0f64, 0f64);
        for k in 0..n {
            let term = f64::from(a[row * n + k]) * f64::from(b[k * n + column]);
            sum += term;
            magnitude += term.abs();
        }
        let error = (f64::from(c[row * n + column]) - sum).abs();
        if error <= relative * magnitude + rounding * sum.abs() {
            Ok(error)
        } else {
            Err(format!("row {row}, column {column} is {} instead of {sum}", c[row * n + column]))
        }
    };
    let mut largest = 0f64;
    if n * n <= picks {
        for i in 0..n * n {
            largest = largest.max(one(i / n, i % n)?);
        }
    } else {
        for _ in 0..picks {
            largest = largest.max(one(fastrand::usize(..n), fastrand::usize(..n))?);
        }
    }
    Ok(largest)
}

/// Sorts the samples. Both results are samples, not interpolated.
pub fn median_and_p99(samples: &mut [f64]) -> (f64, f64) {
    if samples.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    (at(0.5), at(0.99))
}

/// Microseconds since an instant.
pub fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// The rate of a number of operations in a number of microseconds.
pub fn rate(operations: f64, micros: f64) -> String {
    let giga = operations / micros / 1e3;
    if giga < 100.0 { format!("{giga:.2} GFLOP/s") } else { format!("{:.2} TFLOP/s", giga / 1e3) }
}

/// Runs `once` a few times unmeasured, then until `most` samples or the time `budget` is reached, but at least `least` times.
/// `once` returns its sample.
pub fn sampled<E>(
    least: usize,
    most: usize,
    budget: Duration,
    mut once: impl FnMut() -> Result<f64, E>,
) -> Result<Vec<f64>, E> {
    for _ in 0..(least / 4).max(2) {
        once()?;
    }
    let began = Instant::now();
    let mut samples = Vec::with_capacity(most);
    while samples.len() < least || (samples.len() < most && began.elapsed() < budget) {
        samples.push(once()?);
    }
    Ok(samples)
}

/// The message of a panic.
pub fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "a panic without words".into())
}

/// Runs a call that may panic if a library is absent; returns the panic as an error.
pub fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_text(panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_never_accepted() {
        assert!(compare(&[POISON], &[0.0], 1e9, 1e9).is_err());
        assert!(compare(&[1.0], &[POISON], 1e9, 1e9).is_err());
        assert!(product(&[POISON], &[1.0], &[1.0], 1, 1, 1e9, 1e9).is_err());
    }

    #[test]
    fn a_product_is_checked() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert!(product(&[19.0, 22.0, 43.0, 50.0], &a, &b, 2, 4, 1e-6, 0.0).is_ok());
        assert!(product(&[19.0, 22.0, 43.0, 50.1], &a, &b, 2, 4, 1e-6, 0.0).is_err());
    }

    #[test]
    fn median_and_p99_are_samples() {
        let mut samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(median_and_p99(&mut samples), (51.0, 100.0));
    }
}
