"""dunlin.torch's averages of equal weights are rounded once, as rounding_test.py has it of NumPy's:

    dunlin-run -n 3 python3 torch_rounding_test.py
"""

import unittest

import torch

import dunlin.torch as bf

torch.set_num_threads(1)


def setUpModule():
    bf.init(topology_fn=bf.FullyConnectedGraph)


class RoundingTest(unittest.TestCase):
    def check(self, average):
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                values = [torch.randint(1, 1000, (2000,), generator=torch.Generator().manual_seed(rank)).to(dtype)
                          for rank in range(bf.size())]
                self.assertTrue(torch.equal(average(values[bf.rank()].clone()), sum(values) / bf.size()))

    def test_allreduce(self):
        self.check(bf.allreduce)
        self.check(bf.allreduce_)
        self.check(lambda x: bf.allreduce(x, is_hierarchical_local=True))

    def test_neighbor_allreduce(self):
        self.check(bf.neighbor_allreduce)
        third = 1 / bf.size()
        others = [rank for rank in range(bf.size()) if rank != bf.rank()]
        self.check(lambda x: bf.neighbor_allreduce(x, self_weight=third, src_weights=dict.fromkeys(others, third),
                                                   dst_weights=others))

    def test_windows(self):
        for transfer in (bf.win_put, bf.win_accumulate, None):
            def average(x, transfer=transfer):
                bf.win_create(x, "rounded", zero_init=True)
                bf.barrier()
                if transfer:
                    transfer(x, "rounded")
                else:
                    bf.win_get("rounded")
                bf.barrier()
                found = bf.win_update("rounded").clone()
                bf.barrier()
                bf.win_free("rounded")
                return found

            with self.subTest(transfer=transfer):
                self.check(average)


if __name__ == "__main__":
    unittest.main(verbosity=1)
