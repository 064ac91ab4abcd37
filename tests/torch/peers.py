#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers.py - `tessera check attn` on what other frameworks compute: right outputs pass, each planted
mistake is named.

    peers.py --tessera build/release/bin/tessera

Right: NumPy in fp64, fp32, fp16 and bf16 (scores stored in that type), PyTorch's SDPA (math, flash)
and eager attention with autograd in fp32, fp16 and bf16, FlexAttention, ONNX Runtime where it is
installed; logits up to +-80. A framework that is missing is named.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

# oneDNN inside PyTorch takes AVX-512 kernels of bf16 on machines that lack the instructions.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import numpy
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

TESSERA = None


def check(arrays, *options):
    """The command's JSON on these arrays; torch tensors become what users save: F32 of their values."""
    with tempfile.TemporaryDirectory(prefix="tessera-peers-") as folder:
        arguments = []
        for name, array in arrays.items():
            if isinstance(array, torch.Tensor):
                array = array.detach()
                array = (array.float() if array.dtype == torch.bfloat16 else array).numpy()
            path = os.path.join(folder, name + ".npy")
            numpy.save(path, numpy.ascontiguousarray(array))
            arguments += ["--" + name, path]
        done = subprocess.run([TESSERA, "check", "attn", *arguments, "--json", *options],
                              capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(options)}: {done.stderr}")
    return json.loads(done.stdout)


PASSED, FAILED = [], []


def expect_right(name, arrays, *options):
    result = check(arrays, *options)
    worst = max(x["ratio"] if isinstance(x["ratio"], float) else math.inf for x in result["outputs"])
    print(f"{'ok  ' if result['ok'] else 'FAIL'} {name}: precision {result['precision']}, "
          f"{worst:.2g} of what is allowed")
    (PASSED if result["ok"] else FAILED).append(name)


def expect_mistake(name, arrays, outputs, words, *options):
    """The outputs, and no others, are off, and each has these words in its sentence."""
    result = check(arrays, *options)
    off = {x["name"]: x["mistake"] or "nothing fits" for x in result["outputs"] if not x["ok"]}
    good = set(off) == set(outputs) and all(words in text for text in off.values())
    print(f"{'ok  ' if good else 'FAIL'} planted {name}: {off}")
    (PASSED if good else FAILED).append(name)


def reference(q, k, v, mask=None, scale=None, dout=None, repeat=1):
    """o, lse and the gradients in float64 by autograd."""
    q, k, v = (x.double().detach().requires_grad_() for x in (q, k, v))
    scale = scale or 1 / math.sqrt(q.shape[-1])
    s = q @ k.repeat_interleave(repeat, 1).transpose(-1, -2) * scale
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    o = torch.softmax(s, -1) @ v.repeat_interleave(repeat, 1)
    result = {"o": o, "lse": torch.logsumexp(s, -1)}
    if dout is not None:
        result.update(zip(("dq", "dk", "dv"), torch.autograd.grad(o, (q, k, v), dout.double())))
    return {name: x.detach().float() for name, x in result.items()}


def inputs(dtype=torch.float32, shape=(2, 3, 96, 40), large=1.0, keys=None, heads_k=None):
    torch.manual_seed(3)
    batch, heads, tokens, dim = shape
    q = (torch.randn(shape) * large).to(dtype)
    k, v = (torch.randn(batch, heads_k or heads, keys or tokens, dim).to(dtype) for _ in range(2))
    return q, k, v, torch.randn(shape).to(dtype)


def as_dict(*tensors):
    return dict(zip(("q", "k", "v", "do"), tensors))


# ---- right outputs ---------------------------------------------------------------------------

def numpy_right(dtype, large):
    """Unfused attention whose scores and probabilities are stored in the type."""
    q, k, v, _ = (x.float().numpy() for x in inputs(torch.bfloat16 if dtype == "bf16" else torch.float32, large=large))
    if dtype == "bf16":
        cast = lambda x: torch.from_numpy(numpy.ascontiguousarray(x)).bfloat16().float().numpy()
    else:
        cast = lambda x: x.astype(dtype)
    q, k, v = cast(q), cast(k), cast(v)
    s = cast(cast(q @ k.swapaxes(-1, -2)) * cast(numpy.asarray(1 / math.sqrt(q.shape[-1]))))
    top = s.max(-1, keepdims=True)
    p = cast(numpy.exp(cast(s - top)))
    total = p.astype(numpy.float64 if dtype == "float64" else numpy.float32).sum(-1, keepdims=True)
    o = cast((p @ v) / total)
    expect_right(f"NumPy {dtype}, logits x{large:g}", {"q": q, "k": k, "v": v, "o": o})


