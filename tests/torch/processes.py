# SPDX-License-Identifier: Apache-2.0
"""processes.py - a function on several ranks of torch.distributed with gloo, one thread each."""
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _start(rank, ranks, work, arguments, path, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    try:
        results.put((rank, work(rank, ranks, *arguments), None))
    except Exception:
        results.put((rank, None, traceback.format_exc()))
        raise
    dist.barrier()
    dist.destroy_process_group()


def run(ranks, work, *arguments):
    """Runs work(rank, ranks, *arguments) in as many processes; returns a line with what rank 0 returned. A rank that fails ends all."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        results = context.SimpleQueue()
        processes = [context.Process(target=_start, args=(r, ranks, work, arguments, f"{folder}/store", results)) for r in range(ranks)]
        for process in processes:
            process.start()
        lines = {}
        for _ in processes:
            rank, line, error = results.get()
            if error:
                for process in processes:
                    process.kill()
                sys.exit(f"rank {rank} of {ranks}: {error}")
            lines[rank] = line
        for process in processes:
            process.join()
        return f"{ranks} processes: {lines[0]}"
