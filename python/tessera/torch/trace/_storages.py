# SPDX-License-Identifier: Apache-2.0
"""_storages.py - numbers of storages, what each holds, and the memory of all that live.

A storage has one number as long as it lives; views share it. Sizes are logged as they change, FSDP's resize to zero among
them, so that the peak of a step and its parts come from the log when it is known what each storage was for. The same rules as
those of torch's MemTracker, without a second pass over all tensors.
"""
import weakref

import torch

from ._patches import put

KINDS = ("parameters", "gradients", "optimizer", "activations", "temporaries")
PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARIES = range(5)


class Entry:
    __slots__ = ("number", "size", "kind", "received", "of_parameters", "reference")

    def __init__(self, number, size, kind):
        self.number, self.size, self.kind = number, size, kind
        self.received = False            # computed from what another rank sent
        self.of_parameters = False       # computed from parameters alone
        self.reference = None


class Storages:
    def __init__(self):
        self.entries = {}                # id of a storage: its entry
        self.kinds = []                  # by number
        self.live = 0
        self.log = None                  # (number, bytes more, event) of the step that is recorded
        self.recorded = []               # that of the step that was
        self.events = None               # list of its events
        self.kind = ACTIVATIONS          # of new ones

    def find(self, tensor):
        storage = tensor.untyped_storage()
        entry = self.entries.get(id(storage))
        return entry if entry is not None else self._add(storage, id(storage))

    def look(self, tensor):
        """find(), of what an operator wrote and may have resized."""
        storage = tensor.untyped_storage()
        entry = self.entries.get(id(storage))
        if entry is None:
            return self._add(storage, id(storage))
        if entry.size != storage.nbytes():
            self._change(entry, storage.nbytes())
        return entry

    def _add(self, storage, key):
        entry = Entry(len(self.kinds), 0, self.kind)
        self.kinds.append(self.kind)
        entry.reference = weakref.ref(storage, lambda _, k=key, e=entry: self._drop(k, e))
        self.entries[key] = entry
        self._change(entry, storage.nbytes())
        return entry

    def _drop(self, key, entry):
        if self.entries.get(key) is entry:
            del self.entries[key]
        self._change(entry, 0)

    def _change(self, entry, size):
        more = size - entry.size
        entry.size = size
        self.live += more
        if self.log is not None and more:
            self.log.append((entry.number, more, len(self.events)))

    def label(self, tensor, kind):
        """What a storage is for; later labels win."""
        entry = self.find(tensor)
        entry.kind = self.kinds[entry.number] = kind
        return entry

    # ---- resize, which no dispatch mode sees ----

    def watch(self, stack):
        resize = torch.UntypedStorage.resize_

        def resize_(storage, size):
            result = resize(storage, size)
            entry = self.entries.get(id(storage))
            if entry is not None:
                self._change(entry, storage.nbytes())
            return result
        put(stack, torch.UntypedStorage, "resize_", resize_)

    # ---- the recorded step ----

    def begin(self, events):
        self.events, self.log = events, []
        for entry in self.entries.values():
            if entry.size:
                self.log.append((entry.number, entry.size, 0))
            entry.received = False

    def end(self):
        self.recorded, self.log = self.log, None

    def peak(self):
        """(bytes, parts of them, event at which they were reached) of the recorded step."""
        now = most = at = place = 0
        for i, (_, more, event) in enumerate(self.recorded):
            now += more
            if now > most:
                most, at, place = now, i, event
        parts = [0] * len(KINDS)
        for number, more, _ in self.recorded[:at + 1]:
            parts[self.kinds[number]] += more
        return most, dict(zip(KINDS, parts)), place
