#!/usr/bin/env bash
# Fetches what the peers' scripts time, from PyPI into target/peers (nothing of it is part of this project):
#   sglang-0.5.20, sglang-0.5.23   the Triton kernels that KDA verify and decode run, as single files
#   fla-core-0.6.0                 the package fla, and einops, which it imports
#   attn-gym-0.0.17                the package attn_gym
#   flashinfer-0.7.4               the files of the verify that records; to run them, nvidia-cutlass-dsl and cuda-python must be installed
# Needs python3 with pip. On a machine without a network, bring the folder along.
set -euo pipefail
cd "$(dirname "$0")/../.."
into=target/peers
mkdir -p "$into/wheels"

wheel() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
    --implementation cp --abi cp311 --abi abi3 --abi none --platform manylinux_2_34_x86_64 --platform manylinux2014_x86_64 \
    --platform any -d "$into/wheels" "$1"
}

# Files of a wheel by their last names, wherever they lie in it, into a folder.
extract() {
  python3 - "$@" <<'PYTHON'
import sys, zipfile, glob, os
pattern, folder, *names = sys.argv[1:]
found = glob.glob(pattern)
if len(found) != 1:
    sys.exit(f"{pattern}: one wheel is needed, {len(found)} are there")
os.makedirs(folder, exist_ok=True)
with zipfile.ZipFile(found[0]) as wheel:
    for name in names:
        members = [m for m in wheel.namelist() if m.endswith("/" + name) and "hardware_backend" not in m]
        if len(members) != 1:
            sys.exit(f"{found[0]}: one {name} is needed, there are {members}")
        with open(os.path.join(folder, name), "wb") as out:
            out.write(f"# {members[0]}\n".encode() + wheel.read(members[0]))
PYTHON
}

for version in 0.5.20 0.5.23; do
  wheel "sglang==$version"
  extract "$into/wheels/sglang-$version-*.whl" "$into/sglang-$version" \
    fused_kda_conv_recurrent_verify.py causal_conv1d_triton.py fused_sigmoid_gating_recurrent.py
done
wheel fla-core==0.6.0
wheel einops==0.8.1
rm -rf "$into/fla-core-0.6.0"
mkdir -p "$into/fla-core-0.6.0"
for file in "$into"/wheels/fla_core-0.6.0-*.whl "$into"/wheels/einops-0.8.1-*.whl; do
  python3 -m zipfile -e "$file" "$into/fla-core-0.6.0"
done
wheel attn-gym==0.0.17
rm -rf "$into/attn-gym-0.0.17"
mkdir -p "$into/attn-gym-0.0.17"
python3 -m zipfile -e "$into"/wheels/attn_gym-0.0.17-*.whl "$into/attn-gym-0.0.17"
wheel flashinfer-python==0.7.4
extract "$into/wheels/flashinfer_python-0.7.4-*.whl" "$into/flashinfer-0.7.4/kda_kernels" kda_decode_wy_output_only.py
extract "$into/wheels/flashinfer_python-0.7.4-*.whl" "$into/flashinfer-0.7.4/gdn_kernels" \
  gdn_decode_bf16_wy_output_only.py device_target.py dtype_compat.py
# The wheels are large and not needed any more.
rm -rf "$into/wheels"
du -sh "$into"/*
