# SPDX-License-Identifier: Apache-2.0
"""vllm_omni_strategy.py - a balanced Ulysses for vLLM-Omni: heads go to ranks by a plan, any number of them, not equal runs.

vLLM-Omni's Attention asks a ParallelAttentionStrategy to reshard q, k, v before the kernel and its output after it
(vllm_omni/diffusion/attention/parallel/base.py; factory.py chooses the strategy). This one takes both from a tessera.Exchange:

    plan = tessera.plan(densities, ranks, tokens=tokens, block=block, method="refined", whole_heads=True)
    strategy = BalancedUlysses(plan, layer, group)
    q, k, v, metadata, context = strategy.pre_attention(q, k, v, metadata)      # (batch, own rows, heads, head_dim)
    out = kernel(q, k, v)                                                        # (batch, all rows, strategy.heads, head_dim)
    out = strategy.post_attention(out, context)                                  # (batch, own rows, heads, head_dim)

A sparse kernel gets the lists of its heads by `[exchange.selection(selection, slot) for slot in range(len(strategy.heads))]`. Plans that
cut heads or form rings need several kernel calls for a layer: tessera.torch.PlanExecutor does those.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Context:
    """What post_attention needs of pre_attention, as vLLM-Omni's ParallelAttentionContext."""
    name: str
    rows: int


class BalancedUlysses:
    enabled = True
    name = "tessera"

    def __init__(self, plan, layer, group=None, bounds=None):
        self.group, rank = group, dist.get_rank(group)
        if bounds is None:
            bounds = np.linspace(0, plan.tokens, plan.ranks + 1).astype(int)
        self.exchange = plan.exchange(layer, rank, bounds)
        if self.exchange.ring.steps > 1 or any((s.q_rows, s.k_rows) != (plan.tokens, plan.tokens) for s in self.exchange.slots):
            raise ValueError(f"layer {layer} is {plan.strategy(layer)}, must be of whole heads: plan with whole_heads=True")
        self.heads = [slot.head for slot in self.exchange.slots]
        self.routes = {name: self._route(*self.exchange.rows[name]) for name in ("Q", "KV", "O")}

    @staticmethod
    def _route(send_index, recv_index, send_rows, recv_rows):
        return torch.from_numpy(send_index), torch.from_numpy(np.argsort(recv_index)), recv_rows, send_rows

    def _move(self, x, name):
        """Rows to the ranks that the lists name: (rows, heads, batch, head_dim) in, (rows of all heads, batch, head_dim) out."""
        send_index, order, recv_rows, send_rows = self.routes[name]
        x = x.flatten(0, 1)[send_index.to(x.device)]
        received = x.new_empty(sum(recv_rows), *x.shape[1:])
        dist.all_to_all_single(received, x, recv_rows, send_rows, group=self.group)
        return received[order.to(x.device)]

    def pre_attention(self, query, key, value, attn_metadata):
        batch, rows, _, dim = query.shape
        tokens_first = [x.permute(1, 2, 0, 3) for x in (query, key, value)]
        q, k, v = (self._move(x, name).reshape(len(self.heads), -1, batch, dim).permute(2, 1, 0, 3)
                   for x, name in zip(tokens_first, ("Q", "KV", "KV")))
        return q, k, v, attn_metadata, Context(self.name, rows)

    def post_attention(self, attn_output, ctx):
        batch, _, _, dim = attn_output.shape
        back = self._move(attn_output.permute(2, 1, 0, 3), "O")
        return back.reshape(ctx.rows, -1, batch, dim).permute(2, 0, 1, 3)
