// Every initiating function that Asio 1.81 has on Linux, in each of its overloads, takes
// use_fiber and returns the type that the head of use_fiber.hpp says; and each wrapper is
// put around it for one overload of each shape. Nothing here is run or even linked: all
// operands are unevaluated.
//
// Files (stream_file, random_access_file) are missing, because Asio needs io_uring for
// them; they have the shapes of pipes and of read_at and write_at.
//
// It takes 12 s of one processor with g++ 12 and 8 s with clang 14, unoptimised: many of
// these functions deduce their return type, and so are instantiated all the same.
#include <vigil/io/use_fiber.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <boost/asio.hpp>
#include <boost/asio/deadline_timer.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/experimental/co_spawn.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/experimental/coro.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/experimental/promise.hpp>
#include <boost/asio/experimental/use_coro.hpp>
#include <boost/asio/experimental/use_promise.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/regex.hpp>
#if __has_include(<openssl/ssl.h>)
#include <boost/asio/ssl.hpp>
#endif

namespace vigil::compiles {

namespace asio = boost::asio;
namespace experimental = boost::asio::experimental;
using boost::system::error_code;
using io::use_fiber;
using std::size_t;
using tcp = asio::ip::tcp;
using udp = asio::ip::udp;
using icmp = asio::ip::icmp;
using seq_packet = asio::generic::seq_packet_protocol;
using unix_stream = asio::local::stream_protocol;

template <class Got, class Expected>
concept gives = std::same_as<Got, Expected>;

// Declared, never defined.
extern asio::io_context context;
extern asio::io_context::executor_type executor;
extern asio::any_io_executor any_executor;
extern asio::mutable_buffer room;
extern asio::const_buffer bytes;
extern std::array<asio::mutable_buffer, 2> rooms;
extern std::string text;
extern asio::streambuf stream_buffer;
extern tcp::socket socket;
extern tcp::endpoint endpoint;
extern tcp::acceptor acceptor;
extern tcp::resolver resolver;
extern std::vector<tcp::endpoint> endpoints;
extern udp::socket datagrams;
extern udp::endpoint udp_endpoint;
extern icmp::socket raw;
extern icmp::endpoint raw_endpoint;
extern asio::basic_seq_packet_socket<seq_packet> packets;
extern asio::socket_base::message_flags flags;
extern asio::readable_pipe readable;
extern asio::writable_pipe writable;
extern asio::serial_port serial;
extern asio::posix::stream_descriptor descriptor;
extern asio::signal_set signals;
extern asio::steady_timer timer;
extern asio::deadline_timer old_timer;
extern asio::buffered_read_stream<tcp::socket> buffered_reads;
extern asio::buffered_write_stream<tcp::socket> buffered_writes;
extern asio::buffered_stream<tcp::socket> buffered;
extern boost::regex expression;
extern asio::yield_context yield;

size_t condition(const error_code& error, size_t n);
bool connect_condition(const error_code& error, const tcp::endpoint& next);

using text_iterator = asio::buffers_iterator<asio::const_buffer>;

struct match {
  using result_type = std::pair<text_iterator, bool>;
  template <class Iterator>
  std::pair<Iterator, bool> operator()(Iterator begin, Iterator end) const;
};

extern match matches;

struct random_access {
  using executor_type = asio::any_io_executor;
  executor_type get_executor();
  template <class Buffers, class Token>
  void async_read_some_at(std::uint64_t at, const Buffers& buffers, Token&& token);
  template <class Buffers, class Token>
  void async_write_some_at(std::uint64_t at, const Buffers& buffers, Token&& token);
};

extern random_access device;

asio::awaitable<int> number();
asio::awaitable<void> nothing();
int number_in(asio::yield_context);
void nothing_in(asio::yield_context);

struct stack_allocator {
  using traits_type = boost::context::stack_traits;
  boost::context::stack_context allocate();
  void deallocate(boost::context::stack_context&);
};

extern stack_allocator stacks;
extern asio::strand<asio::any_io_executor> strand;

// --- functions

static_assert(gives<decltype(asio::post(use_fiber)), void>);
static_assert(gives<decltype(asio::post(executor, use_fiber)), void>);
static_assert(gives<decltype(asio::post(context, use_fiber)), void>);
static_assert(gives<decltype(asio::dispatch(use_fiber)), void>);
static_assert(gives<decltype(asio::dispatch(executor, use_fiber)), void>);
static_assert(gives<decltype(asio::dispatch(context, use_fiber)), void>);
static_assert(gives<decltype(asio::defer(use_fiber)), void>);
static_assert(gives<decltype(asio::defer(executor, use_fiber)), void>);
static_assert(gives<decltype(asio::defer(context, use_fiber)), void>);

static_assert(gives<decltype(asio::co_spawn(executor, number(), use_fiber)), int>);
static_assert(gives<decltype(asio::co_spawn(executor, nothing(), use_fiber)), void>);
static_assert(gives<decltype(asio::co_spawn(context, number(), use_fiber)), int>);
static_assert(gives<decltype(asio::co_spawn(context, nothing(), use_fiber)), void>);
static_assert(gives<decltype(asio::co_spawn(executor, number, use_fiber)), int>);
static_assert(gives<decltype(asio::co_spawn(executor, nothing, use_fiber)), void>);
static_assert(gives<decltype(asio::co_spawn(context, number, use_fiber)), int>);
static_assert(gives<decltype(asio::co_spawn(context, nothing, use_fiber)), void>);

static_assert(gives<decltype(asio::spawn(any_executor, number_in, use_fiber)), int>);
static_assert(gives<decltype(asio::spawn(any_executor, nothing_in, use_fiber)), void>);
static_assert(gives<decltype(asio::spawn(context, nothing_in, use_fiber)), void>);
static_assert(gives<decltype(asio::spawn(yield, nothing_in, use_fiber)), void>);
static_assert(
    gives<decltype(asio::spawn(any_executor, std::allocator_arg, stacks, nothing_in, use_fiber)),
          void>);
static_assert(
    gives<decltype(asio::spawn(context, std::allocator_arg, stacks, nothing_in, use_fiber)), void>);
static_assert(
    gives<decltype(asio::spawn(yield, std::allocator_arg, stacks, nothing_in, use_fiber)), void>);

template <class Signature, class Token, class... Objects>
using composed = decltype(asio::async_compose<Token, Signature>(
    [](auto&) {}, std::declval<Token&>(), std::declval<Objects&>()...));
static_assert(gives<composed<void(error_code, int), const io::use_fiber_t>, int>);
static_assert(gives<composed<void(error_code, int), const io::use_fiber_t, tcp::socket>, int>);

static_assert(gives<decltype(asio::async_connect(socket, endpoints, use_fiber)), tcp::endpoint>);
static_assert(gives<decltype(asio::async_connect(socket, endpoints.begin(), use_fiber)),
                    std::vector<tcp::endpoint>::iterator>);
static_assert(
    gives<decltype(asio::async_connect(socket, endpoints.begin(), endpoints.end(), use_fiber)),
          std::vector<tcp::endpoint>::iterator>);
static_assert(gives<decltype(asio::async_connect(socket, endpoints, connect_condition, use_fiber)),
                    tcp::endpoint>);
static_assert(
    gives<decltype(asio::async_connect(socket, endpoints.begin(), connect_condition, use_fiber)),
          std::vector<tcp::endpoint>::iterator>);
static_assert(gives<decltype(asio::async_connect(
                        socket, endpoints.begin(), endpoints.end(), connect_condition, use_fiber)),
                    std::vector<tcp::endpoint>::iterator>);

static_assert(gives<decltype(asio::async_read(socket, room, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_read(socket, rooms, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_read(socket, room, condition, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_read(socket, asio::dynamic_buffer(text), use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_read(socket, asio::dynamic_buffer(text), condition, use_fiber)),
          size_t>);
static_assert(gives<decltype(asio::async_read(socket, stream_buffer, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_read(socket, stream_buffer, condition, use_fiber)), size_t>);

static_assert(gives<decltype(asio::async_write(socket, bytes, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_write(socket, bytes, condition, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_write(socket, asio::dynamic_buffer(text), use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_write(socket, asio::dynamic_buffer(text), condition, use_fiber)),
          size_t>);
static_assert(gives<decltype(asio::async_write(socket, stream_buffer, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_write(socket, stream_buffer, condition, use_fiber)), size_t>);

static_assert(gives<decltype(asio::async_read_at(device, 0, room, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_read_at(device, 0, room, condition, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_read_at(device, 0, stream_buffer, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_read_at(device, 0, stream_buffer, condition, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_write_at(device, 0, bytes, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_write_at(device, 0, bytes, condition, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_write_at(device, 0, stream_buffer, use_fiber)), size_t>);
static_assert(
    gives<decltype(asio::async_write_at(device, 0, stream_buffer, condition, use_fiber)), size_t>);

// DynamicBuffer_v1 (a streambuf's reference), DynamicBuffer_v2, and the streambuf.
extern asio::basic_streambuf_ref<std::allocator<char>> first_kind;
#define VIGIL_UNTIL(buffer, what) \
  static_assert(gives<decltype(asio::async_read_until(socket, buffer, what, use_fiber)), size_t>)
VIGIL_UNTIL(first_kind, '\n');
VIGIL_UNTIL(first_kind, "\r\n");
VIGIL_UNTIL(first_kind, std::string_view("\r\n"));
VIGIL_UNTIL(first_kind, expression);
VIGIL_UNTIL(first_kind, matches);
VIGIL_UNTIL(asio::dynamic_buffer(text), '\n');
VIGIL_UNTIL(asio::dynamic_buffer(text), "\r\n");
VIGIL_UNTIL(asio::dynamic_buffer(text), std::string_view("\r\n"));
VIGIL_UNTIL(asio::dynamic_buffer(text), expression);
VIGIL_UNTIL(asio::dynamic_buffer(text), matches);
VIGIL_UNTIL(stream_buffer, '\n');
VIGIL_UNTIL(stream_buffer, "\r\n");
VIGIL_UNTIL(stream_buffer, std::string_view("\r\n"));
VIGIL_UNTIL(stream_buffer, expression);
VIGIL_UNTIL(stream_buffer, matches);
#undef VIGIL_UNTIL
static_assert(gives<decltype(asio::async_read(socket, first_kind, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_read(socket, first_kind, condition, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_write(socket, first_kind, use_fiber)), size_t>);
static_assert(gives<decltype(asio::async_write(socket, first_kind, condition, use_fiber)), size_t>);

// --- sockets

static_assert(gives<decltype(socket.async_connect(endpoint, use_fiber)), void>);
static_assert(gives<decltype(socket.async_wait(tcp::socket::wait_read, use_fiber)), void>);
static_assert(gives<decltype(socket.async_send(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(socket.async_send(bytes, flags, use_fiber)), size_t>);
static_assert(gives<decltype(socket.async_receive(room, use_fiber)), size_t>);
static_assert(gives<decltype(socket.async_receive(room, flags, use_fiber)), size_t>);
static_assert(gives<decltype(socket.async_write_some(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(socket.async_read_some(room, use_fiber)), size_t>);

static_assert(gives<decltype(datagrams.async_connect(udp_endpoint, use_fiber)), void>);
static_assert(gives<decltype(datagrams.async_send(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(datagrams.async_send(bytes, flags, use_fiber)), size_t>);
static_assert(gives<decltype(datagrams.async_send_to(bytes, udp_endpoint, use_fiber)), size_t>);
static_assert(
    gives<decltype(datagrams.async_send_to(bytes, udp_endpoint, flags, use_fiber)), size_t>);
static_assert(gives<decltype(datagrams.async_receive(room, use_fiber)), size_t>);
static_assert(gives<decltype(datagrams.async_receive(room, flags, use_fiber)), size_t>);
static_assert(gives<decltype(datagrams.async_receive_from(room, udp_endpoint, use_fiber)), size_t>);
static_assert(
    gives<decltype(datagrams.async_receive_from(room, udp_endpoint, flags, use_fiber)), size_t>);

static_assert(gives<decltype(raw.async_send(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_send(bytes, flags, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_send_to(bytes, raw_endpoint, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_send_to(bytes, raw_endpoint, flags, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_receive(room, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_receive(room, flags, use_fiber)), size_t>);
static_assert(gives<decltype(raw.async_receive_from(room, raw_endpoint, use_fiber)), size_t>);
static_assert(
    gives<decltype(raw.async_receive_from(room, raw_endpoint, flags, use_fiber)), size_t>);

static_assert(gives<decltype(packets.async_send(bytes, flags, use_fiber)), size_t>);
static_assert(gives<decltype(packets.async_receive(room, flags, use_fiber)), size_t>);
static_assert(gives<decltype(packets.async_receive(room, flags, flags, use_fiber)), size_t>);

static_assert(gives<decltype(acceptor.async_wait(tcp::acceptor::wait_read, use_fiber)), void>);
static_assert(gives<decltype(acceptor.async_accept(socket, use_fiber)), void>);
static_assert(gives<decltype(acceptor.async_accept(socket, endpoint, use_fiber)), void>);
static_assert(gives<decltype(acceptor.async_accept(use_fiber)), tcp::socket>);
static_assert(gives<decltype(acceptor.async_accept(endpoint, use_fiber)), tcp::socket>);
using own_socket = tcp::socket::rebind_executor<asio::io_context::executor_type>::other;
static_assert(gives<decltype(acceptor.async_accept(executor, use_fiber)), own_socket>);
static_assert(gives<decltype(acceptor.async_accept(executor, endpoint, use_fiber)), own_socket>);
static_assert(gives<decltype(acceptor.async_accept(context, use_fiber)), own_socket>);
static_assert(gives<decltype(acceptor.async_accept(context, endpoint, use_fiber)), own_socket>);
static_assert(gives<decltype(acceptor.async_accept(strand, use_fiber)),
                    tcp::socket::rebind_executor<decltype(strand)>::other>);
// A generic socket, and Unix sockets, as the peer.
static_assert(gives<decltype(acceptor.async_accept(
                        std::declval<asio::generic::stream_protocol::socket&>(), use_fiber)),
                    void>);
static_assert(gives<decltype(std::declval<unix_stream::acceptor&>().async_accept(
                        std::declval<unix_stream::socket&>(), use_fiber)),
                    void>);

using addresses = tcp::resolver::results_type;
static_assert(gives<decltype(resolver.async_resolve("host", "80", use_fiber)), addresses>);
static_assert(
    gives<decltype(resolver.async_resolve("host", "80", tcp::resolver::passive, use_fiber)),
          addresses>);
static_assert(
    gives<decltype(resolver.async_resolve(tcp::v4(), "host", "80", use_fiber)), addresses>);
static_assert(gives<decltype(resolver.async_resolve(
                        tcp::v4(), "host", "80", tcp::resolver::passive, use_fiber)),
                    addresses>);
static_assert(gives<decltype(resolver.async_resolve(endpoint, use_fiber)), addresses>);
static_assert(
    gives<decltype(resolver.async_resolve(std::declval<const tcp::resolver::query&>(), use_fiber)),
          addresses>);

// --- other objects

static_assert(gives<decltype(readable.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(writable.async_write_some(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(serial.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(serial.async_write_some(bytes, use_fiber)), size_t>);
static_assert(
    gives<decltype(descriptor.async_wait(asio::posix::descriptor_base::wait_read, use_fiber)),
          void>);
static_assert(gives<decltype(descriptor.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(descriptor.async_write_some(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(signals.async_wait(use_fiber)), int>);
static_assert(gives<decltype(timer.async_wait(use_fiber)), void>);
static_assert(gives<decltype(old_timer.async_wait(use_fiber)), void>);

static_assert(gives<decltype(buffered_reads.async_fill(use_fiber)), size_t>);
static_assert(gives<decltype(buffered_reads.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(buffered_reads.async_write_some(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(buffered_writes.async_flush(use_fiber)), size_t>);
static_assert(gives<decltype(buffered_writes.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(buffered_writes.async_write_some(bytes, use_fiber)), size_t>);
static_assert(gives<decltype(buffered.async_fill(use_fiber)), size_t>);
static_assert(gives<decltype(buffered.async_flush(use_fiber)), size_t>);
static_assert(gives<decltype(buffered.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(buffered.async_write_some(bytes, use_fiber)), size_t>);

#if __has_include(<openssl/ssl.h>)
extern asio::ssl::stream<tcp::socket> tls;
constexpr auto client = asio::ssl::stream_base::client;
static_assert(gives<decltype(tls.async_handshake(client, use_fiber)), void>);
static_assert(gives<decltype(tls.async_handshake(client, bytes, use_fiber)), size_t>);
static_assert(gives<decltype(tls.async_shutdown(use_fiber)), void>);
static_assert(gives<decltype(tls.async_read_some(room, use_fiber)), size_t>);
static_assert(gives<decltype(tls.async_write_some(bytes, use_fiber)), size_t>);
#endif

// --- experimental

extern experimental::channel<void(error_code, int)> channel;
extern experimental::channel<void(error_code)> bare_channel;
extern experimental::concurrent_channel<void(error_code, int)> shared_channel;
static_assert(gives<decltype(channel.async_send({}, 1, use_fiber)), void>);
static_assert(gives<decltype(channel.async_receive(use_fiber)), int>);
static_assert(gives<decltype(bare_channel.async_send({}, use_fiber)), void>);
static_assert(gives<decltype(bare_channel.async_receive(use_fiber)), void>);
static_assert(gives<decltype(shared_channel.async_send({}, 1, use_fiber)), void>);
static_assert(gives<decltype(shared_channel.async_receive(use_fiber)), int>);

extern decltype(socket.async_read_some(room, asio::deferred)) put_off;
static_assert(gives<decltype(std::move(put_off)(use_fiber)), size_t>);

extern decltype(experimental::make_parallel_group(socket.async_read_some(room, asio::deferred),
                                                  timer.async_wait(asio::deferred))) both;
extern decltype(experimental::make_parallel_group(
    std::declval<std::vector<decltype(put_off)>>())) several;
using both_results = std::tuple<std::array<size_t, 2>, error_code, size_t, error_code>;
static_assert(
    gives<decltype(both.async_wait(experimental::wait_for_one(), use_fiber)), both_results>);
static_assert(gives<decltype(several.async_wait(experimental::wait_for_all(), use_fiber)),
                    std::tuple<std::vector<size_t>, std::vector<error_code>, std::vector<size_t>>>);

extern decltype(timer.async_wait(experimental::use_promise)) promised;
static_assert(gives<decltype(promised(use_fiber)), void>);
extern decltype(socket.async_read_some(room, experimental::use_promise)) promised_size;
static_assert(gives<decltype(promised_size(use_fiber)), size_t>);

extern experimental::coro<void, int> task;
extern experimental::coro<void, void> bare_task;
extern experimental::coro<void() noexcept, int> quiet_task;
// (Asio's own code for coro<void() noexcept, void> does not compile, whatever the token.)
extern experimental::coro<void(), int> called_task;
extern experimental::coro<void(), void> bare_called_task;
extern experimental::coro<int(int), void> generator;
static_assert(gives<decltype(task.async_resume(use_fiber)), int>);
static_assert(gives<decltype(bare_task.async_resume(use_fiber)), void>);
static_assert(gives<decltype(quiet_task.async_resume(use_fiber)), int>);
static_assert(gives<decltype(experimental::co_spawn(std::move(task), use_fiber)), int>);
static_assert(gives<decltype(experimental::co_spawn(std::move(bare_task), use_fiber)), void>);
static_assert(gives<decltype(experimental::co_spawn(std::move(called_task), use_fiber)), int>);
static_assert(
    gives<decltype(experimental::co_spawn(std::move(bare_called_task), use_fiber)), void>);
static_assert(gives<decltype(experimental::co_spawn(std::move(quiet_task), use_fiber)), int>);
static_assert(gives<decltype(generator.async_resume(1, use_fiber)), std::optional<int>>);

// --- wrappers around it

template <class Token>
concept fits_each_shape = requires(const Token& token) {
  asio::post(context, token);                                               // void()
  timer.async_wait(token);                                                  // an error
  socket.async_read_some(room, token);                                      // and a value
  acceptor.async_accept(token);                                             // one that only moves
  acceptor.async_accept(socket, token);                                     // among overloads
  asio::async_connect(socket, endpoints, connect_condition, token);         // the same
  resolver.async_resolve("host", "80", token);                              // one of a class
  signals.async_wait(token);                                                // an int
  asio::async_read_until(socket, asio::dynamic_buffer(text), '\n', token);  // of many steps
  asio::co_spawn(context, nothing, token);                                  // an exception
  asio::co_spawn(context, number, token);                                   // and a value
  both.async_wait(experimental::wait_for_one(), token);                     // several
  channel.async_receive(token);                                             // with deduced types
};

extern error_code redirected;
extern std::chrono::seconds soon;
extern vigil::context under;
extern asio::cancellation_signal signal;

static_assert(fits_each_shape<io::use_fiber_t>);
static_assert(fits_each_shape<decltype(use_fiber.within(soon))>);
static_assert(fits_each_shape<decltype(use_fiber.until(clock::now()))>);
static_assert(fits_each_shape<decltype(use_fiber.under(under))>);
static_assert(fits_each_shape<decltype(asio::as_tuple(use_fiber))>);
static_assert(fits_each_shape<decltype(asio::redirect_error(use_fiber, redirected))>);
static_assert(fits_each_shape<decltype(asio::bind_executor(executor, use_fiber))>);
static_assert(fits_each_shape<decltype(asio::bind_executor(strand, use_fiber))>);
static_assert(fits_each_shape<decltype(asio::bind_allocator(std::allocator<int>(), use_fiber))>);
static_assert(fits_each_shape<decltype(asio::bind_cancellation_slot(signal.slot(), use_fiber))>);
static_assert(
    fits_each_shape<decltype(asio::as_tuple(asio::bind_executor(
        strand, asio::redirect_error(use_fiber.within(soon).under(under), redirected))))>);

}  // namespace vigil::compiles
