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


def unpack(root, folder, scratch):
    """The working tree into `folder`, by git archive; the repository is not written to."""
    objects = scratch / "objects"
    objects.mkdir(parents=True)
    known = (root / run("git", "-C", root, "rev-parse", "--git-path", "objects").strip()).resolve()
    environment = {**os.environ, "GIT_INDEX_FILE": str(scratch / "index"),
                   "GIT_OBJECT_DIRECTORY": str(objects),
                   "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(known)}
    run("git", "-C", root, "read-tree", "HEAD", env=environment)
    run("git", "-C", root, "add", "--all", ".", env=environment)
    tree = run("git", "-C", root, "write-tree", env=environment).strip()
    run("git", "-C", root, "archive", f"--output={scratch / 'tree.tar'}", tree, env=environment)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(scratch / "tree.tar") as archive:
        archive.extractall(folder)
