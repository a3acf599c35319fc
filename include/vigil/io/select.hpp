// on_read and on_write: the cases with which a select waits for a stream, beside
// channels, timeouts, contexts and operations that have names (pending.hpp).
//
//   vigil::select(
//       io::on_read(peer, asio::buffer(bytes), [&](std::size_t n) { ... }),
//       vigil::on_recv(orders, [&](std::optional<order> o) { ... }),
//       vigil::on_timeout(30s, [&] { ... }));
//
// The case waits until the stream is ready, and transfers bytes only when it is taken: if
// another case is taken, no operation is left on the stream, no byte is lost, and the
// buffers are untouched. If the bytes are gone by then, the select waits on.
//
// It is for a deadline_stream over a socket, or another stream of the kernel's with a
// descriptor, and over a memory_stream. A tls_stream is refused: its bytes come in
// records that a read may have to wait for. Let a fiber read it, and send on a channel.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/stream_case.hpp>
#include <vigil/io/pending.hpp>
#include <vigil/select.hpp>

#include <utility>

namespace VIGIL_IO {

// Taken when bytes can be read, at once if the buffers are empty. f takes their number,
// or an error_code and it, or nothing. The errors are those of read_some(): eof, the read
// deadline's timed_out, operation_aborted by close(), bad_descriptor after it; unless f
// takes the error_code, they come out of select() as boost::system::system_error. While
// another call reads, or another case of the same select does, the error is
// already_started; a read_some() meanwhile waits until the select is over.
//
// Throws what moving f throws; select() throws wrong_place if it would have to wait
// outside a fiber, or in a handler of the stream's io_context, and std::bad_alloc. Thread
// safety: that of the stream's calls. Lifetime: the stream and the memory of its buffers
// must outlive the select, and a case_list with the case. Shutdown: taken if bytes are
// there; otherwise `stopped`. Cost: that of read_some().
template <class Stream, class Buffers, class F = vigil::detail::nothing>
[[nodiscard]] auto on_read(Stream& s, const Buffers& buffers, F f = {}) {
  static_assert(detail::can_be_selected<Stream>,
                "on_read(stream, ...): the stream must be a deadline_stream over a socket or a "
                "memory_stream. For a tls_stream, let a fiber call it and use a channel; for an "
                "asynchronous operation of Asio's use io::pending");
  return detail::typed_stream_case<true, typename Stream::next_layer_type, Buffers, F>(
      s, buffers, std::move(f));
}

// Taken when bytes can be written, at once if the buffers are empty: as many as there is
// room for, so perhaps not all. Otherwise as on_read(), with the write deadline. Throws
// as on_read. Thread safety: that of on_read. Lifetime: that of on_read. Shutdown: taken
// if there is room; otherwise `stopped`. Cost: that of write_some().
template <class Stream, class Buffers, class F = vigil::detail::nothing>
[[nodiscard]] auto on_write(Stream& s, const Buffers& buffers, F f = {}) {
  static_assert(detail::can_be_selected<Stream>,
                "on_write(stream, ...): the stream must be a deadline_stream over a socket or a "
                "memory_stream. For a tls_stream, let a fiber call it and use a channel; for an "
                "asynchronous operation of Asio's use io::pending");
  return detail::typed_stream_case<false, typename Stream::next_layer_type, Buffers, F>(
      s, buffers, std::move(f));
}

}  // namespace VIGIL_IO
