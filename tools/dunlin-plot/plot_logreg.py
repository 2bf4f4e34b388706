"""dunlin-plot logreg: how runs of dunlin-logreg converge, and what they spend on computing and synchronizing.

These are figures 5 and 6 of the paper on 2D-TGA: error over iterations, and the time that synchronizing takes.
"""

from plotting import (BadInput, draw_curve, figure, finish, number, print_table, read_all, read_progress, save,
                      set_scale)

COLUMNS = (  # field of a run, heading, format
    ("algorithm", "all-reduce", "{}"), ("ranks", "ranks", "{}"), ("rows", "rows", "{}"),
    ("features", "features", "{}"), ("minimum", "minimum", "{:.10g}"), ("objective", "objective", "{:.10g}"),
    ("relative_error", "rel. error", "{:.1e}"), ("iterations", "iterations", "{}"), ("compute_s", "compute/s", "{:.4f}"),
    ("sync_s", "sync/s", "{:.4f}"), ("sync_least_s", "least/s", "{:.4f}"), ("accuracy_percent", "accuracy/%", "{:.2f}"))
TIMES = ("time_s", "compute_s", "sync_s", "sync_least_s")


def read_run(path):
    """The progress lines of a run, and all that its other lines say of it."""
    progress, others = read_progress(path)
    if "final" not in others:
        raise BadInput(f"{path}: no line with \"event\":\"final\": the run didn't end")
    run = {**others.get("config", {}), **others["final"]}
    if "reference" in others:
        run["minimum"] = number(others["reference"], "objective", path)
    if run.get("test_accuracy") is not None:
        run["accuracy_percent"] = 100 * number(run, "test_accuracy", path)
    for field in TIMES:
        number(run, field, path)
    return progress, run


def draw_course(axes, runs, what, x, x_label, y, y_label):
    values = []
    for index, (label, (progress, _)) in enumerate(runs.items()):
        points = [(number(entry, x, place), number(entry, y, place)) for place, entry in progress]
        # A run that hits the minimum to the last bit has an error of 0, which has no logarithm.
        points = [point for point in points if point[1] > 0]
        draw_curve(axes, points, index, len(runs), label)
        values += [value for _, value in points]
    set_scale(axes, "y", values)
    finish(axes, xlabel=x_label, ylabel=y_label, title=f"Convergence over {what}")


def shares_of_time(run):
    """What the elapsed time of a run went into, on average over its ranks. The shares add up to the elapsed time.

    In each iteration every rank computes and then takes part in the all-reduce. The rank that comes last waits for no
    computing of others: what the all-reduce takes there is the all-reduce itself. The rest is waiting.
    """
    computing = run.get("by_rank", {}).get("compute_s") or [run["compute_s"]]
    mean = sum(computing) / len(computing)
    all_reduce = min(run["sync_least_s"], run["time_s"] - mean)
    return mean, all_reduce, run["time_s"] - mean - all_reduce


def draw_times(axes, runs):
    places = range(len(runs))
    bottom = [0.0] * len(runs)
    names = ("computing", "the all-reduce itself", "waiting for other ranks")
    for name, hatch, heights in zip(names, ("", "//", ".."), zip(*(shares_of_time(run) for _, run in runs.values()))):
        axes.bar(places, heights, bottom=bottom, label=name, hatch=hatch, edgecolor="white")
        bottom = [low + height for low, height in zip(bottom, heights)]
    axes.set_xticks(list(places), list(runs), rotation=20, ha="right")
    axes.set_ylim(0, 1.3 * max(bottom))  # room for the legend
    finish(axes, ylabel="elapsed time of all iterations / s", title="Where the time goes (mean over the ranks)")


def logreg(options):
    runs = read_all(options.files, read_run)
    if options.table:
        print_table(COLUMNS, {label: run for label, (_, run) in runs.items()})
    if options.out:
        made, panels = figure(3)
        # Without a reference there is no error to be shown.
        have_errors = all(entry.get("relative_error") is not None
                          for progress, _ in runs.values() for _, entry in progress)
        y = ("relative_error", "relative error of the objective") if have_errors else ("objective", "objective")
        draw_course(panels[0], runs, "iterations", "iteration", "iteration", *y)
        draw_course(panels[1], runs, "time", "time_s", "time / s", *y)
        draw_times(panels[2], runs)
        made.suptitle("dunlin-logreg")
        save(made, options.out)


def add_command(commands):
    command = commands.add_parser("logreg", help="convergence, and times of computing and synchronizing, of runs of "
                                  "dunlin-logreg")
    command.add_argument("files", nargs="+", metavar="LABEL=FILE", help="what dunlin-logreg --json-out wrote")
    command.add_argument("--out", metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--table", action="store_true", help="print where each run ended, and its times")
    command.set_defaults(run=logreg)
