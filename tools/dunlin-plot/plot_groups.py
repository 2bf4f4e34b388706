"""dunlin-plot groups: the figures of the paper on partial all-reduce, from dunlin-sim groups --json.

Fig. 17: speed-ups over the parameter server, all workers alike. Fig. 18: losses over iterations. Fig. 19: speed-ups
with one slow worker. The second one needs --learn; without it, the speed-ups are those per iteration only.
"""

from plotting import LINES, BadInput, figure, finish, number, read_lines, save

PAPER = {"marker": "D", "color": "black", "markersize": 4, "linestyle": "none"}
LABEL_OF_PAPER = "measured in the paper"
HATCHES = ("", "//", "..", "xx")
CURVES_UP_TO = 3  # times the target: where curves begin, so that their ends can be told apart


def read_blocks(path):
    """{(seed, compute_us): [(place, entry)]}, in the order of the file: a table of dunlin-sim each."""
    blocks = {}
    for place, entry in read_lines(path):
        if entry.get("what") == "groups" and entry.get("table", "figures") == "figures":
            key = (number(entry, "seed", place), number(entry, "compute_us", place))
            blocks.setdefault(key, []).append((place, entry))
    if not blocks:
        raise BadInput(f"{path}: no line with \"what\":\"groups\" and \"table\":\"figures\"")
    return blocks


def choose(blocks, compute_us, path):
    """The block of a computation's time; unless told, the calibrated one, else the first."""
    times = {key[1]: key for key in reversed(blocks)}  # of several seeds, the first
    if compute_us is not None:
        nearest = min(times, key=lambda time: abs(time - compute_us))
        if abs(nearest - compute_us) > 1e-3 * compute_us:
            known = ", ".join(f"{time:g}" for time in reversed(times))
            raise BadInput(f"{path}: no computation of {compute_us:g} us, but of {known}")
        return blocks[times[nearest]]
    for entries in blocks.values():
        if entries[0][1].get("is_calibrated"):
            return entries
    return next(iter(blocks.values()))


def draw_bars(axes, methods, series):
    """`series`: {label: {method: (value, paper's value or None)}}; a value that is None leaves a gap."""
    width = 0.8 / len(series)
    for index, (label, values) in enumerate(series.items()):
        xs = [place + (index - (len(series) - 1) / 2) * width for place in range(len(methods))]
        axes.bar(xs, [values.get(method, (None, None))[0] or 0 for method in methods], width, label=label,
                 hatch=HATCHES[index % len(HATCHES)], edgecolor="white")
        paper = [(x, values[method][1]) for x, method in zip(xs, methods)
                 if method in values and values[method][1] is not None]
        if paper:
            has_label = LABEL_OF_PAPER in axes.get_legend_handles_labels()[1]
            axes.plot(*zip(*paper), label=None if has_label else LABEL_OF_PAPER, **PAPER)
    axes.set_xticks(range(len(methods)), methods, rotation=35, ha="right", fontsize="small")
    finish(axes, ylabel="speed-up over the parameter server\n(all workers alike)")


def per_iteration(entries):
    return {entry["method"]: (number(entry, "over_parameter_server", place), entry.get("paper_per_iteration"))
            for place, entry in entries}


def overall(entries):
    return {entry["method"]: (entry.get("overall_speedup"), entry.get("paper_overall")) for _, entry in entries}


def draw_curves(axes, entries):
    for index, (place, entry) in enumerate(entries):
        curve = entry.get("curve")
        if not isinstance(curve, list) or not all(isinstance(point, list) and len(point) == 3 for point in curve):
            raise BadInput(f"{place}: 'curve' is no list of iterations, seconds and losses")
        # A loss that is null was no number: the run had diverged.
        points = [(iterations, loss) for iterations, _, loss in curve if loss is not None]
        axes.plot(*zip(*points), color=f"C{index % 10}", linestyle=LINES[index % len(LINES)], linewidth=1.4,
                  label=entry["method"])
    target = entries[0][1].get("target_loss")
    if target is not None:
        axes.axhline(target, color="0.5", linestyle=(0, (1, 1)), linewidth=1, label=f"target, {target:g}")
        axes.set_ylim(0.9 * target, CURVES_UP_TO * target)
    finish(axes, xlabel="iterations of a worker, on average", ylabel="loss", title="Fig. 18, all workers alike")


def groups(options):
    entries = choose(read_blocks(options.file), options.compute_us, options.file)
    for place, entry in entries:
        if not isinstance(entry.get("method"), str):
            raise BadInput(f"{place}: 'method' is missing")
    alike = [(place, entry) for place, entry in entries if entry.get("slowed") == "none"]
    if not alike:
        raise BadInput(f"{options.file}: no line with \"slowed\":\"none\"")
    slow = {}
    for place, entry in entries:
        if entry.get("slowed") == "one":
            slow.setdefault(number(entry, "slowdown", place), []).append((place, entry))
    has_learnt = any("curve" in entry for _, entry in alike)
    methods = [entry["method"] for _, entry in alike]
    made, panels = figure(1 + has_learnt + bool(slow))
    series = {"per iteration": per_iteration(alike)}
    if has_learnt:
        series["overall"] = overall(alike)
        draw_curves(panels[1], alike)
    draw_bars(panels[0], methods, series)
    panels[0].set_title(f"Fig. 17, all workers alike, computation {number(alike[0][1], 'compute_us', alike[0][0]):.0f} us")
    if slow:
        measure, name = (overall, "overall") if has_learnt else (per_iteration, "per iteration")
        draw_bars(panels[-1], methods, {f"slowed {factor:g}x": measure(found) for factor, found in slow.items()})
        panels[-1].set_title(f"Fig. 19, one slow worker, {name}")
    made.suptitle("Partial all-reduce and its baselines, simulated")
    save(made, options.out)


def positive(text):
    value = float(text)  # argparse names a ValueError's text
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def add_command(commands):
    command = commands.add_parser("groups", help="figures 17 to 19 of the paper on partial all-reduce")
    command.add_argument("file", metavar="FILE", help="what dunlin-sim groups --json wrote, best with --learn")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.add_argument("--compute-us", type=positive, metavar="US",
                         help="of several computations' times, this one (default: the calibrated one, or the first)")
    command.set_defaults(run=groups)
