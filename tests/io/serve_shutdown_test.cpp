// io::serve and the end of the runtime: the acceptor that is closed, the grace that is
// announced, and the second signal.
#include "io/serve_test.hpp"
#include "support/note.hpp"
#include "support/send_to_process.hpp"

#include <algorithm>
#include <csignal>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/ip/tcp.hpp>

using namespace vigil::io_testing;

namespace {

using tcp = asio::ip::tcp;

// Settings for virtual time, with SIGUSR1 as Ctrl-C.
vigil::testing::virtual_options with_signal(std::chrono::nanoseconds grace = {}) {
  vigil::testing::virtual_options how;
  how.runtime.stop_on = {SIGUSR1};
  how.runtime.grace = grace;
  return how;
}

// A worker takes it at its next look.
void send_signal() {
  send_to_process(SIGUSR1);
}

// Calls the main fiber's function, which may be stopped.
template <class F>
void run_until_stopped(const vigil::testing::virtual_options& how, F f) {
  try {
    vigil::testing::run_virtual(how, f);
  } catch (const vigil::cancelled&) {
  }
}

// An acceptor whose accept ends a while after it was cancelled, as that of an acceptor on
// its own thread does.
class slow_acceptor {
 public:
  static constexpr std::chrono::nanoseconds delay = 20ms;

  memory_stream connect() { return own_.connect(); }

  void close() { own_.close(); }

  bool is_open() const { return own_.is_open(); }

  template <class Token>
  auto async_accept(Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, memory_stream)>(
        initiate{&own_}, token);
  }

 private:
  struct initiate {
    using inside_program = void;  // not outside work, so that virtual time goes on

    template <class Handler>
    void operator()(Handler&& handler) const {
      const auto slot = asio::get_associated_cancellation_slot(handler);
      own->async_accept(asio::bind_cancellation_slot(
          slot,
          [h = std::forward<Handler>(handler)](const boost::system::error_code& error,
                                               memory_stream s) mutable {
            if (error) vigil::sleep_for(delay);
            std::move(h)(error, std::move(s));
          }));
    }

    memory_acceptor* own;
  };

  memory_acceptor own_;
};

// Waits until it is stopped, and records when.
auto waits_for_stop(std::chrono::nanoseconds& when, vigil::clock::time_point start) {
  return [&when, start] {
    try {
      vigil::sleep_for(24h);
    } catch (const vigil::stopped&) {
      when = since(start);
      throw;
    }
  };
}

}  // namespace

