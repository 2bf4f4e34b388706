"""Training with every wrapper of dunlin.torch and every feature of PyTorch: dunlin-run -n N python3 torch_training_test.py

All ranks have the same model and the same data, so that averages change nothing: a wrapper comes to the same parameters as
the optimizer that it wraps, with one rank bit by bit.
"""

import logging
import unittest

import torch

import dunlin.torch as bf
from torch_features import COMPILED, FEATURES, train
from torch_wrappers import alone, wrappers


def setUpModule():
    logging.disable(logging.WARNING)  # steps that do not overlap
    bf.init()
    bf.set_topology(bf.FullyConnectedGraph(bf.size()))


class Equal(unittest.TestCase):
    def compare(self, features):
        for feature in features:
            expected = {}
            for wrapper in wrappers():
                if not feature.fits(wrapper):
                    continue
                with self.subTest(wrapper=wrapper.name, feature=feature.name):
                    plain = alone(wrapper)
                    if plain not in expected:
                        expected[plain] = train(feature, plain)
                    found = train(feature, wrapper)
                    if found is not None:
                        self.check(found, expected[plain], wrapper)

    def check(self, found, expected, wrapper):
        for p, q in zip(found, expected, strict=True):
            if bf.size() == 1 and "quasi" not in wrapper.what:
                self.assertTrue(torch.equal(p, q), (p - q).abs().max())
            elif "lags" not in wrapper.what:
                digits = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[p.dtype]
                self.assertTrue(torch.allclose(p, q, rtol=digits, atol=digits), (p - q).abs().max())
            else:
                self.assertTrue(p.isfinite().all())

    def test_features(self):
        self.compare(FEATURES)

    @unittest.skipUnless(hasattr(torch, "compile"), "this PyTorch has no torch.compile()")
    def test_compiled(self):
        self.compare(COMPILED)


if __name__ == "__main__":
    unittest.main()
