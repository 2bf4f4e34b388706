"""Programs that run in turns, so that a change of the host's load meets all of them."""
import datetime
import os
import platform
import statistics
import sys

from peer import Failed, cpu_model, number


class Turns:
    """What several programs took, which run in turns: {key: {program: [microseconds by repetition, or None]}}."""

    def __init__(self):
        self.values = {}
        self.failures = {}  # {(key, program): reason}

    def add(self, key, name, measure):
        """Calls measure(), which returns microseconds, or None where the program has no figure."""
        value = None
        try:
            value = measure()
        except Failed as failure:
            self.failures[key, name] = str(failure)
        if value is not None:
            print(f"  {name}: {number(value)} us", file=sys.stderr)
        self.values.setdefault(key, {}).setdefault(name, []).append(value)

    def median(self, key, name):
        values = [value for value in self.values[key].get(name, []) if value is not None]
        return statistics.median(values) if values else None

    def ratio(self, key, name, base):
        """The median over the repetitions of the ratio of name's time to base's, and the least and the largest."""
        both = self.values[key]
        pairs = zip(both.get(name, []), both.get(base, []))
        ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs is not None]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def cell(self, key, name, base, show=number):
        """What a table says of a program: show(median), and the multiple of base's time, median and extremes."""
        value = self.median(key, name)
        if value is None:
            return "failed" if (key, name) in self.failures else "-"
        ratio = self.ratio(key, name, base)
        if name == base or ratio is None:
            return show(value)
        return f"{show(value)} ({ratio[0]:.2f}: {ratio[1]:.2f}-{ratio[2]:.2f})"


def in_turns(programs, repetition):
    """The programs in the order of this repetition, each time another one first."""
    turn = repetition % len(programs)
    return programs[turn:] + programs[:turn]


def circumstances(repetitions):
    return (f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores, Linux {platform.release()}; medians of "
            f"{repetitions} repetitions in turns; load average at the end {os.getloadavg()[0]:.1f}.")
