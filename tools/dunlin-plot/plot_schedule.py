"""dunlin-plot schedule: communication times by the cost model, from what dunlin-schedule figures wrote."""

from plotting import BadInput, draw_curve, figure, finish, number, read_lines, save


def read_figures(path):
    """{figure: {series: [(place, entry) by x]}}, in the order of the file."""
    figures = {}
    for place, entry in read_lines(path):
        if "figure" in entry:
            series = figures.setdefault(str(entry["figure"]), {})
            series.setdefault(str(entry.get("series")), []).append((place, entry))
    if not figures:
        raise BadInput(f"{path}: no line with \"figure\"")
    for series in figures.values():
        for entries in series.values():
            entries.sort(key=lambda item: number(item[1], "x", item[0]))
    return figures


def schedule(options):
    figures = read_figures(options.file)
    made, panels = figure(len(figures))
    for axes, (name, series) in zip(panels, figures.items()):
        for index, (label, entries) in enumerate(series.items()):
            draw_curve(axes, [(entry["x"], 1e3 * number(entry, "seconds", place)) for place, entry in entries],
                       index, len(series), label)
        axes.set_xscale("log", base=2)
        ticks = sorted({entry["x"] for entries in series.values() for _, entry in entries})
        axes.set_xticks(ticks, map(str, ticks))
        first = next(iter(series.values()))[0][1]
        finish(axes, xlabel=first.get("x_label", "x"), ylabel="communication time / ms",
               title=f"Fig. {name}, {first.get('title', '')}")
    made.suptitle("All-reduce by the cost model, as in the figures of the 2D-TGA paper")
    save(made, options.out)


def add_command(commands):
    command = commands.add_parser("schedule", help="communication times, from dunlin-schedule figures")
    command.add_argument("file", metavar="FILE", help="the JSON lines of dunlin-schedule figures")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.set_defaults(run=schedule)