def torch_right(name, dtype, attention, large=1.0, gradients=True, **shape):
    q, k, v, dout = inputs(dtype, large=large, **shape)
    leaves = [x.clone().requires_grad_(gradients) for x in (q, k, v)]
    o = attention(*leaves)
    arrays = {**as_dict(q, k, v, dout), "o": o}
    if gradients:
        arrays.update(zip(("dq", "dk", "dv"), torch.autograd.grad(o, leaves, dout)))
    expect_right(f"{name} {str(dtype)[6:]}, logits x{large:g}", arrays)


def eager(q, k, v):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(s.float(), -1).to(q.dtype) @ v


def backend(kind):
    def attention(q, k, v):
        with sdpa_kernel(kind):
            return functional.scaled_dot_product_attention(q, k, v)
    return attention


def flex_right():
    q, k, v, _ = inputs(shape=(1, 2, 256, 64))
    mask = torch.rand(2, 4, 4) < 0.5
    mask[:, range(4), range(4)] = True
    blocks = flex_attention.create_block_mask(lambda b, h, i, j: mask[h, i // 64, j // 64], 1, 2, 256, 256,
                                              device="cpu", BLOCK_SIZE=64)
    o, lse = flex_attention.flex_attention(q, k, v, block_mask=blocks, return_lse=True)
    expect_right("FlexAttention, block mask", {"q": q, "k": k, "v": v, "o": o, "lse": lse, "mask": mask.numpy()},
                 "--group", "64", "--unit", "64")


def onnxruntime_right():
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError as missing:
        print("skipped ONNX Runtime:", missing)
        return
    q, k, v, _ = (x[0].transpose(0, 1).contiguous() for x in inputs(shape=(1, 4, 100, 32)))
    flat = {name: x.reshape(1, 100, 128).numpy() for name, x in zip("qkv", (q, k, v))}
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 100, 128])
    node = helper.make_node("MultiHeadAttention", list("qkv"), ["o"], domain="com.microsoft", num_heads=4)
    model = helper.make_model(helper.make_graph([node], "attention", [info(x) for x in "qkv"], [info("o")]),
                              ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    o = session.run(None, flat)[0].reshape(100, 4, 32)
    expect_right("ONNX Runtime, layout shd", {"q": q, "k": k, "v": v, "o": o}, "--layout", "shd")


def all_right():
    for dtype in ("float64", "float32", "float16", "bf16"):
        numpy_right(dtype, 1.0)
    numpy_right("float32", 16.0)  # logits beyond +-80
    numpy_right("bf16", 16.0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        torch_right("SDPA math", dtype, backend(SDPBackend.MATH))
        torch_right("SDPA flash", dtype, backend(SDPBackend.FLASH_ATTENTION))
        torch_right("SDPA flash, long", dtype, backend(SDPBackend.FLASH_ATTENTION), shape=(1, 2, 777, 64))
        torch_right("eager", dtype, eager)
        torch_right("eager", dtype, eager, large=16.0)
    torch_right("SDPA flash", torch.float32, backend(SDPBackend.FLASH_ATTENTION), large=16.0)

    def grouped(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch_right("SDPA, grouped queries", torch.bfloat16, grouped, shape=(1, 6, 90, 32), heads_k=2)
    flex_right()
    onnxruntime_right()


# ---- planted mistakes ------------------------------------------------------------------------

EVERY = ("o", "lse", "dq", "dk", "dv")


def plant(name, words, outputs=EVERY, real=None, options=(), dtype=torch.float32, wrong=None, **change):
    """Right inputs beside the results of a computation that differs by `change`."""
    q, k, v, dout = inputs(dtype)
    arrays = {**as_dict(q, k, v, dout), **(real or {})}
    arrays.update(wrong if wrong else reference(**{"q": q, "k": k, "v": v, "dout": dout, **change}))
    expect_mistake(f"{name}, {str(dtype)[6:]}", arrays, outputs, words, *options)


def backward_by_hand(q, k, v, dout, scale_p, scale_ds, delta=True, normal=True):
    """Gradients as kernels write them, with the parts that may be wrong."""
    q, k, v, dout = (x.double() for x in (q, k, v, dout))
    scale = 1 / math.sqrt(q.shape[-1])
    s = q @ k.transpose(-1, -2)
    lse = torch.logsumexp(s * scale, -1, keepdim=True)
    p = torch.exp(s * scale_p - (lse if normal else (s * scale).amax(-1, keepdim=True)))
    dp = dout @ v.transpose(-1, -2)
    ds = p * (dp - (dout * (torch.softmax(s * scale, -1) @ v)).sum(-1, keepdim=True) * delta) * scale_ds
    return {"dq": (ds @ k).float(), "dk": (ds.transpose(-1, -2) @ q).float(), "dv": (p.transpose(-1, -2) @ dout).float()}


def all_mistakes():
    q, k, v, dout = inputs()
    scale = 1 / math.sqrt(40)
    for dtype in (torch.float32, torch.bfloat16):
        plant("missing scale", "scale is missing", scale=1.0, dtype=dtype)
        old = torch.randn(2, 3, 96, 40).to(dtype)
        plant("stale k", "stale keys", outputs=EVERY, k=old, real={"old-k": old}, dtype=dtype)
    plant("scale applied twice", "applied twice", scale=scale * scale)
    plant("scale of a padded head_dim", "padded to a power of two", scale=1 / 8)
    plant("softmax in base 2", "base 2", scale=scale * math.log(2))
    shifted = torch.cat([k[:, :, :32], k[:, :, :-32]], 2)
    plant("stale tile of k", "stale keys: k is read 32 rows too early", k=shifted, outputs=EVERY)
    lists = torch.rand(1, 1, 96, 96) < 0.3
    lists |= torch.eye(96, dtype=torch.bool)
    for name, real in (("mask", {"mask": lists.numpy()}), ):
        plant("transposed " + name, "transposed", mask=lists.transpose(-1, -2), real=real)
        plant("ignored " + name, "ignored", real=real)
        plant("inverted " + name, "inverted", mask=~lists, real=real)
    padding = (torch.arange(96) < torch.tensor([[70], [96]])).reshape(2, 1, 1, 96)
    for dtype in (torch.float32, torch.bfloat16):
        plant("missing padding mask", "padding is attended to", real={"mask": padding.numpy()}, dtype=dtype)
    plant("rows of zeros", "32 rows of zeros", k=torch.cat([k, torch.zeros(2, 3, 32, 40)], 2),
          v=torch.cat([v, torch.zeros(2, 3, 32, 40)], 2), outputs=("o", "lse", "dq"),
          wrong={name: x for name, x in reference(q, torch.cat([k, torch.zeros(2, 3, 32, 40)], 2),
                                                  torch.cat([v, torch.zeros(2, 3, 32, 40)], 2), dout=dout).items()
                 if name not in ("dk", "dv")})
    right = reference(q, k, v, dout=dout)
    plant("base-2 lse", "base 2", ("lse",), wrong={**right, "lse": right["lse"] / math.log(2)})
    plant("reshaped o", "reshaped instead of transposed", ("o",),
          wrong={**right, "o": right["o"].transpose(1, 2).reshape(2, 3, 96, 40)})
    plant("doubled o", "times 2", ("o",), wrong={**right, "o": right["o"] * 2})
    plant("keys of the head before", "stale keys: k is that of the head before", k=k.roll(1, 1))
    both = ("dq", "dk")
    by_hand = lambda **how: {**right, **backward_by_hand(q, k, v, dout, **how)}
    plant("ds without scale", "right only at scale 1", both, wrong=by_hand(scale_p=scale, scale_ds=1))
    plant("p without scale", "right only at scale 1", ("dq", "dk", "dv"), wrong=by_hand(scale_p=1, scale_ds=scale))
    plant("p and ds without scale", "right only at scale 1", ("dq", "dk", "dv"), wrong=by_hand(scale_p=1, scale_ds=1))
    plant("missing delta", "delta", both, wrong=by_hand(scale_p=scale, scale_ds=scale, delta=False))
    plant("p not normalised", "not normalised", ("dq", "dk", "dv"),
          wrong=by_hand(scale_p=scale, scale_ds=scale, normal=False))
    last = torch.zeros_like(dout)
    last[:, :, 64:] = dout[:, :, 64:]
    tile = reference(q, k, v, dout=last)
    plant("overwritten tiles", "overwrite", ("dk", "dv"), wrong={**right, "dk": tile["dk"], "dv": tile["dv"]})
    plant("base-2 lse on a missing scale", "", EVERY,
          wrong={**reference(q, k, v, scale=1.0, dout=dout),
                 "lse": reference(q, k, v, scale=1.0)["lse"] / math.log(2)})
    gqa = inputs(shape=(1, 6, 64, 32), heads_k=2)
    fine = reference(*gqa[:3], dout=gqa[3], repeat=3)
    crossed = reference(gqa[0], gqa[1].repeat(1, 3, 1, 1), gqa[2].repeat(1, 3, 1, 1))
    expect_mistake("interleaved heads", {**as_dict(*gqa), "o": crossed["o"]}, ("o",), "wrong head order")
    expect_mistake("mean over heads", {**as_dict(*gqa), "dk": fine["dk"] / 3, "dv": fine["dv"] / 3}, ("dk", "dv"),
                   "the mean over the 3 heads")


def main():
    global TESSERA
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", required=True)
    TESSERA = parser.parse_args().tessera
    torch.set_num_threads(1)
    all_right()
    all_mistakes()
    print(f"{len(PASSED)} passed, {len(FAILED)} failed: {', '.join(FAILED) or 'none'}")
    return 1 if FAILED else 0


sys.exit(main())
