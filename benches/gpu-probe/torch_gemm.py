#!/usr/bin/env python3
"""The probe's matrix products, convolutions and copy in PyTorch, on the same GPU. Prints a line for each in the probe's format.

The probe runs this with `python3`; it takes no arguments. Times are taken with CUDA events, one pair per call, so like the
probe's they include the gaps between the kernels of a call. TF32 is off: the probe uses full single precision.
"""
import json
import sys
import time

UNAVAILABLE = 69
SIDES = (256, 512, 1024, 2048, 4096)
# Channels in, channels out, height and width, as in the section `shader`.
CONVOLUTIONS = ((32, 32, 56), (64, 64, 112), (128, 128, 224))

try:
    import torch
except ImportError as error:
    print(f"PyTorch cannot be imported: {error}", file=sys.stderr)
    sys.exit(UNAVAILABLE)
if not torch.cuda.is_available():
    print(f"PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
    sys.exit(UNAVAILABLE)


def tell(**finding):
    print("@finding " + json.dumps(finding), flush=True)


def samples(call, least=50, most=1000, seconds=2.0):
    """Microseconds of single calls, after some warm-up calls."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    times, began = [], time.monotonic()
    while len(times) < least or (len(times) < most and time.monotonic() - began < seconds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3)
    return sorted(times)


def at(times, share):
    return float(f"{times[round((len(times) - 1) * share)]:.3e}")


def measure(name, call, error, allowed, rate):
    """`error` compares with the CPU after the calls; `rate` describes a median as a rate."""
    times = samples(call)
    wrong = error()
    right = wrong <= allowed  # false for NaN
    tell(name=name, value=at(times, 0.5), p99=at(times, 0.99), unit="us", samples=len(times), right=right,
         note=f"{rate(at(times, 0.5))}; largest error {wrong:.1e}")


def product(n, dtype, name, allowed):
    a = torch.rand(n, n, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(dtype)
    b = torch.rand(n, n, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(dtype)
    c = torch.full((n, n), float("nan"), device="cuda", dtype=dtype)
    rows = torch.randint(0, n, (64,))

    def error():
        if not torch.isfinite(c).all():
            return float("nan")
        left, right = a[rows].double().cpu(), b.double().cpu()
        return ((c[rows].double().cpu() - left @ right).abs() / (left.abs() @ right.abs())).max().item()

    measure(f"torch {name} {n}", lambda: torch.mm(a, b, out=c), error, allowed, lambda us: f"{2 * n**3 / us / 1e6:.2f} TFLOP/s")


def convolution(inputs, outputs, side):
    x = torch.rand(1, inputs, side, side, device="cuda").mul_(2).sub_(1)
    w = torch.rand(outputs, inputs, 3, 3, device="cuda").mul_(2).sub_(1)
    last = []

    def call():
        last[:] = [torch.nn.functional.conv2d(x, w, padding=1)]

    def error():
        want = torch.nn.functional.conv2d(x[:, :, :9, :9].double().cpu(), w.double().cpu(), padding=1)
        got = last[0][:, :, :8, :8].double().cpu()
        return (got - want[:, :, :8, :8]).abs().max().item()

    work = 2 * 9 * inputs * outputs * side * side
    measure(f"torch convolution {inputs}x{side}x{side} to {outputs}", call, error, 1e-2, lambda us: f"{work / us / 1e6:.2f} TFLOP/s")


def copy(mebibytes):
    x = torch.rand(mebibytes << 18, device="cuda")
    y = torch.full_like(x, float("nan"))
    measure(f"torch copy of {mebibytes} MiB", lambda: y.copy_(x), lambda: (y - x).abs().max().item(), 0.0,
            lambda us: f"{mebibytes * 2 * 1.048576 / us:.2f} TB/s read and written" if us else "")


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    tell(name="torch", value=torch.__version__, unit="", samples=1,
         note=f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    for n in SIDES:
        product(n, torch.float32, "sgemm", 1e-5)
        product(n, torch.float16, "hgemm", 1e-3)
    for shape in CONVOLUTIONS:
        convolution(*shape)
    copy(256)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
