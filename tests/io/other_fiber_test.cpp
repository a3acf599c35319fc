// The calls on an object that may come from another fiber while one of its calls is in
// progress, on several workers: each "yes" of the table in docs/guide/io-select.md. That
// of tls_stream is in tls_members_test.
#include "io/serve_each_test.hpp"
#include "io/serve_test.hpp"
#include "io/used_by_many.hpp"

#include <vigil/io/pending.hpp>
#include <vigil/io/serve_each.hpp>

using namespace vigil::io_testing;

namespace {

// The number of workers with which one fiber's call meets another's.
const real_options several{.workers = {2, 4}};

template <class Kind>
void stream_used_by_many() {
  in_runtime(several, [] {
    vigil::io::idle_list idle(1h);
    repeat(rounds(200), [&](int i) {
      auto made = Kind::make();
      made.near.set_idle_list(idle);
      std::thread([&] { made.far.set_idle_list(idle); }).join();
      if (i % 2 == 0) {
        use_by_many(made.near, made.far);
      } else {
        end_writing_by_another(made.near, made.far);
      }
      static_cast<void>(idle.size());
    });
  });
}

// Connects until that fails.
void connect_on_and_on(const tcp::endpoint& where) {
  error_code error;
  while (!error) {
    tcp::socket s(vigil::io::io_context());
    s.async_connect(where, asio::redirect_error(use_fiber, error));
  }
}

// serve_it(stopping, acceptor) calls serve, or serve_each.
template <class Serve>
void stop_serving_from_elsewhere(Serve serve_it) {
  in_runtime(several, [&] {
    repeat(rounds(200), [&](int i) {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      const tcp::endpoint where = acceptor.local_endpoint();
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve_it(stopping.ctx, acceptor); });
      fibers_at_once clients;
      for (int n = 0; n < 2; ++n)
        clients.add([&] { connect_on_and_on(where); });
      vigil::this_fiber::yield();
      if (i % 3 == 0) {
        stopping.cancel();
      } else if (i % 3 == 1) {
        std::thread([&] { stopping.cancel(); }).join();
      } else {
        server.request_stop();
      }
      try {
        server.join();
      } catch (const vigil::cancelled&) {
        acceptor.close();  // serve leaves it open for the one that has stopped it
      }
      CHECK_FALSE(acceptor.is_open());
      clients.join();
    });
  });
}

}  // namespace

TEST_SUITE("from other fibers") {
  TEST_CASE("deadline_stream: reads, writes, setters and close, over TCP") {
    stream_used_by_many<of_tcp>();
  }

  TEST_CASE("deadline_stream: reads, writes, setters and close, over Unix sockets") {
    stream_used_by_many<of_unix>();
  }

  TEST_CASE("deadline_stream: reads, writes, setters and close, in memory") {
    stream_used_by_many<of_memory>();
  }

  TEST_CASE("memory_stream: one reads, one writes, others cancel and close") {
    in_runtime(several, [] {
      repeat(rounds(500), [](int) {
        const auto more_to_come = vigil::runtime::current().make_work_guard();  // `outside`
        auto [near, far] = vigil::io::memory_pipe(64);
        const auto until_closed = [](auto begin) {
          return [begin] {
            error_code error;
            do {
              const auto [e, n] = begin(asio::as_tuple(use_fiber));
              error = e;
            } while (!error || error == asio::error::operation_aborted);
          };
        };
        std::string in(100, ' ');
        std::string out(100, 'x');
        fibers_at_once all;
        for (auto* const s : {&near, &far}) {
          all.add(until_closed([s, &in, &near = near](auto t) {
            auto room = s == &near ? asio::buffer(in.data(), 50) : asio::buffer(in.data() + 50, 50);
            return s->async_read_some(room, t);
          }));
          all.add(until_closed(
              [s, &out](auto t) { return s->async_write_some(asio::buffer(out), t); }));
        }
        all.add([&near = near] {
          error_code ignored;
          for (int i = 0; i < 20; ++i) {
            near.cancel(ignored);
            static_cast<void>(near.is_readable());
            static_cast<void>(near.is_writable());
            vigil::this_fiber::yield();
          }
          near.close_write(ignored);
        });
        std::thread outside([&near = near] {
          std::this_thread::sleep_for(10us);
          near.close();
        });
        all.join();
        outside.join();
      });
    });
  }

  TEST_CASE("memory_acceptor: clients connect and others close it while serve accepts") {
    in_runtime(several, [] {
      repeat(rounds(500), [](int i) {
        vigil::io::memory_acceptor acceptor;
        auto server = vigil::spawn([&] { vigil::io::serve(acceptor, echo_bytes); });
        const auto connect_until_refused = [&] {
          try {
            for (;;) {
              auto s = acceptor.connect();
              static_cast<void>(acceptor.is_open());
              vigil::this_fiber::yield();
            }
          } catch (const boost::system::system_error&) {
          }
        };
        fibers_at_once clients;
        for (int n = 0; n < 2; ++n)
          clients.add(connect_until_refused);
        vigil::this_fiber::yield();
        if (i % 2 == 0) {
          acceptor.close();
        } else {
          std::thread([&] { acceptor.close(); }).join();
        }
        clients.join();
        try {
          server.join();
        } catch (const boost::system::system_error& e) {  // closed before serve began
          CHECK(e.code() == asio::error::bad_descriptor);
        }
      });
    });
  }

  TEST_CASE("serve: stopping is cancelled, or its fiber stopped, while clients connect") {
    stop_serving_from_elsewhere([](const vigil::context& stopping, tcp::acceptor& acceptor) {
      vigil::io::serve(stopping, acceptor, echo_bytes);
    });
  }

  TEST_CASE("serve_each: stopping is cancelled, or its fiber stopped, while clients connect") {
    using vigil::serve_each_testing::each_session;
    stop_serving_from_elsewhere([](const vigil::context& stopping, tcp::acceptor& acceptor) {
      vigil::io::serve_each<each_session>(
          stopping, acceptor, vigil::serve_each_testing::answer_lines);
    });
  }

  TEST_CASE("pending: others cancel it, and look whether it is ready") {
    in_runtime(several, [] {
      repeat(rounds(500), [](int i) {
        auto made = tcp_connection();
        char byte = 0;
        vigil::io::pending<std::size_t> reads([&](auto token) {
          return made.near.next_layer().async_read_some(asio::buffer(&byte, 1), token);
        });
        fibers_at_once others;
        for (int n = 0; n < 2; ++n) {
          others.add([&] {
            static_cast<void>(reads.is_ready());
            reads.cancel();
          });
        }
        if (i % 2 == 0) made.far.write_some(asio::buffer("x", 1));
        error_code error;
        const std::size_t n = reads.get(error);
        CHECK((error ? error == asio::error::operation_aborted : n == 1));
        others.join();
      });
    });
  }

  TEST_CASE("an operation of Asio's: its context is cancelled, or its fiber stopped") {
    in_runtime(several, [] {
      repeat(rounds(500), [](int i) {
        auto made = tcp_connection();
        const auto end = vigil::with_cancel(vigil::background());
        auto reader = vigil::spawn([&] {
          char byte = 0;
          made.near.next_layer().async_read_some(asio::buffer(&byte, 1), use_fiber.under(end.ctx));
        });
        vigil::this_fiber::yield();
        if (i % 3 == 0) {
          end.cancel();
        } else if (i % 3 == 1) {
          std::thread([&] { end.cancel(); }).join();
        } else {
          reader.request_stop();
        }
        CHECK_THROWS_AS(reader.join(), vigil::cancelled);
      });
    });
  }
}
