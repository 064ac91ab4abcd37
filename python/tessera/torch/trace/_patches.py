# SPDX-License-Identifier: Apache-2.0
"""_patches.py - attributes of PyTorch that are others while a program is played."""


def put(stack, place, name, value):
    """An attribute of a module or a class until the ExitStack is left."""
    own = vars(place).get(name, put)     # as it stands there: a static method stays one
    if own is put:
        stack.callback(delattr, place, name)
    else:
        stack.callback(setattr, place, name, own)
    setattr(place, name, value)
