#!/usr/bin/env python3
"""Makes the reference from the headers, and the site: usage: reference [SOURCE_ROOT] WHAT

  --counts      prints the public names and how many have which part; check_reference.py
                says which name lacks one
  --site OUT    builds the site into OUT/html, from pages that it writes into OUT/source;
                with `--only NAME,...` from those of a few names and guides
  --pages OUT   writes these pages only

The headers are read by libclang (python3-clang-14), the site is built by Sphinx with MyST
and furo (python3-sphinx python3-myst-parser furo).
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import headers  # noqa: E402


def counts(model):
    lines = [f"{len(model.names)} public names"]
    for part in models.PARTS:
        wanted = [n for n in model.names if part in model.wanted(n)]
        has = sum(part in model.has(n) for n in wanted)
        lines.append(f"  {part:14} {has:4} of {len(wanted)}")
    return "\n".join(lines)


def version(root):
    text = (root / "include/vigil/version.hpp").read_text()
    return ".".join(re.findall(r"#define VIGIL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


def write_pages(root, out, model):
    made_site = site.Site(root, out, model.is_part)
    made = made_site.build(lambda *given: built(pages.Pages(model, *given)))
    (out / "names.json").write_text(json.dumps(made.objects))
    if made_site.faults or model.faults:
        sys.exit("\n".join(made_site.faults + model.faults))
    return made


def built(made):
    made.build()
    return made


def build_site(root, out, model):
    source = out / "source"
    source.mkdir(parents=True, exist_ok=True)
    made = write_pages(root, source, model)
    # One process: with several, Sphinx 5.3 may wait for ever for one that has failed.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", str(HERE),
               "-d", str(out / "doctrees"), str(source), str(out / "html")]
    furo_files.write(out / "static")
    env = dict(os.environ, VIGIL_DOCS_VERSION=version(root), VIGIL_DOCS_STATIC=str(out / "static"),
               PYTHONDONTWRITEBYTECODE="1")
    status = subprocess.run(command, env=env, check=False).returncode
    if status:
        sys.exit(f"Sphinx ended with {status}")
    search_words.write(out / "html", made.searched)
    print(f"{out / 'html' / 'index.html'}")


def main():
    arguments = sys.argv[1:]
    root = Path(__file__).resolve().parents[2]
    if arguments and not arguments[0].startswith("--"):
        root = Path(arguments.pop(0)).resolve()
    if not arguments:
        sys.exit(__doc__)
    if headers.cindex is None:
        sys.exit(headers.MISSING)
    global furo_files, models, pages, search_words, site
    import furo_files
    import model as models
    import pages
    import search_words
    import site_pages as site
    model = models.Model(root)
    if arguments[0] == "--counts":
        print(counts(model))
    elif arguments[0] in ("--site", "--pages") and len(arguments) in (2, 4):
        if arguments[2:3] == ["--only"]:
            model.keep_only(arguments[3].split(","))
        out = Path(arguments[1]).resolve()
        out.mkdir(parents=True, exist_ok=True)
        (build_site if arguments[0] == "--site" else write_pages)(root, out, model)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
