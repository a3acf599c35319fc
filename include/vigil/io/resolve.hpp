// resolve: the addresses of a name.
//
//   auto addresses = io::resolve("example.org", "https", use_fiber.within(2s));
//   asio::async_connect(socket, addresses, use_fiber.within(5s));
//
// Unlike Asio's resolver, its wait ends when it should. Names are looked up by
// getaddrinfo, which blocks its thread and cannot be ended. Asio's own async_resolve
// keeps its fiber, the end of the run, and the look-ups behind it in its single thread
// waiting for that long. Here a look-up whose caller has left finishes on a thread that
// belongs to no runtime, with copies of the names, and its result is dropped.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/use_fiber.hpp>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/system_executor.hpp>

#include <netdb.h>

namespace VIGIL_IO {

// addresses: the result of resolve, a range of endpoints for asio::async_connect. Throws
// nothing. Thread safety: a plain value. Lifetime: it owns what it holds.
using addresses = boost::asio::ip::tcp::resolver::results_type;

namespace detail {

// The result of a look-up, as getaddrinfo lists it. The library does not return
// `addresses` itself: it holds a standard container, whose layout differs in a program
// that is built with -D_GLIBCXX_DEBUG.
struct found_addresses {
  addrinfo* first;  // nullptr: none
  const std::string& host;
  const std::string& service;
};

// A look-up in progress, shared by its thread and the operation that began it.
class VIGIL_API lookup : public std::enable_shared_from_this<lookup> {
 public:
  // The caller that waits for the look-up. Called once, unless it is destroyed before.
  struct waiting {
    virtual ~waiting() = default;
    virtual void finish(const boost::system::error_code& error,
                        const found_addresses& found) noexcept = 0;
  };

  lookup(std::string host, std::string service, std::unique_ptr<waiting> w)
      : host_(std::move(host)), service_(std::move(service)), waiting_(std::move(w)) {}

  // To be called once. From then on the caller that waits is called.
  void begin() noexcept;
  // The caller that waits gets operation_aborted, unless it has been called.
  void abandon() noexcept;

 private:
  friend class lookup_threads;

  void finish(const boost::system::error_code& error, addrinfo* found) noexcept;

  const std::string host_;
  const std::string service_;
  std::mutex lock_;
  std::unique_ptr<waiting> waiting_;  // guarded by lock_
};

template <class Handler>
class lookup_handler final : public lookup::waiting {
 public:
  explicit lookup_handler(Handler&& handler) : handler_(std::move(handler)) {}

  void finish(const boost::system::error_code& error,
              const found_addresses& found) noexcept override {
    try {
      addresses all = addresses::create(found.first, found.host, found.service);
      const auto executor =
          boost::asio::get_associated_executor(handler_, boost::asio::system_executor());
      boost::asio::dispatch(executor,
                            [h = std::move(handler_), error, all = std::move(all)]() mutable {
                              std::move(h)(error, std::move(all));
                            });
    } catch (const std::bad_alloc&) {
      // Destroys the handler, which tells its fiber.
    }
  }

 private:
  Handler handler_;
};

struct initiate_lookup {
  template <class Handler>
  void operator()(Handler&& handler, std::string&& host, std::string&& service) const {
    auto slot = boost::asio::get_associated_cancellation_slot(handler);
    using made = lookup_handler<std::decay_t<Handler>>;
    const auto l = std::make_shared<lookup>(std::move(host),
                                            std::move(service),
                                            std::make_unique<made>(std::forward<Handler>(handler)));
    if (slot.is_connected()) {
      slot.assign([l](boost::asio::cancellation_type_t type) {
        if (type != boost::asio::cancellation_type::none) l->abandon();
      });
    }
    l->begin();
  }
};

}  // namespace detail

// Returns the addresses of a host (a name, or an address as text) with a port (a
// service's name, or a number as text), in the order in which they should be tried. Fails
// with boost::system::system_error: host_not_found, or timed_out; the token and its
// wrappers decide how errors are reported (use_fiber.until, within, under; as_tuple, …).
// Go: net.LookupHost.
//
// At most 32 names are looked up at a time in the whole process; others wait in a queue,
// and one that is abandoned there is never looked up. An abandoned look-up keeps one of
// the 32 threads until getaddrinfo returns, which the system decides (resolv.conf(5): 5 s
// for each try by default). Thread safety: any fiber. Lifetime: the names are copied.
// Shutdown: throws `stopped` at once; the end of a run, or of the program, waits for no
// look-up. Cost: a thread of a shared pool, for as long as getaddrinfo takes.
//
// During a look-up on_deadlock::automatic only warns of a deadlock, and a forked child
// may only call exec or _exit.
//
// Waits on a fiber (the token): throws stopped, wrong_place, boost::system::system_error,
// std::bad_alloc.
template <class Token = const use_fiber_t&>
  requires detail::fiber_based<std::decay_t<Token>>
auto resolve(std::string host, std::string service, Token&& token = use_fiber) {
  return boost::asio::async_initiate<Token, void(boost::system::error_code, addresses)>(
      detail::initiate_lookup(), token, std::move(host), std::move(service));
}

}  // namespace VIGIL_IO
