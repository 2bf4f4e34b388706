#!/usr/bin/env python3
"""Each tidy rule fires on a bad snippet, with file and line, and leaves good ones alone."""

import pathlib
import tempfile
import unittest

import rules
import source

HEADER = "#pragma once\n"


def violations(files, public=()):
    """What the rules say of a tree that consists of `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return list(rules.violations(source.read_tree(folder), set(public)))


class RulesTest(unittest.TestCase):
    def expect_one(self, path, text, *parts):
        found = violations({path: text})
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def expect_none(self, path, text):
        self.assertEqual(violations({path: text}), [])

    def test_includes_point_downward(self):
        self.expect_one("runtime/a.cc", '\n#include "transports/lane.h"\n', "runtime/a.cc:2: ", "downward")
        self.expect_one("collectives/a.cc", '#include "apps/a.h"\n', "downward")
        self.expect_one("apps/a.cc", '#include "tests/a.h"\n', "beside")
        self.expect_none("collectives/a.cc", '#include "runtime/a.h"\n#include "transports/a.h"\n')
        self.expect_none("tools/a.cc", '#include "apps/a.h"\n')

    def test_backends_do_not_know_one_another(self):
        self.expect_one("transports/shm/a.cc", '#include "transports/ucx/lane.h"\n', "must not leave transports/ucx/")
        self.expect_one("transports/fabric.cc", '#include "transports/shm/lane.h"\n', "must not leave")
        self.expect_none("transports/shm/a.cc", '#include "transports/shm/lane.h"\n#include "transports/lane.h"\n')
        self.expect_none("transports/builtin.cc", '#include "transports/shm/transport.h"\n')
        self.expect_none("transports/a.cc", '#include "transports/channel/sender.h"\n')

    def test_foreign_headers_stay_in_their_place(self):
        self.expect_one("collectives/a.cc", "#include <ucp/api/ucp.h>\n", "transports/ucx/")
        self.expect_one("transports/ucx/a.cc", "#include <infiniband/verbs.h>\n", "transports/verbs/")
        self.expect_one("transports/shm/a.cc", "#include <cuda_runtime.h>\n", "transports/cuda/")
        self.expect_one("runtime/a.cc", "#include <pmix.h>\n", "runtime/bootstrap/")
        self.expect_one("runtime/memory/a.cc", "#include <hwloc.h>\n", "runtime/topology")
        self.expect_none("transports/ucx/a.cc", "#include <ucp/api/ucp.h>\n")
        self.expect_one("tools/dunlin-info/host.cc", "#include <infiniband/verbs.h>\n", "transports/verbs/")
        self.expect_none("tools/dunlin-info/rdma_device.cc", "#include <infiniband/verbs.h>\n")
        self.expect_none("runtime/topology.cc", "#include <hwloc.h>\n")

    def test_environment_is_read_in_one_place(self):
        self.expect_one("apps/a.cc", 'int n = 60\'000;\nauto* p = std::getenv("X");\n', "apps/a.cc:2: getenv")
        self.expect_one("tools/a.cc", "for (char** e = environ; *e; ++e) {}\n", "environ")
        self.expect_none("runtime/config.cc", "char** e = environ;\n")
        self.expect_none("tests/a.cc", 'setenv("X", "", 1);\n')
        self.expect_none("apps/a.cc", '// getenv\n/* getenv\n environ */ auto s = "getenv"; Environment environment;\n')

    def test_volatile(self):
        self.expect_one("runtime/a.cc", "volatile int flag;\n", "std::atomic")
        self.expect_none("runtime/a.cc", 'asm volatile("" ::: "memory"); // volatile\n')

    def test_pragma_once(self):
        self.expect_one("runtime/a.h", "int a();\n", "runtime/a.h:1: ", "#pragma once")
        self.expect_none("runtime/a.h", "// A paragraph.\n" + HEADER)

    def test_unfinished_work(self):
        self.expect_one("runtime/a.cc", "int a;\n// TO" "DO: more\n", "runtime/a.cc:2: TO" "DO")
        self.expect_one("tools/README.md", "FIX" "ME\n", "FIX" "ME")

    def test_machine_paths(self):
        self.expect_one("tools/a.py", "open('/ho" "me/somebody/x')\n", "one machine only")
        self.expect_none("runtime/a.cc", 'open("/proc/self/maps"); // include/home/x\n')

    def test_length(self):
        self.expect_one("runtime/a.cc", "int a;\n" * rules.MAX_LINES, "stay under")
        self.expect_none("runtime/a.cc", "int a;\n" * (rules.MAX_LINES - 1))

    def test_public_headers_include_installed_ones_only(self):
        files = {"runtime/a.h": HEADER + '#include "runtime/b.h"\n', "runtime/b.h": HEADER}
        self.assertEqual(violations(files, ["runtime/a.h", "runtime/b.h"]), [])
        found = violations(files, ["runtime/a.h"])
        self.assertEqual(found, ["runtime/a.h:2: a public header includes runtime/b.h, which is not installed"])


if __name__ == "__main__":
    unittest.main()
