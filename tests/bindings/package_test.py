"""What a user of the installed package meets first: imports, help, versions. package_test.py VERSION"""

import inspect
import pydoc
import subprocess
import sys
import unittest

import dunlin

EXPECTED_VERSION = sys.argv.pop(1)

# Python programs, each run by an interpreter of its own.
WITHOUT_NETWORKX = """
import sys
sys.modules["networkx"] = None  # an import of it fails
import torch
import dunlin.torch as bf
bf.init()
bf.init()
assert bf.in_neighbor_ranks() == [] and not bf.is_topo_weighted()
assert (bf.neighbor_allreduce(torch.ones(3)) == 1).all()
assert bf.win_create(torch.ones(2), "window") and bf.set_topology() and bf.win_free()
try:
    bf.load_topology()
except ImportError as error:
    assert "networkx" in str(error), error
else:
    raise AssertionError("a graph without networkx")
try:
    bf.set_topology({0: [0]})
except TypeError as error:
    assert "networkx.DiGraph" in str(error), error
else:
    raise AssertionError("a dictionary as a graph")
bf.shutdown()
"""
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
try:
    import dunlin.torch
except ImportError as error:
    assert "dunlin.torch needs PyTorch" in str(error), error
else:
    raise AssertionError("dunlin.torch without PyTorch")
"""
WITHOUT_IPYPARALLEL = """
import contextlib, io, runpy, sys
sys.modules["ipyparallel"] = None
import dunlin.interactive
try:
    dunlin.interactive.connect()
except ImportError as error:
    assert "needs ipyparallel: install it by `python3 -m pip install ipyparallel`" in str(error), error
else:
    raise AssertionError("a notebook without ipyparallel")
sys.argv[1:] = ["start", "-n", "2"]
said = io.StringIO()
try:
    with contextlib.redirect_stderr(said):
        runpy.run_module("dunlin.interactive", run_name="__main__")
except SystemExit as end:
    assert end.code == 1 and said.getvalue().startswith("dunlin.interactive needs ipyparallel"), (end, said.getvalue())
"""
LEFT_OUT = """
from dunlin import _c10d_build
_c10d_build.TORCH_VERSION, _c10d_build.MISSING = "", "no PyTorch: REASON"
try:
    import dunlin.c10d
except ImportError as error:
    assert "REASON" in str(error) and "pip install --force-reinstall --no-deps ." in str(error), error
else:
    raise AssertionError("a backend that was not built")
"""
OTHER_TORCH = """
from dunlin import _c10d_build
_c10d_build.TORCH_VERSION = "1.2.3"
try:
    import dunlin.c10d
except ImportError as error:
    assert "1.2.3" in str(error), error
else:
    raise AssertionError("a backend for another PyTorch")
"""


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


class Package(unittest.TestCase):
    def run_program(self, text):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_help(self, module):
        shown = pydoc.plain(pydoc.render_doc(module))
        for name in module.__all__:
            if name == "__version__":
                continue
            self.assertTrue(name in shown, name)
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value) or inspect.ismodule(value):
                self.assertTrue(inspect.getdoc(value), name)

    def test_version(self):
        self.assertEqual(dunlin.__version__, EXPECTED_VERSION)

    def test_help(self):
        self.check_help(dunlin)
        self.check_help(dunlin.graph)

    @unittest.skipUnless(has_torch(), "PyTorch is not installed")
    def test_help_of_torch(self):
        import dunlin.torch

        self.check_help(dunlin.torch)
        public = {name for name in vars(dunlin.torch) if not name.startswith("_")}
        modules = {"optimizers"}  # a module that the package has imported
        self.assertEqual(set(dunlin.torch.__all__), public - modules)

    @unittest.skipUnless(has_torch(), "PyTorch is not installed")
    def test_torch_works_without_networkx(self):
        self.run_program(WITHOUT_NETWORKX)

    def test_absent_torch_is_named(self):
        self.run_program(WITHOUT_TORCH)

    def test_absent_ipyparallel_is_named(self):
        self.run_program(WITHOUT_IPYPARALLEL)

    def test_backend_that_was_not_built_says_what_to_do(self):
        self.run_program(LEFT_OUT)
        self.run_program(OTHER_TORCH)


if __name__ == "__main__":
    unittest.main(verbosity=2)
