# SPDX-License-Identifier: Apache-2.0
"""_ddp.py - the reducer of DistributedDataParallel for fake tensors, whose memory PyTorch's own reducer would touch.

The same rule: gradients in buckets, at first in the reverse order of parameters, after the first step in the order in which
gradients came; a gradient is scaled into its bucket, a bucket whose gradients are there is reduced as soon as those before it
are, and the sums are copied back when the backward pass ends. DDP's own Python code calls it.
"""
import torch
import torch.distributed as dist

from ._error import TraceError
from ._patches import put


class _Bucket:
    """What a communication hook gets, too: the methods of torch.distributed.GradBucket."""

    def __init__(self, index, indices, parameters, last):
        self._index, self.indices, self._parameters, self._last = index, indices, parameters, last
        first = parameters[0]
        with torch.no_grad():
            self._buffer = torch.empty(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
            self.views, at = [], 0
            for p in parameters:
                self.views.append(self._buffer[at:at + p.numel()].view(p.shape))
                at += p.numel()
        self.pending, self.future = 0, None

    def index(self):
        return self._index

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer.copy_(buffer)

    def gradients(self):
        return list(self.views)

    def parameters(self):
        return list(self._parameters)

    def is_last(self):
        return self._last


def _unknown(what):
    return TraceError(f"tessera.torch.trace: DistributedDataParallel's {what} is not played on fake tensors; --device cpu plays it")


# Arguments of dist.Reducer after the tenth, by version; those named here must be off.
_MORE = ("first_bucket_bytes_cap", "skip_all_reduce_unused_params", "use_python_reducer", "bucket_bytes_caps", "batched_grad_copy",
         "lazy_bucket_allocation")
_REFUSED = ("skip_all_reduce_unused_params", "use_python_reducer", "batched_grad_copy", "lazy_bucket_allocation")


class Reducer:
    def __init__(self, params, bucket_indices, per_bucket_size_limits, process_group, expect_sparse_gradients=(),
                 bucket_bytes_cap=25 << 20, find_unused_parameters=False, gradient_as_bucket_view=False, param_to_name_mapping=None,
                 *more):
        more = dict(zip(_MORE, more))
        for name in _REFUSED:
            if more.get(name):
                raise _unknown(name)
        if any(expect_sparse_gradients):
            raise _unknown("sparse gradients")
        self.params, self.group, self.size = list(params), process_group, dist.get_world_size(process_group)
        self.caps = more.get("bucket_bytes_caps") or [more.get("first_bucket_bytes_cap", 1 << 20), bucket_bytes_cap]
        self.find_unused, self.as_views = find_unused_parameters, gradient_as_bucket_view
        self.static, self.hook = False, None
        self.expects = self.rebuilt = False
        self.order, self.unused = [], []
        self.counts, self.left = [0] * len(self.params), None    # of a static graph: how often each gradient comes in a step
        self.used, self.used_there = (torch.zeros(len(self.params), dtype=torch.int32) for _ in range(2))
        self._make_buckets(bucket_indices)
        self.accumulators = [torch.autograd.graph.get_gradient_edge(p).node for p in self.params]
        self.handles = [node.register_hook(lambda *_, i=i: self._came(i)) for i, node in enumerate(self.accumulators)]

    def __getattr__(self, name):
        raise _unknown(name)

    def _make_buckets(self, bucket_indices):
        self.buckets = [_Bucket(i, indices, [self.params[k] for k in indices], i == len(bucket_indices) - 1)
                        for i, indices in enumerate(bucket_indices)]
        self.place = {k: (b, n) for b in self.buckets for n, k in enumerate(b.indices)}

    # ---- what DDP calls ----

    def set_logger(self, logger):
        pass

    def prepare_for_forward(self):
        pass

    def _set_static_graph(self):
        self.static = True

    def _remove_autograd_hooks(self):
        for handle in self.handles:
            handle.remove()

    def _install_post_backward_futures(self, futures):
        if futures:
            raise _unknown("_install_post_backward_futures")

    def _check_reducer_finalized(self):
        pass

    def _set_ddp_runtime_logging_sample_rate(self, rate):
        pass

    def _rebuild_buckets(self):
        """Once, by the order in which gradients came."""
        if self.rebuilt or not self.order:
            return False
        found, _ = dist._compute_bucket_assignment_by_size([self.params[i] for i in self.order], self.caps, [], self.order)
        self.rebuilt = True
        for n in (len(self.params) + 1, len(found)):     # rank 0 tells the order
            host = torch.empty(n, dtype=torch.int32)
            there = torch.empty(n, dtype=torch.int32, device=self.params[0].device)
            there.copy_(host)
            dist.broadcast(there, dist.get_global_rank(self.group, 0), self.group)
            host.copy_(there)
        self._make_buckets(found)
        return True

    def prepare_for_backward(self, outputs):
        self.expects, self.next, self.used_work = True, 0, None
        for bucket in self.buckets:
            bucket.pending, bucket.future = len(bucket.indices), None
        self.unused = self._unreached(outputs) if self._searches() else []
        if self.left is not None:
            self.left = list(self.counts)

    def _searches(self):
        return self.find_unused and not self.static

    def _unreached(self, outputs):
        seen, waiting = set(), [t.grad_fn for t in outputs if t.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += [n for n, _ in node.next_functions if n is not None]
        return [i for i, node in enumerate(self.accumulators) if node not in seen]

    # ---- the backward pass ----

    @torch.no_grad()
    def _came(self, i):
        """The gradient of parameter i has been added up."""
        if not self.expects:
            return
        first = self.static and self.left is None
        if self._searches() or first:
            self.used.select(0, i).fill_(1)
        if first:                        # counted, and reduced at the end: _delay_all_reduce
            self.counts[i] += 1
            return
        unused, self.unused = self.unused, []
        for k in unused:
            self._ready(k)
        if self.static:
            self.left[i] -= 1
            if self.left[i]:
                return
        if not self.rebuilt and not self._searches():
            self.order.append(i)
        self._ready(i)

    @torch.no_grad()
    def _delay_all_reduce(self):
        """The end of the first step of a static graph."""
        self.left = list(self.counts)
        self._reduce_used()
        for i in range(len(self.params)):
            self._into_bucket(i)
        for bucket in self.buckets:
            self._reduce(bucket)
        self._finish()

    def _into_bucket(self, i):
        bucket, n = self.place[i]
        grad, view = self.params[i].grad, bucket.views[n]
        if grad is None:
            view.zero_()
        elif torch._C._is_alias_of(grad, view):
            if self.hook is None:
                view.div_(self.size)
        else:
            if self.hook is None:
                torch.mul(grad, 1.0 / self.size, out=view)
            else:
                view.copy_(grad)
            if self.as_views:
                self.params[i].grad = view
        return bucket

    def _ready(self, i):
        bucket = self._into_bucket(i)
        bucket.pending -= 1
        if bucket is not self.buckets[self.next] or bucket.pending:
            return
        while self.next < len(self.buckets) and self.buckets[self.next].pending == 0:
            self._reduce(self.buckets[self.next])
            self.next += 1
        if self.next == len(self.buckets):
            if self._searches():
                self._reduce_used()
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _reduce_used(self):
        """Which parameters any rank used."""
        self.used_there.copy_(self.used)
        self.used_work = dist.all_reduce(self.used_there, group=self.group, async_op=True)

    def _reduce(self, bucket):
        if self.hook is None:
            bucket.future = dist.all_reduce(bucket._buffer, group=self.group, async_op=True).get_future()
        else:
            bucket.future = self.hook(bucket)

    @torch.no_grad()
    def _finish(self):
        self.expects = False
        searched = self.used_work is not None
        unreached = [i for i, p in enumerate(self.params) if p.grad is None] if searched else []
        waited = False
        for bucket in self.buckets:
            result = bucket.future.wait()
            result = result[0] if isinstance(result, (list, tuple)) else result
            if self.hook is not None and not torch._C._is_alias_of(result, bucket._buffer):
                bucket._buffer.copy_(result)
            for i, view in zip(bucket.indices, bucket.views):
                p = self.params[i]
                if i in unreached:
                    if not waited:
                        self.used_work.wait()
                        self.used.copy_(self.used_there)
                        waited = True
                    continue             # no rank used it, as far as one rank knows
                if p.grad is None:
                    p.grad = torch.empty_like(p)
                if not torch._C._is_alias_of(p.grad, view):
                    p.grad.copy_(view)
        if self.used_work is not None:
            if not waited:
                self.used_work.wait()
            if self._searches():
                self.used.fill_(0)


class Logger:
    """Statistics of a job that does not run."""

    def __init__(self, reducer):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def _hook(reducer, state, hook):
    reducer.hook = lambda bucket: hook(state, bucket)


def _builtin_hook(reducer, kind):
    raise _unknown(f"hook {kind}")


def on_fakes(stack):
    """Until the stack is left, DDP takes this reducer."""
    for name, value in (("Reducer", Reducer), ("Logger", Logger), ("_register_comm_hook", _hook),
                        ("_register_builtin_comm_hook", _builtin_hook), ("_verify_params_across_processes", lambda *args: None)):
        if hasattr(dist, name):
            put(stack, dist, name, value)
