"""Runs a command whose lines begin with how far it is, and says so as it goes.

On a terminal the last line is rewritten in place; elsewhere a line is printed every ten seconds at most.
"""

import re
import subprocess
import sys
import threading
import time

INTERVAL = 10  # seconds
# ninja: "[12/345] Compiling ..."; meson test: " 12/345 name  OK  1.2s".
_STATUS = re.compile(r"^\[?\s*(\d+)/(\d+)\]?\s+(.*)")


class Ticker:
    """Prints "done of total, time" every INTERVAL, also while nothing is heard from the command."""

    def __init__(self, noun, out=sys.stdout, clock=time.monotonic):
        self._noun, self._out, self._clock = noun, out, clock
        self._began = self._printed = clock()
        self._done, self._total = 0, 0
        self._is_terminal = out.isatty()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        if self._is_terminal:
            self._out.write("\r\033[K")
            self._out.flush()

    def seen(self, done, total):
        self._done, self._total = done, total
        if self._is_terminal:
            self._print()

    def text(self):
        minutes, seconds = divmod(int(self._clock() - self._began), 60)
        if not self._total:
            return f"   no {self._noun} yet, {minutes}:{seconds:02}"
        return f"   {self._done} of {self._total} {self._noun}, {minutes}:{seconds:02}"

    def _print(self):
        self._out.write(f"\r{self.text()}\033[K" if self._is_terminal else self.text() + "\n")
        self._out.flush()

    def _run(self):
        while not self._over.wait(INTERVAL if not self._is_terminal else 1):
            self._print()


def run(command, noun, keep=lambda line: False, **options):
    """(exit code, the lines that show no progress, how much the command said at first that there was to do). Lines that
    `keep` wants are printed at once as well."""
    rest, total = [], 0
    with Ticker(noun) as ticker, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                                  errors="replace", **options) as process:
        for line in process.stdout:
            line = line.rstrip("\n")
            if match := _STATUS.match(line):
                total = total or int(match.group(2))  # what a failed test prints may look like progress, too
                ticker.seen(int(match.group(1)), int(match.group(2)))
            else:
                rest.append(line)
            if keep(line):
                print(line, flush=True)
        code = process.wait()
    return code, rest, total
