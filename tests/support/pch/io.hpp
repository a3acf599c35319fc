// Like unit.hpp, for the tests of vigil-io: Asio is slow to compile.
#include "support/pch/unit.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>

#include <boost/asio.hpp>
