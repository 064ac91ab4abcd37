# SPDX-License-Identifier: Apache-2.0
"""test_plan.py - plans from every source; exchange lists that carry attention over ranks; files; sentences; time."""
import os
import tempfile
import time
import unittest

import numpy as np
import tessera
from reference import dense_attention, draw, random_selection

WEIGHTS = np.random.default_rng(0).integers(1, 1000, 40)


class Plans(unittest.TestCase):
    def test_every_source_makes_a_plan(self):
        selection, mask, _ = random_selection(1, batch=1, seq_q=130, seq_k=130)
        density = mask.mean(axis=(2, 3))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "profile.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write("step,layer,head,density\n" + "".join(f"{s},0,{h},{0.1 * (h + s):.4f}\n" for s in (1, 2) for h in range(3)))
            sources = [(selection, {}), ([selection, selection], {}), (mask[0], {}), (mask, dict(tokens=None)),
                       (density[0], dict(tokens=130, block=16)), (WEIGHTS, {}), (np.stack([WEIGHTS, WEIGHTS]), {}),
                       (WEIGHTS.tolist(), dict(tokens=1000)), (WEIGHTS, dict(tokens=1000, block=10)), (path, {}), (path, dict(step=2))]
            for source, options in sources:
                for method in ("auto", "fractional"):
                    plan = tessera.plan(source, 3, method=method, **options)
                    self.assertEqual(plan.ranks, 3)
                    self.assertGreaterEqual(plan.imbalance(plan.layers - 1), 1.0)
                    self.assertGreater(plan.bytes(0), 0)
                    self.assertIn("strategy", plan.report())

    def test_pieces_compute_every_block_once(self):
        _, mask, _ = random_selection(2, batch=1)
        for method in ("fractional", "refined", "ring", "selective"):
            plan = tessera.plan(mask, 3, method=method)
            times = np.zeros(mask.shape[1:], int)
            for piece in plan.pieces(0):
                times[piece["head"], piece["q_begin"]:piece["q_end"], piece["k_begin"]:piece["k_end"]] += 1
            self.assertTrue((times == 1).all(), method)
            self.assertEqual(sum(len(plan.pieces(0, r)) for r in range(3)), len(plan.pieces(0)))

    def test_a_permutation_of_heads(self):
        plan = tessera.plan(WEIGHTS, 8, equal_heads=True, whole_heads=True)
        perm = plan.head_perm(0)
        self.assertEqual(sorted(perm.tolist()), list(range(40)))
        loads = WEIGHTS[perm].reshape(8, 5).sum(1)
        self.assertAlmostEqual(loads.max() * 8 / WEIGHTS.sum(), plan.imbalance(0), places=9)
        with self.assertRaisesRegex(ValueError, "no permutation of heads"):
            tessera.plan(WEIGHTS, 8, method="fractional").head_perm(0)

    def test_a_plan_goes_through_a_file(self):
        plan = tessera.plan(WEIGHTS, 8, method="fractional")
        self.assertEqual([c.chosen for c in plan.candidates(0)], [True])
        self.assertEqual(plan.candidates(0)[0].bytes, plan.bytes(0))
        self.assertTrue(plan.keep(WEIGHTS))
        self.assertFalse(plan.keep(WEIGHTS * np.arange(1, 41) ** 2))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan.save(path)
            back = tessera.Plan.load(path)
            np.testing.assert_array_equal(back.pieces(0), plan.pieces(0))
            self.assertEqual(back.bytes(0), plan.bytes(0))
            self.assertEqual(back.candidates(0), [])
            plan.report(os.path.join(folder, "plan.html"))
            self.assertGreater(os.path.getsize(os.path.join(folder, "plan.html")), 1000)

    def attend(self, plan, selection, q, k, v, bounds):
        """Attention by the exchange lists of all ranks, whose messages are copied here."""
        ranks, heads, dim = plan.ranks, q.shape[1], q.shape[3]
        xs = [plan.exchange(0, r, bounds) for r in range(ranks)]
        shards = [[a[0, :, bounds[r]:bounds[r + 1]].transpose(1, 0, 2).reshape(-1, dim) for r in range(ranks)] for a in (q, k, v)]

        def carry(name, sources, sizes):
            out = [np.full((size, dim), np.nan, np.float32) for size in sizes]
            for r, x in enumerate(xs):
                at = 0
                for p, peer in enumerate(xs):
                    send_index, _, send_rows, _ = peer.rows[name]
                    first, n = sum(send_rows[:r]), send_rows[r]
                    out[r][x.rows[name][1][at:at + n]] = sources[p][send_index[first:first + n]]
                    at += n
                self.assertEqual(at, len(x.rows[name][1]))
            return out
        packed_q = carry("Q", shards[0], [x.packed_q for x in xs])
        packed_k, packed_v = (carry("KV", s, [x.packed_k for x in xs]) for s in shards[1:])
        packed_o = []
        for r, x in enumerate(xs):
            self.assertEqual(x.ring.steps, 1)
            o = np.zeros_like(packed_q[r])
            for i, s in enumerate(x.slots):
                part = x.selection(selection, i)
                rows, keys = slice(s.q_place, s.q_place + s.q_rows), slice(s.k_place, s.k_place + s.k_rows)
                o[rows] = tessera.attention(*(a[None, None] for a in (packed_q[r][rows], packed_k[r][keys], packed_v[r][keys])), part)[0, 0]
            packed_o.append(o)
        back = carry("O", packed_o, [(bounds[r + 1] - bounds[r]) * heads for r in range(ranks)])
        return np.concatenate([b.reshape(-1, heads, dim) for b in back]).transpose(1, 0, 2)[None]

    def test_exchange_lists_carry_attention(self):
        for bounded in (False, True):
            selection, _, tokens = random_selection(3, batch=1, seq_q=130, seq_k=130, bounds=bounded)
            q, k, v = (draw(seed, 1, 3, 130, 16) for seed in (1, 2, 3))
            want = dense_attention(q, k, v, tokens)[0]
            for method in ("fractional", "refined", "selective"):
                plan = tessera.plan(selection, 3, method=method)
                for bounds in ([0, 44, 87, 130], [0, 0, 130, 130]):
                    np.testing.assert_allclose(self.attend(plan, selection, q, k, v, bounds), want, atol=2e-5)

    def test_parts_of_a_ring_hold_every_pair_once(self):
        selection, _, _ = random_selection(4, batch=1, seq_q=130, seq_k=130)
        plan = tessera.plan(selection, 3, method="ring")
        pairs = 0
        for rank in range(3):
            x = plan.exchange(0, rank, [0, 44, 87, 130])
            self.assertEqual(x.ring.steps, 3)
            pairs += sum(x.selection(selection, i, t).pairs for i in range(len(x.slots)) for t in range(3))
        self.assertEqual(pairs, selection.pairs)

    def test_wrong_arguments_are_refused_by_name(self):
        plan = tessera.plan(WEIGHTS, 8)
        calls = {
            "ranks is 0, must be 1": lambda: tessera.plan(WEIGHTS, 0),
            "did you mean ring": lambda: tessera.plan(WEIGHTS, 8, method="rign"),
            "head_dims is no option of plan": lambda: tessera.plan(WEIGHTS, 8, head_dims=3),
            "speeds has the shape": lambda: tessera.plan(WEIGHTS, 8, speeds=[1, 2]),
            "source has the shape": lambda: tessera.plan(np.ones((2, 2), bool), 8),
            "source is a list of <U1": lambda: tessera.plan(["a"], 8),
            "tokens and block": lambda: tessera.plan(np.ones((2, 4, 4), bool), 2, tokens=64),
            "bounds has 2 elements, must have 9": lambda: plan.exchange(0, 0, [0, 1]),
            "rank is 8, must be 0..7": lambda: plan.pieces(0, 8),
            "layer": lambda: plan.imbalance(3),
        }
        for sentence, call in calls.items():
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                call()

    @unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "the sanitizer is slow")
    def test_planning_is_quick(self):
        for method, bar in (("refined", 200e-6), ("fractional", 100e-6)):
            samples = []
            for _ in range(200):
                began = time.perf_counter()
                tessera.plan(WEIGHTS, 8, method=method)
                samples.append(time.perf_counter() - began)
            self.assertLessEqual(min(samples), bar, method)

    def test_noise_as_the_command_draws_it(self):
        numbers = tessera.random_normal(1, 2, 10)
        np.testing.assert_array_equal(tessera.random_normal(1, 2, 4, index=3), numbers[3:7])
