"""The tree as an archive would have it, with what is not committed yet."""
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import repository  # noqa: E402


def run(*command, **more):
    """Standard output; ends the test with all that was said if the command fails."""
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stdout}")
    return done.stdout


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def need_repository(root):
    if shutil.which("git") is None or repository.git(root, "rev-parse", "HEAD") is None:
        skip(repository.NONE)


def tree(root, scratch):
    """(name of the working tree for git, environment in which git knows it)."""
    objects = scratch / "objects"
    objects.mkdir(parents=True)
    known = (root / run("git", "-C", root, "rev-parse", "--git-path", "objects").strip()).resolve()
    environment = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(known)}
    with_index = {**os.environ, **environment, "GIT_INDEX_FILE": str(scratch / "index")}
    run("git", "-C", root, "read-tree", "HEAD", env=with_index)
    run("git", "-C", root, "add", "--all", ".", env=with_index)
    return run("git", "-C", root, "write-tree", env=with_index).strip(), {**os.environ, **environment}


def unpack(root, folder, scratch):
    """The working tree into `folder`, by git archive; the repository is not written to."""
    name, environment = tree(root, scratch)
    run("git", "-C", root, "archive", f"--output={scratch / 'tree.tar'}", name, env=environment)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(scratch / "tree.tar") as archive:
        archive.extractall(folder)
