#!/bin/sh
# Builds the stubs: build.sh OUT [--without SYMBOL]... [driver|nvrtc|cublaslt|cudnn]...
# Symbols after --without are left out, so that a test can show a library that lacks them.
set -e
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: build.sh OUT [--without SYMBOL]... [LIBRARY]..." >&2; exit 2; }
out=$1
shift
without=
libraries=
while [ $# -gt 0 ]; do
    case $1 in
        --without) without="$without $2;"; shift 2 ;;
        driver | nvrtc | cublaslt | cudnn) libraries="$libraries $1"; shift ;;
        *) echo "build.sh: unknown argument $1" >&2; exit 2 ;;
    esac
done
: "${libraries:=driver nvrtc cublaslt cudnn}"
: "${CXX:=g++}"
# What a kernel is compiled to depends on the NVRTC stub too, so its own text is part of the key of the cache.
mark=$(cat "$here"/nvrtc/*.cpp "$here"/image.h | cksum | cut -d " " -f 1)
flags="-std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -pthread -DCUDA_STUB_MARK=${mark}u"
mkdir -p "$out/kernel"
out=$(cd "$out" && pwd)
exports=$out/exports.$$
trap 'rm -rf "$exports" "$out/objects.$$"' EXIT
printf '{ global: cu*; nvrtc*; cuda_stub_*; local: %s *; };\n' "$without" >"$exports"
mkdir "$out/objects.$$"

# link FILE SONAME SOURCES... -- FLAGS...: linked under another name and renamed when whole.
link() {
    file=$1
    name=$2
    shift 2
    objects=
    while [ "$1" != -- ]; do
        object=$out/objects.$$/$(basename "$1").o
        $CXX $flags -I"$here" -c "$1" -o "$object"
        objects="$objects $object"
        shift
    done
    shift
    $CXX -shared -pthread "-Wl,-soname,$name" "-Wl,--version-script=$exports" -Wl,-Bsymbolic $objects \
        -o "$out/$file.$$" "$@" -ldl -lrt
    mv "$out/$file.$$" "$out/$file"
}

for library in $libraries; do
    case $library in
        driver)
            link libcuda.so.1 libcuda.so.1 "$here"/driver/*.cpp --
            ln -sf libcuda.so.1 "$out/libcuda.so"
            ;;
        nvrtc)
            link libnvrtc.so.12 libnvrtc.so.12 "$here"/nvrtc/nvrtc.cpp "$here"/nvrtc/compiler.cpp \
                "$here"/nvrtc/source.cpp --
            ln -sf libnvrtc.so.12 "$out/libnvrtc.so"
            ln -sf libnvrtc.so.12 "$out/libnvrtc.so.13"
            cp "$here"/kernel/*.h "$out/kernel/"
            $CXX $flags "$here/nvrtc/twin.cpp" -o "$out/cuda-stub-twin.$$" -ldl
            mv "$out/cuda-stub-twin.$$" "$out/cuda-stub-twin"
            ;;
        cublaslt)
            link libcublasLt.so.12 libcublasLt.so.12 "$here"/libraries/cublaslt*.cpp -- "$out/libcuda.so.1" \
                '-Wl,-rpath,$ORIGIN'
            ln -sf libcublasLt.so.12 "$out/libcublasLt.so"
            ln -sf libcublasLt.so.12 "$out/libcublasLt.so.13"
            ;;
        cudnn)
            link libcudnn.so.9 libcudnn.so.9 "$here"/libraries/cudnn*.cpp -- "$out/libcuda.so.1" \
                '-Wl,-rpath,$ORIGIN'
            ln -sf libcudnn.so.9 "$out/libcudnn.so"
            ;;
    esac
done
