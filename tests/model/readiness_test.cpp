// A stream's wait: bytes that come after a fiber has found the stream empty end its wait,
// even if Asio's handler for an earlier one is late; an arrival is told once, and never
// after its end (RD1 of readiness.hpp).
//
// Asio and the kernel are `reactor` here: it calls the real has_come() as Asio's handler
// does.
#include "core/sched/wait/waiter.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/detail/readiness.hpp>
#include <vigil/io/memory_executor.hpp>

#include <atomic>
#include <limits>
#include <thread>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/error.hpp>
#include <doctest/doctest.h>

using boost::system::error_code;
using programs::run_with_outside_work;
using vigil::io::detail::arrival;
using vigil::io::detail::begins_arrival;
using vigil::io::detail::begins_wait;
using vigil::io::detail::ends_arrival;
using vigil::io::detail::has_come;
using vigil::io::detail::movable_deadline;
using vigil::io::detail::readiness;
using vigil::io::detail::readiness_ref;

namespace {

constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max();

const boost::asio::any_io_executor executor = vigil::io::memory_executor{};

// A socket as the kernel and Asio have it: bytes, and at most one outstanding wait, whose
// handler runs when bytes come, or at once if some are there.
class reactor {
 public:
  bool take() { return bytes_.exchange(0) != 0; }

  void begin_wait(const readiness_ref& r) {
    waits_.store(r.get());
    if (bytes_.load() != 0) run_handler();
  }

  void bytes_come() {
    bytes_.fetch_add(1);
    run_handler();
  }

  // The handler of a wait that was cancelled, or that comes for bytes which are gone.
  void run_handler() {
    if (readiness* const r = waits_.exchange(nullptr)) has_come(*r, error_code());
  }

 private:
  std::atomic<int> bytes_{0};
  std::atomic<readiness*> waits_{nullptr};
};

// Reads one of the bytes, as deadline_stream does. Returns the error that has ended it.
error_code read(reactor& from, readiness_ref& r, movable_deadline& until) {
  for (;;) {
    if (from.take()) return {};
    if (begins_wait(r, executor)) from.begin_wait(r);
    if (const error_code error = vigil::io::detail::wait(*r.get(), until, executor, nullptr))
      return error;
  }
}

struct stream {
  reactor below;
  readiness_ref ready;
  movable_deadline until{vigil::io::detail::time_of::read};
};

class told_once final : public arrival {
 public:
  vigil::detail::waiter* arrived() noexcept override {
    model::require(!is_over.load(), "it is not told after its end");
    model::require(!is_told.exchange(true), "it is told once");
    return nullptr;
  }

  std::atomic<bool> is_told{false};
  std::atomic<bool> is_over{false};
};

}  // namespace

TEST_CASE("readiness: bytes that come as a fiber begins to wait end the wait") {
  prove("readiness: bytes while it begins", [] {
    run_with_outside_work(1, [] {
      stream s;
      std::thread kernel([&] { s.below.bytes_come(); });
      model::require(!read(s.below, s.ready, s.until), "the byte is read");
      kernel.join();
    });
  });
}

TEST_CASE("readiness: a wait that joins an earlier one misses no bytes") {
  prove("readiness: bytes after a wait was cut", [] {
    run_with_outside_work(1, [] {
      stream s;
      s.until.set(0);
      // The wait of Asio's is begun and stays outstanding.
      if (begins_wait(s.ready, executor)) s.below.begin_wait(s.ready);
      model::require(vigil::io::detail::wait(*s.ready.get(), s.until, executor, nullptr) ==
                         boost::asio::error::timed_out,
                     "the first wait is cut");
      s.until.set(no_deadline);
      std::thread late([&] { s.below.run_handler(); });
      std::thread kernel([&] { s.below.bytes_come(); });
      model::require(!read(s.below, s.ready, s.until), "the byte is read");
      late.join();
      kernel.join();
    });
  });
}

TEST_CASE("readiness: a deadline that moves, or bytes, end a wait: the bytes are not lost") {
  prove("readiness: bytes while the deadline moves", [] {
    run_with_outside_work(1, [] {
      stream s;
      std::thread kernel([&] { s.below.bytes_come(); });
      std::thread mover([&] { s.until.set(0); });
      const error_code error = read(s.below, s.ready, s.until);
      model::require(!error || error == boost::asio::error::timed_out, "one of the two ends it");
      mover.join();
      kernel.join();
      model::require(s.below.take() == (error == boost::asio::error::timed_out),
                     "the byte is read, or is there for the next call");
    });
  });
}

TEST_CASE("readiness: a deadline that moves to the past ends a wait") {
  prove("readiness: the deadline moves", [] {
    run_with_outside_work(1, [] {
      stream s;
      std::thread mover([&] { s.until.set(0); });
      model::require(read(s.below, s.ready, s.until) == boost::asio::error::timed_out, "it ends");
      mover.join();
    });
  });
}

TEST_CASE("readiness: close() ends a wait, and only once") {
  prove("readiness: bytes while it is closed", [] {
    run_with_outside_work(1, [] {
      stream s;
      std::thread kernel([&] { s.below.bytes_come(); });
      std::thread closer([&] { s.until.close(); });
      const error_code error = read(s.below, s.ready, s.until);
      model::require(!error || error == boost::asio::error::operation_aborted, "one ends it");
      closer.join();
      kernel.join();
    });
  });
}

TEST_CASE("readiness: an arrival is told once, and not after its end") {
  prove("readiness: an arrival that ends as bytes come", [] {
    run_with_outside_work(1, [] {
      stream s;
      told_once idle;
      std::thread kernel([&] { s.below.bytes_come(); });
      if (begins_arrival(s.ready, executor, idle)) s.below.begin_wait(s.ready);
      ends_arrival(s.ready);
      idle.is_over.store(true);
      kernel.join();
      model::require(!read(s.below, s.ready, s.until), "the byte is read");
    });
  });
}

TEST_CASE("readiness: an arrival that joins an earlier wait is told of bytes that come later") {
  prove("readiness: an arrival after a wait was cut", [] {
    run_with_outside_work(1, [] {
      stream s;
      s.until.set(0);
      if (begins_wait(s.ready, executor)) s.below.begin_wait(s.ready);
      static_cast<void>(vigil::io::detail::wait(*s.ready.get(), s.until, executor, nullptr));
      told_once idle;
      std::thread late([&] { s.below.run_handler(); });
      if (begins_arrival(s.ready, executor, idle)) s.below.begin_wait(s.ready);
      late.join();
      s.below.bytes_come();
      model::require(idle.is_told.load(), "it is told");
      ends_arrival(s.ready);
    });
  });
}
