"""What a release is made of: the archive, its checksums, the tag's text, recipes.

Each file depends on nothing but the commit and the zlib that compresses the archive: two
people with the same zlib get the same bytes.
"""
import gzip
import hashlib
import io
import re
import subprocess
import tarfile
from pathlib import Path

RECIPES = ("conan", "vcpkg", "wrapdb")  # folders of packaging/
SECTION = re.compile(r"^## (\d+\.\d+\.\d+), ([^\n]+)\n(.*?)(?=^## |\Z)", re.M | re.S)
LIST = "SHA256SUMS"


def text_of(root, path):
    return (Path(root) / path).read_text()


def version_of(root):
    return ".".join(re.findall(r"^#define VIGIL_VERSION_[MP][A-Z]+ (\d+)$", text_of(root, "include/vigil/version.hpp"), re.M))


def addresses_of(root):
    lines = text_of(root, "packaging/addresses.txt").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def archive_name(version):
    return f"vigil-{version}.tar.gz"


def archive(root, commit, version):
    """The bytes of the compressed archive of a commit, each file of which has been compared."""
    settings = ["tar.umask=0022", "core.autocrlf=false", "core.eol=lf", "core.attributesFile=/dev/null"]
    packed = subprocess.run(
        ["git", "-C", root, *(word for s in settings for word in ("-c", s)),
         "archive", "--format=tar", f"--prefix=vigil-{version}/", commit],
        capture_output=True, check=True).stdout
    wrong = differences(root, commit, f"vigil-{version}/", packed)
    if wrong:
        raise ValueError("the archive is not the commit, see gitattributes(5): " + ", ".join(wrong))
    # Byte 9 names a system; what Python writes there depends on its version. 255: unknown.
    data = gzip.compress(packed, 9, mtime=0)
    return data[:9] + b"\xff" + data[10:]


def differences(root, commit, prefix, packed):
    """The files in which an archive differs from its commit."""
    listed = subprocess.run(["git", "-C", root, "ls-tree", "-r", "-z", commit],
                            capture_output=True, check=True).stdout.decode()
    wanted = {}
    for entry in filter(None, listed.split("\0")):
        mode, kind, name, path = re.fullmatch(r"(\d+) (\w+) (\w+)\t(.*)", entry, re.S).groups()
        wanted[path] = (kind, name)
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for member in files:
            if member.isdir():
                continue
            data = member.linkname.encode() if member.issym() else files.extractfile(member).read()
            found[member.name.removeprefix(prefix)] = ("blob", object_name(data))
    return sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))


def object_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def section_of(root, version):
    """What CHANGELOG.md says of a version: (what follows the version in the heading, text)."""
    for found, when, text in SECTION.findall(text_of(root, "CHANGELOG.md")):
        if found == version:
            return when, text.strip()
    return None, ""


def tag_text(root, version):
    """The text of an annotated tag: the section, for a reader without Markdown."""
    _, text = section_of(root, version)
    text = re.sub(r"^#+ (.*)$", r"\1:", text, flags=re.M)
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    return f"vigil {version}\n\n{text}\n"


def fetch_lines(root):
    """The lines of README.md by which CMake gets an archive."""
    found = re.search(r"```cmake\n(include\(FetchContent\)\n.*?)```", text_of(root, "README.md"), re.S)
    return found[1] if found else ""


def recipes_of(root, commit):
    """The recipes of a commit, whatever else lies in their folders: (name, text)."""
    def said(*arguments):
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, check=True).stdout.decode()

    paths = [f"packaging/{folder}" for folder in RECIPES]
    for path in filter(None, said("ls-tree", "-r", "-z", "--name-only", commit, *paths).split("\0")):
        yield path.removeprefix("packaging/"), said("cat-file", "blob", f"{commit}:{path}")


def filled(text, values):
    return re.sub(r"@([A-Z0-9]+)@", lambda m: values.get(m[1], m[0]), text)


def files_of(root, commit):
    """All files of a release: {name: bytes}."""
    version, addresses = version_of(root), addresses_of(root)
    packed = archive(root, commit, version)
    values = {"VERSION": version, "SHA256": hashlib.sha256(packed).hexdigest(),
              "SHA512": hashlib.sha512(packed).hexdigest()}
    values |= {key.upper(): filled(address, values) for key, address in addresses.items()}
    files = {archive_name(version): packed, "tag.txt": tag_text(root, version).encode()}
    for name, text in recipes_of(root, commit):
        files[name] = filled(text, values).encode()
    files["vigil.wrap"] = files["wrapdb/subprojects/vigil.wrap"]
    if lines := fetch_lines(root):
        lines = re.sub(r"URL \S+", "URL " + values["ARCHIVE"], lines)
        lines = re.sub(r"URL_HASH SHA256=[^\s)]+", "URL_HASH SHA256=" + values["SHA256"], lines)
        files["fetch_content.cmake"] = lines.encode()
    files[LIST] = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n"
                          for name, data in sorted(files.items()) if name != "tag.txt").encode()
    return files
