// on_read and on_write: a select over streams transfers only what it takes.
#include "io/transports.hpp"

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/io/select.hpp>
#include <vigil/select.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include <sys/socket.h>

using namespace vigil::io_testing;
using vigil::io::on_read;
using vigil::io::on_write;

namespace {

template <class Stream>
void send_text(Stream& s, const std::string& text) {
  asio::write(s, asio::buffer(text));
}

template <class Stream>
error_code read_all_there(Stream& s) {
  std::array<char, 64> bytes;
  error_code error;
  s.read_some(asio::buffer(bytes), error);
  return error;
}

// A stream in which there is nothing, and whose first wait finds no memory.
class without_memory {
 public:
  using executor_type = asio::io_context::executor_type;
  static constexpr auto wait_read = asio::socket_base::wait_read;
  static constexpr auto wait_write = asio::socket_base::wait_write;

  explicit without_memory(asio::io_context& context) : context_(&context) {}

  executor_type get_executor() const { return context_->get_executor(); }

  int native_handle() const { return -1; }

  bool non_blocking() const { return true; }

  void non_blocking(bool, error_code&) {}

  template <class Buffers>
  std::size_t read_some(const Buffers&, error_code& error) {
    error = asio::error::would_block;
    return 0;
  }

  template <class Handler>
  void async_wait(asio::socket_base::wait_type, Handler handler) {
    if (waits_++ == 0) throw std::bad_alloc();
    asio::post(*context_, [handler = std::move(handler)]() mutable {
      handler(asio::error::operation_not_supported);
    });
  }

  void cancel(error_code&) {}

 private:
  asio::io_context* context_;
  int waits_ = 0;
};

// The error of a select with this case alone.
template <class Case>
error_code error_of_case(Case c) {
  return error_of([&] { vigil::select(c); });
}

}  // namespace

