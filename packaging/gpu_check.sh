#!/bin/sh
# gpu_check.sh ACCEPT: what can only be seen on a machine with an NVIDIA GPU. Status 3 where there is none.
set -eu
if ! listed=$(nvidia-smi -L 2>&1) || ! echo "$listed" | grep -q '^GPU [0-9]'; then
    echo "gpu-check: no NVIDIA GPU answers on this machine: nothing was checked" >&2
    exit 3
fi
echo "$listed"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Any card of the last ten years is faster than this: what is checked is that the whole path works.
cat >"$folder/contract.yaml" <<'CONTRACT'
version: 1
contract: {id: gpu-check}
gemm: {fp32: ">= 1 TFLOPS"}
CONTRACT
"$1" run "$folder/contract.yaml" --yes
