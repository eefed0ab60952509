#!/bin/sh
# Tests the stubs that build.sh made in OUT: test.sh OUT [CASE]. The exit status is the verdict.
set -e
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: test.sh OUT [CASE]" >&2; exit 2; }
out=$(cd "$1" && pwd)
shift
: "${CXX:=g++}"
log=$out/selftest.log
"$here/build.sh" "$out/lacking" --without cuMemGetInfo_v2 driver
$CXX -std=c++17 -O1 -Wall -Wextra -pthread "$here"/selftest/*.cpp -o "$out/selftest" -ldl
unset CUDA_STUB_SEED CUDA_STUB_CACHE CUDA_STUB_FAULT CUDA_STUB_REPORT CUDA_STUB_CHECK CUDA_STUB_ARCH
status=0
export LD_LIBRARY_PATH="$out" SELFTEST_TWIN="$here/twin.sh $out" SELFTEST_LACKING="$out/lacking"
"$out/selftest" "$@" 2>"$log" || status=$?
if [ $status -ne 0 ]; then
    echo "test.sh: failed; what the stub said is in $log" >&2
    exit $status
fi
if grep -qv '^cuda stub: ' "$log"; then
    echo "test.sh: a line in $log does not begin with 'cuda stub:'" >&2
    exit 1
fi
