# Not run by vcpkg itself yet: tests/packaging/recipes_test.py runs these steps without it.
# By hand they were run once with vcpkg's scripts of August 2026 (all features, static), but
# with the system's Boost and without vcpkg's own look at the result.
vcpkg_download_distfile(ARCHIVE
  URLS "@ARCHIVE@"
  FILENAME "vigil-@VERSION@.tar.gz"
  SHA512 @SHA512@
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    inspect VIGIL_INSPECT
    io      VIGIL_IO
    tls     VIGIL_TLS
)

# One build for both of vcpkg's: programs with and without debug information may link the
# same vigil, and those with -D_GLIBCXX_DEBUG as well.
set(VCPKG_BUILD_TYPE release)

# No libdw of the system gets into the package: frames have addresses, to which
# vigil-symbols gives names.
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DVIGIL_INSTALL=ON
    -DVIGIL_SYMBOLS=OFF
)
vcpkg_cmake_install()

# The package's own file finds the libraries from where it lies.
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/vigil NO_PREFIX_CORRECTION)
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/vigil/vigil-config.cmake"
  "\${_vigil_here}/../../.."
  "\${_vigil_here}/../../../lib"
)

set(tools "")
if("inspect" IN_LIST FEATURES)
  list(APPEND tools vigil-symbols)
endif()
if("io" IN_LIST FEATURES)
  list(APPEND tools vigil-asio-check)
endif()
if(tools)
  vcpkg_copy_tools(TOOL_NAMES ${tools} AUTO_CLEAN)
endif()
# A copy of gdb's script by the path of a shared library, which is another one later.
if(VCPKG_LIBRARY_LINKAGE STREQUAL "dynamic")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/gdb")
endif()

file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
