"""Compiles CUDA C with NVRTC, without a GPU or a driver: `cuda.py FOLDER` all files, for GPUs of several generations; `cuda.py SOURCE FOLDER
OPTION...` one file, to `k.cubin` and `k.ptx`."""
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


def compiled(file, options):
    """The log, the cubin and the PTX of a file."""
    nvrtc, program = library(), ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), file.read_bytes(), file.name.encode(), 0, None, None) != 0:
        return f"{file.name}: no program", b"", b""
    options = [option.encode() for option in options]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))

    def text(name):
        size = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
        bytes_ = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{name}")(program, bytes_)
        return bytes_.raw

    log = text("ProgramLog").rstrip(b"\0").decode().strip()
    code = (b"", b"") if result else (text("CUBIN"), text("PTX").rstrip(b"\0"))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return f"error {result}: {log}" if result or log else "", *code


def wrong(job):
    """The errors and warnings of a file for a GPU."""
    file, gpu = job
    log, _, _ = compiled(file, [f"--gpu-architecture={gpu}", "--std=c++14"])
    return f"{file.name} for {gpu}: {log}\n{file.read_text()}" if log else ""


def code(source, folder, options):
    log, cubin, ptx = compiled(source, ["--gpu-architecture=sm_90", *options])
    print(log, end="")
    (folder / "k.cubin").write_bytes(cubin)
    (folder / "k.ptx").write_bytes(ptx)
    return bool(log)


def main():
    if len(sys.argv) > 2:
        return code(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"))
    with multiprocessing.Pool() as pool:
        failed = list(filter(None, pool.imap_unordered(wrong, [(file, gpu) for file in files for gpu in GPUS], 16)))
    print(*failed[:5], f"{len(files)} texts for {len(GPUS)} GPUs, {len(failed)} with errors or warnings", sep="\n")
    return bool(failed) or not files


if __name__ == "__main__":
    sys.exit(main())
