// Idle timeouts: io::idle_list with deadline_stream; at exact times in memory, and over
// real sockets, where data that has arrived comes first.
#include "io/transports.hpp"
#include "support/memory.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/timer.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>

#include <sys/resource.h>
#include <sys/socket.h>

using namespace vigil::io_testing;
using vigil::io::idle_list;
using vigil::testing_support::limits_are_kept;
using vigil::testing_support::no_limits;

namespace {

using memory_ends = std::pair<vigil::io::memory_stream, vigil::io::memory_stream>;

struct memory_pair {
  explicit memory_pair(memory_ends ends)
      : near(std::move(ends.first)), far(std::move(ends.second)) {}

  timed_memory_stream near;
  timed_memory_stream far;
};

template <class Stream>
error_code read_byte_of(Stream& s) {
  char byte = 0;
  error_code error;
  s.read_some(asio::buffer(&byte, 1), error);
  return error;
}

template <class Stream>
error_code write_bytes(Stream& s, std::size_t n) {
  const std::string bytes(n, 'x');
  error_code error;
  for (std::size_t done = 0; done < n && !error;)
    done += s.write_some(asio::buffer(bytes.data() + done, n - done), error);
  return error;
}

}  // namespace

TEST_SUITE("io::idle_list") {
  TEST_CASE("a read for which nothing comes ends after exactly the time, and not for good") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe());
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 10s);
      // The time counts anew for each call that waits.
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 20s);
      write_bytes(p.far, 1);
      CHECK_FALSE(read_byte_of(p.near));
      CHECK(idle.size() == 1);
      CHECK(idle.duration() == 10s);
    });
  }

  TEST_CASE("a stream that outlives a run has the time again from its next wait on") {
    vigil::detail::scheduler_options o = vigil::detail::checked(vigil::options());
    o.workers = 1;
    o.virtual_time = true;
    o.seed = 1;
    vigil::detail::runtime_core core(o);
    std::optional<idle_list> idle;
    std::optional<memory_pair> p;
    auto run = [&core](auto body) { core.sched.run(body); };
    run([&] {
      idle.emplace(10s);
      p.emplace(vigil::io::memory_pipe());
      p->near.set_idle_list(*idle);
      CHECK(idle->size() == 1);
    });
    CHECK(idle->size() == 0);
    run([&] {
      const auto start = vigil::clock::now();
      p->near.set_read_deadline(start + 1h);
      CHECK(read_byte_of(p->near) == timed_out);
      CHECK(since(start) == 10s);
      p.reset();
    });
  }

  TEST_CASE("progress in either direction starts the time anew") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe());
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      auto writer = vigil::spawn([&] {
        for (int i = 0; i < 3; ++i) {
          vigil::sleep_for(6s);
          write_bytes(p.near, 1);
        }
      });
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 28s);
      writer.join();
    });
    for_each_seed(5, [] {  // and a write that waits for room goes on while there are reads
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe(4));
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      auto writer = vigil::spawn([&] { return write_bytes(p.near, 5); });
      for (int i = 0; i < 3; ++i) {
        vigil::sleep_for(6s);
        write_bytes(p.far, 1);
        CHECK_FALSE(read_byte_of(p.near));
      }
      CHECK(writer.join() == timed_out);
      CHECK(since(start) == 28s);
    });
  }

  TEST_CASE("read and write that wait end together") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe(1));
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      auto writer = vigil::spawn([&] { return write_bytes(p.near, 2); });
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(writer.join() == timed_out);
      CHECK(since(start) == 10s);
    });
  }

  TEST_CASE("a deadline that comes first counts, and stays") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe());
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      p.near.set_read_deadline(start + 3s);
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 3s);
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 3s);
      p.near.set_read_deadline(start + 1h);
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 10s);
    });
  }

  TEST_CASE("one timer for all: each ends at its own time, closed ones have left") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      std::vector<std::unique_ptr<memory_pair>> pairs;
      std::vector<vigil::fiber<>> readers;
      const auto start = vigil::clock::now();
      for (int i = 0; i < 100; ++i) {
        pairs.push_back(std::make_unique<memory_pair>(vigil::io::memory_pipe(16)));
        memory_pair& p = *pairs.back();
        p.near.set_idle_list(idle);
        readers.push_back(vigil::spawn([&p, i, start] {
          CHECK(read_byte_of(p.near) == timed_out);
          CHECK(since(start) == 10s + i * 1ms);
        }));
        vigil::sleep_for(1ms);
      }
      CHECK(idle.size() == 100);
      CHECK(vigil::stats().timers_pending <= 1);
      for (auto& r : readers)
        r.join();
      pairs[0]->near.close();
      CHECK(idle.size() == 99);
      pairs.clear();
      CHECK(idle.size() == 0);
    });
  }

  TEST_CASE("a call that begins to wait while another one's time ends does not save that") {
    for_each_seed(5, [] {
      using vigil::io::detail::movable_deadline;
      using vigil::io::detail::time_of;
      idle_list idle(10s);
      memory_ends ends(vigil::io::memory_pipe());
      movable_deadline read(time_of::read);
      movable_deadline write(time_of::write);
      vigil::io::detail::idle_entry stream(read, write);
      // The idle_list's own callback, but slower.
      vigil::timeout_list slow(10s, [](vigil::timeout_list::entry& e) {
        vigil::sleep_for(2s);
        static_cast<vigil::io::detail::idle_entry&>(e).end_waits();
      });
      slow.add(stream);
      const auto start = vigil::clock::now();
      auto reader = vigil::spawn([&] {
        char byte = 0;
        const auto [error, n] = ends.first.async_read_some(
            asio::buffer(&byte, 1), asio::as_tuple(vigil::io::detail::movable_token{&read}));
        CHECK(error == timed_out);
        CHECK(since(start) == 12s);
      });
      vigil::sleep_for(11s);
      idle.begin_wait(stream);
      CHECK_FALSE(stream.is_linked());
      reader.join();
      idle.begin_wait(stream);
      CHECK(stream.is_linked());
    });
  }

  TEST_CASE("close ends the wait of an idle one, as ever") {
    for_each_seed(5, [] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe());
      p.near.set_idle_list(idle);
      auto reader = vigil::spawn([&] { return read_byte_of(p.near); });
      vigil::sleep_for(1s);
      p.near.close();
      CHECK(reader.join() == asio::error::operation_aborted);
      CHECK(idle.size() == 0);
    });
  }

  TEST_CASE("data that has arrived when the time is over is read, and is not a timeout") {
    in_runtime({.workers = {1, 2}}, [] {
      for (int i = 0; i < rounds(40); ++i) {
        idle_list idle(2ms);
        unix_stream near(vigil::io::io_context());
        unix_stream far(vigil::io::io_context());
        asio::local::connect_pair(near.next_layer(), far.next_layer());
        const auto start = vigil::clock::now();
        near.set_idle_list(idle);
        auto reader = vigil::spawn([&] { return read_byte_of(near); });
        vigil::this_fiber::yield();
        const vigil::this_fiber::pin here;
        const auto sent = ::send(far.next_layer().native_handle(), "x", 1, 0);
        const bool in_time = since(start) < 2ms;
        // Nobody looks at the socket on this worker until the time is over.
        while (since(start) < 3ms) {
        }
        const error_code error = reader.join();
        REQUIRE(sent == 1);
        if (in_time) REQUIRE(!error);
      }
    });
  }

  TEST_CASE("with times about as long as the pauses each byte is read once, none is lost") {
    in_runtime({.workers = {1, 2}}, [] {
      idle_list idle(20us);
      unix_stream near(vigil::io::io_context());
      unix_stream far(vigil::io::io_context());
      asio::local::connect_pair(near.next_layer(), far.next_layer());
      near.set_idle_list(idle);
      far.set_idle_list(idle);
      const int all = rounds(2000);
      auto writer = vigil::spawn([&] {
        seeded dice(3);
        for (int i = 0; i < all; ++i) {
          vigil::sleep_for(std::chrono::nanoseconds(dice.below(50'000)));
          // On a busy machine its time may be over while it waits for room.
          error_code error;
          do {
            error = write_bytes(far, 1);
          } while (error == timed_out);
          REQUIRE_FALSE(error);
        }
      });
      int got = 0;
      while (got < all) {
        char byte = 0;
        error_code error;
        const std::size_t n = near.read_some(asio::buffer(&byte, 1), error);
        if (error) {
          REQUIRE(error == timed_out);
          REQUIRE(byte == 0);
        } else {
          REQUIRE(n == 1);
          REQUIRE(byte == 'x');
          ++got;
        }
      }
      writer.join();
    });
  }

  TEST_CASE("streams that go while their time is over") {
    in_runtime({.workers = {1, 2}}, [] {
      idle_list idle(30us);
      seeded dice(5);
      for (int i = 0; i < rounds(1000); ++i) {
        unix_stream near(vigil::io::io_context());
        unix_stream far(vigil::io::io_context());
        asio::local::connect_pair(near.next_layer(), far.next_layer());
        near.set_idle_list(idle);
        auto reader = vigil::spawn([&] { read_byte_of(near); });
        vigil::sleep_for(std::chrono::nanoseconds(dice.below(60'000)));
        near.close();
        reader.join();
      }
      CHECK(idle.size() == 0);
    });
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer maps memory of its own
  TEST_CASE("without memory for the list's timer a stream stays in it: its next wait ends, too") {
    struct no_more_memory {
      no_more_memory() {
        ::getrlimit(RLIMIT_DATA, &before);
        const rlimit none{4096, before.rlim_max};  // 0 has a special meaning
        ::setrlimit(RLIMIT_DATA, &none);
      }

      ~no_more_memory() { ::setrlimit(RLIMIT_DATA, &before); }

      rlimit before{};
    };

    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    in_virtual([] {
      idle_list idle(10s);
      memory_pair p(vigil::io::memory_pipe());
      p.near.set_idle_list(idle);
      const auto start = vigil::clock::now();
      CHECK(read_byte_of(p.near) == timed_out);
      // Other timers take the heap's room.
      std::vector<vigil::timer> others;
      for (int i = 0; i < 20'000; ++i) {
        others.push_back(vigil::after_func(24h, [] {}));
        others.back().stop();
      }
      bool is_full = false;
      error_code first;
      {
        const no_more_memory now;
        for (std::size_t i = 0; i < others.size() && !is_full; ++i) {
          try {
            others[i].reset(24h);
          } catch (const std::bad_alloc&) {
            is_full = true;
          }
        }
        first = read_byte_of(p.near);
      }
      CHECK(is_full);
      CHECK(first == timed_out);
      CHECK(since(start) == 20s);
      CHECK(idle.size() == 1);
      CHECK(read_byte_of(p.near) == timed_out);
      CHECK(since(start) == 30s);
    });
  }
#endif

  TEST_CASE("a duration of zero is refused") {
    in_virtual([] { CHECK_THROWS_AS(idle_list(0s), std::invalid_argument); });
  }
}
