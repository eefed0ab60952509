"""Compiles CUDA C with NVRTC, without a GPU or a driver: `cuda.py FOLDER` all files, for GPUs of several generations; `cuda.py SOURCE FOLDER
OPTION...` one file, to `k.cubin` and `k.ptx`."""
import ctypes
import multiprocessing
import pathlib
import sys

import nvidia.cuda_nvrtc

# Turing, Ampere (A100, and Orin), Hopper, Blackwell.
GPUS = ["sm_75", "sm_80", "sm_87", "sm_90", "sm_120"]
# More than half of the time for a kernel is the same for several at once.
AT_ONCE = 16


def library():
    folder = pathlib.Path(nvidia.cuda_nvrtc.__path__[0]) / "lib"
    return ctypes.CDLL(str(next(folder.glob("libnvrtc.so.*"))))


def compiled(source, options):
    """The log, the cubin and the PTX of a source."""
    nvrtc, program = library(), ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None) != 0:
        return "no program", b"", b""
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


def together(texts):
    """Kernels as one source, each with a name of its own."""
    return "\n".join(f"namespace k{at} {{\n{text.replace('limen_kernel', f'limen_kernel_{at}')}\n}}" for at, text in enumerate(texts))


def wrong(job):
    """The errors and warnings of some files for a GPU."""
    files, gpu = job
    texts, options = [file.read_text() for file in files], [f"--gpu-architecture={gpu}", "--std=c++14"]
    if not compiled(together(texts), options)[0]:
        return []
    logs = [compiled(text, options)[0] for text in texts]
    found = [f"{file.name} for {gpu}: {log}\n{text}" for file, text, log in zip(files, texts, logs) if log]
    return found or [f"{files[0].name} to {files[-1].name} for {gpu}: wrong only together"]


def code(source, folder, options):
    log, cubin, ptx = compiled(source.read_text(), ["--gpu-architecture=sm_90", *options])
    print(log, end="")
    (folder / "k.cubin").write_bytes(cubin)
    (folder / "k.ptx").write_bytes(ptx)
    return bool(log)


def main():
    if len(sys.argv) > 2:
        return code(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"))
    groups = [files[at : at + AT_ONCE] for at in range(0, len(files), AT_ONCE)]
    with multiprocessing.Pool() as pool:
        failed = sum(pool.imap_unordered(wrong, [(group, gpu) for group in groups for gpu in GPUS]), [])
    print(*failed[:5], f"{len(files)} texts for {len(GPUS)} GPUs, {len(failed)} with errors or warnings", sep="\n")
    return bool(failed) or not files


if __name__ == "__main__":
    sys.exit(main())
