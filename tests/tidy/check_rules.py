#!/usr/bin/env python3
"""Checks the source tree, and the headers that it installs, against rules.py; prints "file:line: why" per violation,
exits 1 if any.

    check_rules.py ROOT
"""

import importlib.util
import pathlib
import sys

import rules
import source


def load_assemble(root):
    """The module bindings/cpp/assemble.py, which makes the installed headers."""
    spec = importlib.util.spec_from_file_location("assemble", root / "bindings" / "cpp" / "assemble.py")
    assemble = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(assemble)
    return assemble


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    found = list(rules.violations(source.read_tree(root), load_assemble(root).all_headers(root)))
    print("\n".join(found) if found else "no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
