// Includes all of vigil-io, Boost.Asio for fibers. TLS, which needs OpenSSL, is a
// separate library and header: vigil/io/tls.hpp.
#pragma once

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/executor.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/memory_executor.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/pending.hpp>
#include <vigil/io/resolve.hpp>
#include <vigil/io/select.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/io/use_fiber.hpp>
