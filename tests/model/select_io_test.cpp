// A select over I/O: bytes, or the result of an operation, that come beside another event
// either end the select or are there for the next one (PN1 to PN3 of pending.cpp, RW1 to
// RW3 of stream_case.cpp).
//
// Asio and the kernel are threads here, which call set_done() and has_come() as Asio's
// handlers do.
#include "core/sched/wait/case_table.hpp"
#include "io/operation.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/io/detail/pending.hpp>
#include <vigil/io/detail/stream_case.hpp>
#include <vigil/io/memory_executor.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using boost::system::error_code;
using programs::run_with_outside_work;
using vigil::detail::choice;
using vigil::detail::select_case;
using vigil::io::detail::operation;
using vigil::io::detail::readiness;
using vigil::io::detail::stream_side;

namespace VIGIL_IO_DETAIL {

// The cancellation of the operation under test; without_asio.cpp calls it.
extern std::function<void()> on_ask_to_end;

}  // namespace VIGIL_IO_DETAIL

namespace {

// An operation of which the test plays the handler.
class by_hand {
 public:
  by_hand()
      : of_(new operation{nullptr,
                          nullptr,
                          *vigil::detail::current_scheduler(),
                          vigil::detail::current_scheduler()->number(),
                          nullptr,
                          true,
                          false,
                          {}}) {}

  operation& operator*() const { return *of_; }

  // Plain memory of the owner's: the explorer sees a use after the owner has left.
  void complete(int value) {
    result_ = value;
    vigil::io::detail::set_done(*of_);
  }

  int result() const { return result_; }

 private:
  std::unique_ptr<operation> of_;
  int result_ = 0;
};

struct result_of : select_case {
  explicit result_of(by_hand& of) : select_case(vigil::io::detail::pending_case_table, &*of, 0) {}
};

bool is_ready(by_hand& of) {
  return vigil::io::detail::pending_is_ready(*of);
}

// A socket as the kernel and Asio have it, and the case of on_read() over it.
class reads final : public vigil::io::detail::stream_case {
 public:
  reads() { prepare_for(nullptr); }

  ~reads() = default;

  void bytes_come() {
    bytes_.fetch_add(1);
    run_handler();
  }

  void run_handler() {
    if (readiness* const r = waits_.exchange(nullptr)) {
      vigil::io::detail::has_come(*r, error_code());
    }
  }

  bool take() { return bytes_.exchange(0) != 0; }

  void prepare() { prepare_for(nullptr); }

  stream_side& side() const noexcept override { return *side_; }

  boost::asio::any_io_executor executor() const override { return vigil::io::memory_executor{}; }

  void set_up() override {}

  bool is_ready() override { return bytes_.load() != 0; }

  std::size_t transfer(error_code& e) override {
    const bool is_some = take();
    if (!is_some) e = boost::asio::error::would_block;
    return is_some ? 1 : 0;
  }

  void begin_wait() override {
    waits_.store(side_->ready.get());
    if (bytes_.load() != 0) run_handler();
  }

  void end_wait() override { run_handler(); }

  void idle_begins() noexcept override {}

  bool has_idle_list() const noexcept override { return false; }

  void idle_ends() noexcept override {}

 private:
  std::unique_ptr<stream_side> side_ =
      std::make_unique<stream_side>(vigil::io::detail::time_of::read);
  std::atomic<int> bytes_{0};
  std::atomic<readiness*> waits_{nullptr};
};

std::size_t choose(select_case& one) {
  select_case* const all[] = {&one};
  return vigil::detail::select(all, 1, choice::ordered);
}

std::size_t choose(select_case& one, select_case& other) {
  select_case* const all[] = {&one, &other};
  return vigil::detail::select(all, 2, choice::ordered);
}

}  // namespace

TEST_CASE("select io: a result that comes as a select begins to wait ends it") {
  prove("select io: a result while it begins", [] {
    run_with_outside_work(1, [] {
      by_hand op;
      std::thread handler([&] { op.complete(7); });
      result_of c(op);
      model::require(choose(c) == 0, "the result is taken");
      model::require(op.result() == 7, "it is the operation's");
      model::require(!is_ready(op), "it is taken once");
      handler.join();
    });
  });
}

TEST_CASE("select io: of two results one is taken and the other is kept") {
  prove("select io: two results at once", [] {
    run_with_outside_work(1, [] {
      by_hand one;
      by_hand other;
      std::thread first([&] { one.complete(1); });
      std::thread second([&] { other.complete(2); });
      result_of a(one);
      result_of b(other);
      const std::size_t taken = choose(a, b);
      first.join();
      second.join();
      model::require(is_ready(one) == (taken == 1), "the first is taken, or kept");
      model::require(is_ready(other) == (taken == 0), "the second is taken, or kept");
      a.amount = 0;
      b.amount = 0;
      model::require(choose(a, b) == 1 - taken, "the kept one is there for the next select");
    });
  });
}

TEST_CASE("select io: the owner of an operation goes once its handler has run") {
  prove("select io: a result while its owner goes", [] {
    run_with_outside_work(1, [] {
      std::thread handler;
      {
        by_hand op;
        std::atomic<bool> is_asked{false};
        vigil::io::detail::on_ask_to_end = [&] { is_asked.store(true); };
        handler = std::thread([&] { op.complete(7); });
        vigil::io::detail::ended over;
        const bool is_left = vigil::io::detail::pending_end(*op, over);
        model::require(is_left, "nobody has taken the result");
        model::require(op.result() == 7, "it is there");
        vigil::io::detail::on_ask_to_end = nullptr;
      }
      handler.join();
    });
  });
}

TEST_CASE("select io: bytes that come as a select begins to wait end it") {
  prove("select io: bytes while it begins", [] {
    run_with_outside_work(1, [] {
      reads c;
      std::thread kernel([&] { c.bytes_come(); });
      model::require(choose(c) == 0, "the case is taken");
      model::require(!c.error && c.transferred == 1, "with the byte");
      kernel.join();
    });
  });
}

TEST_CASE("select io: bytes beside a result are taken, or left in the stream") {
  prove("select io: bytes and a result", [] {
    run_with_outside_work(1, [] {
      reads c;
      by_hand op;
      std::thread kernel([&] { c.bytes_come(); });
      std::thread handler([&] { op.complete(7); });
      result_of r(op);
      const std::size_t taken = choose(c, r);
      kernel.join();
      handler.join();
      model::require(c.take() == (taken == 1), "the byte is read, or is there");
      model::require(is_ready(op) == (taken == 0), "the result is taken, or kept");
    });
  });
}

TEST_CASE("select io: after a false alarm the select waits on") {
  prove("select io: a false alarm", [] {
    run_with_outside_work(1, [] {
      reads c;
      std::thread kernel([&] {
        c.run_handler();
        c.bytes_come();
      });
      model::require(choose(c) == 0 && c.transferred == 1, "the byte is read");
      kernel.join();
    });
  });
}

TEST_CASE("select io: a deadline that moves to the past ends a select") {
  prove("select io: the deadline moves", [] {
    run_with_outside_work(1, [] {
      reads c;
      std::thread mover([&] { c.side().deadline.set(0); });
      model::require(choose(c) == 0, "the case is taken");
      model::require(c.error == boost::asio::error::timed_out, "with the error");
      mover.join();
    });
  });
}
