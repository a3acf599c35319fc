# Not run with ConanCenter's Boost yet: Conan 2.9 ran it with the system's, without vigil-io.
"""vigil for Conan 2: conan create . --version=VERSION, beside a conandata.yml that has it."""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get

required_conan_version = ">=2.0"


class VigilConan(ConanFile):
    name = "vigil"
    description = "Fibers, channels, select and one timer service for programs that mostly wait"
    license = "BSL-1.0"
    homepage = "@HOME@"
    topics = ("fibers", "channels", "timers", "asio", "concurrency")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "with_io": [True, False],
        "with_tls": [True, False],
        "with_inspect": [True, False],
    }
    default_options = {
        "shared": False,
        "fPIC": True,
        "with_io": True,
        "with_tls": False,
        "with_inspect": False,
        "boost/*:header_only": False,
        "boost/*:without_context": False,
    }

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def requirements(self):
        # The headers of vigil-io include those of Asio, and a static library needs
        # Boost.Context when a program is linked.
        self.requires("boost/[>=1.81.0 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_tls:
            self.requires("openssl/[>=3.0 <4]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration("vigil runs on Linux on x86-64")
        if self.options.with_tls and not self.options.with_io:
            raise ConanInvalidConfiguration("with_tls needs with_io")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["VIGIL_IO"] = bool(self.options.with_io)
        toolchain.cache_variables["VIGIL_TLS"] = "ON" if self.options.with_tls else "OFF"
        toolchain.cache_variables["VIGIL_INSPECT"] = bool(self.options.with_inspect)
        toolchain.cache_variables["VIGIL_INSTALL"] = True
        # No libdw of the system gets into the package.
        toolchain.cache_variables["VIGIL_SYMBOLS"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # find_package(vigil) reads vigil's own file. What follows is for other generators.
        self.cpp_info.set_property("cmake_find_mode", "none")

        vigil = self._component("vigil", ["boost::context"])
        vigil.builddirs = [os.path.join("lib", "cmake", "vigil")]
        vigil.system_libs = ["pthread"]
        vigil.cxxflags = ["-fstack-clash-protection"]
        if self.options.shared:
            vigil.defines = ["VIGIL_SHARED"]
        if self.options.with_io:
            io = self._component("vigil-io", ["vigil", "boost::headers"])
            io.defines = ["BOOST_ASIO_SEPARATE_COMPILATION"]
            if not self.options.shared:
                io.defines.append("BOOST_ASIO_DISABLE_VISIBILITY")
        if self.options.with_tls:
            self._component("vigil-tls", ["vigil-io", "openssl::ssl", "openssl::crypto"])
        if self.options.with_inspect:
            self._component("vigil-inspect", ["vigil"])
            self._component("vigil-lock-check", ["vigil-inspect"])
            if self.options.with_io:
                self._component("vigil-inspect-page", ["vigil-inspect", "vigil-io"])
        if not self.options.shared:
            # What links the static libraries exports nothing of them.
            hidden = [f"-Wl,--exclude-libs,lib{name}.a" for name in self.cpp_info.components]
            vigil.sharedlinkflags = vigil.exelinkflags = hidden

    def _component(self, name, requires):
        component = self.cpp_info.components[name]
        component.libs = [name]
        component.requires = requires
        component.set_property("pkg_config_name", name)
        return component
