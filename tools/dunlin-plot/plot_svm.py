"""dunlin-plot svm: objective and test error of runs of dunlin-svm, over time, bytes and examples."""

import argparse
import os

from plotting import (BadInput, curve_style, draw_curve, figure, finish, mark_changes, number, print_table, read_all,
                      read_lines, save, set_scale)

AXES = {  # what --x and --y call it -> field of a progress line, label
    "time": ("time_s", "training time / s"),
    "bytes": ("bytes_sent", "bytes sent by the reporting rank"),
    "examples": ("examples", "examples seen by all workers"),
    "objective": ("objective", "objective on the training set"),
    "test_error": ("test_error", "share of wrong test rows"),
}
COLUMNS = (  # field of the last progress or the final line, heading, format
    ("time_s", "time/s", "{:.2f}"), ("examples", "examples", "{:.0f}"), ("objective", "objective", "{:.5f}"),
    ("test_error", "test error", "{:.4f}"), ("bytes_sent", "MB sent (all)", "{:.1f}"), ("wait_s", "wait/s", "{:.2f}"),
    ("inputs_per_reduce", "inputs/reduce", "{:.2f}"), ("torn_reads", "torn", "{:.0f}"))
TARGET_COLUMNS = (  # where the reporting rank of a run first was at --target
    ("target_time_s", "s to target", "{:.2f}"), ("target_examples", "examples to", "{:.0f}"),
    ("target_megabytes", "MB to (one)", "{:.1f}"))
SUMS = ("bytes_sent", "inputs_per_reduce", "torn_reads")  # fields of a final line's "all" that the table shows


def read_run(path):
    """The config line, the progress lines, the end of a run, and where its workers changed.

    The end is that of the last reporting rank, with the sums over all workers where these say more.
    """
    lines = read_lines(path)
    progress = [(place, entry) for place, entry in lines if entry.get("event") == "progress"]
    if not progress:
        raise BadInput(f"{path}: no line with \"event\":\"progress\"")
    config, last = {}, dict(progress[-1][1])
    changes = [(place, entry) for place, entry in lines if entry.get("event") == "members"]
    for _, entry in lines:
        if entry.get("event") == "config" and not config:
            config = entry
        if entry.get("event") == "final":
            everyone = entry.get("all", {})
            last.update(entry)
            last.update({field: everyone[field] for field in SUMS if field in everyone})
    return config, progress, last, changes


def draw_panel(axes, runs, x, y, baseline):
    (x_field, x_label), (y_field, y_label) = AXES[x], AXES[y]
    all_x, all_y = [], []
    for index, (label, (_, progress, _, changes)) in enumerate(runs.items()):
        points = [(number(entry, x_field, place), number(entry, y_field, place)) for place, entry in progress]
        if label == baseline:
            axes.axhline(points[-1][1], color="0.5", linestyle=(0, (1, 1)), linewidth=1, label=f"{label}, at its end")
        if max(at for at, _ in points) > 0:  # a single process sends nothing
            draw_curve(axes, points, index, len(runs), label)
            all_x += [at for at, _ in points]
        all_y += [value for _, value in points]
        if x == "time":
            mark_changes(axes, changes, curve_style(index, len(runs), len(points))["color"])
    set_scale(axes, "x", all_x)
    set_scale(axes, "y", all_y)
    finish(axes, xlabel=x_label, ylabel=y_label, title=f"{y.replace('_', ' ')} over {x}".capitalize())


def heading(runs):
    """What all runs have in common."""
    configs = [config for config, _, _, _ in runs.values()]
    shared = {field: configs[0].get(field) for field in ("data", "rows", "loss", "lambda")
              if all(config.get(field) == configs[0].get(field) for config in configs)}
    parts = [os.path.basename(str(shared["data"]))] if shared.get("data") else []
    for field, text in (("rows", "{} rows"), ("loss", "{} loss"), ("lambda", "lambda {:g}")):
        if shared.get(field) is not None:
            parts.append(text.format(shared[field]))
    return "dunlin-svm: " + ", ".join(parts) if parts else "dunlin-svm"


def reaching(target, progress):
    """When, and after how many examples and bytes of the reporting rank, the objective first was at the target."""
    for place, entry in progress:
        if number(entry, "objective", place) <= target:
            return {"target_time_s": number(entry, "time_s", place), "target_examples": number(entry, "examples", place),
                    "target_megabytes": number(entry, "bytes_sent", place) / 1e6}
    return {}


def svm(options):
    runs = read_all(options.files, read_run)
    if options.baseline is not None and options.baseline not in runs:
        raise BadInput(f"--baseline {options.baseline}: no file has this label")
    if options.table:
        ends = {}
        for label, (_, progress, last, _) in runs.items():
            megabytes = {"bytes_sent": last["bytes_sent"] / 1e6} if last.get("bytes_sent") is not None else {}
            ends[label] = {**last, **megabytes}
            if options.target is not None:
                ends[label].update(reaching(options.target, progress))
        print_table(COLUMNS + (TARGET_COLUMNS if options.target is not None else ()), ends)
    if options.out:
        made, panels = figure(len(options.x))
        for axes, x in zip(panels, options.x):
            draw_panel(axes, runs, x, options.y, options.baseline)
        made.suptitle(heading(runs))
        save(made, options.out)


def x_axes(text):
    axes = text.split(",")
    if unknown := [axis for axis in axes if axis not in ("time", "bytes", "examples")]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of time, bytes, examples")
    return axes


def add_command(commands):
    command = commands.add_parser("svm", help="curves and a table of runs of dunlin-svm")
    command.add_argument("files", nargs="+", metavar="LABEL=FILE", help="what dunlin-svm --json-out wrote")
    command.add_argument("--out", metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--x", type=x_axes, default="time,bytes", metavar="AXES",
                         help="time, bytes, examples, or several with commas: a panel each (default: %(default)s)")
    command.add_argument("--y", choices=("objective", "test_error"), default="objective")
    command.add_argument("--baseline", metavar="LABEL", help="draw a line at the final value of this run")
    command.add_argument("--table", action="store_true", help="print where each run ended")
    command.add_argument("--target", type=float, metavar="OBJECTIVE",
                         help="in the table: what each run took until its objective first was that low")
    command.set_defaults(run=svm)