TEST_SUITE("io::serve: the end") {
  TEST_CASE("the acceptor is closed before the grace begins") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      bool was_open = true;
      auto server = vigil::spawn([&] {
        serve(stopping.ctx, acceptor, answers_after(3s), {.on_stop = [&] {
                was_open = acceptor.is_open();
              }});
      });
      memory_stream busy = acceptor.connect();
      write_byte(busy);
      vigil::sleep_for(1s);
      stopping.cancel();
      vigil::testing::settle();
      CHECK_FALSE(was_open);
      CHECK(error_of([&] { acceptor.connect(); }) == asio::error::connection_refused);
      CHECK(read_byte(busy));  // and yet it is served
      server.join();
    });
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      const auto place = acceptor.local_endpoint();
      const auto stopping = vigil::with_cancel(vigil::background());
      vigil::latch accepted(1);
      vigil::latch closed(1);
      auto server = vigil::spawn([&] {
        serve(stopping.ctx,
              acceptor,
              [&](tcp::socket peer) {
                accepted.count_down();
                read_byte(peer);
              },
              {.grace = 1h, .on_stop = [&] { closed.count_down(); }});
      });
      tcp::socket early(vigil::io::io_context());
      early.async_connect(place, use_fiber);
      accepted.wait();
      stopping.cancel();
      closed.wait();
      tcp::socket late(vigil::io::io_context());
      CHECK(error_of([&] { late.async_connect(place, use_fiber); }) ==
            asio::error::connection_refused);
      early.close();
      server.join();
      CHECK_FALSE(acceptor.is_open());
    });
  }

  TEST_CASE("an acceptor whose accept others have ended is left as it is") {
    in_runtime({.workers = {1}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      asio::cancellation_signal signal;
      std::atomic<bool> ended{false};
      auto server = vigil::spawn([&] {
        serve(acceptor, echo_bytes);
        ended.store(true);
      });
      // Until serve's accept is there to be cancelled.
      while (!ended.load()) {
        acceptor.cancel();
        vigil::this_fiber::yield();
      }
      server.join();
      CHECK(acceptor.is_open());
    });
  }

  TEST_CASE("an acceptor that goes with its io_context, as serve is to end, is not touched") {
    enum class by { context, stop, nobody };
    in_runtime({.workers = {1}}, [] {
      for (const by how : {by::context, by::stop, by::nobody}) {
        // Nobody runs it: only its destruction ends the waits there.
        auto own = std::make_unique<asio::io_context>();
        auto acceptor = std::make_unique<tcp::acceptor>(
            *own, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        const auto stopping = vigil::with_cancel(vigil::background());
        bool told = false;
        auto server = vigil::spawn([&, &a = *acceptor] {
          serve(stopping.ctx, a, echo_bytes, {.on_stop = [&] { told = true; }});
        });
        vigil::this_fiber::yield();
        if (how == by::context) stopping.cancel();
        if (how == by::stop) server.request_stop();
        acceptor.reset();
        own.reset();
        if (how == by::stop) {
          CHECK_THROWS_AS(server.join(), vigil::cancelled);
        } else {
          server.join();
        }
        CHECK(told == (how != by::stop));
      }
    });
  }

  TEST_CASE("a server answers requests in flight when a signal comes, without options::grace") {
    for (const bool in_main : {true, false}) {
      NOTE("in_main: ", in_main);
      memory_acceptor acceptor;
      bool answered = false;
      std::chrono::nanoseconds stopped_at{};
      run_until_stopped(with_signal(), [&] {
        const auto start = vigil::clock::now();
        vigil::go(waits_for_stop(stopped_at, start));
        vigil::go([&] {
          memory_stream client = acceptor.connect();
          write_byte(client);
          answered = read_byte(client);
        });
        vigil::after_func(1s, send_signal);
        if (in_main) {
          serve(acceptor, answers_after(3s));
        } else {
          vigil::go([&] { serve(acceptor, answers_after(3s)); });
          vigil::sleep_for(24h);
        }
      });
      CHECK(answered);
      // Once the server has ended nobody needs a grace any more.
      CHECK(stopped_at == 3s);
    }
  }

  TEST_CASE("a server that runs has its grace however the end comes") {
    for (const bool by_return : {true, false}) {
      NOTE("by_return: ", by_return);
      memory_acceptor acceptor;
      bool answered = false;
      run_until_stopped(with_signal(), [&] {
        vigil::go([&] { serve(acceptor, answers_after(3s)); });
        vigil::go([&] {
          memory_stream client = acceptor.connect();
          write_byte(client);
          answered = read_byte(client);
        });
        vigil::sleep_for(1s);
        if (!by_return) send_signal();
      });
      CHECK(answered);
    }
  }

  TEST_CASE("serve returns in the shutdown although a connection outlives the grace") {
    for (const bool in_main : {true, false}) {
      NOTE("in_main: ", in_main);
      slow_acceptor acceptor;
      std::chrono::nanoseconds cut_at{};
      std::chrono::nanoseconds returned_at{};
      run_until_stopped(with_signal(), [&] {
        const auto start = vigil::clock::now();
        const memory_stream client = acceptor.connect();
        vigil::after_func(1s, send_signal);
        const auto serves = [&, start] {
          const auto waits = [&](memory_stream) { waits_for_stop(cut_at, start)(); };
          serve(acceptor, waits, {.grace = 5s});
          returned_at = since(start);
        };
        if (in_main) {
          serves();
        } else {
          vigil::spawn(serves).join();
        }
      });
      CHECK(returned_at == 6s + slow_acceptor::delay);
      CHECK(cut_at == returned_at);
    }
  }

  TEST_CASE("a server's grace may be the longest that there is") {
    memory_acceptor acceptor;
    bool answered = false;
    run_until_stopped(with_signal(), [&] {
      vigil::go([&] {
        memory_stream client = acceptor.connect();
        write_byte(client);
        answered = read_byte(client);
      });
      vigil::after_func(1s, send_signal);
      serve(acceptor, answers_after(3s), {.grace = std::chrono::nanoseconds::max()});
    });
    CHECK(answered);
  }

  TEST_CASE("a grace that is announced in the shutdown is waited for") {
    for (const bool by_return : {true, false}) {
      NOTE("by_return: ", by_return);
      std::chrono::nanoseconds stopped_at{};
      run_until_stopped(with_signal(2s), [&] {
        const auto start = vigil::clock::now();
        vigil::go(waits_for_stop(stopped_at, start));
        vigil::go([] {
          vigil::sleep_for(1s);
          // As a server does that begins now.
          const vigil::io::detail::announced_grace late(10s);
          vigil::sleep_for(4s);
        });
        if (by_return) return;
        send_signal();
        vigil::sleep_for(24h);
      });
      CHECK(stopped_at == 5s);
    }
  }

  TEST_CASE("the shutdown waits for the longest grace of servers and options") {
    struct row {
      std::vector<std::chrono::nanoseconds> servers;
      std::chrono::nanoseconds options;
      std::chrono::nanoseconds expected;
    };

    const row rows[] = {{{5s}, 2s, 5s},
                        {{2s}, 5s, 5s},
                        {{2s, 7s, 3s}, 1s, 7s},
                        {{-1s}, 0s, 0s},
                        {{0s, 4s}, 0s, 4s}};
    for (const row& r : rows) {
      std::vector<memory_acceptor> acceptors(r.servers.size());
      std::chrono::nanoseconds stopped_at{-1};
      std::vector<std::chrono::nanoseconds> cut_at(r.servers.size());
      run_until_stopped(with_signal(r.options), [&] {
        std::vector<memory_stream> clients;
        const auto start = vigil::clock::now();
        vigil::go(waits_for_stop(stopped_at, start));
        for (std::size_t i = 0; i < r.servers.size(); ++i) {
          vigil::go([&, i] {
            const auto waits = [&, i](memory_stream) { waits_for_stop(cut_at[i], start)(); };
            serve(acceptors[i], waits, {.grace = r.servers[i]});
          });
          clients.push_back(acceptors[i].connect());
        }
        vigil::testing::settle();
        send_signal();
        vigil::sleep_for(24h);
      });
      CHECK(stopped_at == r.expected);
      for (std::size_t i = 0; i < r.servers.size(); ++i)
        CHECK(cut_at[i] == std::max<std::chrono::nanoseconds>(r.servers[i], 0s));
    }
  }

  TEST_CASE("stop_limit counts from the end of a server's grace") {
    memory_acceptor acceptor;
    vigil::testing::virtual_options how = with_signal();
    how.runtime.stop_limit = 2s;
    std::chrono::nanoseconds ended_at{};
    run_until_stopped(how, [&] {
      const auto start = vigil::clock::now();
      memory_stream client = acceptor.connect();
      vigil::go([&, start] {
        const vigil::this_fiber::shield until_it_is_done;
        vigil::sleep_for(6s);  // more than the limit, less than both
        ended_at = since(start);
      });
      vigil::go([] { send_signal(); });
      const auto waits = [](memory_stream) { vigil::sleep_for(24h); };
      serve(acceptor, waits, {.grace = 5s});
    });
    CHECK(ended_at == 6s);
  }

  TEST_CASE("a second signal ends a server's grace, and stop_limit counts from then") {
    for (const bool in_main : {true, false}) {
      NOTE("in_main: ", in_main);
      memory_acceptor acceptor;
      vigil::testing::virtual_options how = with_signal(8s);
      how.runtime.stop_limit = 2s;
      std::chrono::nanoseconds cut_at{};
      std::chrono::nanoseconds shielded_to{};
      bool told = false;
      vigil::clock::time_point start;
      const auto waits = [&](memory_stream) { waits_for_stop(cut_at, start)(); };
      const auto serves = [&] { serve(acceptor, waits, {.on_stop = [&] { told = true; }}); };
      run_until_stopped(how, [&] {
        start = vigil::clock::now();
        memory_stream client = acceptor.connect();
        vigil::go([&] {
          const vigil::this_fiber::shield until_it_is_done;
          vigil::sleep_for(4s);
          shielded_to = since(start);
        });
        vigil::go([] {
          vigil::sleep_for(1s);
          send_signal();
          vigil::sleep_for(2s);
          send_signal();
          send_signal();
        });
        if (in_main) {
          serves();
        } else {
          vigil::go(serves);
          vigil::sleep_for(1s);
          // The first signal also comes now, and the main fiber waits for the grace to
          // end.
        }
      });
      CHECK(told);
      CHECK(cut_at == 3s);
      CHECK(shielded_to == 4s);
    }
  }
}
