# SPDX-License-Identifier: Apache-2.0
"""diffusers.py - sparse self attention in diffusers' WanTransformer3DModel, by a processor on each attn1.

    handle = enable(transformer, selector)       # selector(q, k, layer, step) -> Selection or None
    handle.verify()                              # the next call of each layer is compared with masked fp32
    ...                                          # sample or train as before
    handle.report()["layers"][0]["density"]
    handle.disable()                             # the processors that were there before

    handle = shard(transformer, plan, group)     # the same over ranks: sequence sharding, and a PlanExecutor for each layer

A step is a call of the transformer, counted from 0. The selector runs inside an operator, tessera::select, which gives
the selection's handle: torch.compile traces a model as one graph, and new selections do not compile again. In the
recomputation of gradient checkpointing the selection of the forward pass is used again.
"""
from __future__ import annotations

import itertools
import math
import time
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import numpy as np
import torch
from diffusers import WanTransformer3DModel
from diffusers.models.transformers import transformer_wan
from torch import Tensor

from .._lib import ArgumentError, ArgumentTypeError, Error
from .._plan import Plan
from .._selection import Selection
from ..torch._executor import PlanExecutor
from ..torch._flex import flex_kernel
from ..torch._library import define
from ..torch._handle import handle as handle_of, selection_of
from ..torch._operator import attend as attend_operator
from . import _sharding

Selector = Callable[[Tensor, Tensor, int, int], Optional[Selection]]
Kernel = Union[str, Callable[[Tensor, Tensor, Tensor, Optional[Selection]], Tensor]]

_KERNELS = ("auto", "tessera", "flex")
_SPOT_CHECKS = 16  # recall is measured in every 16th sparse call of a layer, from the first
_VERIFY_ROWS = 64  # queries of each head that verify() computes

_adapters: weakref.WeakValueDictionary[int, Adapter] = weakref.WeakValueDictionary()
_next_adapter = itertools.count(1)


class VerifyError(Error, AssertionError):
    """A layer does not compute what its selection says."""


def _run_selector(q: Tensor, k: Tensor, adapter: int, layer: int) -> Tensor:
    return _adapters[adapter]._select(q, k, layer)


_select = define("select(Tensor q, Tensor k, int adapter, int layer) -> Tensor", _run_selector,
                 lambda q, k, adapter, layer: torch.empty(1, dtype=torch.int64))


def _rotate(x, cos, sin):
    """RoPE of Wan: pairs of neighbours, tables with every angle twice."""
    cos, sin = cos[..., 0::2], sin[..., 1::2]
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).type_as(x)


class _Processor(transformer_wan.WanAttnProcessor):
    def __init__(self, adapter, layer, stock):
        super().__init__()
        self.adapter, self.layer, self.stock = adapter, layer, stock

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None, **more):
        if encoder_hidden_states is not None or attention_mask is not None:
            self.adapter._layers[self.layer]["fallback"] = "attention_mask is given" if attention_mask is not None else "cross attention"
            return self.stock(attn, hidden_states, encoder_hidden_states, attention_mask, rotary_emb, **more)
        q, k, v = transformer_wan._get_qkv_projections(attn, hidden_states, None)
        q, k, v = (x.unflatten(2, (attn.heads, -1)) for x in (attn.norm_q(q), attn.norm_k(k), v))
        if rotary_emb is not None:
            q, k = _rotate(q, *rotary_emb), _rotate(k, *rotary_emb)
        o = self.adapter._attend(self.layer, q, k, v)
        return attn.to_out[1](attn.to_out[0](o.flatten(2, 3).type_as(q)))


def _in_backward():
    """Whether autograd runs a backward pass in this thread: then a layer is recomputed."""
    return torch._C._current_graph_task_id() != -1


def _masked(q, k, v, selection, rows):
    """fp32 attention of some query rows, (batch, heads, tokens, head_dim), under the selection's mask and without it."""
    scores = q[:, :, rows].float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    dense = torch.softmax(scores, -1) @ v.float()
    if selection is None:
        return dense, dense
    bounds_q, bounds_k = selection.bounds
    blocks = np.searchsorted(bounds_q, rows.numpy(), "right") - 1
    mask = np.repeat(selection.to_mask()[:, :, blocks], np.diff(bounds_k), axis=3)
    scores = scores.masked_fill(~torch.from_numpy(mask).to(q.device), -math.inf)
    return torch.softmax(scores, -1).nan_to_num() @ v.float(), dense


