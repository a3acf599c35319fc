// Asio is compiled into vigil-io. A file that took it from the headers instead would
// bring a second copy into the program, silently.
#pragma once

#include <vigil/detail/config.hpp>

#include <boost/asio/detail/config.hpp>

#if defined(BOOST_ASIO_HEADER_ONLY)
#error \
    "vigil/io needs -DBOOST_ASIO_SEPARATE_COMPILATION, in each file that includes Asio: link CMake's vigil::io or meson's vigil-io to the target of this file, or take pkg-config --cflags vigil-io"
#endif
