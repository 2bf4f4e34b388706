#!/usr/bin/env python3
"""check_headers.py finds the header that does not compile by itself, and leaves out what isn't built."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import source
import standard_names

CHECK = pathlib.Path(__file__).with_name("check_headers.py")
FILES = {
    "runtime/status.cc": "",
    "runtime/good.h": "#pragma once\n#include <string>\nstd::string good();\n",
    "transports/ucx/lane.h": "#pragma once\n#include <no/such/library.h>\n",
    "transports/ucx/lane.cc": "",
}


class HeadersTest(unittest.TestCase):
    """A tree of which only runtime/status.cc is built."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.write(FILES)
        command = "c++ -std=c++20 -I.. -MD -MF x.d -o x.o -c ../runtime/status.cc"
        entry = {"directory": str(self.root / "build"), "command": command, "file": "../runtime/status.cc"}
        self.write({"build/compile_commands.json": json.dumps([entry])})

    def write(self, files):
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def check(self, expect, is_thorough="0"):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.root / "cache"), "TEST_THOROUGH": is_thorough}
        done = subprocess.run([sys.executable, CHECK, self.root, self.root / "build"], text=True,
                              capture_output=True, env=environment)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def test_good_headers_pass_and_unbuilt_ones_are_named(self):
        self.assertIn("not in this build: transports/ucx/lane.h", self.check(expect=0))

    def test_a_header_that_needs_another_is_found_every_time(self):
        self.write({"runtime/bad.h": "#pragma once\nstd::string bad();\n"})
        for _ in range(2):
            self.assertIn("runtime/bad.h:1: does not compile by itself", self.check(expect=1))

    def test_only_what_changed_is_compiled_again(self):
        self.write({"runtime/user.h": '#pragma once\n#include "runtime/good.h"\ninline auto a() { return good(); }\n'})
        self.assertIn(" 2 new or changed", self.check(expect=0))
        self.assertIn(" 0 new or changed", self.check(expect=0))
        self.write({"runtime/good.h": FILES["runtime/good.h"] + "\n// It says more now. /* \"\n"})
        self.assertIn(" 0 new or changed", self.check(expect=0))
        self.write({"runtime/good.h": "#pragma once\n"})
        self.assertIn("runtime/user.h:1: does not compile", self.check(expect=1))

    def test_a_source_shows_its_own_header(self):
        self.write({"runtime/status.cc": '#include "runtime/status.h"\n',
                    "runtime/status.h": '#pragma once\n#include "runtime/good.h"\nstd::string again(std::size_t);\n'})
        self.assertIn(" 0 of them shown by sources, 2 new", self.check(expect=0), "<cstddef> is missing")
        self.write({"runtime/status.h": '#pragma once\n#include <cstddef>\n#include "runtime/good.h"\n'
                                        "std::string again(std::size_t);\n"})
        self.assertIn(" 1 of them shown by sources, 0 new", self.check(expect=0))
        self.assertIn(" 0 of them shown by sources, 1 new", self.check(expect=0, is_thorough="1"))
        # A name that the table does not have.
        self.write({"runtime/status.h": "#pragma once\nstd::regex bad();\n"})
        self.assertIn("runtime/status.h:1: does not compile by itself", self.check(expect=1))
        # A name without std.
        self.write({"runtime/status.h": "#pragma once\ninline int bad() { return EINVAL; }\n"})
        self.assertIn("runtime/status.h:1: does not compile by itself", self.check(expect=1))

    def test_names_that_need_a_header(self):
        def has_all(text):
            self.write({"runtime/names.h": text})
            sources = {"runtime/names.h": source.Source(self.root, "runtime/names.h")}
            return standard_names.has_all(sources.get, "runtime/names.h")

        for text in ("pid_t a();", "int a = ::strlen(b);", "bool operator<=>(A, A);", "class A : ::testing::Test {};",
                     "nlohmann::json a;", "CLI::App a;", "std::regex a;", "std::vector<int> a;"):
            self.assertFalse(has_all(text), text)
        for text in ("int a = b.size_t;", "#include <vector>\nstd::vector<int> a;", "#include <compare>\nbool operator<=>(A, A);",
                     "int a; // std::string, as pid_t"):
            self.assertTrue(has_all(text), text)


if __name__ == "__main__":
    unittest.main()
