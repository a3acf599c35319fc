"""What a check still tolerates: tools/allowed/NAME.txt, lines of `number  key`.

The number of faults under a key may shrink and never grow, and a new key is a fault
itself. `--update` writes the smaller numbers down; no option writes larger ones.
"""
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "allowed"


def read(name):
    path = FOLDER / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return {key: int(number) for number, key in pairs}


def judge(name, found, places=None, update=None):
    """Faults: the keys with more than is tolerated. `found`: {key: number}; `places`:
    {key: [text]}, shown with it; `update`: writes what has shrunk (by default if
    --update was given)."""
    allowed = read(name)
    faults = []
    for key, number in sorted(found.items()):
        if number > allowed.get(key, 0):
            text = f"{key}: {number}"
            if key in allowed:
                text += f", {allowed[key]} are tolerated (tools/allowed/{name}.txt)"
            faults += [text] + [f"  {place}" for place in (places or {}).get(key, [])]
    smaller = {k: min(n, found.get(k, 0)) for k, n in allowed.items()}
    if (update if update is not None else "--update" in sys.argv) and smaller != allowed:
        path = FOLDER / f"{name}.txt"
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        rows = [f"{n:5}  {k}" for k, n in sorted(smaller.items()) if n]
        path.write_text("\n".join(head + rows) + "\n")
    return faults
