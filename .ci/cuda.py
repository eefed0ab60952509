"""Compiles CUDA C with NVRTC for GPUs of several generations: `cuda.py FOLDER`. It needs no GPU and no driver."""
import ctypes
import multiprocessing
import pathlib
import sys

import nvidia.cuda_nvrtc

# Turing, Ampere (A100, and Orin), Hopper, Blackwell.
GPUS = ["sm_75", "sm_80", "sm_87", "sm_90", "sm_120"]


def library():
    folder = pathlib.Path(nvidia.cuda_nvrtc.__path__[0]) / "lib"
    return ctypes.CDLL(str(next(folder.glob("libnvrtc.so.*"))))


def compiled(job):
    """The errors and warnings of a file for a GPU."""
    file, gpu = job
    nvrtc, program = library(), ctypes.c_void_p()
    source = file.read_bytes()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, file.name.encode(), 0, None, None) != 0:
        return f"{file.name}: no program"
    options = [f"--gpu-architecture={gpu}".encode(), b"--std=c++14"]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    text = log.value.decode().strip()
    return f"{file.name} for {gpu}: error {result}: {text}\n{source.decode()}" if result or text else ""


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"))
    with multiprocessing.Pool() as pool:
        wrong = list(filter(None, pool.imap_unordered(compiled, [(file, gpu) for file in files for gpu in GPUS], 16)))
    print(*wrong[:5], f"{len(files)} texts for {len(GPUS)} GPUs, {len(wrong)} with errors or warnings", sep="\n")
    return bool(wrong) or not files


if __name__ == "__main__":
    sys.exit(main())
