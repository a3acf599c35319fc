// echo_load: makes many connections to an echo server at a time, and sends one message
// after another on each. Each answer is compared, and must come within a minute.
//
// Run:     build/release/examples/io/echo_load [PORT [CONNECTIONS [MESSAGES]]]
// Prints:  how many answers came, how many were wrong, and how long one took.
//          Without PORT, or with 0, it serves itself.
#include "echo.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <boost/asio/read.hpp>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 1min;

struct result {
  int answers = 0;
  int wrong = 0;
  std::vector<std::chrono::nanoseconds> each;
};

result talk(unsigned short port, int number, int messages) {
  result r;
  echo::tcp::socket server(vigil::io::io_context());
  server.async_connect({echo::asio::ip::address_v4::loopback(), port},
                       echo::use_fiber.within(patience));
  server.set_option(echo::tcp::no_delay(true));
  for (int i = 0; i < messages; ++i) {
    const std::string said = "message " + std::to_string(i) + " of " + std::to_string(number);
    std::string heard(said.size(), ' ');
    const auto start = vigil::clock::now();
    const auto too_late = start + patience;
    echo::asio::async_write(server, echo::asio::buffer(said), echo::use_fiber.until(too_late));
    echo::asio::async_read(server, echo::asio::buffer(heard), echo::use_fiber.until(too_late));
    r.each.push_back(vigil::clock::now() - start);
    ++r.answers;
    if (heard != said) ++r.wrong;
  }
  return r;
}

int argument(int argc, char** argv, int which, int otherwise) {
  return argc > which ? std::atoi(argv[which]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  auto port = static_cast<unsigned short>(argument(argc, argv, 1, 0));
  const int connections = argument(argc, argv, 2, 50);
  const int messages = argument(argc, argv, 3, 20);
  return vigil::run([&] {
    echo::tcp::acceptor acceptor(vigil::io::io_context());
    vigil::fiber<> own;
    if (port == 0) {
      acceptor =
          echo::tcp::acceptor(vigil::io::io_context(), {echo::asio::ip::address_v4::loopback(), 0});
      port = acceptor.local_endpoint().port();
      own = vigil::spawn([&] { echo::serve(acceptor, [](std::size_t) {}); });
    }
    std::vector<vigil::fiber<result>> clients;
    for (int i = 0; i < connections; ++i)
      clients.push_back(vigil::spawn([=] { return talk(port, i, messages); }));
    result all;
    for (auto& c : clients) {
      const result r = c.join();
      all.answers += r.answers;
      all.wrong += r.wrong;
      all.each.insert(all.each.end(), r.each.begin(), r.each.end());
    }
    std::sort(all.each.begin(), all.each.end());
    std::printf("%d answers, %d wrong\n", all.answers, all.wrong);
    const auto at = [&](std::size_t percent) {
      if (all.each.empty()) return 0.0;
      const auto nanos = all.each[(all.each.size() - 1) * percent / 100].count();
      return static_cast<double>(nanos) / 1000;
    };
    std::printf("an answer took %.1f us, one in a hundred more than %.1f us\n", at(50), at(99));
    return all.wrong == 0 && all.answers == connections * messages ? 0 : 1;
  });
}
