"""dunlin-plot overlap: how much communication the passes of a training step hide, from the traces of its ranks.

A run is a folder with two files of each rank R: timeline-R.json (DUNLIN_TIMELINE=FOLDER/timeline-), in which the program
marks its passes as the activities FORWARD, BACKWARD and STEP (dunlin.torch.timeline_context), and trace-R.json
(DUNLIN_TRACE=FOLDER/trace-%r.json), which has the operations from their start to their real end.
"""

import glob
import json
import os
import statistics

from plotting import BadInput, figure, print_table, read_all, save

PASSES = ("FORWARD", "BACKWARD", "STEP")
OPERATIONS = ("all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all", "neighbor-average",
              "neighbor-gather")
COLORS = {"FORWARD": "#9ecae1", "BACKWARD": "#3182bd", "STEP": "#bdbdbd"}
COLUMNS = [("ranks", "ranks", "{}"), ("steps", "steps", "{}"), ("step", "step ms", "{:.1f}"),
           ("FORWARD", "forward ms", "{:.1f}"), ("BACKWARD", "backward ms", "{:.1f}"), ("STEP", "step() ms", "{:.1f}"),
           ("operations", "operations", "{:.1f}"), ("busy", "communication ms", "{:.1f}"),
           ("in_FORWARD", "in forward", "{:.0%}"), ("in_BACKWARD", "in backward", "{:.0%}"), ("exposed", "exposed", "{:.0%}"),
           ("exposed_ms", "exposed ms", "{:.1f}")]


# Reading ---------------------------------------------------------------------------------------

def read_json(path, ending=""):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().rstrip()
        # A timeline has no end: its last event may be that of a program that has died.
        return json.loads(text.rstrip(",") + ending if ending and not text.endswith(ending) else text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: malformed JSON: {error.msg}") from error


def read_passes(path):
    """[(name, begin, end)] of the program's passes in microseconds of the host's clock."""
    found, stacks = [], {}
    for event in read_json(path, "]"):
        stack = stacks.setdefault(event.get("tid"), [])
        if event.get("ph") == "B":
            stack.append((event["name"], event["ts"]))
        elif event.get("ph") == "E" and stack:
            name, begin = stack.pop()
            if name in PASSES:
                found.append((name, begin, event["ts"]))
    return sorted(found, key=lambda each: each[1])


def read_operations(path):
    """[(begin, end)] of the operations, on the same clock."""
    trace = read_json(path)
    if not isinstance(trace, dict) or "start_us" not in trace.get("otherData", {}):
        raise BadInput(f"{path}: not a trace: it has no 'start_us'")
    if trace["otherData"].get("dropped"):
        raise BadInput(f"{path}: {trace['otherData']['dropped']} events are missing: make fewer steps")
    start = trace["otherData"]["start_us"]
    return sorted((start + event["ts"], start + event["ts"] + event["dur"]) for event in trace["traceEvents"]
                  if event.get("ph") == "X" and event["name"] in OPERATIONS)


class Step:
    """One step of one rank: its passes {name: (begin, end)}, and the operations that began in it."""

    def __init__(self, passes):
        self.passes = {name: (begin, end) for name, begin, end in passes}
        self.begin, self.end = passes[0][1], passes[-1][2]
        self.operations = []

    def busy(self):
        """The times in which at least one operation is in progress: [(begin, end)]."""
        merged = []
        for begin, end in self.operations:
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    def busy_in(self, name):
        begin, end = self.passes[name]
        return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.busy())


def read_rank(folder, timeline, skip):
    rank = os.path.basename(timeline)[len("timeline-"):-len(".json")]
    passes = read_passes(timeline)
    steps = []
    for first in range(0, len(passes) - 2, 3):
        part = passes[first:first + 3]
        if tuple(name for name, _, _ in part) != PASSES:
            raise BadInput(f"{timeline}: step {first // 3} is not FORWARD, BACKWARD and STEP, but "
                           f"{', '.join(name for name, _, _ in part)}")
        steps.append(Step(part))
    operations = read_operations(os.path.join(folder, f"trace-{rank}.json"))
    for step in steps:
        step.operations = [each for each in operations if step.begin <= each[0] < step.end]
    if len(steps) <= skip:
        raise BadInput(f"{timeline}: {len(steps)} steps, of which the first {skip} don't count")
    return steps[skip:]


