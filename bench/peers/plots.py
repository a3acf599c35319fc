"""Plots of a run as SVG files, the same bytes for the same run."""
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "vigil",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
})

import matplotlib.pyplot as plt  # noqa: E402: after the choice of the output

from workloads import PEERS  # noqa: E402

COLOURS = {
    "vigil": "#c8102e", "vigil_tasks": "#e4717f",
    "libuv": "#4c8c2b", "libuv_cached": "#a3c991", "asio": "#1f5fa8",
    "boost_fiber": "#7fb0e0", "go": "#00a0b8", "node": "#8a8a2a", "tokio": "#b36a2e",
    "bare": "#999999",
}
TITLES = {p.name: p.title for p in PEERS}


def metric(results, workload, key):
    """Peer name -> its numbers, in the order of the peers; empty if not run."""
    for w in results["workloads"]:
        for m in w["metrics"]:
            if w["name"] == workload and m["key"] == key:
                return {p.name: m["peers"][p.name] for p in PEERS if p.name in m["peers"]}
    return {}


def save(figure, folder, name):
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def bars(axes, values, title, unit, log=False):
    """Draws one bar for each peer, with its spread and its median in figures."""
    names = list(values)
    medians = [values[n]["median"] for n in names]
    below = [values[n]["median"] - values[n]["min"] for n in names]
    above = [values[n]["max"] - values[n]["median"] for n in names]
    axes.barh(range(len(names)), medians, xerr=[below, above],
              color=[COLOURS[n] for n in names], ecolor="#00000060")
    for i, n in enumerate(names):
        axes.annotate(f"{medians[i]:,.0f}".replace(",", " "), (max(values[n]["max"], 0), i),
                      xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), [TITLES[n] for n in names])
    axes.invert_yaxis()
    axes.set_title(title, loc="left")
    axes.set_xlabel(unit)
    axes.margins(x=0.15)
    axes.grid(axis="x", alpha=0.3)
    if log:
        axes.set_xscale("log")


def bar_page(results, folder, name, panels, log=False):
    """`panels`: (workload, metric, title, unit). Workloads that were not run are left out."""
    found = [(metric(results, w, key), title, unit) for w, key, title, unit in panels]
    found = [f for f in found if f[0]]
    if not found:
        return
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 2.9), squeeze=False)
    for a, (values, title, unit) in zip(axes[0], found):
        bars(a, values, title, unit, log)
    save(figure, folder, name)


def arm_page(results, folder):
    """Draws the cost of arm+stop against the number of other timers; no others stand at 1."""
    crowds = {"arm-0": 1, "arm-1000": 1e3, "arm-1000000": 1e6}
    kinds = {"one": "one timer used again", "records": "100 000 records in turn",
             "fresh": "fresh objects"}
    if not all(metric(results, w, "fresh") for w in crowds):
        return
    figure, axes = plt.subplots(1, len(kinds), figsize=(12, 3.4), sharey=True)
    for a, (key, title) in zip(axes, kinds.items()):
        for p in PEERS:
            y = [metric(results, w, key).get(p.name, {}).get("median") for w in crowds]
            if None not in y:
                a.plot(list(crowds.values()), y, marker="o", markersize=4, label=p.title,
                       color=COLOURS[p.name], linewidth=2.5 if p.name == "vigil" else 1.3)
        a.set_xscale("log")
        a.set_yscale("log")
        a.set_xticks(list(crowds.values()), ["0", "1 000", "1 000 000"])
        a.set_xticks([], minor=True)
        a.set_yticks([10, 20, 50, 100, 200, 500, 1000], ["10", "20", "50", "100", "200", "500",
                                                         "1 000"])
        a.set_yticks([], minor=True)
        a.set_title("arm+stop, " + title, loc="left")
        a.set_xlabel("other timers pending")
        a.grid(alpha=0.3)
    axes[0].set_ylabel("CPU, ns")
    axes[2].legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save(figure, folder, "arm")


def write(results, folder):
    arm_page(results, folder)
    bar_page(results, folder, "burst", [
        ("burst-1", "cpu", "CPU for each callback, one worker", "ns"),
        ("burst-2", "cpu", "CPU for each callback, two workers", "ns")])
    million = metric(results, "sleepers-million", "cpu")
    sleepers = "sleepers-million" if million else "sleepers"
    many = "1 000 000" if million else "many"
    bar_page(results, folder, "sleepers", [
        (sleepers, "cold_cpu", f"{many} sleeping fibers, new process", "CPU each, ns"),
        (sleepers, "cpu", f"{many} sleeping fibers, second time", "CPU each, ns"),
        (sleepers, "cold_memory", "memory, all asleep", "bytes each")])
    bar_page(results, folder, "overshoot", [
        ("overshoot", "p50", "a sleep of 1 ms is late by, p50", "µs"),
        ("overshoot", "p99", "a sleep of 1 ms is late by, p99", "µs")], log=True)
    bar_page(results, folder, "kernel", [
        ("kernel-random", "calls", "1 000 timers within 1 s", "system calls"),
        ("kernel-ticks", "calls", "1 000 ticks of 1 ms", "system calls"),
        ("kernel-stopped", "calls", "1 000 timeouts stopped in time", "system calls")])
