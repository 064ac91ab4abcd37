# SPDX-License-Identifier: Apache-2.0
"""_triton_kernels.py - attention on key lists and the selection that makes lists, in Triton.

A program of attention has BM queries of one group and walks the group's list, BN keys at a time. A list entry is a unit
of 1 << shift keys; slot n of a list is key n & (unit - 1) of entry n >> shift. Scores are multiplied by log2(e), lse is
natural.

    forward         o, lse; bytes of K and V for each flop: 1 / BM
    backward        dq; rows of dk and dv by atomic additions, or, ORDERED, to a workspace in list order
    sum_rows        ORDERED: the rows of each key added up in ascending order of the groups: the same bits on every run
    select          exactly K units of largest q . k for each group: ascending, ties to the lowest index, NaN below all

No kernel reads beside its lists, but `forward` and `backward` load key 0 in place of a slot that does not exist.
"""
import triton  # type: ignore[import-untyped,import-not-found]
import triton.language as tl  # type: ignore[import-untyped,import-not-found]

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _tile(BOUNDS, OFFSETS, tiles, n_q, list0, BM: tl.constexpr):
    """(list, sample and head, rows, which of them exist, first entry, entries) of this program."""
    lst = list0 + tl.program_id(0).to(tl.int64) // tiles
    group = lst % n_q
    rows = tl.load(BOUNDS + group) + (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    live = rows < tl.load(BOUNDS + group + 1)
    first = tl.load(OFFSETS + lst)
    return lst, lst // n_q, rows, live, first, (tl.load(OFFSETS + lst + 1) - first).to(tl.int32)


@triton.jit
def _keys(INDICES, first, slot, slots, shift, tokens_k):
    """(keys of these slots of a list, which of them exist)."""
    inside = slot < slots
    unit = tl.load(INDICES + first + (slot >> shift), mask=inside, other=0)
    key = (unit << shift) + (slot & ((1 << shift) - 1))
    exists = inside & (key < tokens_k)
    return tl.where(exists, key, 0).to(tl.int64), exists


@triton.jit
def _dot_rows(a, b):
    """a b^T. fp32, which only the interpreter runs, is summed in double: what cancels later would keep the error of a
    sum of D products."""
    if a.dtype == tl.float32:
        return tl.dot(a.to(tl.float64), tl.trans(b).to(tl.float64), out_dtype=tl.float64).to(tl.float32)
    else:
        return tl.dot(a, tl.trans(b), input_precision="ieee")


@triton.jit
def forward(Q, K, V, O, LSE, BOUNDS, OFFSETS, INDICES, heads, tokens_q, tokens_k, n_q, tiles, shift, scale2,
            qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os,
            D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    lst, bh, rows, live, first, count = _tile(BOUNDS, OFFSETS, tiles, n_q, 0, BM)
    b, h = bh // heads, bh % heads
    slots = count << shift
    d = tl.arange(0, D)
    q = tl.load(Q + b * qb + h * qh + rows.to(tl.int64)[:, None] * qs + d[None, :], mask=live[:, None], other=0.0)
    K += b * kb + h * kh
    V += b * vb + h * vh
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    n = tl.arange(0, BN)
    for start in range(0, slots, BN):
        key, ok = _keys(INDICES, first, start + n, slots, shift, tokens_k)
        k = tl.load(K + key[:, None] * ks + d[None, :], mask=ok[:, None], other=0.0)
        s = _dot_rows(q, k) * scale2
        s = tl.where(ok[None, :], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        base = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(V + key[:, None] * vs + d[None, :], mask=ok[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new
    none = total == 0.0
    o = acc / tl.where(none, 1.0, total)[:, None]
    lse = tl.where(none, float("-inf"), (top + tl.log2(total)) * LN_2)
    tl.store(O + b * ob + h * oh + rows.to(tl.int64)[:, None] * os + d[None, :], o.to(O.dtype.element_ty),
             mask=live[:, None])
    tl.store(LSE + bh * tokens_q + rows, lse, mask=live)


@triton.jit(do_not_specialize=["list0", "entry0"])
def backward(Q, K, V, O, DO, LSE, DLSE, DQ, DK, DV, BOUNDS, OFFSETS, INDICES, heads, tokens_q, tokens_k, n_q, tiles,
             shift, scale, list0, entry0, qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os, db, dh, ds,
             D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ORDERED: tl.constexpr):
    """DK and DV: gradients (batch, heads, keys, D) to add to, or ORDERED the rows of the workspace: row
    ((entry - entry0) tiles + tile) << shift | key of the unit. dq is (batch, heads, queries, D)."""
    lst, bh, rows, live, first, count = _tile(BOUNDS, OFFSETS, tiles, n_q, list0, BM)
    b, h = bh // heads, bh % heads
    slots = count << shift
    d = tl.arange(0, D)
    wide = rows.to(tl.int64)[:, None]
    q = tl.load(Q + b * qb + h * qh + wide * qs + d[None, :], mask=live[:, None], other=0.0)
    do = tl.load(DO + b * db + h * dh + wide * ds + d[None, :], mask=live[:, None], other=0.0)
    o = tl.load(O + b * ob + h * oh + wide * os + d[None, :], mask=live[:, None], other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    delta -= tl.load(DLSE + bh * tokens_q + rows, mask=live, other=0.0)
    lse = tl.load(LSE + bh * tokens_q + rows, mask=live, other=float("-inf"))
    lse = tl.where(lse == float("-inf"), 1e30, lse)
    K += b * kb + h * kh
    V += b * vb + h * vh
    acc = tl.zeros([BM, D], tl.float32)
    n = tl.arange(0, BN)
    for start in range(0, slots, BN):
        slot = start + n
        key, ok = _keys(INDICES, first, slot, slots, shift, tokens_k)
        k = tl.load(K + key[:, None] * ks + d[None, :], mask=ok[:, None], other=0.0)
        v = tl.load(V + key[:, None] * vs + d[None, :], mask=ok[:, None], other=0.0)
        # The difference first: it is small where p is large, and so is its error.
        p = tl.exp2((_dot_rows(q, k) * scale - lse[:, None]) * LOG2_E)
        p = tl.where(ok[None, :], p, 0.0)
        grad = p * (_dot_rows(do, v) - delta[:, None])
        grad = tl.where(ok[None, :], grad, 0.0)
        p, grad = p.to(do.dtype), grad.to(do.dtype)
        dv = tl.dot(tl.trans(p), do, input_precision="ieee")
        dk = tl.dot(tl.trans(grad), q, input_precision="ieee") * scale
        if ORDERED:
            entry = first - entry0 + (slot >> shift)
            row = ((entry * tiles + tl.program_id(0) % tiles) << shift) + (slot & ((1 << shift) - 1))
            at = row[:, None] * D + d[None, :]
            tl.store(DV + at, dv, mask=ok[:, None])
            tl.store(DK + at, dk, mask=ok[:, None])
        else:
            at = (bh * tokens_k + key)[:, None] * D + d[None, :]
            tl.atomic_add(DV + at, dv, mask=ok[:, None], sem="relaxed")
            tl.atomic_add(DK + at, dk, mask=ok[:, None], sem="relaxed")
        acc = tl.dot(grad, k, acc, input_precision="ieee")
    tl.store(DQ + (bh * tokens_q + wide) * D + d[None, :], acc * scale, mask=live[:, None])


@triton.jit(do_not_specialize=["entry0", "entry1"])
def sum_rows(ROW_DK, ROW_DV, DK, DV, FIRST, PLACE, tokens_k, n_k, tiles, shift, entry0, entry1, blocks,
             D: tl.constexpr, BK: tl.constexpr):
    """Adds the rows of entries entry0 .. entry1 - 1 to the gradients of BK keys: of each unit in the order of PLACE,
    the entries PLACE[FIRST[unit]] .. of that unit, ascending."""
    bh = tl.program_id(0).to(tl.int64) // blocks
    key = (tl.program_id(0) % blocks) * BK + tl.arange(0, BK)
    live = key < tokens_k
    unit = tl.where(live, key >> shift, 0)
    begin = tl.load(FIRST + bh * n_k + unit)
    count = tl.where(live, tl.load(FIRST + bh * n_k + unit + 1) - begin, 0)
    d = tl.arange(0, D)
    at = (bh * tokens_k + key)[:, None] * D + d[None, :]
    dk = tl.load(DK + at, mask=live[:, None], other=0.0)
    dv = tl.load(DV + at, mask=live[:, None], other=0.0)
    for i in range(0, tl.max(count, 0)):
        entry = tl.load(PLACE + begin + i, mask=i < count, other=-1)
        here = (entry >= entry0) & (entry < entry1)
        for tile in range(0, tiles):
            row = (((entry - entry0) * tiles + tile) << shift) + (key & ((1 << shift) - 1))
            from_row = tl.where(here, row, 0)[:, None] * D + d[None, :]
            dk += tl.load(ROW_DK + from_row, mask=here[:, None], other=0.0)
            dv += tl.load(ROW_DV + from_row, mask=here[:, None], other=0.0)
    tl.store(DK + at, dk, mask=live[:, None])
    tl.store(DV + at, dv, mask=live[:, None])


@triton.jit
def select(Q, K, KEEP, OFFSETS, INDICES, heads, n_q, n_k, rank, qb, qh, qs, kb, kh, ks, blocks,
           R: tl.constexpr, BN: tl.constexpr):
    """16 groups of a head. Scores as ordered integers of 32 bits: passes 0 to 7 find the K-th one digit of 4 bits at a
    time, by counts of the digits of those that have the digits found so far; pass 8 writes. Each pass computes the
    scores again, by the same instructions, so to the same bits. BN is at most 128: counts of a block are bytes of an
    integer."""
    bh = tl.program_id(0).to(tl.int64) // blocks
    b, h = bh // heads, bh % heads
    group = (tl.program_id(0) % blocks) * 16 + tl.arange(0, 16)
    live = group < n_q
    r = tl.arange(0, R)
    n = tl.arange(0, BN)
    digits = tl.arange(0, 8)
    q = tl.load(Q + b * qb + h * qh + group.to(tl.int64)[:, None] * qs + r[None, :],
                mask=live[:, None] & (r < rank)[None, :], other=0.0)
    K += b * kb + h * kh
    keep = tl.zeros([16], tl.int32) + tl.load(KEEP + bh)
    out = tl.load(OFFSETS + bh * n_q + group, mask=live, other=0)
    wanted = keep                                   # of those that have the digits found so far
    found = tl.zeros([16], tl.uint32)               # these digits
    written = tl.zeros([16], tl.int32)
    equals = tl.zeros([16], tl.int32)               # written, and seen, of those that are equal to the K-th
    for step in range(0, 9):
        at = 28 - 4 * tl.minimum(step, 7)
        low = tl.zeros([16, 8], tl.int32)           # counts of digits 0..7, and 8..15
        high = tl.zeros([16, 8], tl.int32)
        for start in range(0, n_k, BN):
            unit = start + n
            exists = unit < n_k
            k = tl.load(K + unit.to(tl.int64)[:, None] * ks + r[None, :], mask=exists[:, None] & (r < rank)[None, :],
                        other=0.0)
            s = tl.dot(q, tl.trans(k), input_precision="ieee")
            s = tl.where(s == 0.0, 0.0, s)          # -0 is 0
            bits = s.to(tl.uint32, bitcast=True)
            code = tl.where((bits >> 31) != 0, ~bits, bits | 0x80000000)
            code = tl.where(tl.abs(s) < float("inf"), code, 0)  # NaN and infinities are below all
            if step < 8:
                # Shifts by 32 are not defined: the digits found lie above the present one, shifted twice.
                same = exists[None, :] & (((code >> at) >> 4) == found[:, None])
                digit = ((code >> at) & 15).to(tl.int64)
                one = tl.where(same, 1, 0).to(tl.int64) << (8 * (digit & 7))
                below = tl.sum(tl.where(digit < 8, one, 0), 1)
                above = tl.sum(tl.where(digit < 8, 0, one), 1)
                low += ((below[:, None] >> (8 * digits).to(tl.int64)[None, :]) & 255).to(tl.int32)
                high += ((above[:, None] >> (8 * digits).to(tl.int64)[None, :]) & 255).to(tl.int32)
            else:
                equal = exists[None, :] & (code == found[:, None])
                number = tl.cumsum(equal.to(tl.int32), 1) + equals[:, None]
                among = (code > found[:, None]) | (equal & (number <= wanted[:, None]))
                chosen = exists[None, :] & (keep > 0)[:, None] & among
                place = tl.cumsum(chosen.to(tl.int32), 1) + written[:, None] - 1
                tl.store(INDICES + out[:, None] + place, tl.zeros([16, BN], tl.int32) + unit[None, :],
                         mask=chosen & live[:, None])
                written += tl.sum(chosen.to(tl.int32), 1)
                equals += tl.sum(equal.to(tl.int32), 1)
        if step < 8:
            # The digit of the K-th: the largest of which, with all above it, there are as many as are wanted.
            more = tl.sum(high, 1)
            high_up = more[:, None] - tl.cumsum(high, 1)           # with a larger digit
            low_up = (more + tl.sum(low, 1))[:, None] - tl.cumsum(low, 1)
            is_high = (high_up < wanted[:, None]) & (high_up + high >= wanted[:, None])
            is_low = (low_up < wanted[:, None]) & (low_up + low >= wanted[:, None])
            digit = tl.sum(tl.where(is_high, digits[None, :] + 8, 0) + tl.where(is_low, digits[None, :], 0), 1)
            wanted -= tl.sum(tl.where(is_high, high_up, 0) + tl.where(is_low, low_up, 0), 1)
            found = (found << 4) | digit.to(tl.uint32)
