"""The faults that a check still tolerates: tools/allowed/NAME.txt, lines of `number  key`.

The number of faults under a key may shrink but never grow, and a new key is itself a
fault. `--update` writes the smaller numbers down. Where comments move from one file to
another it writes the numbers as they are, unless their sum has grown.
"""
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "allowed"


def read(path):
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return {key: int(number) for number, key in pairs}


def judge(name, found, places=None, may_move=False):
    """Returns the faults: the keys with more than is tolerated. `found`: {key: number};
    `places`: {key: [text]}, shown with the key."""
    path = FOLDER / f"{name}.txt"
    allowed = read(path)
    if "--update" in sys.argv and path.exists():
        left = {k: min(n, found.get(k, 0)) for k, n in allowed.items()}
        if may_move and sum(found.values()) <= sum(allowed.values()):
            left = found
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        rows = [f"{n:5}  {k}" for k, n in sorted(left.items()) if n]
        path.write_text("\n".join(head + rows) + "\n")
        allowed = left
    faults = []
    for key, number in sorted(found.items()):
        if number > allowed.get(key, 0):
            text = f"{key}: {number}"
            if key in allowed:
                text += f", {allowed[key]} tolerated by tools/allowed/{name}.txt"
            faults += [text] + [f"  {place}" for place in (places or {}).get(key, [])]
    return faults
