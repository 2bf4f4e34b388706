"""dunlin-plot straggler: the figures of the paper on the straggler-aware ring.

From dunlin-sim straggler-ring --figures. Times of the reduce-scatter over how late the slow rank is (figures 7 and 8),
the gain over that (figure 10), and the gain over alpha (figure 9). Lines are simulated, dots are the paper's equations.
"""

from plotting import BadInput, figure, legend, number, read_lines, save

PAPER_BEST = 25.3  # percent; its section 3
DOTS = {"linestyle": "none", "marker": ".", "markersize": 4}


def read_figures(path):
    """{figure: [(place, entry)]}"""
    found = {"by_delta_t": [], "by_alpha": []}
    for place, entry in read_lines(path):
        if entry.get("what") == "straggler-ring" and entry.get("figure") in found:
            found[entry["figure"]].append((place, entry))
    for name, entries in found.items():
        if not entries:
            raise BadInput(f"{path}: no line with \"what\":\"straggler-ring\" and \"figure\":\"{name}\"")
    return found


def grouped(entries, field):
    """{value of the field: [(place, entry)]}"""
    groups = {}
    for place, entry in entries:
        groups.setdefault(number(entry, field, place), []).append((place, entry))
    return groups


def draw(axes, entries, x, y, color, label):
    """What was simulated, and what the equations say."""
    for field, style in ((y, {"label": label, "linewidth": 1.2}), (y.replace("_", "_predicted_", 1), DOTS)):
        axes.plot([number(entry, x, place) for place, entry in entries],
                  [number(entry, field, place) for place, entry in entries], color=color, **style)


def draw_times(axes, by_alpha):
    for index, (alpha, entries) in enumerate(by_alpha.items()):
        if index == 0:
            draw(axes, entries, "delta_t_us", "ring_us", "black", "plain ring")
        draw(axes, entries, "delta_t_us", "strategy_us", f"C{index}", f"alpha {alpha:g}")
    axes.set(xlabel="late by / us", ylabel="reduce-scatter / us", title="Figs. 7 and 8: times")


def draw_gains(axes, groups, x, label, xlabel, title):
    for index, (value, entries) in enumerate(groups.items()):
        draw(axes, entries, x, "gain_percent", f"C{index}", label.format(value))
    axes.axhline(PAPER_BEST, color="0.5", linestyle="--", linewidth=1, label=f"the paper's best, {PAPER_BEST} %")
    axes.set(xlabel=xlabel, ylabel="gain over the plain ring / %", title=title)


def straggler(options):
    figures = read_figures(options.file)
    by_alpha = grouped(figures["by_delta_t"], "alpha")
    made, panels = figure(3)
    draw_times(panels[0], by_alpha)
    draw_gains(panels[1], by_alpha, "delta_t_us", "alpha {:g}", "late by / us", "Fig. 10: gain")
    draw_gains(panels[2], grouped(figures["by_alpha"], "delta_t_us"), "alpha", "late by {:g} us", "alpha",
               "Fig. 9: gain by alpha")
    for axes in panels:
        axes.grid(True, alpha=0.3)
        legend(axes)
    save(made, options.out)


def add_command(commands):
    command = commands.add_parser("straggler", help="figures 7 to 10 of the paper on the straggler-aware ring")
    command.add_argument("file", metavar="FILE", help="what dunlin-sim straggler-ring --figures --json wrote")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.set_defaults(run=straggler)
