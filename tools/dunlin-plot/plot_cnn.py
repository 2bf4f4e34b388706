"""dunlin-plot cnn: how runs of dunlin-cnn come to their losses, in time, bytes and iterations.

Figure 9 of the paper on ASAP, and figures 17 to 19 of the one on partial all-reduce: throughput, iterations and time to
a loss, relative to a run that is the measure of all.
"""

import argparse

from plotting import (BadInput, curve_style, draw_curve, figure, finish, mark_changes, number, print_table, read_all,
                      read_lines, save, set_scale, split_progress)

X_AXES = {  # what --x calls it -> field of a progress line, label
    "time": ("time_s", "training time / s"), "bytes": ("bytes_sent", "bytes sent by rank 0"),
    "iterations": ("iteration", "iterations of rank 0"), "epochs": ("epoch", "epochs")}
Y_AXES = {"loss": "training loss (running mean)", "accuracy": "training accuracy (running mean)"}
COLUMNS = (  # field of a run, heading, format
    ("iterations", "iterations", "{}"), ("time_s", "time/s", "{:.2f}"), ("loss", "loss", "{:.4f}"),
    ("accuracy_percent", "accuracy/%", "{:.2f}"), ("test_percent", "test/%", "{:.2f}"),
    ("mean_test_percent", "mean model/%", "{:.2f}"), ("iterations_per_s", "iterations/s", "{:.2f}"),
    ("samples_per_s", "images/s", "{:.1f}"), ("megabytes", "MB sent (all)", "{:.1f}"),
    ("wait_share", "waiting/%", "{:.1f}"))
TARGET_COLUMNS = (("to_iterations", "iterations to loss", "{}"), ("to_time", "s to loss", "{:.2f}"))
BASELINE_COLUMNS = (("speed", "throughput, relative", "{:.2f}"), ("speed_to", "speed to loss, relative", "{:.2f}"))


def read_run(path):
    """The progress lines of a run, and what its other lines say of it. One that didn't end says less."""
    lines = read_lines(path)
    progress, others = split_progress(path, lines)
    run = {**others.get("config", {}), **progress[-1][1], **others.get("final", {})}
    run["changes"] = [(place, entry) for place, entry in lines if entry.get("event") == "members"]
    for field, percent in (("accuracy", "accuracy_percent"), ("test_accuracy", "test_percent"),
                           ("mean_test_accuracy", "mean_test_percent")):
        if run.get(field) is not None:
            run[percent] = 100 * number(run, field, path)
    if "final" in others:
        run["iterations"] = number(run, "iterations", path)
        run["megabytes"] = number(run, "bytes_sent", path) / 1e6
        ranks = run.get("by_rank", {})
        if sum(ranks.get("time_s", [])) > 0:
            run["wait_share"] = 100 * sum(ranks.get("wait_s", [])) / sum(ranks["time_s"])
    else:
        run["iterations"] = progress[-1][1].get("iteration")
    return progress, run


def add_target(progress, run, target):
    """Where the reporting rank's loss was at the target first."""
    for place, entry in progress:
        if entry.get("loss") is not None and number(entry, "loss", place) <= target:
            run["to_iterations"] = number(entry, "iteration", place)
            run["to_time"] = number(entry, "time_s", place)
            return


def add_relative(runs, baseline):
    _, measure = runs[baseline]
    for _, run in runs.values():
        if run.get("iterations_per_s") is not None and measure.get("iterations_per_s"):
            run["speed"] = run["iterations_per_s"] / measure["iterations_per_s"]
        if run.get("to_time") and measure.get("to_time"):
            run["speed_to"] = measure["to_time"] / run["to_time"]


def draw_panel(axes, runs, x, y, target):
    field, x_label = X_AXES[x]
    places, values = [], []
    for index, (label, (progress, run)) in enumerate(runs.items()):
        points = [(number(entry, field, place), number(entry, y, place)) for place, entry in progress]
        if max(at for at, _ in points) > 0:  # a single worker sends nothing: it has no curve over bytes
            draw_curve(axes, points, index, len(runs), label)
            places += [at for at, _ in points]
        values += [value for _, value in points]
        if x == "time":
            mark_changes(axes, run["changes"], curve_style(index, len(runs), len(points))["color"])
    if y == "loss" and target is not None:
        axes.axhline(target, color="0.5", linestyle=(0, (1, 1)), linewidth=1, label=f"target, {target:g}")
    if x == "bytes":
        set_scale(axes, "x", places)
    if y == "loss":
        set_scale(axes, "y", values)
    finish(axes, xlabel=x_label, ylabel=Y_AXES[y], title=f"Training {y} over {x}")


def cnn(options):
    runs = read_all(options.files, read_run)
    if options.baseline is not None and options.baseline not in runs:
        raise BadInput(f"--baseline {options.baseline}: no file has this label")
    columns = COLUMNS
    if options.target is not None:
        columns += TARGET_COLUMNS
        for progress, run in runs.values():
            add_target(progress, run, options.target)
    if options.baseline is not None:
        columns += BASELINE_COLUMNS if options.target is not None else BASELINE_COLUMNS[:1]
        add_relative(runs, options.baseline)
    if options.table:
        print_table(columns, {label: run for label, (_, run) in runs.items()})
    if options.out:
        made, panels = figure(len(options.x))
        for axes, x in zip(panels, options.x):
            draw_panel(axes, runs, x, options.y, options.target)
        networks = {str(run["model"]) for _, run in runs.values() if run.get("model")}
        made.suptitle("dunlin-cnn" + (f": {networks.pop()}" if len(networks) == 1 else ""))
        save(made, options.out)


def x_axes(text):
    axes = text.split(",")
    if unknown := [axis for axis in axes if axis not in X_AXES]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(X_AXES)}")
    return axes


def add_command(commands):
    command = commands.add_parser("cnn", help="curves and a table of runs of dunlin-cnn")
    command.add_argument("files", nargs="+", metavar="LABEL=FILE", help="what dunlin-cnn --json-out wrote")
    command.add_argument("--out", metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--x", type=x_axes, default="time,bytes,iterations", metavar="AXES",
                         help=f"{', '.join(X_AXES)}, or several with commas: a panel each (default: %(default)s)")
    command.add_argument("--y", choices=tuple(Y_AXES), default="loss")
    command.add_argument("--target", type=float, metavar="LOSS", help="tell when each run's loss was there")
    command.add_argument("--baseline", metavar="LABEL", help="tell speeds relative to this run's")
    command.add_argument("--table", action="store_true", help="print where each run ended")
    command.set_defaults(run=cnn)
