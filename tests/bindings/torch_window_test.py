"""dunlin.torch's windows, mutexes and timeline: dunlin-run -n N python3 torch_window_test.py"""

import json
import os
import tempfile
import threading
import time
import unittest

import torch

import dunlin
import dunlin.torch as bf

from told_files import ToldFiles

torch.set_num_threads(1)
FOLDER = tempfile.TemporaryDirectory()
TIMELINE = os.path.join(FOLDER.name, "timeline ")


def setUpModule():
    with bf.env.env(BLUEFOG_TIMELINE=TIMELINE):
        bf.init()


def filled(value, dtype=torch.float64):
    return torch.full((5, 4), float(value), dtype=dtype)


class Windows(unittest.TestCase):
    def setUp(self):
        self.assertTrue(bf.set_topology(bf.ExponentialGraph(bf.size())))
        self.sources, self.destinations = bf.in_neighbor_ranks(), bf.out_neighbor_ranks()

    def tearDown(self):
        self.assertTrue(bf.win_free())

    def assert_all(self, tensor, value):
        self.assertTrue(torch.allclose(tensor.double(), filled(value), rtol=1e-6, atol=1e-12), f"{tensor[0, 0]} for {value}")

    def average(self):
        return sum([bf.rank(), *self.sources]) / (len(self.sources) + 1)

    def test_create_update_free(self):
        for dtype in (torch.float32, torch.float64):
            tensor = filled(bf.rank(), dtype)
            self.assertTrue(bf.win_create(tensor, str(dtype)))
            self.assertFalse(bf.win_create(tensor, str(dtype)))
            # The buffers hold this rank's tensor.
            self.assertIs(bf.win_update(str(dtype)), tensor)
            self.assert_all(tensor, bf.rank())
        self.assertEqual(bf.get_current_created_window_names(), ["torch.float32", "torch.float64"])
        self.assertTrue(bf.win_free("torch.float32"))
        self.assertFalse(bf.win_free("torch.float32"))
        self.assertEqual(bf.get_current_created_window_names(), ["torch.float64"])
        with self.assertRaises(ValueError):
            bf.win_update("torch.float32")
        with self.assertRaises(ValueError):
            bf.win_create(torch.ones(2, dtype=torch.int32), "integers")
        # The neighbors of a window don't change.
        if bf.size() > 3:
            self.assertFalse(bf.set_topology(bf.RingGraph(bf.size())))
            self.assertTrue(bf.IsTopologyEquivalent(bf.load_topology(), bf.ExponentialGraph(bf.size())))

    def test_the_tensor_is_the_programs(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x")
        tensor.mul_(2)
        expected = (2 * bf.rank() + len(self.sources) * bf.rank()) / (len(self.sources) + 1)
        self.assert_all(bf.win_update("x", clone=True), expected)
        self.assert_all(tensor, 2 * bf.rank())
        self.assert_all(bf.win_update("x"), expected)
        self.assert_all(tensor, expected)

    def test_put(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x")
        self.assertEqual(bf.get_win_version("x"), dict.fromkeys(self.sources, 0))
        bf.barrier()
        self.assertTrue(bf.win_put(tensor, "x", require_mutex=True))
        bf.barrier()
        self.assertEqual(bf.get_win_version("x"), dict.fromkeys(self.sources, 1))
        self.assert_all(bf.win_update("x", require_mutex=True), self.average())
        self.assertEqual(bf.get_win_version("x"), dict.fromkeys(self.sources, 0))

    def test_put_and_accumulate_with_weights(self):
        if bf.size() < 2:
            return  # it needs neighbors
        after, before = (bf.rank() + 1) % bf.size(), (bf.rank() - 1) % bf.size()
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x", zero_init=True)
        handle = bf.neighbor_win_put_nonblocking(tensor, "x", self_weight=0.5, dst_weights={after: 1.25})
        self.assert_all(tensor, bf.rank() / 2)
        self.assertTrue(bf.win_poll(handle) and bf.win_wait(handle))
        bf.barrier()
        # A deposit of half the current tensor.
        bf.neighbor_win_accumulate(tensor, "x", dst_weights={after: 1.0})
        bf.barrier()
        self.assert_all(bf.win_update("x", self_weight=1.0, neighbor_weights={before: 2.0}), bf.rank() / 2 + 3.5 * before)
        with self.assertRaises(ValueError):
            bf.win_put(tensor, "x", dst_weights={bf.rank(): 1.0})
        with self.assertRaises(ValueError):
            bf.win_update("x", self_weight=1.0)
        with self.assertRaises(ValueError):
            bf.win_put(torch.ones(3), "x")
        with self.assertRaises(ValueError):
            bf.win_wait(10**9)

    def test_get(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x")
        bf.barrier()
        self.assertTrue(bf.neighbor_win_get("x"))
        self.assertEqual(bf.get_win_version("x"), dict.fromkeys(self.sources, 1))
        self.assert_all(bf.win_update("x", clone=True), self.average())
        if bf.size() > 1:
            before = (bf.rank() - 1) % bf.size()
            bf.barrier()
            bf.win_wait(bf.neighbor_win_get_nonblocking("x", src_weights={before: 1.23}, require_mutex=True))
            bf.barrier()
            self.assert_all(bf.win_update("x", 0.5, {before: 0.5}), (bf.rank() + 1.23 * before) / 2)

    def test_collect_empties_the_buffers(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x")
        for _ in range(2):
            self.assert_all(bf.win_update_then_collect("x"), bf.rank() * (len(self.sources) + 1))

    def test_p_goes_as_the_tensor(self):
        random = torch.Generator().manual_seed(bf.rank())
        tensor = filled(1)
        bf.turn_on_win_ops_with_associated_p()
        bf.win_create(tensor, "x", zero_init=True)
        for _ in range(10):
            shares = torch.rand(len(self.destinations) + 1, generator=random, dtype=torch.float64)
            shares = (shares / shares.sum()).tolist()
            weights = dict(zip(self.destinations, shares))
            bf.neighbor_win_put(tensor, "x", shares[-1], weights, require_mutex=True)
            bf.win_update("x", require_mutex=True)
            bf.win_accumulate(tensor, "x", shares[-1], weights, require_mutex=True)
            bf.win_update_then_collect("x")
        bf.barrier()
        bf.win_update_then_collect("x")
        self.assert_all(tensor, bf.win_associated_p("x"))
        bf.turn_off_win_ops_with_associated_p()

    def test_p_of_a_buffer_is_zero_at_first(self):
        if bf.size() < 3:
            return  # it needs three ranks
        bf.set_topology(bf.RingGraph(bf.size()))
        for sender in range(bf.size()):
            name = f"x {sender}"
            bf.win_create(filled(bf.rank()), name)
            left, right = (sender - 1) % bf.size(), (sender + 1) % bf.size()
            if bf.rank() == sender:
                bf.win_wait(bf.neighbor_win_accumulate_nonblocking(filled(bf.rank()), name, 0.5, {left: 0.5, right: 0.5}))
            bf.barrier()
            bf.win_update_then_collect(name)
            self.assertEqual(bf.win_associated_p(name), {sender: 0.5, left: 1.5, right: 1.5}.get(bf.rank(), 1.0))

    def test_push_sum(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x", zero_init=True)
        share = 1 / (len(self.destinations) + 1)
        random = torch.Generator().manual_seed(bf.rank())
        # Ranks that pass one another by mix nothing, so they meet often enough for any schedule.
        for _ in range(25):
            for _ in range(4):
                bf.win_accumulate(tensor, "x", share, dict.fromkeys(self.destinations, share))
                time.sleep(torch.rand(1, generator=random).item() * 0.002)
                bf.win_update_then_collect("x")
            bf.barrier()
        bf.win_update_then_collect("x")
        bf.barrier()
        self.assertTrue(torch.allclose(tensor / bf.win_associated_p("x"), filled((bf.size() - 1) / 2), rtol=1e-9))
        mass = bf.allreduce(torch.tensor([tensor[0, 0], bf.win_associated_p("x")]), average=False)
        self.assertTrue(torch.allclose(mass, torch.tensor([bf.size() * (bf.size() - 1) / 2, bf.size()], dtype=torch.float64),
                                       rtol=1e-12))

    def test_a_sleeping_rank_delays_no_other(self):
        tensor = filled(bf.rank())
        bf.win_create(tensor, "x")
        done = ToldFiles("torch_sleeper", range(1, bf.size()))
        if bf.rank() == 0:
            done.clear()
        bf.barrier()
        if bf.rank() == 0:
            self.assertEqual(done.wait(), [], "these ranks were not done while rank 0 slept")
        else:
            for _ in range(20):
                bf.win_put(tensor, "x")
                bf.win_accumulate(tensor, "x")
                bf.win_get("x")
                bf.win_update("x")
            done.tell(bf.rank())
        bf.barrier()


class Mutexes(unittest.TestCase):
    def test_own_one_keeps_the_neighbors_out(self):
        if bf.size() < 3:
            return  # it needs three ranks
        bf.set_topology(bf.FullyConnectedGraph(bf.size()))
        bf.win_create(filled(1), "x")
        entered = threading.Event()

        def enter():
            with bf.win_mutex("x"):
                entered.set()

        if bf.rank() == 0:
            with bf.win_mutex("x", for_self=True):
                bf.barrier()
                bf.barrier()  # rank 2 has been in that of rank 1
                bf.barrier()
        else:
            bf.barrier()
            if bf.rank() == 2:
                with bf.win_mutex("x", ranks=[1]):
                    pass
            thread = threading.Thread(target=enter)
            thread.start()
            bf.barrier()
            time.sleep(0.3)  # in which the thread would get in
            self.assertFalse(entered.is_set())
            bf.barrier()
            thread.join()
            self.assertTrue(entered.is_set())
            # The put doesn't wait for the mutex, because this rank has it already.
            with bf.win_mutex("x"):
                bf.win_put(filled(2), "x", require_mutex=True)
        bf.barrier()
        bf.win_free()


    def make(self, topology):
        """A window with the topology's neighbors."""
        self.assertTrue(bf.set_topology(topology))
        self.assertTrue(bf.win_create(filled(1), "x"))
        self.addCleanup(bf.win_free)

    def exclude(self, passes, waits):
        """Rank 0 holds its own mutex of rank 1. Rank 1 has to wait for it, and rank 2 gets in meanwhile."""
        if bf.size() < 3:
            return  # it needs three ranks
        self.make(bf.RingGraph(bf.size(), 2))
        entered = threading.Event()

        def enter():
            with waits():
                entered.set()

        if bf.rank() == 0:
            with bf.win_mutex("x", for_self=True, ranks=[1]):
                bf.barrier()
                bf.barrier()  # rank 2 has been in
                bf.barrier()
        else:
            bf.barrier()
            thread = threading.Thread(target=enter)
            if bf.rank() == 1:
                thread.start()
            if bf.rank() == 2:
                with passes():
                    pass
            bf.barrier()
            time.sleep(0.3)  # in which the thread would get in
            self.assertFalse(entered.is_set())
            bf.barrier()
            if bf.rank() == 1:
                thread.join()
                self.assertTrue(entered.is_set())
        bf.barrier()

    def test_own_one_of_given_ranks_lets_the_others_in(self):
        # Rank 0 is no out-neighbor of rank 1 in this ring, and any rank may be given.
        self.exclude(lambda: bf.win_mutex("x", ranks=[0]), lambda: bf.win_mutex("x", ranks=[0]))

    def test_own_one_of_given_ranks_excludes_them_among_others(self):
        everyone = range(bf.size())
        self.exclude(lambda: bf.win_mutex("x", ranks=[0]), lambda: bf.win_mutex("x", ranks=everyone))

    def test_ranks_that_there_are_not(self):
        self.make(bf.RingGraph(bf.size()))
        for bad in (-1, bf.size(), "0", True):
            with self.assertRaises(ValueError):
                with bf.win_mutex("x", ranks=[bad]):
                    pass
        # A rank doesn't exclude itself.
        for for_self in (False, True):
            with bf.win_mutex("x", for_self, [bf.rank()]):
                pass
        bf.barrier()

    def test_everybody_takes_all_of_them(self):
        """Opposite orders of ranks, and a put inside: nobody waits for ever."""
        self.make(bf.FullyConnectedGraph(bf.size()))
        ranks = list(range(bf.size()))
        for _ in range(20):
            with bf.win_mutex("x", ranks=ranks[::-1] if bf.rank() % 2 else ranks):
                bf.win_put(filled(1), "x", require_mutex=True)
            with bf.win_mutex("x", for_self=True):
                bf.win_update("x", require_mutex=True)
        bf.barrier()


class Layouts(unittest.TestCase):
    """Tensors that aren't contiguous."""

    def test_windows(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        self.addCleanup(bf.win_free)
        ordered = torch.arange(20, dtype=torch.float64).reshape(4, 5)
        tensor = (ordered + bf.rank()).t()
        average = sum([bf.rank(), *bf.in_neighbor_ranks()]) / (len(bf.in_neighbor_ranks()) + 1)
        bf.win_create(tensor, "x")
        bf.barrier()
        bf.win_put(tensor, "x")
        bf.barrier()
        self.assertTrue(torch.allclose(bf.win_update("x", clone=True), ordered.t() + average))
        self.assertIs(bf.win_update("x"), tensor)
        self.assertTrue(torch.allclose(tensor, ordered.t() + average))

    def test_another_view_of_the_memory_is_another_tensor(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        self.addCleanup(bf.win_free)
        tensor = torch.arange(16, dtype=torch.float64).reshape(4, 4)
        bf.win_create(tensor, "x", zero_init=True)
        bf.barrier()
        bf.win_put(tensor.t(), "x")
        bf.barrier()
        # Gets read the window's tensor, not the one that was put.
        bf.win_get("x")
        self.assertTrue(torch.equal(bf.win_update("x"), tensor))


class Timelines(unittest.TestCase):
    def events(self):
        with open(f"{TIMELINE}{bf.rank()}.json", encoding="utf-8") as file:
            return json.loads(file.read().rstrip().rstrip(",") + "]")

    def test_operations(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        bf.neighbor_allreduce(filled(1), name="some tensor")
        names = {event["name"] for event in self.events() if event.get("args", {}).get("tensor") == "some tensor" and "name" in event}
        self.assertEqual(names, {"ENQUEUE_NEIGHBOR_ALLREDUCE", "MPI_NEIGHBOR_ALLREDUCE"})

    def test_activities_of_threads(self):
        def act():
            with bf.timeline_context("threads", "ACT"):
                time.sleep(0.05)

        threads = [threading.Thread(target=act) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mine = [event for event in self.events() if event.get("args", {}).get("tensor") == "threads"]
        self.assertEqual(sorted(event["ph"] for event in mine), ["B", "B", "E", "E"])
        self.assertEqual(len({event["tid"] for event in mine}), 2)


if __name__ == "__main__":
    unittest.main()
