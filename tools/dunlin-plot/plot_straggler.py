"""dunlin-plot straggler: the figures of the paper on the straggler-aware ring.

From dunlin-sim straggler-ring --figures. Times of the reduce-scatter over how late the slow rank is (figures 7 and 8),
the gain over that (figure 10), and the gain over alpha (figure 9). Lines are simulated, circles are the paper's equations.
"""

from plotting import LINES, BadInput, figure, finish, number, read_lines, save

PAPER_BEST = 25.3  # percent; its section 3
DOTS = {"linestyle": "none", "marker": "o", "markersize": 3.5, "markerfacecolor": "none", "markeredgewidth": 0.8}


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


def draw(axes, entries, x, y, color, line, label):
    """Draws what was simulated as a line, and what the equations predict as circles."""
    for field, style in ((y, {"label": label, "linewidth": 1.2, "linestyle": line}),
                         (y.replace("_", "_predicted_", 1), DOTS)):
        axes.plot([number(entry, x, place) for place, entry in entries],
                  [number(entry, field, place) for place, entry in entries], color=color, **style)


def finish_panel(axes, **settings):
    axes.plot([], [], color="black", label="circles: the paper's equations", **DOTS)
    finish(axes, **settings)


def draw_times(axes, by_alpha):
    for index, (alpha, entries) in enumerate(by_alpha.items()):
        if index == 0:
            draw(axes, entries, "delta_t_us", "ring_us", "black", "-", "plain ring")
        draw(axes, entries, "delta_t_us", "strategy_us", f"C{index}", LINES[index % len(LINES)],
             f"straggler-aware, alpha {alpha:g}")
    finish_panel(axes, xlabel="delay of the slow rank / us", ylabel="time of the reduce-scatter / us",
                 title="Figs. 7 and 8: times")


def draw_gains(axes, groups, x, label, xlabel, title):
    for index, (value, entries) in enumerate(groups.items()):
        draw(axes, entries, x, "gain_percent", f"C{index}", LINES[index % len(LINES)], label.format(value))
    axes.axhline(PAPER_BEST, color="0.5", linestyle=(0, (1, 1)), linewidth=1,
                 label=f"the paper's best, {PAPER_BEST} %")
    finish_panel(axes, xlabel=xlabel, ylabel="gain over the plain ring / %", title=title)


def straggler(options):
    figures = read_figures(options.file)
    by_alpha = grouped(figures["by_delta_t"], "alpha")
    made, panels = figure(3)
    draw_times(panels[0], by_alpha)
    draw_gains(panels[1], by_alpha, "delta_t_us", "alpha {:g}", "delay of the slow rank / us", "Fig. 10: gain over delay")
    draw_gains(panels[2], grouped(figures["by_alpha"], "delta_t_us"), "alpha", "delay of {:g} us", "alpha",
               "Fig. 9: gain over alpha")
    made.suptitle("The straggler-aware ring. Lines: simulated, all ranks. Circles: by the paper's equations, which"
                  " consider the slow rank and its two successors only")
    save(made, options.out)


def add_command(commands):
    command = commands.add_parser("straggler", help="figures 7 to 10 of the paper on the straggler-aware ring")
    command.add_argument("file", metavar="FILE", help="what dunlin-sim straggler-ring --figures --json wrote")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.set_defaults(run=straggler)
