"""dunlin-plot consensus and dunlin-plot fish: what dunlin-consensus wrote."""

import argparse
import math

from plotting import (BadInput, draw_curve, figure, finish, number, print_table, read_all, read_lines, read_progress,
                      save, set_scale)

AXES = {"error_max": "error of the worst rank", "error_rms": "rms error over the ranks",
        "consensus_error": "disagreement of the ranks"}  # field of a progress line -> label
COLUMNS = (  # field of the config or the final line, heading, format
    ("algorithm", "algorithm", "{}"), ("graph", "graph", "{}"), ("ranks", "ranks", "{}"), ("error_max", "error", "{:.1e}"),
    ("consensus_error", "disagreement", "{:.1e}"), ("rate", "rate", "{:.4f}"),
    ("rate_gradient_descent", "gradient descent's", "{:.4f}"), ("rate_averaging", "averaging's", "{:.4f}"),
    ("mass_error", "mass lost", "{:.0e}"))
FISH_PANELS = 4


def read_run(path):
    """The progress lines of a run of dunlin-consensus, and the fields of its first and last lines."""
    progress, others = read_progress(path)
    return progress, {**others.get("config", {}), **others.get("final", {})}


def consensus(options):
    runs = read_all(options.files, read_run)
    if options.table:
        print_table(COLUMNS, {label: about for label, (_, about) in runs.items()})
    if options.out:
        steps = {"round" if about.get("algorithm") == "push-sum" else "iteration" for _, about in runs.values()}
        made, panels = figure(len(options.y))
        for axes, field in zip(panels, options.y):
            draw_errors(axes, runs, field, " or ".join(sorted(steps)))
        save(made, options.out)


def draw_errors(axes, runs, field, step):
    values = []
    for index, (label, (progress, _)) in enumerate(runs.items()):
        # An error that is null was infinite, since the run had diverged. An error of 0 has no logarithm.
        curve = [(number(entry, "iteration", place), number(entry, field, place))
                 for place, entry in progress if entry.get(field, 0) is not None]
        curve = [one for one in curve if one[1] > 0]
        draw_curve(axes, curve, index, len(runs), label)
        values += [value for _, value in curve]
    set_scale(axes, "y", values)
    finish(axes, xlabel=f"{step} of each rank", ylabel="relative to the norm of the solution",
           title=AXES[field].capitalize())


def y_axes(text):
    axes = text.split(",")
    if unknown := [axis for axis in axes if axis not in AXES]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(AXES)}")
    return axes


def points(entry, field, place):
    """A list of [x, y]."""
    found = entry.get(field)
    if not isinstance(found, list) or not all(
            isinstance(one, list) and len(one) == 2 and all(isinstance(value, (int, float)) for value in one)
            for one in found):
        raise BadInput(f"{place}: '{field}' is {'missing' if found is None else 'not a list of points'}")
    return found


def read_school(path):
    moments = [(place, entry) for place, entry in read_lines(path) if entry.get("event") == "fish"]
    if not moments:
        raise BadInput(f"{path}: no line with \"event\":\"fish\"")
    school = [{"time": number(entry, "time_s", place), "positions": points(entry, "positions", place),
               "velocities": points(entry, "velocities", place), "estimates": points(entry, "estimates", place),
               "predator": points({"predator": [entry.get("predator")]}, "predator", place)[0]}
              for place, entry in moments]
    for (place, _), moment in zip(moments, school):
        if {len(moment[field]) for field in ("positions", "velocities", "estimates")} != {len(school[0]["positions"])}:
            raise BadInput(f"{place}: the number of fish differs")
    return school


def draw_school(axes, moments, fastest):
    """The last of the moments, and the ways of the fish up to there. The arrow of the fastest fish is 1 m long."""
    now = moments[-1]
    for fish_index in range(len(now["positions"])):
        axes.plot(*zip(*(moment["positions"][fish_index] for moment in moments)), color="C0", alpha=0.25, linewidth=0.8,
                  label="their ways so far" if fish_index == 0 else None)
    xs, ys = zip(*now["positions"])
    axes.quiver(xs, ys, *zip(*now["velocities"]), color="C0", angles="xy", scale_units="xy",
                scale=fastest, width=0.004)
    axes.plot(xs, ys, "o", color="C0", markersize=4, label="fish, and how fast they swim")
    axes.plot(*zip(*now["estimates"]), "x", color="C1", markersize=5, label="where they think the predator is")
    axes.plot(*now["predator"], "o", color="C3", markersize=9, markerfacecolor="none", markeredgewidth=1.5,
              label="predator")
    axes.set(title=f"after {now['time']:.1f} s", xlabel="x / m", aspect="equal")


def fish(options):
    school = read_school(options.file)
    count = min(options.panels, len(school))
    # Most happens early, so that the moments' distances in time grow as squares.
    shown = sorted({round((len(school) - 1) * (index / max(count - 1, 1)) ** 2) for index in range(count)})
    made, panels = figure(len(shown), width=4.6, most_in_a_row=6)
    fastest = max(math.hypot(*velocity) for moment in school for velocity in moment["velocities"]) or 1
    seen = [place for moment in school for place in [moment["predator"], *moment["positions"]]]
    for axes, last in zip(panels, shown):
        draw_school(axes, school[:last + 1], fastest)
        for limit, values in ((axes.set_xlim, [x for x, _ in seen]), (axes.set_ylim, [y for _, y in seen])):
            limit(min(values) - 0.5, max(values) + 0.5)
    panels[0].set_ylabel("y / m")
    made.legend(*panels[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.03), ncol=4,
                fontsize="small")
    made.suptitle("dunlin-consensus fish-school")
    save(made, options.out)


def panel_count(text):
    if not text.isdigit() or not 1 <= int(text) <= 12:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 12")
    return int(text)


def add_commands(commands):
    command = commands.add_parser("consensus", help="errors over iterations and a table of runs of dunlin-consensus")
    command.add_argument("files", nargs="+", metavar="LABEL=FILE", help="what dunlin-consensus --json-out wrote")
    command.add_argument("--out", metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--y", type=y_axes, default="error_max", metavar="ERRORS",
                         help=f"{', '.join(AXES)}, or several with commas: a panel each (default: %(default)s)")
    command.add_argument("--table", action="store_true", help="print where each run ended, and how fast it came there")
    command.set_defaults(run=consensus)

    command = commands.add_parser("fish", help="the school of fish, moment by moment")
    command.add_argument("file", metavar="FILE", help="what dunlin-consensus fish-school --json-out wrote")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--panels", type=panel_count, default=FISH_PANELS, metavar="N",
                         help="moments to show, the later the farther apart (default: %(default)s)")
    command.set_defaults(run=fish)
