"""Stands in for Conan 2, which Debian has not: the part of it that vigil's recipe calls.

install() puts modules named as Conan's into sys.modules; a recipe is then imported as is.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import types
from pathlib import Path
from types import SimpleNamespace


class Refused(Exception):
    """ConanInvalidConfiguration."""


class Options(SimpleNamespace):
    def rm_safe(self, name):
        self.__dict__.pop(name, None)


class Component(SimpleNamespace):
    def __init__(self):
        super().__init__(libs=[], requires=[], defines=[], cxxflags=[], system_libs=[], exelinkflags=[],
                         sharedlinkflags=[], builddirs=[], properties={})

    def set_property(self, name, value):
        self.properties[name] = value


class Components(dict):
    def __missing__(self, name):
        return self.setdefault(name, Component())


class ConanFile:
    """`work` is where the recipe's folders are."""

    def prepare(self, work, archive, version, data, compiler_options, **options):
        self.version, self.conan_data = version, data
        self.work, self.archive, self.compiler_options = Path(work), archive, compiler_options
        self.source_folder = str(self.work / "src")
        self.build_folder, self.package_folder = str(self.work / "build"), str(self.work / "package")
        self.settings = SimpleNamespace(os="Linux", arch="x86_64", compiler="gcc", build_type="Release")
        own = {k: v for k, v in self.default_options.items() if "/" not in k}
        wrong = [name for name, value in {**own, **options}.items() if value not in self.options[name]]
        if wrong or set(own) != set(self.options):
            raise ValueError(f"options without a value, or with one that they cannot have: {wrong}")
        self.options = Options(**{**own, **options})
        self.wanted = {}
        self.cpp_info = Component()
        self.cpp_info.components = Components()
        self.cache_variables = {}
        return self

    def requires(self, reference, **traits):
        self.wanted[reference.split("/")[0]] = (reference, traits)


class CMakeToolchain:
    def __init__(self, recipe):
        self.recipe, self.cache_variables = recipe, {}

    def generate(self):
        self.recipe.cache_variables = self.cache_variables


class CMakeDeps:
    def __init__(self, recipe):
        pass

    def generate(self):
        """Boost and OpenSSL are the system's."""


class CMake:
    def __init__(self, recipe):
        self.recipe = recipe

    def call(self, *arguments):
        done = subprocess.run(["cmake", *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            sys.exit(f"cmake {' '.join(arguments)}\nfailed:\n{done.stdout}")
        if re.search(r"not used by the project.*VIGIL_", done.stdout, re.S):
            sys.exit(f"the recipe sets an option that vigil has not:\n{done.stdout}")

    def configure(self):
        recipe = self.recipe
        values = {name: {True: "ON", False: "OFF"}.get(value, value)
                  for name, value in recipe.cache_variables.items()}
        # What Conan's toolchain makes of settings and of the options that it knows.
        values |= {"BUILD_SHARED_LIBS": "ON" if recipe.options.shared else "OFF",
                   "CMAKE_INSTALL_PREFIX": recipe.package_folder, "CMAKE_INSTALL_LIBDIR": "lib",
                   "CMAKE_BUILD_TYPE": recipe.settings.build_type}
        self.call("-G", "Ninja", "-S", recipe.source_folder, "-B", recipe.build_folder,
                  *recipe.compiler_options, *(f"-D{name}={value}" for name, value in values.items()))

    def build(self):
        self.call("--build", self.recipe.build_folder)

    def install(self):
        self.call("--install", self.recipe.build_folder)


def get(recipe, url, sha256, strip_root=False):
    data = Path(recipe.archive).read_bytes()
    name = os.path.basename(recipe.archive)
    if hashlib.sha256(data).hexdigest() != sha256 or not url.endswith("/" + name) or not strip_root:
        sys.exit(f"the recipe asks for another archive: {url} {sha256}")
    unpacked = recipe.work.parent / "unpacked"
    if not unpacked.exists():  # other options have been tried before
        with tarfile.open(recipe.archive) as archive:
            archive.extractall(unpacked)
    (top,) = unpacked.iterdir()
    os.symlink(top, recipe.source_folder)


def copy(recipe, name, source, to):
    os.makedirs(to, exist_ok=True)
    shutil.copy(os.path.join(source, name), to)


def install():
    modules = {
        "conan": {"ConanFile": ConanFile},
        "conan.errors": {"ConanInvalidConfiguration": Refused},
        "conan.tools": {},
        "conan.tools.build": {"check_min_cppstd": lambda recipe, standard: None, "can_run": lambda recipe: True},
        "conan.tools.cmake": {"CMake": CMake, "CMakeDeps": CMakeDeps, "CMakeToolchain": CMakeToolchain,
                              "cmake_layout": lambda recipe, **more: None},
        "conan.tools.files": {"copy": copy, "get": get},
    }
    for name, contents in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules[name] = module


def flags_of(recipe, name):
    """A compiler's arguments for a component, as Conan makes them for other builds than CMake."""
    order, rest = [], [name]
    while rest:
        current = rest.pop(0)
        if "::" not in current:
            order.append(current)
            rest += recipe.cpp_info.components[current].requires
    order = [n for i, n in enumerate(order) if n not in order[i + 1:]]
    components = [recipe.cpp_info.components[n] for n in order]
    outside = {"boost::context": ["-lboost_context"], "boost::headers": [], "openssl::ssl": ["-lssl"],
               "openssl::crypto": ["-lcrypto"]}
    package = Path(recipe.package_folder)
    flags = [f"-I{package / 'include'}", f"-L{package / 'lib'}"]
    flags += [f"-D{d}" for c in components for d in c.defines] + [f for c in components for f in c.cxxflags]
    flags += [f for c in components for f in c.exelinkflags] + [f"-l{lib}" for c in components for lib in c.libs]
    flags += [f for c in components for r in c.requires if "::" in r for f in outside[r]]
    return flags + [f"-l{lib}" for c in components for lib in c.system_libs]
