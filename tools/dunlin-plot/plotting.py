"""What the subcommands of dunlin-plot share: reading JSON lines, tables, figures."""

import io
import json
import math

LOG_FROM = 10  # an axis is logarithmic when its largest value is at least this many times its smallest
LARGE = 1e4  # values from here on are written as 10k, 2M
FEW_DECADES = 3  # a logarithmic axis of fewer decades has ticks at 2 and 5, too
LINES = ("-", "--", "-.", (0, (6, 1, 1, 1, 1, 1)))  # not dotted: dotted lines are no curves of their own
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MARKS = 9  # markers on a curve, about


class BadInput(Exception):
    """Its text says where and what."""


# Reading ---------------------------------------------------------------------------------------

def labeled(text):
    """The label and the path of LABEL=FILE. A FILE alone is its own label."""
    label, separator, path = text.partition("=")
    return (label, path) if separator else (text, text)


def read_lines(path):
    """[(place, object)] of a file of JSON lines; place is "file:line"."""
    found = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    found.append((f"{path}:{number}", parse(line, f"{path}:{number}")))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return found


def parse(text, place):
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{place}: malformed JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{place}: expected a JSON object")
    return value


def number(entry, field, place):
    value = entry.get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise BadInput(f"{place}: '{field}' is {'missing' if value is None else 'not a number'}")
    return value


def read_progress(path):
    """The progress lines of a run, and {kind: the last line of it} of the others."""
    return split_progress(path, read_lines(path))


def split_progress(path, lines):
    """The same for lines that have been read."""
    progress = [(place, entry) for place, entry in lines if entry.get("event") == "progress"]
    if not progress:
        raise BadInput(f"{path}: no line with \"event\":\"progress\"")
    return progress, {entry.get("event"): entry for _, entry in lines if entry.get("event") != "progress"}


def read_all(files, read):
    """{label: what `read` makes of its file}"""
    runs = {label: read(path) for label, path in map(labeled, files)}
    if len(runs) != len(files):
        raise BadInput("two files have the same label")
    return runs


# Tables ----------------------------------------------------------------------------------------

def print_table(columns, ends):
    """`ends`: {label: fields}."""
    rows = [["run"] + [heading for _, heading, _ in columns]]
    for label, last in ends.items():
        rows.append([label] + ["-" if last.get(field) is None else form.format(last[field])
                               for field, _, form in columns])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:])), sep="  ")


# Drawing ---------------------------------------------------------------------------------------

def figure(panels, width=6.4, most_in_a_row=3):
    try:
        import matplotlib
    except ImportError:
        raise BadInput("figures need matplotlib (package python3-matplotlib)") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "dunlin"  # the same input gives the same file
    from matplotlib import pyplot
    rows = 1 if panels <= most_in_a_row else 2
    columns = math.ceil(panels / rows)
    made, axes = pyplot.subplots(rows, columns, figsize=(width * columns, 4.6 * rows), squeeze=False, layout="constrained")
    for unused in axes.flat[panels:]:
        unused.set_visible(False)
    return made, list(axes.flat[:panels])


def save(made, path):
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg", "html"):
        raise BadInput(f"{path}: a figure ends in .png, .svg or .html")
    metadata = {} if kind == "png" else {"Date": None}
    try:
        if kind == "html":
            picture = io.StringIO()
            made.savefig(picture, format="svg", metadata=metadata, bbox_inches="tight")
            inline = picture.getvalue()
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"<!doctype html><meta charset=utf-8><title>Dunlin</title>{inline[inline.index('<svg'):]}")
        else:
            made.savefig(path, format=kind, dpi=150, metadata=metadata, bbox_inches="tight")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    print(path)


def set_scale(axes, which, values):
    """Makes an axis ("x" or "y") logarithmic if its values are wide enough, with at least some labeled ticks."""
    positive = [value for value in values if value > 0]
    if not positive:
        return
    from matplotlib import ticker
    axis = getattr(axes, f"{which}axis")
    is_wide = max(positive) >= LOG_FROM * min(positive)
    has_powers = math.log10(max(positive) / min(positive)) >= FEW_DECADES  # as the labels of its ticks
    if is_wide:
        getattr(axes, f"set_{which}scale")("log")
    if is_wide and not has_powers:
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    if max(positive) >= LARGE and not (is_wide and has_powers):
        axis.set_major_formatter(ticker.EngFormatter(sep=""))


def curve_style(index, count, points):
    """How to draw the index-th of `count` curves, so that they can be told apart where they coincide.

    They differ in color, line and marker; later curves are thinner and lie above the earlier ones.
    """
    every = max(1, points // MARKS)
    return {"color": f"C{index % 10}", "linestyle": LINES[index % len(LINES)], "marker": MARKERS[index % len(MARKERS)],
            "markersize": 4.5, "markevery": (index * every // count % every, every),
            "linewidth": 1.2 + 2.5 * (count - 1 - index) / count, "alpha": 0.85}


def draw_curve(axes, points, index, count, label, **more):
    """`points`: [(x, y)]."""
    axes.plot([x for x, _ in points], [y for _, y in points], label=label,
              **{**curve_style(index, count, len(points)), **more})


def mark_changes(axes, changes, color):
    """A line where workers have joined, left or died, and who."""
    for turn, (place, entry) in enumerate(changes):
        words = [f"{sign}{rank}" for sign, ranks in (("+", entry.get("joined", [])), ("\u2212", entry.get("left", [])),
                                                     ("\u2020", entry.get("died", []))) for rank in ranks]
        at = number(entry, "time_s", place)
        axes.axvline(at, color=color, linestyle=":", linewidth=1)
        axes.annotate(" ".join(words), (at, 1), xycoords=("data", "axes fraction"), xytext=(2, -2 - 40 * (turn % 3)),
                      textcoords="offset points", rotation=90, va="top", fontsize="x-small", color=color)


def finish(axes, **settings):
    """Title, labels, grid and legend. `settings`: of Axes.set()."""
    axes.set(**settings)
    axes.set_axisbelow(True)
    axes.grid(True, which="major", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