def _recall(q, k, selection):
    """Recall as Selection.measure has it, over two query blocks of each head: the mass of the selected units over that of as
    many units of most mass, mean weighted by queries; None where nothing is selected."""
    bounds_q, bounds_k = selection.bounds
    n_q, n_k = selection.shape[2:]
    unit = torch.repeat_interleave(torch.arange(n_k), torch.from_numpy(bounds_k).diff()).to(q.device)
    mask = torch.from_numpy(selection.to_mask()).to(q.device)
    total = weight = 0.0
    for block in sorted({0, n_q // 2}):
        rows = q[:, :, bounds_q[block]:bounds_q[block + 1]].float()
        p = torch.softmax(rows @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1]), -1)
        mass = torch.zeros(*p.shape[:2], n_k, device=q.device).index_add_(2, unit, p.sum(2))
        chosen = mask[:, :, block]
        some = chosen.any(-1)
        best = mass.sort(-1, descending=True).values.cumsum(-1).gather(-1, (chosen.sum(-1) - 1).clamp(min=0)[..., None])[..., 0]
        total += float(((mass * chosen).sum(-1) / best)[some].sum()) * rows.shape[2]
        weight += int(some.sum()) * rows.shape[2]
    return total / weight if weight else None


class Adapter:
    """What enable() and shard() return."""

    def __init__(self, transformer: Any, selector: Optional[Selector],
                 executors: Optional[Sequence[Callable]], kernel: Kernel, layers: Iterable[int]):
        self.transformer, self.selector, self.kernel = transformer, selector, kernel
        self.executors = None if executors is None else list(executors)
        self._number = next(_next_adapter)
        _adapters[self._number] = self
        self._stock: dict[int, Any] = {}
        self._layers: dict[int, dict[str, Any]] = {}
        self._selections: dict[int, Tensor] = {}
        self._seen: set[int] = set()
        self._verify: set[int] = set()
        self._tolerance: Optional[float] = None
        self.step, self._sharded = -1, False
        for layer in layers:
            attn = transformer.blocks[layer].attn1
            self._stock[layer] = attn.processor
            self._layers[layer] = {"layer": layer, "density": None, "recall": None, "time": None, "fallback": None, "calls": 0,
                                   "sparse_calls": 0}
            attn.set_processor(_Processor(self, layer, attn.processor))

    # ---- one layer ----------------------------------------------------------------------------------------------

    def _begin(self, layer):
        """Counts steps: a layer that is called again begins the next, unless it is recomputed."""
        if _in_backward():
            return False
        if not self._seen or layer in self._seen:
            self._seen.clear()
            self._selections.clear()
            self.step += 1
        self._seen.add(layer)
        self._layers[layer]["calls"] += 1
        return True

    def _select(self, q, k, layer):
        """The handle of the selection for (batch, heads, tokens, head_dim); a 0 for dense attention."""
        if not self._begin(layer) and layer in self._selections:
            return self._selections[layer].clone() if self._selections[layer].item() == 0 else handle_of(selection_of(self._selections[layer]))
        entry = self._layers[layer]
        with torch.no_grad():
            selection = self.selector(q.detach(), k.detach(), layer, max(self.step, 0))
        if selection is None:
            entry.update(density=1.0, fallback="the selector returned None: dense")
            self._selections[layer] = torch.zeros(1, dtype=torch.int64)
            return torch.zeros(1, dtype=torch.int64)
        if not isinstance(selection, Selection):
            raise ArgumentTypeError(f"selector returned a {type(selection).__name__} for layer {layer}, must return a tessera.Selection or None")
        want = (q.shape[0], q.shape[1]), (q.shape[2], k.shape[2])
        if (selection.shape[:2], selection.tokens) != want:
            raise ArgumentError(f"selector returned a selection of batch and heads {selection.shape[:2]} over {selection.tokens} tokens for "
                                f"layer {layer}, must be of {want[0]} over {want[1]}")
        entry.update(density=selection.density, fallback=None)
        entry["sparse_calls"] += 1
        if entry["sparse_calls"] % _SPOT_CHECKS == 1:
            entry["recall"] = _recall(q.detach(), k.detach(), selection)
        self._selections[layer] = handle_of(selection)
        return handle_of(selection)

    def _multiply(self, q, k, v, number):
        """o of (batch, heads, tokens, head_dim) by the kernel."""
        if callable(self.kernel):
            return self.kernel(q, k, v, selection_of(number))
        if self.kernel == "flex" or self.kernel == "auto" and q.device.type != "cpu":
            return flex_kernel(q, k, v, selection_of(number), train=torch.is_grad_enabled())[0]
        return attend_operator(q.float(), k.float(), v.float(), number, 1 / math.sqrt(q.shape[-1]), 0)[0]

    def _attend(self, layer, q, k, v):
        """(batch, tokens, heads, head_dim) in and out."""
        eager = not torch.compiler.is_compiling()
        begun = time.perf_counter() if eager else 0.0
        if self.executors is not None:
            if eager:
                self._begin(layer)
                selection = getattr(self.executors[layer], "selection", None)
                self._layers[layer]["density"] = 1.0 if selection is None else selection.density
            o = self.executors[layer](q, k, v)
        else:
            heads = [x.transpose(1, 2) for x in (q, k, v)]
            number = None
            if self.selector is not None:
                number = _select(heads[0].detach(), heads[1].detach(), self._number, layer)
            elif eager:
                self._begin(layer)
                self._layers[layer]["density"] = 1.0
            o = self._multiply(*heads, number)
            if eager and layer in self._verify:
                self._verify.discard(layer)
                self._compare(layer, *heads, o, selection_of(number))
            o = o.transpose(1, 2)
        if eager:
            self._layers[layer]["time"] = time.perf_counter() - begun
        return o

    @torch.no_grad()
    def _compare(self, layer, q, k, v, o, selection):
        rows = torch.linspace(0, q.shape[2] - 1, min(_VERIFY_ROWS, q.shape[2])).long().unique()
        want, dense = _masked(q, k, v, selection, rows)
        got = o[:, :, rows].float()
        size = float(want.norm()) or 1.0
        error = float((got - want).norm()) / size
        tolerance = self._tolerance or {torch.float32: 1e-4, torch.float16: 5e-3}.get(q.dtype, 3e-2)
        self._layers[layer]["verified"] = error
        if not error <= tolerance:
            why = "the mask was not applied: the output is that of dense attention" if float((got - dense).norm()) / size <= tolerance \
                else "the output is not that of its selection"
            raise VerifyError(f"blocks.{layer}.attn1: {why}; off by {error:.3g} of masked fp32 attention, allowed is {tolerance:g}")

    # ---- what users call ----------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """{"step": calls of the model, "layers": [{layer, density, recall, time, fallback, calls, sparse_calls}]}.

        density: of the last selection. recall: of the last spot check, over a few query blocks. time: seconds of the
        last call, None if compiled. fallback: why a layer was dense, or None.
        """
        return {"step": self.step + 1, "layers": [dict(entry) for entry in self._layers.values()]}

    def verify(self, *args, tolerance: Optional[float] = None, **kwargs) -> Optional[list[float]]:
        """Compares the next call of each layer with masked fp32 attention of 64 query rows of every head.

        Raises VerifyError with the layer's name if the mask was not applied. With arguments of the transformer it is run
        at once, without gradients, and the errors are returned, (layers). tolerance: of norm(o - want) / norm(want);
        by default 1e-4 for fp32, 5e-3 for fp16, 3e-2 for bf16. Not of compiled calls.
        """
        if self.executors is not None:
            raise ArgumentError("verify compares selections, but executors compute this model: compare with one rank instead")
        self._tolerance = tolerance
        self._verify = set(self._layers)
        if not args and not kwargs:
            return None
        with torch.no_grad():
            self.transformer(*args, **kwargs)
        if self._verify:
            raise VerifyError(f"blocks.{min(self._verify)}.attn1 was not called, or is compiled: verify the model before torch.compile")
        return [entry["verified"] for entry in self._layers.values()]

    def disable(self) -> None:
        """Puts the processors back that were there before, and removes the sharding of shard()."""
        for layer, processor in self._stock.items():
            self.transformer.blocks[layer].attn1.set_processor(processor)
        self._stock = {}
        if self._sharded:
            _sharding.remove(self.transformer)
            self._sharded = False


def _model_of(transformer: Any) -> Any:
    """The model, also of one that torch.compile has wrapped."""
    model = getattr(transformer, "_orig_mod", transformer)
    if not isinstance(model, WanTransformer3DModel):
        raise ArgumentTypeError(f"transformer is a {type(model).__name__}, must be a WanTransformer3DModel")
    return model


def enable(transformer: torch.nn.Module, selector: Optional[Selector] = None, *, executors: Optional[Sequence[Callable]] = None,
           kernel: Kernel = "auto", layers: Optional[Iterable[int]] = None) -> Adapter:
    """Puts sparse self attention into a WanTransformer3DModel and returns its handle: report, verify, disable.

    selector: (q, k, layer, step) -> tessera.Selection or None (dense), with q and k after RoPE as (batch, heads, tokens,
    head_dim); None for dense attention in all layers. executors: one for each layer, called with q, k, v (batch, own rows,
    heads, head_dim), under diffusers' sequence-sharding hooks. kernel: "auto" (this package's operator on CPUs,
    FlexAttention on GPUs), "tessera", "flex", or a function (q, k, v, selection) -> o of (batch, heads, tokens, head_dim).
    layers: numbers of the layers; None for all. Cross attention is not changed.
    """
    model = _model_of(transformer)
    if not callable(kernel) and kernel not in _KERNELS:
        raise ArgumentError(f"kernel is {kernel!r}, must be \"auto\", \"tessera\", \"flex\" or a function (q, k, v, selection) -> o")
    if selector is not None and not callable(selector):
        raise ArgumentTypeError(f"selector is a {type(selector).__name__}, must be a function (q, k, layer, step) -> Selection or None")
    if selector is not None and executors is not None:
        raise ArgumentError("selector is given, but executors have selections of their own: give them to PlanExecutor")
    count = len(model.blocks)
    chosen = list(range(count)) if layers is None else [int(layer) for layer in layers]
    if any(not 0 <= layer < count for layer in chosen) or len(set(chosen)) != len(chosen):
        raise ArgumentError(f"layers is {chosen}, must be different numbers of 0..{count - 1}")
    if executors is not None and len(executors) != count:
        raise ArgumentError(f"executors has {len(executors)} elements, must have one for each of the {count} layers")
    return Adapter(model, selector, executors, kernel, chosen)


def shard(transformer: torch.nn.Module, plan: Plan, group: Optional[torch.distributed.ProcessGroup] = None, *,
          selections: Optional[Sequence[Optional[Selection]]] = None, bounds: Optional[Sequence[int]] = None) -> Adapter:
    """Divides a WanTransformer3DModel over the ranks of a process group by a plan, and returns its handle.

    Every rank calls the model with the whole input and gets the whole output, as with diffusers' enable_parallelism, which
    this replaces, on CPUs too and for any number of heads and tokens. plan: of the model's layers and heads and of the
    tokens of its calls. selections: one for each layer, None for dense attention. bounds: (ranks + 1) tokens, where each
    rank's share of the sequence begins; None for even shares. In training every rank computes the loss over the whole
    output, and gradients of parameters are to be summed over the ranks. disable() removes all of it.
    """
    model = _model_of(transformer)
    count, heads = len(model.blocks), model.config.num_attention_heads
    if (plan.layers, plan.heads) != (count, heads):
        raise ArgumentError(f"plan is of {plan.layers} layers with {plan.heads} heads, must be of {count} with {heads} as the transformer")
    if selections is not None and len(selections) != count:
        raise ArgumentError(f"selections has {len(selections)} elements, must have one for each of the {count} layers")
    executors = [PlanExecutor(plan, layer, group, bounds, None if selections is None else selections[layer]) for layer in range(count)]
    adapter = enable(model, executors=executors)
    _sharding.install(model, executors[0].bounds.tolist(), group)
    adapter._sharded = True
    return adapter
