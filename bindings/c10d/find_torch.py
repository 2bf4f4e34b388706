"""Prints where this interpreter's PyTorch is, for Meson: lines of NAME=VALUE. Exits with 1 and a reason if it can't be
used."""

import os
import sys

try:
    import torch
    import torch.distributed
except Exception as error:  # a broken installation raises anything
    sys.exit(f"no PyTorch: {error}")

package = os.path.dirname(os.path.abspath(torch.__file__))
if not torch.distributed.is_available():
    sys.exit("this PyTorch was built without torch.distributed")
if not torch._C._GLIBCXX_USE_CXX11_ABI:
    sys.exit("this PyTorch was built with the C++ library's old ABI (_GLIBCXX_USE_CXX11_ABI=0), which Dunlin's "
             "libraries don't have")
headers = os.path.join(package, "include")
if not os.path.exists(os.path.join(headers, "torch", "csrc", "distributed", "c10d", "Store.hpp")):
    sys.exit("this PyTorch has no headers (Debian: libtorch-dev)")
print(f"version={torch.__version__}")
# A folder that was given by PYTHONPATH: programs need it as well.
folder = os.path.dirname(package)
if folder in map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
    print(f"path={folder}")
print(f"headers={headers}")
print(f"libraries={os.path.join(package, 'lib')}")
# Extension modules see one another's classes only if these are the same.
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    value = getattr(torch._C, f"_PYBIND11_{name}", None)
    if value is not None:
        print(f"define=-DPYBIND11_{name}=\"{value}\"")
