# SPDX-License-Identifier: Apache-2.0
"""_gradients.py - gradients of an operator of attention, by the operator of its backward pass.

    attend(q, k, v, handle, *rest) -> (o, lse)
    attend_backward(do, dlse, q, k, v, o, lse, handle, *rest) -> (dq, dk, dv)

torch.library.register_autograd does the same at 10 us more for each call.
"""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._lib import UnsupportedError
from ._library import LIBRARY


def add_gradients(name: str, attend: Any, attend_backward: Any) -> None:
    """Registers the gradients of tessera::name."""

    class _Once(torch.autograd.Function):
        """The backward pass where its own gradients are recorded (create_graph): it has none."""

        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return attend_backward(*given)

        @staticmethod
        def backward(ctx: Any, *gradients: Optional[Tensor]) -> Any:
            raise UnsupportedError("create_graph: the gradients of tessera's attention cannot be differentiated again")

    class _Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, handle: Optional[Tensor], *rest: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                o, lse = attend(q, k, v, handle, *rest)
            ctx.rest = rest
            ctx.set_materialize_grads(False)  # else lse always has a gradient
            ctx.save_for_backward(q, k, v, o, lse, handle)
            return o, lse

        @staticmethod
        def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> Any:
            nothing = (None,) * (1 + len(ctx.rest))
            if do is None and dlse is None:
                return (None, None, None, *nothing)
            q, k, v, o, lse, handle = ctx.saved_tensors
            do = torch.zeros_like(o) if do is None else do
            given = do, dlse, q, k, v, o, lse, handle, *ctx.rest
            dq, dk, dv = _Once.apply(*given) if torch.is_grad_enabled() else attend_backward(*given)
            return (dq, dk, dv, *nothing)

    def autograd(q: Tensor, k: Tensor, v: Tensor, handle: Optional[Tensor], *rest: Any) -> Any:
        if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in (q, k, v)):
            raise UnsupportedError("q, k or v has a tangent, but this operator has no forward-mode derivative: use backward()")
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
            if torch._C._are_functorch_transforms_active():
                raise UnsupportedError("q, k or v is inside a transform of torch.func, which this operator has no rule for: "
                                       "use torch.autograd")
            return _Attend.apply(q, k, v, handle, *rest)
        with torch._C._AutoDispatchBelowAutograd():
            return attend(q, k, v, handle, *rest)

    LIBRARY.impl(name, autograd, "Autograd")
