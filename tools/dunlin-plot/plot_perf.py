"""dunlin-plot perf: latency and bandwidth over size, from what dunlin-perf wrote."""

import collections
import math

from plotting import BadInput, draw_curve, figure, finish, labeled, number, read_lines, save, set_scale

MOST_TICKS = 12


def read_benchmarks(files):
    """{label of a curve: [(place, entry) by size]}.

    A curve belongs to a benchmark, a transport, a number of ranks and a file. Where a file has several algorithms of one
    size, each of them has a curve of its own.
    """
    found = collections.defaultdict(list)
    for label, path in map(labeled, files):
        for place, entry in read_lines(path):
            # Not every benchmark measures a latency.
            if "bench" in entry and entry.get("p50_us") is not None:
                words = [str(entry[field]) for field in ("bench", "transport") if field in entry]
                words += [f"{entry['ranks']} ranks"] if entry.get("ranks", 2) != 2 else []
                found[", ".join(words + [label] * (len(files) > 1))].append((place, entry))
    if not found:
        raise BadInput(f"{', '.join(files)}: no line with \"bench\" and \"p50_us\"")
    curves = {}
    for label, entries in found.items():
        algorithms = collections.defaultdict(set)
        for _, entry in entries:
            algorithms[entry.get("size")].add(str(entry.get("algorithm")))
        has_several = max(map(len, algorithms.values())) > 1
        for place, entry in entries:
            own = f"{label}, {entry.get('algorithm')}" if has_several else label
            curves.setdefault(own, []).append((place, entry))
    for entries in curves.values():
        entries.sort(key=lambda item: item[1].get("size") or 0)
    return curves


def short(size):
    """8, 4K, 1M: as dunlin-perf takes sizes."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def set_size_scale(axes, sizes):
    """A tick at every size, but for those that would lie too close to one another."""
    if not sizes:
        return
    axes.set_xscale("log", base=2)
    ticks = sorted(set(sizes))
    ticks = ticks[::math.ceil(len(ticks) / MOST_TICKS)]
    axes.set_xticks(ticks, map(short, ticks))
    axes.minorticks_off()


def draw_latency(axes, curves):
    sizes, times = [], []
    for index, (label, entries) in enumerate(curves.items()):
        sized = [(place, entry) for place, entry in entries if entry.get("size")]
        for field, name in (("p50_us", label), ("p99_us", None)):
            more = {} if name else {"linestyle": ":", "marker": "", "linewidth": 1}
            if sized:
                points = [(entry["size"], number(entry, field, place)) for place, entry in sized]
                draw_curve(axes, points, index, len(curves), name, **more)
                sizes += [size for size, _ in points]
                times += [time for _, time in points]
            else:  # a notification or a barrier has no size
                times.append(number(entries[0][1], field, entries[0][0]))
                axes.axhline(times[-1], linestyle="-" if name else ":", linewidth=1, color=f"C{index % 10}",
                             label=f"{name} (no payload)" if name else None)
    set_size_scale(axes, sizes)
    set_scale(axes, "y", times)
    finish(axes, xlabel="size / bytes", ylabel="latency / us", title="Latency: median, and p99 as dotted lines")


def draw_bandwidth(axes, curves):
    sizes, rates = [], []
    for index, (label, entries) in enumerate(curves.items()):
        points = [(entry["size"], number(entry, "gbytes_per_s", place)) for place, entry in entries
                  if entry.get("size") and entry.get("gbytes_per_s") is not None]
        if points:
            draw_curve(axes, points, index, len(curves), label)
            sizes += [size for size, _ in points]
            rates += [rate for _, rate in points]
    set_size_scale(axes, sizes)
    set_scale(axes, "y", rates)
    finish(axes, xlabel="size / bytes", ylabel="bandwidth / (GB/s)", title="Bandwidth")
    if not rates:
        axes.text(0.5, 0.5, "these benchmarks have no bandwidth", ha="center", transform=axes.transAxes)


def perf(options):
    curves = read_benchmarks(options.files)
    made, (left, right) = figure(2)
    draw_latency(left, curves)
    draw_bandwidth(right, curves)
    made.suptitle("dunlin-perf")
    save(made, options.out)


def add_command(commands):
    command = commands.add_parser("perf", help="latency and bandwidth over size, from dunlin-perf")
    command.add_argument("files", nargs="+", metavar="[LABEL=]FILE", help="what dunlin-perf --json-out wrote")
    command.add_argument("--out", required=True, metavar="FIG", help="figure to write: .png, .svg or .html")
    command.set_defaults(run=perf)
