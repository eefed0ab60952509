#!/bin/sh
# Registers a CPU twin for a real PTX or cubin file: twin.sh OUT IMAGE SOURCE.cu [NVRTC OPTION]...
# Whoever then loads exactly these bytes with the driver stub of OUT runs the source.
set -e
[ $# -ge 3 ] || { echo "usage: twin.sh OUT IMAGE SOURCE.cu [NVRTC OPTION]..." >&2; exit 2; }
out=$1
shift
exec "$out/cuda-stub-twin" "$@"
