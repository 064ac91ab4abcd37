# SPDX-License-Identifier: Apache-2.0
"""_modules.py - the module that an operator belongs to, forward and backward.

Forward: a stack that global hooks of modules keep. Backward: an autograd node has the sequence number that was taken when its
operator ran forward, whose module was noted. No hooks on tensors, which pipelines with split backward passes do not bear.
"""
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

_sequence = torch._C._autograd._get_sequence_nr
_node = torch._C._current_autograd_node


class Modules:
    def __init__(self):
        self.stack = []                  # (module, path)
        self.paths = {}                  # id of a module: its path in its root
        self.by_sequence = {}
        self.last = ""
        self.handles = []

    def __enter__(self):
        self.handles = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()

    def _enter(self, module, args):
        if id(module) not in self.paths:
            if self.stack:
                above, path = self.stack[-1]
                name = next((n for n, m in above.named_modules() if m is module), type(module).__name__)
                self.paths[id(module)] = f"{path}.{name}" if path else name
            else:
                for name, part in module.named_modules():
                    self.paths.setdefault(id(part), name)
        self.stack.append((module, self.paths[id(module)]))

    def _leave(self, module, args, result):
        while self.stack and self.stack.pop()[0] is not module:
            pass

    def path(self, backward):
        """Of the operator that runs now."""
        if not backward or self.stack:   # a module that runs again while gradients are computed is on the stack
            self.last = self.stack[-1][1] if self.stack else ""
            self.by_sequence[_sequence() - 1] = self.last
            return self.last
        node = _node()
        if node is not None:
            self.last = self.by_sequence.get(node._sequence_nr(), self.last)
        return self.last
