# SPDX-License-Identifier: Apache-2.0
"""trace_random.py - random programs of collectives, the same on all ranks: of any kind, on the world and on groups of any ranks.

Works are waited for at once, later in the program or not before its end; messages go in pairs, together or one after the other.
"""
import random

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


class _Call:
    """One collective: who takes part and how much, by the numbers of a seed."""

    def __init__(self, choice):
        self.kind = choice.choice(KINDS)
        self.in_part = choice.random() < 0.5
        self.root = choice.randrange(12)
        self.n = 12 * choice.randint(1, 100)     # divides by groups of 1 to 4
        self.asynchronous = choice.random() < 0.5
        self.later = choice.randint(0, 3)        # calls until its wait
        self.dtype = choice.choice([torch.float32, torch.int64])
        self.uneven = [[choice.randint(0, 9) for _ in range(4)] for _ in range(4)]

    def run(self, part):
        """The work, or None where it is done."""
        group = part if self.in_part else dist.group.WORLD
        members = dist.get_process_group_ranks(group)
        own, size = members.index(dist.get_rank()), len(members)
        x = torch.ones(self.n, dtype=self.dtype)
        root = members[self.root % size]
        return getattr(self, self.kind)(x, own, size, root, {"group": group, "async_op": self.asynchronous})

    def all_reduce(self, x, own, size, root, how):
        return dist.all_reduce(x, **how)

    def coalesced(self, x, own, size, root, how):
        return dist.all_reduce_coalesced([x, x.clone()], **how)

    def broadcast(self, x, own, size, root, how):
        return dist.broadcast(x, root, **how)

    def reduce(self, x, own, size, root, how):
        return dist.reduce(x, root, **how)

    def gather(self, x, own, size, root, how):
        at_root = dist.get_rank() == root
        return dist.gather(x, [torch.empty_like(x) for _ in range(size)] if at_root else None, root, **how)

    def scatter(self, x, own, size, root, how):
        at_root = dist.get_rank() == root
        return dist.scatter(x, [torch.ones_like(x) for _ in range(size)] if at_root else None, root, **how)

    def all_gather(self, x, own, size, root, how):
        return dist.all_gather([torch.empty_like(x) for _ in range(size)], x, **how)

    def gather_into(self, x, own, size, root, how):
        return dist.all_gather_into_tensor(x.new_empty(size * self.n), x, **how)

    def reduce_scatter(self, x, own, size, root, how):
        return dist.reduce_scatter_tensor(x.new_empty(self.n // size), x, **how)

    def all_to_all(self, x, own, size, root, how):
        return dist.all_to_all_single(torch.empty_like(x), x, **how)

    def uneven_all_to_all(self, x, own, size, root, how):
        sent, got = self.uneven[own][:size], [self.uneven[k][own] for k in range(size)]
        return dist.all_to_all_single(x.new_empty(sum(got)), x.new_ones(sum(sent)), got, sent, **how)

    def messages(self, x, own, size, root, how):
        peer = dist.get_rank() ^ 1
        both = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, torch.empty_like(x), peer)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def message(self, x, own, size, root, how):
        rank = dist.get_rank()
        (dist.recv if rank & 1 else dist.send)(x, rank ^ 1)

    def functional_sum(self, x, own, size, root, how):
        functional.wait_tensor(functional.all_reduce(x, "sum", how["group"]))

    def functional_gather(self, x, own, size, root, how):
        functional.wait_tensor(functional.all_gather_tensor(x, 0, how["group"]))

    def functional_scatter(self, x, own, size, root, how):
        functional.wait_tensor(functional.reduce_scatter_tensor(x, "sum", 0, how["group"]))


KINDS = [name for name in vars(_Call) if not name.startswith("_") and name != "run"]


def program(seed, ranks):
    """A builder of the step of this seed."""
    choice = random.Random(seed)
    calls = [_Call(choice) for _ in range(choice.randint(3, 12))]
    order = choice.sample(range(ranks), ranks)
    cut = choice.randint(1, ranks - 1)

    def build():
        parts = [dist.new_group(sorted(some)) for some in (order[:cut], order[cut:])]
        part = parts[dist.get_rank() not in order[:cut]]

        def step():
            waiting = []
            for i, call in enumerate(calls):
                work = call.run(part)
                if work is not None:
                    waiting.append((i + call.later, work))
                for due, work in [w for w in waiting if w[0] <= i]:
                    work.wait()
                waiting = [w for w in waiting if w[0] > i]
            for _, work in waiting:
                work.wait()
        return step
    return build
