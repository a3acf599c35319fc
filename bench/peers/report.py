"""Tables of a run: as text for a terminal, as Markdown for the documents.

Each line is a metric and each column a peer, with the median first, then the
least and the most, then the ratio vigil / peer.
"""
from workloads import PEERS

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
UNITS = {"us": "µs", "x": "×"}


def number(value, unit):
    if not unit or value == 0 or abs(value) >= 100:  # a count, or long enough
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def name_of(metric):
    unit = UNITS.get(metric["unit"], metric["unit"])
    return f"{metric['title']}, {unit}" if unit else metric["title"]


def columns(workload):
    """The peers that can do the workload, in their order."""
    seen = {name for metric in workload["metrics"] for name in metric["peers"]}
    return [p for p in PEERS if p.name in seen]


def median(result, unit):
    return number(result["median"], unit)


def spread(result, unit):
    if result["min"] == result["max"]:
        return ""
    return f"{number(result['min'], unit)}–{number(result['max'], unit)}"


def ratio(result, _unit):
    found = result.get("ratio")
    if found is None:
        return ""
    return f"{found:.2g}×" if 0 < found < 0.1 else f"{found:.2f}×"


# --- text


def text_lines(workload):
    """Lists of cells: three lines for each metric, without empty ones."""
    peers = columns(workload)
    yield [""] + [p.title for p in peers]
    for metric in workload["metrics"]:
        cells = [metric["peers"].get(p.name) for p in peers]
        yield [name_of(metric)] + [median(c, metric["unit"]) if c else "-" for c in cells]
        for title, of in (("  from–to", spread), ("  vigil / peer", ratio)):
            line = [of(c, metric["unit"]) if c else "" for c in cells]
            if any(line):
                yield [title] + line
    if workload["calls"]:
        yield ["mostly"] + [workload["calls"].get(p.name, "-").split(",")[0] for p in peers]


def sizes(workload):
    """The sizes that the peers were asked for: in short runs they are less than the title's."""
    given = ", ".join(f"{k} {number(v, '')}" for k, v in workload["numbers"].items())
    return f"{given}; rounds {workload['rounds']}"


def text_table(workload):
    lines = list(text_lines(workload))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = [f"\n-- {workload['title']} ({sizes(workload)})"]
    for first, *rest in lines:
        cells = [first.ljust(widths[0])] + [c.rjust(w) for c, w in zip(rest, widths[1:])]
        shown.append("   " + "  ".join(cells).rstrip())
    return "\n".join(shown)


# --- Markdown


def markdown_cell(result, unit):
    if result is None:
        return "-"
    parts = [median(result, unit)]
    if spread(result, unit):
        parts.append(f"<sub>{spread(result, unit)}</sub>")
    if ratio(result, unit):
        parts.append(f"**{ratio(result, unit)}**")
    return "<br>".join(parts)


def markdown_table(workload):
    peers = columns(workload)
    lines = [[""] + [p.title for p in peers], ["---"] + ["---:"] * len(peers)]
    for metric in workload["metrics"]:
        lines.append([name_of(metric)] +
                     [markdown_cell(metric["peers"].get(p.name), metric["unit"]) for p in peers])
    if workload["calls"]:
        lines.append(["the commonest calls"] + [workload["calls"].get(p.name, "-") for p in peers])
    title = workload["title"][0].upper() + workload["title"][1:]
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"### {title}\n\n<sub>{sizes(workload)}</sub>\n\n{rows}\n"


def heading(results):
    machine, versions = results["machine"], results["versions"]
    kind = "long run" if results["long"] else "**a short run: not for quoting**"
    return (f"{machine['processor']}, {machine['processors']} processors, Linux "
            f"{machine['kernel']}; load before the run {machine['load_before']:.2f}; {kind}. "
            + "; ".join(f"{name} {version}" for name, version in versions.items()) + ".\n")


def write_docs(results, path):
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path}: lacks the marks {BEGIN} and {END}")
    tables = "\n".join(markdown_table(w) for w in results["workloads"])
    path.write_text(f"{before}{BEGIN}\n\n{heading(results)}\n{tables}\n{END}{after}")
