# SPDX-License-Identifier: Apache-2.0
"""_library.py - how operators of PyTorch are defined here, and functions that torch.compile does not look into.

torch.library.custom_op and torch.compiler.disable do the same; the first takes 10 us more for each call, and both import
PyTorch's compiler, 1 s, where nothing is compiled.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

LIBRARY = torch.library.Library("tessera", "FRAGMENT")
Function = TypeVar("Function", bound=Callable[..., Any])


def define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any], key: str = "CompositeExplicitAutograd") -> Any:
    """The operator tessera::name of a schema "name(arguments) -> results", its kernel, and the function that gives the shapes of
    its results. key: the dispatch key of the kernel; by default tensors of all devices."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, untraced(kernel), key)
    torch.library.register_fake(f"tessera::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.tessera, name).default


def untraced(function: Function) -> Function:
    """The function; torch.compile breaks the graph at it."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)
    return call  # type: ignore[return-value]
