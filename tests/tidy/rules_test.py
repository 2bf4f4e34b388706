#!/usr/bin/env python3
"""Each tidy rule fires on a bad snippet, with file and line, and leaves good ones alone."""

import pathlib
import tempfile
import unittest

import check_rules
import rules
import source

assemble = check_rules.load_assemble(pathlib.Path(__file__).resolve().parents[2])
HEADER = "#pragma once\n"


def violations(files):
    """What the rules say of a tree that consists of `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return list(rules.violations(source.read_tree(folder)))


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
        self.expect_one("apps/a.cc", '#include "bindings/a.h"\n', "downward")
        self.expect_one("bindings/a.cc", '#include "apps/a.h"\n', "downward")
        self.expect_one("collectives/a.cc", '#include "bindings/a.h"\n', "downward")
        self.expect_none("collectives/a.cc", '#include "runtime/a.h"\n#include "transports/a.h"\n')
        self.expect_none("tools/a.cc", '#include "apps/a.h"\n')

    def test_folders_of_a_floor_include_one_another_in_one_direction_only(self):
        one_way = {"collectives/a/x.h": HEADER + '#include "collectives/b/y.h"\n',
                   "collectives/b/y.h": HEADER + '#include "collectives/c/z.h"\n',
                   "collectives/b/y.cc": '#include "collectives/b/y.h"\n#include "runtime/a/x.h"\n'}
        self.assertEqual(violations(one_way), [])
        # A file beside the folders belongs to none of them.
        self.assertEqual(violations({**one_way, "collectives/all.cc": '#include "collectives/a/x.h"\n',
                                     "collectives/c/z.h": HEADER + '#include "collectives/all.h"\n'}), [])
        cycle = violations({**one_way, "collectives/c/z.cc": '\n#include "collectives/a/x.h"\n'})
        self.assertEqual(len(cycle), 3, cycle)
        self.assertIn("collectives/c/z.cc:2: folders include one another in a cycle: "
                      "collectives/c -> collectives/a -> collectives/b -> collectives/c", cycle)
        self.assertIn("collectives/a/x.h:2: folders include one another in a cycle: "
                      "collectives/a -> collectives/b -> collectives/c -> collectives/a", cycle)

    def test_backends_do_not_know_one_another(self):
        self.expect_one("transports/shm/a.cc", '#include "transports/ucx/lane.h"\n', "must not leave transports/ucx/")
        self.expect_one("transports/fabric.cc", '#include "transports/shm/lane.h"\n', "must not leave")
        self.expect_none("transports/shm/a.cc", '#include "transports/shm/lane.h"\n#include "transports/lane.h"\n')
        self.expect_none("transports/builtin.cc", '#include "transports/shm/transport.h"\n')
        self.expect_none("transports/a.cc", '#include "transports/channel/sender.h"\n')

    def test_foreign_headers_stay_in_their_place(self):
        self.expect_one("collectives/a.cc", "#include <ucp/api/ucp.h>\n", "transports/ucx/")
        self.expect_one("transports/ucx/a.cc", "#include <infiniband/verbs.h>\n", "transports/verbs/")
        self.expect_one("transports/shm/a.cc", "#include <cuda_runtime.h>\n", "collectives/kernels/gpu/")
        self.expect_one("runtime/a.cc", "#include <pmix.h>\n", "runtime/bootstrap/")
        self.expect_one("runtime/memory/a.cc", "#include <hwloc.h>\n", "runtime/topology")
        self.expect_none("transports/ucx/a.cc", "#include <ucp/api/ucp.h>\n")
        self.expect_one("tools/dunlin-info/host.cc", "#include <infiniband/verbs.h>\n", "transports/verbs/")
        self.expect_none("tools/dunlin-info/rdma_device.cc", "#include <infiniband/verbs.h>\n")
        self.expect_none("tests/support/fake_verbs.cc", "#include <infiniband/verbs.h>\n")
        self.expect_none("runtime/topology.cc", "#include <hwloc.h>\n")

    def test_environment_is_read_in_one_place(self):
        self.expect_one("apps/a.cc", 'int n = 60\'000;\nauto* p = std::getenv("X");\n', "apps/a.cc:2: getenv")
        self.expect_one("tools/a.cc", "for (char** e = environ; *e; ++e) {}\n", "environ")
        self.expect_none("runtime/config.cc", "char** e = environ;\n")
        self.expect_none("tests/a.cc", 'setenv("X", "", 1);\n')
        self.expect_none("apps/a.cc", '// getenv\n/* getenv\n environ */ auto s = "getenv"; Environment environment;\n')

    def test_files_are_written_in_one_place(self):
        self.expect_one("apps/a.cc", "\nstd::ofstream file(path);\n", "apps/a.cc:2: ofstream", "runtime/files")
        self.expect_one("tools/a.cc", "open(path, O_RDONLY | O_CREAT);\n", "O_CREAT")
        self.expect_none("runtime/files/a.cc", "open(path, O_WRONLY);\n")
        self.expect_none("tests/a.cc", "std::ofstream(path) << 1;\n")
        self.expect_none("runtime/a.cc", 'std::ifstream file("ofstream");\n')

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

    def test_installed_headers_are_a_closed_set(self):
        headers = {"a.h": "#include <vector>\n#include <dunlin/b.h>\n", "b.h": "#include <stdint.h>\n"}
        self.assertEqual(list(rules.installed_headers(headers)), [])
        self.assertEqual(list(rules.violations([], headers)), [])
        for line, why in (('#include "runtime/b.h"', 'includes "runtime/b.h", which is not installed'),
                          ("#include <dunlin/c.h>", "includes <dunlin/c.h>, which is not installed"),
                          ("#include <fmt/format.h>", "includes <fmt/format.h>, which is neither standard nor Dunlin's"),
                          ("#include <memory.h>", "includes <memory.h>, which is neither standard nor Dunlin's")):
            found = list(rules.violations([], {"a.h": HEADER + line + "\n"}))
            self.assertEqual(found, [f"<dunlin/a.h>:2: {why}"])


class AssembleTest(unittest.TestCase):
    """bindings/cpp/assemble.py, which makes the installed headers."""

    def assemble(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return assemble.all_headers(root)

    def test_internal_headers_become_a_part_of_public_ones(self):
        made = self.assemble({
            "bindings/cpp/dunlin/a.h": HEADER + '\n#include "runtime/a.h"\n\nusing A = int;\n',
            "bindings/cpp/dunlin/b.h": HEADER + '\n#include "runtime/b.h"\n',
            "runtime/a.h": "// About a.\n" + HEADER + '\n#include "runtime/b.h"\n\nint a();\n',
            "runtime/b.h": "// About b.\n" + HEADER + "\nint b();\n",
        })
        self.assertEqual(made["a.h"], "// About a.\n" + HEADER + "\n#include <dunlin/b.h>\n\nint a();\n\nusing A = int;\n")
        self.assertEqual(made["b.h"], "// About b.\n" + HEADER + "\nint b();\n")

    def test_an_internal_header_that_no_public_one_embeds_is_found(self):
        made = self.assemble({
            "bindings/cpp/dunlin/a.h": HEADER + '#include "runtime/a.h"\n',
            "runtime/a.h": HEADER + '#include "runtime/b.h"\n',
            "runtime/b.h": HEADER,
        })
        found = list(rules.installed_headers(made))
        self.assertEqual([why for _, _, why in found], ['includes "runtime/b.h", which is not installed'])


if __name__ == "__main__":
    unittest.main()
