// One stream that fibers on several workers, and a plain thread, use at the same time, by
// the calls that io.md allows them. A data race is for the sanitizer to find; without one
// the tests show that each call returns.
#pragma once

#include "io/transports.hpp"

#include <vigil/fiber.hpp>
#include <vigil/io/idle_list.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace vigil::io_testing {

// Fibers that are joined at the end of the scope.
class fibers_at_once {
 public:
  template <class F>
  void add(F f) {
    all_.push_back(spawn(f));
  }

  void join() {
    for (auto& f : all_)
      f.join();
    all_.clear();
  }

 private:
  std::vector<fiber<>> all_;
};

template <class Stream>
void read_to_the_end(Stream& s) {
  std::array<char, 512> bytes;
  error_code error;
  do {
    s.read_some(asio::buffer(bytes), error);
    if (error == timed_out) this_fiber::yield();  // TLS may repeat it for ever, at once
  } while (!error || error == timed_out);
}

template <class Stream>
void write_to_the_end(Stream& s) {
  constexpr std::array<char, 512> bytes{};
  error_code error;
  do {
    s.write_some(asio::buffer(bytes), error);
    if (error == timed_out) this_fiber::yield();  // TLS may repeat it for ever, at once
  } while (!error || error == timed_out);
}

// Moves the deadlines, and takes them away at last.
template <class Stream>
void move_deadlines(Stream& s, int times) {
  for (int i = 0; i < times; ++i) {
    s.set_read_deadline(clock::now() + std::chrono::microseconds(i % 7));
    s.set_write_deadline(i % 3 == 0 ? long_ago : no_deadline);
    static_cast<void>(s.read_error());
    static_cast<void>(s.write_error());
    s.set_no_delay(i % 2 == 0);
    s.set_deadline(no_deadline);
  }
}

// `s` of a connected pair.
template <class Stream>
void use_by_many(Stream& s, Stream& peer) {
  fibers_at_once all;
  for (int i = 0; i < 2; ++i) {
    all.add([&] { read_to_the_end(s); });
    all.add([&] { write_to_the_end(s); });
  }
  all.add([&] { read_to_the_end(peer); });
  all.add([&] { write_to_the_end(peer); });
  std::thread outside([&] { move_deadlines(s, 20); });
  all.add([&] {
    move_deadlines(s, 20);
    s.close();
  });
  all.add([&] {
    for (int i = 0; i < 50; ++i)
      this_fiber::yield();
    s.close();
  });
  all.join();
  outside.join();
}

// `s` of a connected pair, whose writing another fiber ends.
template <class Stream>
void end_writing_by_another(Stream& s, Stream& peer) {
  fibers_at_once all;
  for (int i = 0; i < 2; ++i)
    all.add([&] { write_to_the_end(s); });
  all.add([&] { read_to_the_end(s); });
  all.add([&] { read_to_the_end(peer); });
  for (int i = 0; i < 2; ++i) {
    all.add([&] {
      this_fiber::yield();
      error_code ignored;
      s.close_write(ignored);
      peer.close_write(ignored);
    });
  }
  all.join();
}

}  // namespace vigil::io_testing
