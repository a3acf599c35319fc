"""What a program printed, compared with what it should print.

In the wanted text <n> stands for any number, including the blanks before it, and … for
any text within a line; a line with nothing but … stands for any lines, or none.
"""
import re

NUMBER = r" *[0-9]+(?: [0-9]{3})*(?:\.[0-9]+)?"


def agrees(wanted, line):
    """Whether a printed line is the wanted one."""
    parts = re.split("(<n>|…)", wanted)
    pattern = "".join({"<n>": NUMBER, "…": ".*"}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(pattern, line) is not None


def blocks_of(wanted):
    """The runs of lines between those that stand for any lines."""
    blocks = [[]]
    for line in wanted:
        if line.strip() == "…":
            blocks.append([])
        else:
            blocks[-1].append(line)
    return blocks


def disagreement(wanted, lines):
    """None, or the first block of wanted lines that is not at its place."""
    blocks = blocks_of(wanted)
    at = 0
    for index, block in enumerate(blocks):
        end = len(lines) - len(block)
        places = range(at, end + 1)
        if index == 0:
            places = places[:1]
        if index == len(blocks) - 1:
            places = [place for place in places if place == end]
        # The first place is right: the earlier it is, the more is left for the others.
        place = next((p for p in places if all(map(agrees, block, lines[p:p + len(block)]))), None)
        if place is None:
            return block
        at = place + len(block)
    return None
