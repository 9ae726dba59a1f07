#!/bin/sh
# gpu_check.sh ACCEPT [FOLDER [ARGUMENT OF accept run]…]: what can only be seen on a machine with an NVIDIA GPU, in under
# eight minutes: every worker through `accept run`, then its rates against bare loops. FOLDER keeps the recorded run.
# Status 0: all measured, 1: something was not, 3: no GPU answers.
set -eu
if ! listed=$(nvidia-smi -L 2>&1) || ! echo "$listed" | grep -q '^GPU [0-9]'; then
    echo "gpu-check: no NVIDIA GPU answers on this machine: nothing was checked" >&2
    exit 3
fi
echo "$listed"
accept=$1
shift
folder=${1:-gpu-check/$(date -u +%Y%m%dT%H%M%SZ)}
[ $# -eq 0 ] || shift
exec "$(dirname "$accept")/python" "$(dirname "$0")/gpu_check.py" "$accept" "$folder" \
    "$(echo "$listed" | grep -c '^GPU [0-9]')" "$@"
