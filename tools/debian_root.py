#!/usr/bin/env python3
"""Fetches Debian packages into a folder and leaves the system's own alone.

usage: debian_root.py FOLDER [--arch=ARCH] [--suite=SUITE] [--alone=1] PACKAGE...

The packages, and all that they depend on unless they are to be alone, are unpacked into
FOLDER, from the archives that the system itself uses; none of their scripts is run. ARCH
may be another one than the system's. With SUITE, such as bookworm-backports, they are
taken from that suite of the same archives, if it has them. A folder that has the packages
already is left as it is. Exit status: 1 if apt cannot have them; what it said is in
FOLDER.log.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


class NotThere(Exception):
    """What is missing, in a line."""


def archives(sources=Path("/etc/apt")):
    """(URI, key or None) of Debian's main archives in the system's apt sources."""
    found = []
    for path in [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = re.sub(r"(?m)^#.*\n?", "", path.read_text())
        if path.suffix == ".sources":
            for part in re.split(r"\n\s*\n", text):
                field = dict(re.findall(r"(?m)^([\w-]+): *(.*)$", part))
                if "main" in field.get("Components", "").split():
                    found += [(uri, field.get("Signed-By")) for uri in field.get("URIs", "").split()]
        else:
            for options, uri in re.findall(r"(?m)^deb(?: +\[([^]]*)\])? +(\S+) +\S+ +.*\bmain\b", text):
                key = re.search(r"signed-by=(\S+)", options)
                found.append((uri, key and key[1]))
    return [(uri, key) for uri, key in found if uri.rstrip("/").endswith("/debian")]


def configuration(folder, arch, suite):
    """An apt of its own: nothing is installed in it, so that nothing is taken as given."""
    state = folder.with_name(folder.name + ".apt")
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").write_text("")
    lines = [f'Dir::State "{state}";', f'Dir::State::lists "{state}/lists";',
             f'Dir::State::status "{state}/status";', f'Dir::Cache "{state}/cache";',
             'APT::Install-Recommends "false";', 'APT::Sandbox::User "root";']
    if arch:
        lines += [f'APT::Architecture "{arch}";', f'APT::Architectures {{ "{arch}"; }};']
    if suite:
        own = state / "sources.list"
        own.write_text("".join(f"deb {f'[signed-by={key}] ' if key else ''}{uri} {name} main\n"
                               for uri, key in archives()
                               for name in (suite, suite.split("-")[0])))
        lines += [f'Dir::Etc::sourcelist "{own}";', 'Dir::Etc::sourceparts "-";',
                  f'APT::Default-Release "{suite}";']
    path = state / "apt.conf"
    path.write_text("\n".join(lines) + "\n")
    return state, {**os.environ, "APT_CONFIG": str(path), "DEBIAN_FRONTEND": "noninteractive"}


def make_root(folder, packages, arch=None, suite=None, alone=False):
    """Raises NotThere if it cannot be made."""
    folder = Path(folder).resolve()
    wanted = " ".join([arch or "", suite or "", *packages])
    stamp = folder / "packages"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    if shutil.which("apt-get") is None:
        raise NotThere("no apt-get: the packages of Debian are needed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # A download that failed has left packages there.
    shutil.rmtree(folder.with_name(folder.name + ".apt"), ignore_errors=True)
    state, environment = configuration(folder, arch, suite)
    archive = state / "cache/archives"
    fetch = ["download"] if alone else ["install", "-y", "--download-only"]
    with open(folder.with_name(folder.name + ".log"), "w") as log:
        for command in (["update"], [*fetch, *packages]):
            if subprocess.run(["apt-get", "-q", *command], env=environment, cwd=archive,
                              stdout=log, stderr=log).returncode != 0:
                named = f" of {suite}" if suite else ""
                raise NotThere(f"apt-get cannot have {' '.join(packages)}{named}"
                               f"{f' for {arch}' if arch else ''}: see {log.name}")
    for package in sorted(archive.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    shutil.rmtree(state)
    stamp.write_text(wanted)
    return folder


def main():
    options = dict(a[2:].partition("=")[::2] for a in sys.argv[1:] if a.startswith("--"))
    folder, *packages = [a for a in sys.argv[1:] if not a.startswith("--")] or [None]
    if (not packages or not options.keys() <= {"arch", "suite", "alone"} or
            not all(options.values()) or options.get("alone", "1") != "1"):
        sys.exit(__doc__)
    try:
        print(make_root(folder, packages, **options))
    except NotThere as e:
        sys.exit(f"debian_root.py: {e}")


if __name__ == "__main__":
    main()