def read_run(folder, skip):
    """[[the steps that count] of each rank]"""
    timelines = glob.glob(os.path.join(glob.escape(folder), "timeline-*.json"))
    if not timelines:
        raise BadInput(f"{folder}: no timeline-RANK.json")
    return [read_rank(folder, path, skip) for path in sorted(timelines, key=lambda path: (len(path), path))]


# The table -------------------------------------------------------------------------------------

def summary(ranks):
    """Medians of times over steps and ranks in milliseconds; shares of the communication of all steps and ranks."""
    steps = [step for rank in ranks for step in rank]
    median = lambda values: statistics.median(values) / 1e3
    busy = [sum(end - begin for begin, end in step.busy()) for step in steps]
    inside = {name: [step.busy_in(name) for step in steps] for name in PASSES}
    exposed = [all_of_it - one - other
               for all_of_it, one, other in zip(busy, inside["FORWARD"], inside["BACKWARD"])]
    row = {"ranks": len(ranks), "steps": len(ranks[0]), "step": median([step.end - step.begin for step in steps]),
           "operations": sum(len(step.operations) for step in steps) / len(steps), "busy": median(busy),
           "exposed_ms": median(exposed)}
    row |= {name: median([step.passes[name][1] - step.passes[name][0] for step in steps]) for name in PASSES}
    if sum(busy) > 0:
        row |= {f"in_{name}": sum(inside[name]) / sum(busy) for name in PASSES} | {"exposed": sum(exposed) / sum(busy)}
    return row


# The picture -----------------------------------------------------------------------------------

def median_step(steps):
    """The one whose length is the median."""
    return sorted(steps, key=lambda step: step.end - step.begin)[len(steps) // 2]


def draw(axes, label, step):
    milliseconds = lambda ts: (ts - step.begin) / 1e3
    for name in PASSES:
        begin, end = step.passes[name]
        axes.barh(0, milliseconds(end) - milliseconds(begin), left=milliseconds(begin), color=COLORS[name], height=0.8,
                  label={"STEP": "step()"}.get(name, name.lower()))
    for row, (begin, end) in enumerate(step.operations):
        axes.barh(row + 1, milliseconds(end) - milliseconds(begin), left=milliseconds(begin), color="#e6550d", height=0.6,
                  label="average in progress" if row == 0 else None)
    axes.set_yticks([0], ["rank 0"])
    axes.invert_yaxis()
    axes.set(title=label, xlabel="time in the step / ms", xlim=(0, None))
    axes.grid(True, axis="x", alpha=0.3)


def overlap(options):
    if options.skip < 0:
        raise BadInput(f"--skip {options.skip}: it has to be at least 0")
    runs = read_all(options.runs, lambda folder: read_run(folder, options.skip))
    if options.table:
        print_table(COLUMNS, {label: summary(ranks) for label, ranks in runs.items()})
    if options.out:
        made, panels = figure(len(runs), most_in_a_row=2)
        steps = {label: median_step(ranks[0]) for label, ranks in runs.items()}
        for axes, (label, step) in zip(panels, steps.items()):
            draw(axes, label, step)
            axes.set_xlim(0, max(each.end - each.begin for each in steps.values()) / 1e3)
        panels[0].legend(fontsize="small", loc="lower left")
        made.suptitle("One step of training: passes, and the averages that are in progress meanwhile")
        save(made, options.out)


def add_command(commands):
    command = commands.add_parser("overlap", help="the share of communication that passes of a training step hide")
    command.add_argument("runs", nargs="+", metavar="[LABEL=]FOLDER",
                         help="timeline-RANK.json (DUNLIN_TIMELINE) and trace-RANK.json (DUNLIN_TRACE) of a run's ranks")
    command.add_argument("--table", action="store_true", help="print times and shares")
    command.add_argument("--out", metavar="FIG", help="picture of one step to write: .png, .svg or .html")
    command.add_argument("--skip", type=int, default=2, metavar="N", help="first steps that don't count (default: 2)")
    command.set_defaults(run=overlap)
