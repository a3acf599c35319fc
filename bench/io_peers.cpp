// The same round trip with Asio's coroutines and with libuv.
#include "io.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <unistd.h>
#ifdef VIGIL_BENCH_LIBUV
#include <uv.h>
#endif

namespace bench {

#ifdef BOOST_ASIO_HAS_CO_AWAIT
namespace {

namespace asio = boost::asio;
using unix_socket = asio::local::stream_protocol::socket;

asio::awaitable<void> talk(unix_socket& s, std::size_t n, bool begins) {
  char byte = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (begins) co_await s.async_write_some(asio::buffer(&byte, 1), asio::use_awaitable);
    co_await s.async_read_some(asio::buffer(&byte, 1), asio::use_awaitable);
    if (!begins) co_await s.async_write_some(asio::buffer(&byte, 1), asio::use_awaitable);
  }
}

asio::awaitable<void> read_one(unix_socket s) {
  char byte = 0;
  co_await s.async_read_some(asio::buffer(&byte, 1), asio::use_awaitable);
}

}  // namespace

void asio_coroutines_talk(std::size_t n) {
  asio::io_context context(1);
  unix_socket near(context);
  unix_socket far(context);
  asio::local::connect_pair(near, far);
  asio::co_spawn(context, talk(far, n, false), asio::detached);
  asio::co_spawn(context, talk(near, n, true), asio::detached);
  context.run();
}

double asio_waiting_read_bytes(std::size_t n) {
  asio::io_context context(1);
  unix_socket near(context);
  unix_socket far(context);
  asio::local::connect_pair(near, far);
  const auto read_from_copy = [&] {
    asio::co_spawn(
        context,
        read_one(unix_socket(context, asio::local::stream_protocol(), ::dup(near.native_handle()))),
        asio::detached);
    context.poll();
  };
  read_from_copy();
  const std::size_t before = memory_held();
  for (std::size_t i = 0; i < n; ++i)
    read_from_copy();
  return (static_cast<double>(memory_held()) - static_cast<double>(before)) /
         static_cast<double>(n);
}
#endif

#ifdef VIGIL_BENCH_LIBUV
namespace {

struct end {
  uv_pipe_t pipe;
  std::size_t left;
  bool begins;
  char byte;
};

void put_one(uv_pipe_t& pipe) {
  char byte = 0;
  uv_buf_t out = uv_buf_init(&byte, 1);
  if (uv_try_write(reinterpret_cast<uv_stream_t*>(&pipe), &out, 1) != 1) std::abort();
}

void got_one(uv_stream_t* stream, ssize_t n, const uv_buf_t*) {
  if (n <= 0) return;
  end& e = *static_cast<end*>(stream->data);
  --e.left;
  if (!e.begins || e.left != 0) put_one(e.pipe);
  if (e.left == 0) uv_close(reinterpret_cast<uv_handle_t*>(stream), nullptr);
}

void give_room(uv_handle_t* handle, std::size_t, uv_buf_t* room) {
  *room = uv_buf_init(&static_cast<end*>(handle->data)->byte, 1);
}

}  // namespace

void libuv_talks(std::size_t n) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) != 0) std::abort();
  std::array<end, 2> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    end& e = ends[i];
    e.left = n;
    e.begins = i == 0;
    uv_pipe_init(&loop, &e.pipe, 0);
    e.pipe.data = &e;
    uv_pipe_open(&e.pipe, fds[i]);
    uv_read_start(reinterpret_cast<uv_stream_t*>(&e.pipe), &give_room, &got_one);
  }
  put_one(ends[0].pipe);
  uv_run(&loop, UV_RUN_DEFAULT);
  uv_loop_close(&loop);
}
#endif

}  // namespace bench
