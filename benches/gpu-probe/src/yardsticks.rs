//! Reference figures: matrix products through cuBLAS, memory bandwidth, and the same in PyTorch.

use crate::Options;
use crate::check::{self, sampled};
use crate::child::{self, End};
use crate::cuda::{Blas, Gpu, Memory, Stream, Timer, argument, failed};
use crate::environment;
use crate::report::Finding;
use cudarc::driver::result;
use half::f16;
use std::process::Command;
use std::time::Duration;

/// The sides of the square matrices.
pub const SIDES: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Shapes of the 3 x 3 convolutions that shaders and PyTorch compute: channels in, channels out, height and width.
pub const CONVOLUTIONS: [(usize, usize, usize); 3] = [(32, 32, 56), (64, 64, 112), (128, 128, 224)];

const TORCH: &str = include_str!("../torch_gemm.py");

const BUDGET: Duration = Duration::from_secs(2);

/// The number of elements of a large product that are checked on the CPU.
const PICKS: usize = 2000;

pub fn section(options: &Options) -> Result<(), String> {
    let cuda = cuda();
    if let Err(why) = &cuda {
        Finding::missing("cuBLAS and memory", why).tell();
    }
    let torch = torch(options);
    if let Err(why) = &torch {
        Finding::missing("PyTorch", why).tell();
    }
    // Fails only if both are missing.
    match (cuda, torch) {
        (Err(cuda), Err(torch)) => Err(format!("{cuda}; PyTorch: {torch}")),
        _ => Ok(()),
    }
}

fn cuda() -> Result<(), String> {
    let gpu = Gpu::open()?;
    gpu.works()?;
    let stream = Stream::new()?;
    match Blas::new(&stream) {
        Err(why) => Finding::missing("cuBLAS", why).tell(),
        Ok(blas) => {
            Finding::fact("cuBLAS", blas.version()).note("major * 10000 + minor * 100 + patch").tell();
            for n in SIDES {
                for half in [false, true] {
                    if let Err(why) = check::caught(|| product(&blas, &stream, n, half)) {
                        Finding::missing(product_name(n, half), why).tell();
                    }
                }
            }
        }
    }
    bandwidth(&gpu, &stream)
}

fn product_name(n: usize, half: bool) -> String {
    format!("cuBLAS {} {n}", if half { "hgemm" } else { "sgemm" })
}

fn product(blas: &Blas, stream: &Stream, n: usize, half: bool) -> Result<(), String> {
    let timer = Timer::new()?;
    let (mut left, mut right) = (check::random(n * n), check::random(n * n));
    let (a, b, c);
    if half {
        let narrow = |values: &mut [f32]| -> Vec<u16> {
            let narrowed: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
            // The CPU computes with the rounded inputs of the device.
            values.iter_mut().zip(&narrowed).for_each(|(wide, narrow)| *wide = narrow.to_f32());
            narrowed.iter().map(|v| v.to_bits()).collect()
        };
        (a, b) = (Memory::of(&narrow(&mut left))?, Memory::of(&narrow(&mut right))?);
        c = Memory::of(&vec![f16::NAN.to_bits(); n * n])?;
    } else {
        (a, b) = (Memory::of(&left)?, Memory::of(&right)?);
        c = Memory::poisoned(n * n)?;
    }
    let times = sampled(50, 1000, BUDGET, || timer.time(stream, || blas.multiply(half, n, &a, &b, &c)))?;
    let got =
        if half { c.read(0u16)?.into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect() } else { c.floats()? };
    // Sums in single precision; results in half are rounded once more.
    let checked = check::product(&got, &left, &right, n, PICKS, 1e-5, if half { 1e-3 } else { 0.0 });
    let (median, _) = check::median_and_p99(&mut times.clone());
    let rate = check::rate(2.0 * (n as f64).powi(3), median);
    Finding::median(product_name(n, half), times, "us").note(rate).checked(&checked).tell();
    Ok(())
}

/// Copies within the device, by a kernel compiled by NVRTC and by the driver.
fn bandwidth(gpu: &Gpu, stream: &Stream) -> Result<(), String> {
    let timer = Timer::new()?;
    let n = 64usize << 20;
    let inputs = check::random(n);
    let x = Memory::of(&inputs)?;
    for way in ["kernel", "driver"] {
        let y = Memory::poisoned(n)?;
        let times = sampled(20, 500, BUDGET, || {
            timer.time(stream, || {
                if way == "kernel" {
                    let count = (n / 4) as u64;
                    gpu.launch(gpu.copy16, 4096, stream, &mut [argument(&y.at), argument(&x.at), argument(&count)])
                        .map_err(failed("launch"))
                } else {
                    // SAFETY: both hold as many bytes, and live until the timer has waited.
                    unsafe { result::memcpy_dtod_async(y.at, x.at, n * 4, stream.0) }.map_err(failed("copy"))
                }
            })
        })?;
        let checked = check::compare(&y.floats()?, &inputs, 0.0, 0.0);
        let (median, _) = check::median_and_p99(&mut times.clone());
        let rate = (n * 8) as f64 / median / 1e6;
        Finding::median(format!("copy of 256 MiB by the {way}"), times, "us")
            .note(format!(
                "{rate:.2} TB/s read and written; {}",
                if way == "kernel" { gpu.kernels_from.as_str() } else { "cuMemcpyDtoDAsync" }
            ))
            .checked(&checked)
            .tell();
    }
    Ok(())
}

/// The same in PyTorch, with its own libraries.
fn torch(options: &Options) -> Result<(), String> {
    let mut python = environment::with_path_before(Command::new(&options.python));
    python.args(["-c", TORCH]);
    let (findings, end) = child::start(python, Duration::from_secs(300))?.findings();
    let any = !findings.is_empty();
    for finding in findings {
        finding.tell();
    }
    match end {
        End::Done => Ok(()),
        End::Unavailable(why) => Err(why),
        other if any => {
            Finding::missing("PyTorch", other).tell();
            Ok(())
        }
        other => Err(other.to_string()),
    }
}
