"""Averages of pairs (AD-PSGD), on every rank of a job: dunlin-run -n N python3 pairs_test.py"""

import unittest

import dunlin
import numpy as np
from collectives_test import Exported


def total(model):
    return dunlin.all_reduce(model.astype("float64"))


class PairTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()

    def test_averages_keep_the_sum(self):
        for graph in ("complete", "ring", "star"):
            with self.subTest(graph=graph):
                pairs = dunlin.PairAverage(1000, graph, seed=3, name="kept")
                self.assertEqual((pairs.name, pairs.count, pairs.graph), ("kept", 1000, graph))
                model = np.full((10, 100), self.rank + 1, np.float32)
                for number in range(30):
                    self.assertIs(pairs.average(model), model)
                    if number == 0:
                        dunlin.barrier()  # A rank declines until it has begun its first average.
                self.assertIs(pairs.leave(model), model)
                done = pairs.statistics()
                self.assertEqual(done["iterations"], 30)
                self.assertEqual(done["bytes_sent"] > 0, done["averages"] > 0)
                # An average has two ranks, each of which counts it.
                counts = dunlin.all_reduce(np.array([done["averages"]]))
                self.assertEqual(counts[0] % 2, 0)
                if self.size > 1:
                    self.assertGreater(counts[0], 0)
                np.testing.assert_allclose(total(model), self.size * (self.size + 1) / 2, rtol=1e-5)
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "'kept'.*has left"):
                    pairs.average(model)
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "has left"):
                    pairs.leave()

    def test_what_python_changes_is_added(self):
        """Neighbors average in between. No change is lost, and none counts twice."""
        pairs = dunlin.PairAverage(100)
        model = np.full(100, 64 * self.rank, np.float32)
        for step in range(20):
            pairs.average(model)
            model += step
        pairs.average(model)
        pairs.leave(model)
        np.testing.assert_allclose(total(model), 64 * sum(range(self.size)) + self.size * sum(range(20)), rtol=1e-5)

    def test_alone_it_keeps_the_bits(self):
        if self.size > 1:
            return
        pairs = dunlin.PairAverage(1000)
        generator = np.random.default_rng(1)
        model = generator.normal(size=1000).astype(np.float32)
        for _ in range(10):
            model += generator.normal(size=1000).astype(np.float32) * 1e-4
            before = model.copy()
            pairs.average(model)
            np.testing.assert_array_equal(model, before)

    def test_a_rank_that_computes_delays_no_other(self):
        """Rank 0 makes one average and no further call of it, until the others have made all of theirs."""
        pairs = dunlin.PairAverage(1000, "star")  # all others average with rank 0
        model = np.full(1000, self.rank, np.float32)
        pairs.average(model)
        dunlin.barrier()
        if self.rank > 0:
            for _ in range(50):
                pairs.average(model)
        dunlin.barrier()
        self.assertEqual(pairs.statistics()["iterations"], 1 if self.rank == 0 else 51)
        if self.rank == 0 and self.size > 1:
            # They have averaged with its model in the meantime, which the array doesn't show yet.
            self.assertGreater(pairs.statistics()["averages"], self.size - 1)
        pairs.leave(model)
        np.testing.assert_allclose(total(model), sum(range(self.size)), rtol=1e-5, atol=1e-5)

    def test_ranks_go_at_their_own_pace(self):
        pairs = dunlin.PairAverage(100)
        model = np.full(100, self.rank, np.float32)
        for _ in range(5 * (self.rank + 1)):
            pairs.average(model)
        pairs.leave(model)
        self.assertEqual(pairs.statistics()["iterations"], 5 * (self.rank + 1))
        np.testing.assert_allclose(total(model), sum(range(self.size)), rtol=1e-5, atol=1e-5)

    def test_started(self):
        pairs = dunlin.PairAverage(50_000)
        model = np.full(50_000, self.rank, np.float32)
        for _ in range(10):
            self.assertIs(pairs.start_average(model).wait(), model)
        exported = Exported(model)
        self.assertIs(pairs.average(exported), exported)
        self.assertIsNone(pairs.leave())

    def test_leaving_before_the_first_average(self):
        pairs = dunlin.PairAverage(10)
        model = np.full(10, self.rank, np.float32)
        if self.rank > 0:
            pairs.average(model)
        pairs.leave(model)
        if self.rank == 0:
            np.testing.assert_array_equal(model, 0)

    def test_wrong_arguments(self):
        wrong_ones = [{"count": 0}, {"count": "ten"}, {"count": -1}, {"graph": "no such graph"}, {"graph": 3},
                      {"seed": "early"}, {"graph": f"ring:{self.size + 1}"}]
        for wrong in wrong_ones:
            with self.assertRaises(dunlin.InvalidArgumentError, msg=str(wrong)):
                dunlin.PairAverage(**{"count": 10, **wrong})
        if self.size > 1:
            for differs in ({"count": 10 + self.rank}, {"seed": 1 + self.rank}, {"name": f"of rank {self.rank}"},
                            {"graph": "complete" if self.rank == 0 else "star"}):
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "making '.*', for ad-psgd failed at rank"):
                    dunlin.PairAverage(**{"count": 10, **differs})
            # One rank's mistake is an error on all ranks. The next calls match.
            for mistake in wrong_ones:
                with self.assertRaises(dunlin.InvalidArgumentError, msg=str(mistake)):
                    dunlin.PairAverage(**{"count": 10, **(mistake if self.rank == self.size - 1 else {})})
        pairs = dunlin.PairAverage(10)
        for model in (np.zeros(9, np.float32), np.zeros(10)):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "10 float32"):
                pairs.average(model)
        read_only = np.zeros(10, np.float32)
        read_only.flags.writeable = False
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "read-only"):
            pairs.average(read_only)
        self.assertEqual(pairs.statistics()["iterations"], 0)
        pairs.leave()


def setUpModule():
    dunlin.init()


if __name__ == "__main__":
    unittest.main(verbosity=1)