TEST_SUITE("select over streams") {
  TEST_CASE("bytes that are there are read at once, beside any other case") {
    over_each([](auto& near, auto& far) {
      send_text(far, "abcdef");
      vigil::sleep_for(5ms);
      std::string to(4, '.');
      auto never = vigil::make_channel<int>();
      std::size_t got = 0;
      CHECK(vigil::select(vigil::on_recv(never),
                          on_read(near, asio::buffer(to), [&](std::size_t n) { got = n; }),
                          vigil::otherwise()) == 1);
      CHECK(got == 4);
      CHECK(to == "abcd");
      CHECK(vigil::select_ordered(vigil::on_recv(never),
                                  on_read(near,
                                          asio::buffer(to),
                                          [&](error_code e, std::size_t n) {
                                            CHECK_FALSE(e);
                                            got = n;
                                          }),
                                  vigil::otherwise()) == 1);
      CHECK(got == 2);
      CHECK(to == "efcd");
      CHECK(vigil::select(on_read(near, asio::buffer(to)), vigil::otherwise()) == 1);
      CHECK(vigil::select_ordered(on_read(near, asio::buffer(to)), vigil::on_timeout(0s)) == 1);
    });
  }

  TEST_CASE("bytes that come later end the select") {
    over_each([](auto& near, auto& far) {
      for (int i = 0; i < 3; ++i) {
        auto writer = vigil::spawn([&far = far] {
          vigil::sleep_for(1ms);
          send_text(far, "abc");
        });
        std::string to(8, '.');
        CHECK(vigil::select(on_read(near, asio::buffer(to)), vigil::on_timeout(1h)) == 0);
        CHECK(to == "abc.....");
        writer.join();
      }
    });
  }

  TEST_CASE("if another case is taken the buffer is untouched, and nothing is lost") {
    over_each([](auto& near, auto& far) {
      auto ch = vigil::make_channel<int>(1);
      auto [context, cancel] = vigil::with_cancel(vigil::background());
      std::string to(8, '.');
      const auto choose = [&, &near = near, &context = context] {
        return vigil::select(on_read(near, asio::buffer(to)),
                             vigil::on_recv(ch),
                             vigil::on_timeout(1ms),
                             vigil::on_done(context));
      };
      CHECK(choose() == 2);
      ch.send(1);
      CHECK(choose() == 1);
      auto sender = vigil::spawn([&] { ch.send(1); });
      const std::size_t taken = choose();
      CHECK((taken == 1 || taken == 2));
      sender.join();
      while (ch.try_recv()) {
      }
      CHECK(to == "........");
      send_text(far, "abc");  // no read is left that would take them
      vigil::sleep_for(1ms);
      CHECK(to == "........");
      CHECK(choose() == 0);
      CHECK(to == "abc.....");
      cancel();
      CHECK(choose() == 3);
      send_text(far, "defg");
      CHECK(near.read_some(asio::buffer(to)) == 4);
      CHECK(to == "defg....");
    });
  }

  TEST_CASE("a full stream is written to when there is room, and as much as there is") {
    over_each([](auto& near, auto& far) {
      const std::vector<char> many(1 << 20, 'x');
      std::size_t written = 0;
      const auto fill = [&, &near = near] {
        return vigil::select(
            on_write(near, asio::buffer(many), [&](std::size_t n) { written += n; }),
            vigil::on_timeout(2ms));
      };
      while (fill() == 0) {
      }
      CHECK(written != 0);
      auto reader = vigil::spawn([&far = far, before = written] {
        std::vector<char> to(1 << 16);
        std::size_t all = 0;
        while (all < before)
          all += far.read_some(asio::buffer(to));
        return all;
      });
      CHECK(vigil::select(on_write(near, asio::buffer(many), [&](std::size_t n) { written += n; }),
                          vigil::on_timeout(1h)) == 0);
      near.close();
      std::vector<char> rest(1 << 16);
      std::size_t all = reader.join();
      error_code error;
      while (!error)
        all += far.read_some(asio::buffer(rest), error);
      CHECK(all == written);
    });
  }

  TEST_CASE("one select reads and writes the same stream") {
    over_each([](auto& near, auto& far) {
      const std::string out(500'000, 'o');
      const std::string in(300'000, 'i');
      auto peer = vigil::spawn([&, &far = far] {
        auto writer = vigil::spawn([&] { send_text(far, in); });
        std::string got(out.size(), '.');
        asio::read(far, asio::buffer(got));
        writer.join();
        return got;
      });
      std::string got(in.size(), '.');
      std::size_t read = 0;
      std::size_t written = 0;
      while (read != in.size() || written != out.size()) {
        auto to = asio::buffer(got) + read;
        auto from = asio::buffer(out) + written;
        vigil::case_list all;
        if (read != in.size()) {
          all.add(on_read(near, to, [&](std::size_t n) { read += n; }));
        }
        if (written != out.size()) {
          all.add(on_write(near, from, [&](std::size_t n) { written += n; }));
        }
        vigil::select(all);
      }
      CHECK(got == in);
      CHECK(peer.join() == out);
    });
  }

  TEST_CASE("a case_list is selected from again and again") {
    over_each([](auto& near, auto& far) {
      auto ch = vigil::make_channel<int>();
      std::array<char, 3> to;
      std::string got;
      int received = 0;
      bool over = false;
      vigil::case_list all;
      all.add(on_read(near, asio::buffer(to), [&](error_code e, std::size_t n) {
        got.append(to.data(), n);
        if (e) {
          CHECK(e == asio::error::eof);
          over = true;
        }
      }));
      all.add(vigil::on_recv(ch, [&](std::optional<int> n) { received += n.value(); }));
      std::string sent;
      auto sender = vigil::spawn([&, &far = far] {
        for (int i = 0; i < 50; ++i) {
          const std::string text = std::to_string(i);
          sent += text;
          send_text(far, text);
          ch.send(1);
        }
        error_code ignored;
        far.close_write(ignored);
      });
      while (!over)
        vigil::select(all);
      sender.join();
      CHECK(got == sent);
      CHECK(received == 50);
      all.switch_off(0);
      CHECK(vigil::select(vigil::on_timeout(0s)) == 0);
    });
  }

  TEST_CASE("eof and errors come out of select, unless the function takes them") {
    over_each([](auto& near, auto& far) {
      std::array<char, 3> to;
      error_code ignored;
      far.close_write(ignored);
      CHECK(error_of_case(on_read(near, asio::buffer(to))) == asio::error::eof);
      error_code seen;
      vigil::select(on_read(near, asio::buffer(to), [&](error_code e, std::size_t n) {
        seen = e;
        CHECK(n == 0);
      }));
      CHECK(seen == asio::error::eof);
      near.close();
      const error_code bad = asio::error::bad_descriptor;
      CHECK(error_of_case(on_read(near, asio::buffer(to))) == bad);
      CHECK(error_of_case(on_write(near, asio::buffer("x", 1))) == bad);
      CHECK(error_of([&, &near = near] {
              vigil::select_ordered(vigil::on_timeout(1h), on_read(near, asio::buffer(to)));
            }) == bad);
    });
  }

  TEST_CASE("empty buffers are ready at once") {
    over_each([](auto& near, auto&) {
      std::size_t got = 1;
      const auto note = [&](std::size_t n) { got = n; };
      CHECK(vigil::select(on_read(near, asio::mutable_buffer(), note), vigil::otherwise()) == 0);
      CHECK(got == 0);
      got = 1;
      CHECK(vigil::select_ordered(vigil::otherwise(), on_write(near, asio::const_buffer(), note)) ==
            1);
      CHECK(got == 0);
    });
  }

  TEST_CASE("the stream's deadline, its moves and close() end the case as they end a read") {
    over_each([](auto& near, auto&) {
      std::array<char, 3> to;
      const auto due = clock::now() + 2ms;
      near.set_read_deadline(due);
      CHECK(error_of_case(on_read(near, asio::buffer(to))) == timed_out);
      CHECK(clock::now() >= due);
      CHECK(error_of_case(on_read(near, asio::buffer(to))) == timed_out);
      near.set_read_deadline(clock::now() + 1h);
      CHECK(vigil::select(on_read(near, asio::buffer(to)), vigil::on_timeout(1ms)) == 1);
      const auto begin = [&, &near = near] {
        auto reader = vigil::spawn([&] { return error_of_case(on_read(near, asio::buffer(to))); });
        vigil::sleep_for(1ms);
        return reader;
      };
      auto moved = begin();
      near.set_read_deadline(long_ago);
      CHECK(moved.join() == timed_out);
      near.set_read_deadline(clock::now() + 1ms);
      auto later = begin();
      near.set_read_deadline(clock::now() + 3ms);
      CHECK(later.join() == timed_out);
      near.set_read_deadline(no_deadline);
      auto closed = begin();
      near.close();
      const error_code ended = closed.join();
      CHECK((ended == asio::error::operation_aborted || ended == asio::error::bad_descriptor));
    });
  }

  TEST_CASE("a timeout of the select counts from its beginning, whatever wakes it") {
    over_virtual_memory::run([](auto& near, auto& far) {
      std::array<char, 3> to;
      const auto start = clock::now();
      near.set_read_deadline(start + 1h);
      auto mover = vigil::spawn([&near = near, start] {
        for (int i = 1; i < 10; ++i) {
          vigil::sleep_for(1s);
          near.set_read_deadline(start + 1h - std::chrono::seconds(i));
        }
      });
      CHECK(vigil::select(on_read(near, asio::buffer(to)), vigil::on_timeout(5s)) == 1);
      CHECK(since(start) == 5s);
      mover.join();
      near.set_read_deadline(clock::now() + 1s);
      const auto again = clock::now();
      CHECK(error_of([&, &near = near] {
              vigil::select(on_read(near, asio::buffer(to)), vigil::on_timeout(5s));
            }) == timed_out);
      CHECK(since(again) == 1s);
      static_cast<void>(far);
    });
  }

  TEST_CASE("an idle list ends the case as it ends a read") {
    over_virtual_memory::in_runtimes({}, [] {
      vigil::io::idle_list idle(1s);
      auto made = over_virtual_memory::make();
      made.near.set_idle_list(idle);
      std::array<char, 3> to;
      const auto start = clock::now();
      CHECK(error_of_case(on_read(made.near, asio::buffer(to))) == timed_out);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("while another call reads, or another case, the error is already_started") {
    over_each([](auto& near, auto& far) {
      std::array<char, 3> to;
      std::array<char, 3> other;
      const error_code started = asio::error::already_started;
      CHECK(error_of([&, &near = near] {
              vigil::select(on_read(near, asio::buffer(to)), on_read(near, asio::buffer(other)));
            }) == started);
      auto reader = vigil::spawn([&near = near] { return read_all_there(near); });
      while (error_of([&, &near = near] {
               vigil::select(on_read(near, asio::buffer(to)), vigil::otherwise());
             }) != started) {
        vigil::this_fiber::yield();
      }
      CHECK(vigil::select(on_write(near, asio::buffer("x", 1))) == 0);
      send_text(far, "abc");
      CHECK_FALSE(reader.join());
    });
  }

  TEST_CASE("bytes that something else has taken are a false alarm: the select waits on") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = unix_connection();
      std::array<char, 3> to{};
      auto reader = vigil::spawn([&, &near = near] {
        std::size_t got = 0;
        vigil::select(on_read(near, asio::buffer(to), [&](std::size_t n) { got = n; }),
                      vigil::on_timeout(1h));
        return got;
      });
      for (int i = 0; i < rounds(200); ++i) {
        char byte = 'f';
        REQUIRE(::send(far.next_layer().native_handle(), &byte, 1, 0) == 1);
        // Either takes it; the reader is done if it was the first.
        if (::recv(near.next_layer().native_handle(), &byte, 1, MSG_DONTWAIT) != 1) break;
        vigil::this_fiber::yield();
      }
      send_text(far, "x");
      CHECK(reader.join() == 1);
    });
  }

  TEST_CASE("a function of another case may use the stream") {
    over_each([](auto& near, auto& far) {
      auto ch = vigil::make_channel<int>(1);
      std::array<char, 3> to;
      ch.send(1);
      auto writer = vigil::spawn([&far = far] {
        vigil::sleep_for(1ms);
        send_text(far, "abc");
      });
      const auto reads = [&near = near] { CHECK_FALSE(read_all_there(near)); };
      CHECK(vigil::select_ordered(vigil::on_recv(ch, reads), on_read(near, asio::buffer(to))) == 0);
      writer.join();
      auto other = vigil::spawn([&, &far = far] {
        vigil::sleep_for(1ms);
        ch.send(2);
        send_text(far, "abc");
      });
      CHECK(vigil::select_ordered(vigil::on_recv(ch, reads), on_read(near, asio::buffer(to))) == 0);
      other.join();
    });
  }

  TEST_CASE("a stop and a shutdown end the select, and leave the stream as it was") {
    over_each([](auto& near, auto& far) {
      std::string to(3, '.');
      auto stopped =
          vigil::spawn([&, &near = near] { vigil::select(on_read(near, asio::buffer(to))); });
      vigil::sleep_for(1ms);
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      send_text(far, "abc");
      CHECK_FALSE(read_all_there(near));
      CHECK(to == "...");
    });
    in_runtime({}, [] {
      auto made = std::make_shared<connection<tcp_stream>>(tcp_connection());
      vigil::go([made] {
        std::array<char, 3> bytes;
        vigil::select(on_read(made->near, asio::buffer(bytes)));
      });
      vigil::this_fiber::yield();
    });
  }

  TEST_CASE("a select for which there is no memory gives back the stream") {
    in_runtime({.workers = {1}}, [] {
      vigil::io::deadline_stream<without_memory> s(vigil::io::io_context());
      std::array<char, 3> to;
      vigil::case_list all;
      all.add(on_read(s, asio::buffer(to)));
      CHECK_THROWS_AS(vigil::select(all), std::bad_alloc);
      const error_code failed = asio::error::operation_not_supported;
      CHECK(read_all_there(s) == failed);
      CHECK(error_of([&] { vigil::select(all); }) == failed);
    });
  }

  TEST_CASE("a select that waits for a socket is outside work, one in memory is not") {
    vigil::options fatal;
    fatal.deadlock = vigil::on_deadlock::fatal;
    in_runtime({.workers = {1, 2}, .settings = fatal}, [] {
      auto [near, far] = tcp_connection();
      std::array<char, 3> to;
      std::thread writer([&far = far] {
        std::this_thread::sleep_for(2ms);  // so that the select waits
        asio::write(far.next_layer(), asio::buffer("x", 1));
      });
      vigil::select(on_read(near, asio::buffer(to), [](error_code, std::size_t) {}));
      CHECK(!vigil::detail::current_scheduler()->outside.any());
      writer.join();
    });
    CHECK_THROWS_AS(vigil::run(fatal,
                               [] {
                                 auto made = memory_connection();
                                 std::array<char, 3> to;
                                 vigil::select(on_read(made.near, asio::buffer(to)));
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("it waits on a fiber only") {
    auto [one, other] = vigil::io::memory_pipe();
    timed_memory_stream near(std::move(one));
    timed_memory_stream far(std::move(other));
    std::array<char, 3> to;
    CHECK_THROWS_AS(vigil::select(on_read(near, asio::buffer(to))), vigil::wrong_place);
  }

  TEST_CASE("a select that would not wait needs no fiber, and is no wait under no_park") {
    in_runtime({.workers = {1}}, [] {
      auto [near, far] = memory_connection();
      std::array<char, 1> to;
      std::vector<std::size_t> taken;
      std::thread([&, &near = near] {
        taken.push_back(vigil::select(on_read(near, asio::buffer(to)), vigil::otherwise()));
        taken.push_back(vigil::select(on_read(near, asio::buffer(to)), vigil::on_timeout(0s)));
      }).join();
      CHECK(taken == std::vector<std::size_t>{1, 1});
      send_text(far, std::string(200, 'x'));
      const vigil::this_fiber::no_park stays;
      int read = 0;
      while (vigil::select(on_read(near, asio::buffer(to)), vigil::otherwise()) == 0)
        ++read;
      CHECK(read == 200);
    });
  }

  TEST_CASE("a socket that was never opened is ready, with its error") {
    in_runtime({.workers = {1}}, [] {
      tcp_stream s(vigil::io::io_context());
      std::array<char, 1> to;
      auto ch = vigil::make_channel<int>();
      const error_code bad = asio::error::bad_descriptor;
      CHECK(error_of([&] {
              vigil::select_ordered(
                  vigil::on_recv(ch), on_read(s, asio::buffer(to)), vigil::otherwise());
            }) == bad);
      CHECK(error_of([&] {
              vigil::select_ordered(
                  vigil::on_recv(ch), on_write(s, asio::buffer(to)), vigil::otherwise());
            }) == bad);
    });
  }

  TEST_CASE("many fibers select over their streams and a channel, and lose nothing") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      auto tokens = vigil::make_channel<int>();
      std::vector<vigil::fiber<void>> fibers;
      constexpr int pairs = 4;
      const int all = rounds(1000);
      for (int p = 0; p < pairs; ++p) {
        fibers.push_back(vigil::spawn([&tokens, all, p] {
          auto [near, far] = tcp_connection();
          auto writer = vigil::spawn([&far = far, all, p] {
            unsigned char next = 0;
            seeded sizes(static_cast<std::uint64_t>(p));
            for (int i = 0; i < all; ++i) {
              std::string bytes(1 + sizes.next() % 12, ' ');
              for (char& c : bytes)
                c = static_cast<char>(next++);
              send_text(far, bytes);
            }
            far.close();
          });
          unsigned char next = 0;
          std::array<char, 16> bytes;
          bool over = false;
          while (!over) {
            vigil::select(on_read(near,
                                  asio::buffer(bytes),
                                  [&](error_code e, std::size_t n) {
                                    for (std::size_t i = 0; i < n; ++i)
                                      REQUIRE(static_cast<unsigned char>(bytes[i]) == next++);
                                    over = e == asio::error::eof;
                                    REQUIRE(over == e.failed());
                                  }),
                          vigil::on_recv(tokens),
                          vigil::on_send(tokens, 1),
                          vigil::on_timeout(50us));
          }
          writer.join();
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }
}
