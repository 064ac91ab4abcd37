#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""triton_compile_test.py - every kernel of the backend "triton" compiled as it is launched, for GPUs that are not here.

    PYTHONPATH=build/release/python python tests/torch/triton_compile_test.py nvidia|amd

Nothing spills registers; blocks fit the device; matrix instructions are those of the device. Skips (77) where Python
has no Triton, or Triton's wheel no cuobjdump.
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("triton") is None:
    print(f"skipped: {sys.executable} has no triton (pip install triton)")
    sys.exit(77)
CACHE = tempfile.TemporaryDirectory()  # not the user's
os.environ["TRITON_CACHE_DIR"] = CACHE.name
os.environ.pop("TRITON_INTERPRET", None)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tessera.torch import _gpu_triton, _triton_kernels as kernels

CUOBJDUMP = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
SHARED = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024, "gfx942": 64 * 1024, "gfx950": 160 * 1024}
GROUPS = (16, 32, 64, 128)
# Types of the arguments of launches, by name; strides are multiples of 8 elements, heads of transposed ones far apart.
TYPES = {"BOUNDS": "*i32", "OFFSETS": "*i64", "INDICES": "*i32", "LSE": "*fp32", "DLSE": "*fp32", "DQ": "*fp32",
         "DK": "*fp32", "DV": "*fp32", "ROW_DK": "*fp32", "ROW_DV": "*fp32", "FIRST": "*i64", "PLACE": "*i64",
         "KEEP": "*i32", "scale": "fp32", "scale2": "fp32", "list0": "i32", "entry0": "i64", "entry1": "i64"}


def compile_kernel(kernel, arch, settings, half, constants):
    types, attributes = {}, {}
    for i, name in enumerate(kernel.arg_names):
        stride = re.fullmatch("[qkvod][bhs]", name) is not None
        types[name] = "constexpr" if name in constants else TYPES.get(name) or (
            ("*fp32" if kernel is kernels.select else "*" + half) if name in ("Q", "K", "V", "O", "DO")
            else "i64" if stride else "i32")
        if types[name].startswith("*") or stride:
            attributes[(i,)] = [["tt.divisibility", 16]]
    target = GPUTarget("hip", arch, 64) if isinstance(arch, str) else GPUTarget("cuda", arch, 32)
    return triton.compile(ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes), target=target,
                          options={"num_warps": settings.warps, "num_stages": settings.stages})


def launches(hip):
    """(kernel, settings, constants) of all that is launched."""
    for head_dim in (64, 128):
        for settings in sorted({_gpu_triton.forward_settings(head_dim, g, hip) for g in GROUPS}):
            yield kernels.forward, settings, {"D": head_dim, "BM": settings.rows, "BN": settings.columns}
        for settings in sorted({_gpu_triton.backward_settings(head_dim, g, hip) for g in GROUPS}):
            for ordered in (True, False):
                yield kernels.backward, settings, {"D": head_dim, "BM": settings.rows, "BN": settings.columns,
                                                   "ORDERED": ordered}
        yield kernels.sum_rows, _gpu_triton.SUM, {"D": head_dim, "BK": _gpu_triton.SUM.rows}
    for rank in (16, 32, 64):
        yield kernels.select, _gpu_triton.SELECT, {"R": rank, "BN": _gpu_triton.SELECT.columns}


class Compiled(unittest.TestCase):
    def check(self, arch, halves=("bf16",)):
        compiled = 0
        for kernel, settings, constants in launches(isinstance(arch, str)):
            for half in halves:
                with self.subTest(arch=arch, kernel=kernel.__name__, half=half, settings=settings, **constants):
                    made = compile_kernel(kernel, arch, settings, half, constants)
                    compiled += 1
                    self.assertLessEqual(made.metadata.shared, SHARED[arch])
                    products = kernel in (kernels.forward, kernels.backward)
                    if isinstance(arch, str):
                        self.check_amd(made.asm["amdgcn"], products)
                    else:
                        self.check_nvidia(made.asm["cubin"], arch, kernel, settings, products)
        print(f"{arch}: {compiled} kernels")

    def check_nvidia(self, cubin, arch, kernel, settings, products):
        path = os.path.join(CACHE.name, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(cubin)
        said = subprocess.run([CUOBJDUMP, "-res-usage", "-sass", path], capture_output=True, text=True,
                              check=True).stdout
        self.assertEqual(int(re.search(r"STACK:(\d+)", said)[1]), 0)
        self.assertFalse(re.search(r"\b(STL|LDL)\b", said), "registers in local memory")
        if products:
            wide = settings.rows >= 64
            larger = {90: r"\bHGMMA\b", 100: r"\bUTCHMMA\b"} if wide else {}
            self.assertRegex(said, larger.get(arch, r"\bHMMA\b"))
        if kernel is kernels.forward:
            self.assertRegex(said, r"\bLDGSTS\b")

    def check_amd(self, text, products):
        self.assertEqual(re.findall(r"\.vgpr_spill_count:\s+(\d+)", text), ["0"])
        self.assertEqual(re.findall(r"\.private_segment_fixed_size:\s+(\d+)", text), ["0"])
        if products:
            self.assertIn("v_mfma", text)


class Nvidia(Compiled):
    def test_sm_80(self):
        self.check(80, ("bf16", "fp16"))

    def test_sm_90(self):
        self.check(90)

    def test_sm_100(self):
        self.check(100)


class Amd(Compiled):
    def test_gfx942(self):
        self.check("gfx942")

    def test_gfx950(self):
        self.check("gfx950")


if __name__ == "__main__":
    if not os.path.exists(CUOBJDUMP) and "nvidia" in sys.argv[1:2]:
        print(f"skipped: Triton's wheel has no {CUOBJDUMP}")
        sys.exit(77)
    print(f"triton {triton.__version__}")
    unittest.main(argv=[sys.argv[0], sys.argv[1].capitalize(), *sys.argv[2:]])
