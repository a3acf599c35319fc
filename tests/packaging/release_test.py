#!/usr/bin/env python3
"""What tools/release refuses, and what it makes: usage: release_test.py ROOT

In a clone whose version, date and addresses could be published. Each refusal makes nothing;
two releases have the same bytes; the archive is what checksums, recipes and tag say it is.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from snapshot import need_repository, run, skip, unpack  # noqa: E402

import release_files  # noqa: E402
import repository  # noqa: E402

ROOT = Path(sys.argv[1]).resolve()
# git is told that somebody else owns the tree, as in many containers; main() writes the
# settings by which it takes that.
WHO = {**os.environ, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1",
       **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
          for what, value in (("NAME", "A Tester"), ("EMAIL", "tester@vigil.invalid"))}}


# The files in which a maintainer writes where vigil is published.
ADDRESSED = ("packaging/addresses.txt", "README.md", "SECURITY.md", "docs/guide/first-steps.md",
             "docs/guide/installing.md", "packaging/debian/changelog",
             "packaging/debian/control", "packaging/debian/copyright", "packaging/debian/upstream/metadata")


class Clone:
    def __init__(self, folder):
        self.folder = folder
        run("git", "clone", "--quiet", "--shared", ROOT, folder, env=WHO)
        for path in folder.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        unpack(ROOT, folder, folder.parent / "scratch")
        self.version = release_files.version_of(folder)
        for path in ADDRESSED:
            self.write(path, (folder / path).read_text().replace("vigil.example", "vigil.invalid"))
        self.write("SECURITY.md", re.sub(r"\s*\(The address is a placeholder[^)]*\)", "",
                                         (folder / "SECURITY.md").read_text()))
        changelog = folder / "CHANGELOG.md"
        self.write(changelog, re.sub(r"^## \S+, .*$", f"## {self.version}, 2026-01-02",
                                     changelog.read_text(), count=1, flags=re.M))
        self.commit("tests: what a maintainer writes before a release\n\nOne idea: a release.\n")

    def git(self, *arguments):
        return run("git", "-C", self.folder, *arguments, env=WHO)

    def write(self, path, text):
        (self.folder / path).write_text(text)

    def edit(self, path, before, after):
        text = (self.folder / path).read_text()
        if before not in text:
            sys.exit(f"{path} has no {before}")
        self.write(path, text.replace(before, after, 1))

    def commit(self, message):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}")

    def release(self, folder, *options):
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "release", *options, f"--root={self.folder}", folder],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=WHO)
        return done.returncode, done.stdout


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_refusals(clone, out):
    version = clone.version
    heading = f"## {version}, 2026-01-02"
    # What is done to the clone, whether that is committed, and what is said of it.
    cases = [
        (lambda: clone.write("a_new_file", ""), None, r"the tree is not clean:\n\?\? a_new_file"),
        (lambda: clone.edit("README.md", "vigil", "vigIl"), None, r"the tree is not clean:\n M README.md"),
        (lambda: clone.edit("README.md", f"vigil-{version}", "vigil-9.9.9"), "docs: another version",
         rf"the version is {version}, and 9\.9\.9 in README\.md"),
        (lambda: clone.edit("include/vigil/version.hpp", "MINOR ", "MINOR 9"), "version: another one",
         r"check_sources\.py does not pass:"),
        (lambda: clone.edit("CHANGELOG.md", heading, f"## {version}, in work"), "docs: not yet",
         rf"{version} has no date: `## {version}, in work`"),
        (lambda: clone.edit("CHANGELOG.md", heading, f"## {version}, 2999-01-01"), "docs: some day",
         r"is of 2999-01-01, which is to come"),
        (lambda: clone.edit("CHANGELOG.md", heading, "## 8.8.8, 2026-01-02"), "docs: another section",
         rf"no section `## {version}, DATE`"),
        (lambda: clone.edit("CHANGELOG.md", heading, f"{heading}\n\n## 0.0.9, 2025-01-01"), "docs: an empty one",
         rf"says nothing about {version}"),
        (lambda: clone.edit("packaging/addresses.txt", "vigil.invalid", "vigil.example"), "packaging: nowhere",
         r"home is a placeholder"),
        *((lambda path=path: clone.write(path, (clone.folder / path).read_text().replace("vigil.invalid", "vigil.example")),
           "docs: a forgotten address", rf"{path}:\d+: \S*vigil\.example\S* is not in packaging/addresses\.txt")
          for path in ADDRESSED[1:]),
        (lambda: clone.edit("tools/man/vigil-symbols.1", f'"vigil {version}"', '"vigil 9.9.9"'), "docs: an old page",
         rf"the version is {version}, and 9\.9\.9 in tools/man/vigil-symbols\.1"),
        (lambda: (clone.folder / "packaging/addresses.txt").unlink(), "packaging: no addresses",
         r"has no packaging/addresses\.txt"),
        (lambda: clone.write("a_new_file", ""), "A title without an area", r"check_commits\.py does not pass:"),
        (lambda: clone.git("tag", f"v{version}"), "tests: a tag", rf"there is a tag v{version}"),
    ]
    ready = clone.git("rev-parse", "HEAD").strip()
    for change, message, says in cases:
        change()
        if message:
            clone.commit(message)
        status, said = clone.release(out)
        if status != 1 or not re.search(says, said) or not said.endswith("nothing was made\n") or out.exists():
            sys.exit(f"ended with {status}, not with 1 and {says}:\n{said}")
        print("refused:", re.search(says, said)[0].replace("\n", " "))
        clone.git("reset", "--quiet", "--hard", ready)
        clone.git("clean", "--quiet", "-fd")
        clone.git("tag", "--delete", *clone.git("tag").split()) if clone.git("tag") else None
    out.mkdir()
    (out / "mine").touch()
    inside = clone.folder / "release"
    for folder, says in ((out, "is there and not empty"), (inside, "lies in the tree")):
        before = contents(folder) if folder.exists() else None
        status, said = clone.release(folder)
        if status != 1 or says not in said or (contents(folder) if folder.exists() else None) != before:
            sys.exit(f"ended with {status}, not with 1 and {says}:\n{said}")
        print("refused:", says)
    shutil.rmtree(out)
    nowhere = subprocess.run([sys.executable, ROOT / "tools" / "release", f"--root={out.parent}", out],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=WHO)
    if nowhere.returncode != 1 or repository.NONE not in nowhere.stdout or "Traceback" in nowhere.stdout:
        sys.exit(f"outside of a repository: {nowhere.returncode}\n{nowhere.stdout}")
    print("refused: a folder that is no repository")
    # The files that git leaves out, or changes, on somebody's machine alone.
    attributes = clone.folder / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("README.md export-ignore\n")
    status, said = clone.release(out)
    if status != 1 or "the archive is not the commit" not in said or "README.md" not in said or out.exists():
        sys.exit(f"an archive without README.md: {status}\n{said}")
    print("refused: an archive that is not the commit")
    attributes.unlink()


def check_made(clone, out):
    # What git ignores beside a recipe is no part of it.
    (clone.folder / ".git" / "info" / "exclude").write_text("*.swp\n")
    (clone.folder / "packaging" / "conan" / ".conanfile.py.swp").write_bytes(b"\x80\xff")
    # What abidw writes is no work that is to be cut into a series.
    clone.write("packaging/abi/vigil.abi", "<line/>\n" * 900)
    clone.commit("packaging: another ABI")
    status, said = clone.release(out)
    if status != 0:
        sys.exit(f"a release that nothing is wrong with is refused:\n{said}")
    version, made = clone.version, contents(out)
    # Signing, tagging and pushing are the maintainer's.
    for command in (f"git tag --sign --cleanup=whitespace --file={out}/tag.txt v{version} ",
                    "gpg --armor --detach-sign", "git push https://vigil.invalid/vigil.git v"):
        if command not in said:
            sys.exit(f"the commands lack `{command}`:\n{said}")
    if clone.git("tag"):
        sys.exit("a tag has been made")
    other = out.parent / "again"
    clone.git("config", "tar.umask", "0077")
    clone.release(other)
    if contents(other) != made:
        sys.exit("two releases of one commit differ")

    name = release_files.archive_name(version)
    checksum = hashlib.sha256(made[name]).hexdigest()
    if made[name][:10] != bytes.fromhex("1f8b08000000000002ff"):
        sys.exit(f"the archive's header is {made[name][:10].hex(' ')}")
    if swapped := [file for file in made if file.endswith(".swp")]:
        sys.exit(f"files that git ignores are in a release: {swapped}")
    fetch = made["fetch_content.cmake"].decode()
    for text in (f"URL https://vigil.invalid/releases/{name}\n", f"URL_HASH SHA256={checksum})"):
        if text not in fetch:
            sys.exit(f"fetch_content.cmake lacks {text}:\n{fetch}")
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=out)
    for file in (name, "vigil.wrap"):
        if f"  {file}\n" not in made["SHA256SUMS"].decode():
            sys.exit(f"SHA256SUMS lacks {file}")
    with tarfile.open(out / name) as archive:
        names = {m.name for m in archive if m.isfile() or m.issym()}
    wanted = {f"vigil-{version}/{path}" for path in clone.git("ls-files").splitlines()}
    if names != wanted:
        sys.exit(f"the archive has other files than the commit: {sorted(names ^ wanted)[:9]}")
    wrap = made["vigil.wrap"].decode()
    for line in (f"directory = vigil-{version}", f"source_hash = {checksum}",
                 f"source_url = https://vigil.invalid/releases/{name}"):
        if line not in wrap.splitlines():
            sys.exit(f"vigil.wrap lacks `{line}`:\n{wrap}")
    left = [file for file, data in made.items() if file != name and re.search(rb"@[A-Z0-9]+@", data)]
    if left:
        sys.exit(f"values are not filled in: {left}")
    tag = made["tag.txt"].decode()
    if not tag.startswith(f"vigil {version}\n\n") or re.search(r"^#|\w\]\(", tag, re.M) or len(tag) < 500:
        sys.exit(f"tag.txt:\n{tag[:500]}")
    return said


def check_rehearsal(clone, folder):
    clone.edit("CHANGELOG.md", f"## {clone.version}, 2026-01-02", f"## {clone.version}, in work")
    for path in ADDRESSED:
        clone.write(path, (clone.folder / path).read_text().replace("vigil.invalid", "vigil.example"))
    shutil.copy(ROOT / "SECURITY.md", clone.folder)
    clone.commit("tests: not yet")
    status, said = clone.release(folder, "--rehearsal")
    if status != 0 or "has no date" not in said or "placeholder" not in said or "git tag" in said:
        sys.exit(f"a rehearsal ends with {status}:\n{said}")


def main():
    need_repository(ROOT)
    if repository.git(ROOT, "rev-parse", "--is-shallow-repository").strip() == "true":
        skip("the clone is shallow, and the titles of all commits are checked before a release")
    with tempfile.TemporaryDirectory(prefix="vigil-release-") as folder:
        folder = Path(folder).resolve()
        (folder / "gitconfig").write_text("[safe]\n\tdirectory = *\n")
        WHO["GIT_CONFIG_GLOBAL"] = str(folder / "gitconfig")
        clone = Clone(folder / "clone")
        check_refusals(clone, folder / "out")
        print("\n" + check_made(clone, folder / "out"))
        check_rehearsal(clone, folder / "rehearsal")


if __name__ == "__main__":
    main()
