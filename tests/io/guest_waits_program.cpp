// A guest that sleeps and does I/O, in a loop of poll(2). count_waits.py counts how often
// it waits in the kernel; the program itself looks whether timers are early, and whether
// the host is told when the next one is due. It ends with 1 if not.
//
// Guests have no virtual time, so nothing here says how late a timer is. But the host is
// never told to come later than at the next deadline, and its waits have no limit of
// their own: it is the descriptor that ends them.
#include <vigil/guest.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <poll.h>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using unix_socket = asio::local::stream_protocol::socket;
using vigil::clock;
using vigil::io::use_fiber;

namespace {

// tests/io/meson.build has the bound for so many.
constexpr int laps = 20;
constexpr int callbacks = 5;

// The deadlines of the timers that have not fired.
std::multiset<clock::time_point> pending;

void require(bool what, const char* otherwise) {
  if (what) return;
  std::puts(otherwise);
  std::exit(1);
}

void has_fired(clock::time_point deadline) {
  require(clock::now() >= deadline, "a timer is early");
  pending.erase(pending.find(deadline));
}

void sleep_until(clock::time_point deadline) {
  pending.insert(deadline);
  vigil::sleep_until(deadline);
  has_fired(deadline);
}

void echoes(unix_socket& s) {
  char byte = 0;
  for (int i = 0; i < laps; ++i) {
    asio::async_read(s, asio::buffer(&byte, 1), use_fiber);
    asio::async_write(s, asio::buffer(&byte, 1), use_fiber);
  }
}

void sleeps_and_sends() {
  unix_socket near(vigil::io::io_context());
  unix_socket far(vigil::io::io_context());
  asio::local::connect_pair(near, far);
  auto echo = vigil::spawn([&] { echoes(far); });

  std::array<clock::time_point, callbacks> due;
  vigil::latch called(callbacks);
  auto distance = 170ms;
  for (clock::time_point& d : due) {
    const vigil::timer t = vigil::after_func(distance, [&] {
      has_fired(d);
      called.count_down();
    });
    d = t.deadline();
    pending.insert(d);
    distance += 170ms;
  }
  for (int i = 0; i < laps; ++i) {
    sleep_until(clock::now() + 50ms);
    char byte = 'x';
    asio::async_write(near, asio::buffer(&byte, 1), use_fiber);
    asio::async_read(near, asio::buffer(&byte, 1), use_fiber);
  }
  called.wait();
  echo.join();
}

// Whether the host was told exactly the deadline of the next timer. It may be told an
// earlier time, if there is something to do and for a moment afterwards.
bool is_told_exactly(clock::time_point told) {
  if (pending.empty()) return false;
  require(told <= *pending.begin(), "the host is told to come later than a timer is due");
  return told == *pending.begin();
}

}  // namespace

int main() {
  vigil::guest_runtime guest;
  guest.start(&sleeps_and_sends);
  int exact = 0;
  while (guest.poll()) {
    if (is_told_exactly(guest.next_deadline())) ++exact;
    constexpr int lost = 600'000;  // milliseconds: nothing will wake it any more
    pollfd one{guest.descriptor(), POLLIN, 0};
    require(::poll(&one, 1, lost) == 1, "the descriptor is never readable");
  }
  require(pending.empty(), "a timer has not fired");
  require(exact != 0, "the host is never told the deadline of a timer");
  return 0;
}
