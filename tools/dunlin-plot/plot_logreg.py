"""dunlin-plot logreg: how runs of dunlin-logreg converge, and what they spend on computing and synchronising.

These are figures 5 and 6 of the paper on 2D-TGA: error over iterations, and the time that synchronising takes.
"""

from plotting import BadInput, figure, is_wide, legend, number, print_table, read_all, read_progress, save

COLUMNS = (  # field of a run, heading, format
    ("algorithm", "all-reduce", "{}"), ("ranks", "ranks", "{}"), ("rows", "rows", "{}"),
    ("features", "features", "{}"), ("minimum", "minimum", "{:.10g}"), ("objective", "objective", "{:.10g}"),
    ("relative_error", "rel. error", "{:.1e}"), ("iterations", "iterations", "{}"), ("compute_s", "compute/s", "{:.4f}"),
    ("sync_s", "sync/s", "{:.4f}"), ("sync_least_s", "least/s", "{:.4f}"), ("accuracy_percent", "accuracy/%", "{:.2f}"))
TIMES = ("compute_s", "sync_s", "sync_least_s")


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


def draw_course(axes, runs, x, x_label, y, y_label):
    highest = []
    for index, (label, (progress, _)) in enumerate(runs.items()):
        # A run that hits the minimum to the last bit has an error of 0, which has no logarithm.
        points = [(number(entry, x, place), number(entry, y, place)) for place, entry in progress]
        points = [point for point in points if point[1] > 0]
        # Thinner and thinner: where algorithms differ in time only, their curves over iterations are one.
        axes.plot([point[0] for point in points], [point[1] for point in points], color=f"C{index}", label=label,
                  linewidth=1 + 4 * (len(runs) - 1 - index) / len(runs), alpha=0.8)
        highest += [point[1] for point in points]
    axes.set(xlabel=x_label, ylabel=y_label, yscale="log" if is_wide(highest) else "linear")
    axes.grid(True, which="major", alpha=0.3)
    legend(axes)


def draw_times(axes, runs):
    """A bar for each run: computing, the all-reduce itself, and above it what was only waiting for other ranks."""
    places = range(len(runs))
    totals = [run for _, run in runs.values()]
    parts = (("computing", [run["compute_s"] for run in totals]),
             ("synchronising: the all-reduce itself", [run["sync_least_s"] for run in totals]),
             ("synchronising: waiting for other ranks", [run["sync_s"] - run["sync_least_s"] for run in totals]))
    bottom = [0.0] * len(totals)
    for name, heights in parts:
        axes.bar(places, heights, bottom=bottom, label=name)
        bottom = [low + height for low, height in zip(bottom, heights)]
    axes.set_xticks(list(places), list(runs), rotation=20, ha="right")
    axes.set_ylabel("time / s, of all iterations")
    axes.set_ylim(0, 1.3 * max(bottom))  # room for the legend
    axes.grid(True, axis="y", alpha=0.3)
    legend(axes)


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
        draw_course(panels[0], runs, "iteration", "iteration", *y)
        draw_course(panels[1], runs, "time_s", "time / s", *y)
        draw_times(panels[2], runs)
        save(made, options.out)


def add_command(commands):
    command = commands.add_parser("logreg", help="convergence, and times of computing and synchronising, of runs of "
                                  "dunlin-logreg")
    command.add_argument("files", nargs="+", metavar="LABEL=FILE", help="what dunlin-logreg --json wrote")
    command.add_argument("--out", metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--table", action="store_true", help="print where each run ended, and its times")
    command.set_defaults(run=logreg)
