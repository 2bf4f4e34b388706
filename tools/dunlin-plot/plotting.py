"""What the subcommands of dunlin-plot share: reading JSON lines, tables, figures."""

import io
import json

LOG_FROM = 10  # an axis is logarithmic when its largest value is so many times the smallest


class BadInput(Exception):
    """Its text says where and what."""


# Reading ---------------------------------------------------------------------------------------

def labelled(text):
    """LABEL=FILE, or FILE, which is its own label."""
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
    lines = read_lines(path)
    progress = [(place, entry) for place, entry in lines if entry.get("event") == "progress"]
    if not progress:
        raise BadInput(f"{path}: no line with \"event\":\"progress\"")
    return progress, {entry.get("event"): entry for _, entry in lines if entry.get("event") != "progress"}


def read_all(files, read):
    """{label: what `read` makes of its file}"""
    runs = {label: read(path) for label, path in map(labelled, files)}
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

def figure(panels, width=6.4):
    try:
        import matplotlib
    except ImportError:
        raise BadInput("figures need matplotlib (package python3-matplotlib)") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "dunlin"  # the same input gives the same file
    from matplotlib import pyplot
    made, axes = pyplot.subplots(1, panels, figsize=(width * panels, 4.6), squeeze=False, layout="constrained")
    return made, list(axes[0])


def save(made, path):
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg", "html"):
        raise BadInput(f"{path}: a figure ends in .png, .svg or .html")
    metadata = {} if kind == "png" else {"Date": None}
    try:
        if kind == "html":
            picture = io.StringIO()
            made.savefig(picture, format="svg", metadata=metadata)
            inline = picture.getvalue()
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"<!doctype html><meta charset=utf-8><title>Dunlin</title>{inline[inline.index('<svg'):]}")
        else:
            made.savefig(path, format=kind, dpi=150, metadata=metadata)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    print(path)


def is_wide(values):
    """Whether the values ask for a logarithmic axis."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= LOG_FROM * min(positive)


def legend(axes):
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
