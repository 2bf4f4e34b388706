#!/usr/bin/env python3
"""Every program's --help is readable text, --version names the version, and wrong usage says where to look.

    help_test.py VERSION PROGRAM...
"""

import os
import re
import subprocess
import sys
import unittest

VERSION = ""
PROGRAMS = []


def run(*command):
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)


def commands_of(text):
    """The commands that a program's --help lists."""
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", listed.group(1), re.MULTILINE) if listed else []


class HelpTest(unittest.TestCase):
    def check_text(self, name, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertTrue(done.stdout.strip(), name)
        self.assertNotRegex(done.stdout, r"[^\n\x20-\x7e]", name)
        # What CLI11 says of its types and checks by itself.
        self.assertNotRegex(done.stdout, r"ENUM|TEXT|UINT|FLOAT|\bINT\b|value in|=\[|\[default|\{false\}|\{true\}", name)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, f"{name}: {line}")
            self.assertEqual(line, line.rstrip(), name)

    def test_help_is_readable(self):
        for program in PROGRAMS:
            name = os.path.basename(program)
            with self.subTest(name):
                done = run(program, "--help")
                self.check_text(name, done)
                for command in commands_of(done.stdout):
                    self.check_text(f"{name} {command}", run(program, command, "--help"))

    def test_programs_with_commands_list_them(self):
        names = {os.path.basename(program): program for program in PROGRAMS}
        for name in ("dunlin-perf", "dunlin-sim", "dunlin-schedule", "dunlin-consensus"):
            if name not in names and len(names) == 1:
                continue  # the soak's program, which is tested alone
            self.assertIn(name, names)
            commands = commands_of(run(names[name], "--help").stdout)
            self.assertGreater(len(commands), 3, name)
            wrong = run(names[name], "no-such-command")
            self.assertEqual(wrong.returncode, 2)
            for command in commands:
                self.assertIn(command, wrong.stderr)

    def test_version_is_the_librarys(self):
        for program in PROGRAMS:
            done = run(program, "--version")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, f"{os.path.basename(program)} {VERSION}\n")

    def program(self, name):
        for program in PROGRAMS:
            if os.path.basename(program) == name:
                return program
        self.skipTest(f"{name} is tested with the other programs")

    def test_empty_values_are_refused(self):
        """A variable of the shell that is not set is not taken for an option that is not given."""
        for name, *arguments in (("dunlin-run", "-n", "2", "--join", "", "true"),
                                 ("dunlin-svm", "--train", ""),
                                 ("dunlin-svm", "--generate", "--model", ""),
                                 ("dunlin-graph", "ring", "-n", "4", "--edges", ""),
                                 ("dunlin-perf", "tune", "--file", "")):
            done = run(self.program(name), *arguments)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("the value is empty", done.stderr)

    def test_json_lines_replace_no_other_file(self):
        done = run(self.program("dunlin-svm"), "--train", "rows", "--json-out", "rows")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--train", done.stderr)

    def test_standard_streams_may_be_closed(self):
        done = run("sh", "-c", '"$0" -n 2 sh -c "echo out; echo err >&2" >&- 2>&-', self.program("dunlin-run"))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        done = run("sh", "-c", '"$0" ring -n 4 >&-', self.program("dunlin-graph"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_output_that_can_not_be_written_is_an_error(self):
        done = run("sh", "-c", '"$0" -n 2 echo hi > /dev/full', self.program("dunlin-run"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)

    def test_want_of_memory_is_an_error(self):
        done = run("sh", "-c", 'ulimit -v 3000000; exec "$0" ring -n 100000000', self.program("dunlin-graph"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("not enough memory", done.stderr)

    def test_wrong_usage_says_where_to_look(self):
        for program in PROGRAMS:
            done = run(program, "--no-such-option")
            self.assertEqual(done.returncode, 2, program)
            self.assertIn("--help", done.stderr)
            self.assertNotRegex(done.stderr, r"[^\n\x20-\x7e]", program)


if __name__ == "__main__":
    VERSION = sys.argv.pop(1)
    PROGRAMS = sys.argv[1:]
    if not PROGRAMS:
        sys.exit("no programs are named")
    unittest.main(argv=sys.argv[:1], verbosity=2)  # which says why a test is skipped
