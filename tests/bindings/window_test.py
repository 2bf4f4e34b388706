"""Windows and the mutex, on every rank of a job: dunlin-run -n N python3 window_test.py"""

import time
import unittest

import dunlin
import numpy as np
from dunlin import graph

from told_files import ToldFiles


def setUpModule():
    dunlin.init()


class WindowTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()
        self.others = [rank for rank in range(self.size) if rank != self.rank]

    def make(self, x, **options):
        return dunlin.Window(x, self.others, self.others, **options)

    def test_deposits_and_updates(self):
        for dtype in ("float32", "float64"):
            x = np.full((4, 3), self.rank + 1, dtype)
            window = self.make(x, name="deposits")
            x[:] = 99  # was copied
            self.assertEqual((window.name, window.sources, window.destinations), ("deposits", self.others, self.others))
            self.assertEqual((window.tensor.shape, window.tensor.dtype, window.p), (x.shape, x.dtype, 1))
            for other in self.others:
                np.testing.assert_array_equal(window.buffer(other), window.tensor)
            dunlin.barrier()
            window.put(dict.fromkeys(self.others, 0.5))
            window.accumulate(dict.fromkeys(self.others, 0.25), self_weight=2)
            np.testing.assert_array_equal(window.tensor, np.full((4, 3), 2.0 * (self.rank + 1)))
            self.assertEqual(window.p, 2)
            window.flush()
            dunlin.barrier()
            self.assertEqual(window.versions(), dict.fromkeys(self.others, 2))
            for other in self.others:
                np.testing.assert_array_equal(window.buffer(other), np.full((4, 3), 0.75 * (other + 1), dtype))
                self.assertEqual(window.buffer_p(other), 0.75)
            everything = 0.75 * sum(other + 1 for other in self.others)
            out = np.empty((4, 3), dtype)
            self.assertIs(window.update(1, dict.fromkeys(self.others, 1), out=out), out)
            np.testing.assert_array_equal(out, np.full((4, 3), 2.0 * (self.rank + 1) + everything))
            self.assertEqual(window.p, 2)  # tensor and p stay
            self.assertEqual(window.versions(), dict.fromkeys(self.others, 0))
            dunlin.barrier()
            found = window.update()
            self.assertTrue(np.shares_memory(found, window.tensor))
            np.testing.assert_allclose(found, np.full((4, 3), (2.0 * (self.rank + 1) + everything) / self.size),
                                       rtol=1e-6)
            window.tensor[:] = 1
            window.p = 1
            window.update_then_collect()
            np.testing.assert_allclose(window.tensor, np.full((4, 3), 1 + everything))
            self.assertAlmostEqual(window.p, 1 + 0.75 * len(self.others))
            for other in self.others:
                self.assertFalse(window.buffer(other).any())
            window.free()
            with self.assertRaises(dunlin.ClosedError):
                window.put()

    def test_default_weights(self):
        window = dunlin.Window(np.array([self.rank + 1.0]), {other: 0.25 for other in self.others}, self.others)
        window.put()
        window.flush()
        dunlin.barrier()
        expected = 1 / self.size * (self.rank + 1) + 0.25 * sum(other + 1 for other in self.others)
        np.testing.assert_allclose(window.update(), [expected])
        window.free()

    def test_arrays_without_axes_or_elements(self):
        for shape in ((), (0,), (2, 0)):
            window = self.make(np.ones(shape), zero_init=True)
            window.accumulate()
            window.flush()
            dunlin.barrier()
            self.assertEqual(window.update_then_collect().shape, shape)
            self.assertEqual(window.p, self.size)
            np.testing.assert_array_equal(window.tensor, np.full(shape, float(self.size)))
            window.free()

    def test_gets(self):
        window = self.make(np.full(10000, self.rank + 1.0), zero_init=True)
        window.tensor[:] = 10 * (self.rank + 1)
        window.get({other: 0.5 for other in self.others})  # the tensors that the constructor has published
        for other in self.others:
            np.testing.assert_array_equal(window.buffer(other), np.full(10000, 0.5 * (other + 1)))
            self.assertEqual(window.buffer_p(other), 0.5)
        dunlin.barrier()
        window.publish()
        dunlin.barrier()
        window.get()
        for other in self.others:
            np.testing.assert_array_equal(window.buffer(other), np.full(10000, 10.0 * (other + 1)))
        self.assertEqual(window.versions(), dict.fromkeys(self.others, 2))
        window.free()

    def test_a_sleeping_rank_delays_no_other(self):
        """It sleeps outside of Dunlin, and owns the mutex, until all other ranks have finished everything.

        Each of these says so by a file. They need nothing of what the sleeper's background thread does, except for flush.
        """
        if self.size < 3:
            return
        window = self.make(np.ones(5000), name="sleeping", zero_init=True)
        mutex = dunlin.Mutex("the sleeper's", owner_rank=0)
        done = ToldFiles("sleeper", range(1, self.size))
        if self.rank == 0:
            done.clear()
        dunlin.barrier()
        if self.rank == 0:
            self.assertEqual(done.wait(), [], "these ranks were not done while the sleeper slept")
        else:
            for turn in range(100):
                window.put()
                window.accumulate()
                window.get([0])
                window.update(1, [other for other in self.others if other != 0])
                if turn % 5 == 0:
                    with mutex as has_died:
                        self.assertFalse(has_died)
            window.flush()
            done.tell(self.rank)
        dunlin.barrier()
        if self.rank == 0:
            self.assertEqual([window.versions()[other] for other in self.others], [200] * len(self.others))
        dunlin.barrier()
        window.free()
        mutex.free()

    def test_push_sum_with_random_sleeps(self):
        """The sum is kept, and all ranks find the average, on a directed graph with different degrees."""
        if self.size < 2:
            return
        made = graph.root_expander(self.size)
        out = made.out_neighbors(self.rank)
        random = np.random.default_rng(self.rank)
        initial = [np.random.default_rng(100 + rank).uniform(1, 2, 300) for rank in range(self.size)]
        window = dunlin.Window(initial[self.rank], made.in_neighbors(self.rank), out, name="push-sum", zero_init=True)
        share = 1 / (len(out) + 1)
        # Ranks that pass one another by mix nothing, so they meet often enough for any schedule.
        for _ in range(100):
            for _ in range(2):
                if random.random() < 0.3:
                    time.sleep(random.uniform(0, 0.002))
                window.accumulate(dict.fromkeys(out, share), share)
                window.update_then_collect()
            dunlin.barrier()
        window.flush()
        dunlin.barrier()
        window.update_then_collect()
        mass = dunlin.all_reduce(window.tensor.copy())
        np.testing.assert_allclose(mass, sum(initial), rtol=1e-12)
        self.assertAlmostEqual(float(dunlin.all_reduce(np.array(window.p))), self.size, delta=1e-12 * self.size)
        np.testing.assert_allclose(window.tensor / window.p, sum(initial) / self.size, rtol=1e-6)
        window.free()

    def test_mistakes_are_errors_on_all_ranks(self):
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "float32 or float64"):
            self.make(np.ones(3, "int32"))
        if self.size > 1:
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "neighbors don't match"):
                dunlin.Window(np.ones(3), self.others, self.others if self.rank else [])
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "arguments differ"):
                self.make(np.ones(3 + (self.rank == 0)))
            # Rank 0 doesn't get as far as making the window.
            with self.assertRaises(TypeError if self.rank == 0 else dunlin.InvalidArgumentError) as raised:
                self.make("no array" if self.rank == 0 else np.ones(3))
            if self.rank > 0:
                self.assertIn("failed at rank 0", str(raised.exception))
            with self.assertRaises(TypeError if self.rank == 0 else dunlin.InvalidArgumentError):
                dunlin.Window(np.ones(3), ["one"] if self.rank == 0 else self.others, self.others)
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.Mutex("homes", owner_rank=self.rank)
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.Mutex("home", owner_rank=self.size)
        window = self.make(np.ones(3))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "no out-neighbor"):
            window.put([self.rank])
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "no in-neighbor"):
            window.buffer(self.rank)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlaps"):
            window.update(out=window.tensor)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "out: 4 elements"):
            window.update(out=np.empty(4))
        window.free()

    def test_windows_that_are_no_longer_referred_to(self):
        """Windows stay valid, and so do views of a freed one."""
        tensor = self.make(np.ones(1000)).tensor
        other = self.make(np.ones(1000))
        view = other.tensor
        other.put()
        other.free()
        del other
        tensor += 1
        view += 2
        self.assertEqual((tensor.sum(), view.sum()), (2000, 3000))
        self.left = tensor

    def test_mutex(self):
        """A counter that is read and written under the mutex: in a window, by get and put."""
        if self.size < 2:
            return
        for home in (0, self.size - 1):
            mutex = dunlin.Mutex("counter", owner_rank=home)
            # Every rank has a copy of the counter in its tensor. The holder of the mutex writes all copies.
            window = self.make(np.zeros(1), name="counter", zero_init=True)
            dunlin.barrier()
            count = 40
            for _ in range(count):
                with mutex as has_died:
                    self.assertFalse(has_died)
                    newest = max(float(window.buffer(other)[0]) for other in self.others)
                    window.tensor[0] = max(newest, window.tensor[0]) + 1
                    window.put()
                    window.flush()
            dunlin.barrier()
            newest = max([window.tensor[0], *(window.buffer(other)[0] for other in self.others)])
            self.assertEqual(newest, count * self.size)
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "does not hold it"):
                mutex.unlock()
            window.free()
            mutex.free()
            with self.assertRaises(dunlin.ClosedError):
                mutex.lock()

    def test_a_lock_that_takes_too_long(self):
        if self.size < 2:
            return
        mutex = dunlin.Mutex("busy", owner_rank=1)
        if self.rank == 0:
            mutex.lock()
        dunlin.barrier()
        if self.rank != 0:
            with self.assertRaises(dunlin.DeadlineExceededError):
                mutex.lock(timeout=0.05)
        dunlin.barrier()
        if self.rank == 0:
            mutex.unlock()
        with mutex:
            pass
        mutex.free()


if __name__ == "__main__":
    unittest.main(verbosity=1)
