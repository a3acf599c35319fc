"""What checks ask git: nothing, in a tree that is not the top of a repository.

An unpacked archive may lie inside another project's repository, or inside a clone of this
one; what git knows there is not about the archive.
"""
import subprocess
from pathlib import Path

NONE = "git knows no repository here: the tree is from an archive, or git is not installed or refuses it"


def git(root, *arguments):
    """What git prints about the repository whose top is `root`; None if there is none."""
    top = output(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top.strip()).resolve() != Path(root).resolve():
        return None
    return output(root, *arguments)


def output(root, *arguments):
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
