// Asks over UDP, and asks again when no answer has come.
//! [recipe]
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/udp.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::udp;
using vigil::io::use_fiber;

std::string ask(const udp::endpoint& server, const std::string& question) {
  udp::socket socket(vigil::io::io_context());
  socket.connect(server);  // sets the address that is sent to, and takes answers from no other
  std::string answer(512, '\0');
  for (auto wait = 20ms; wait < 2s; wait *= 2) {
    const auto until = vigil::deadline_in(wait);
    socket.async_send(asio::buffer(question), asio::as_tuple(use_fiber));
    const auto [error, n] =
        socket.async_receive(asio::buffer(answer), asio::as_tuple(use_fiber.until(until)));
    if (!error) return answer.substr(0, n);
    vigil::sleep_until(until);  // does not wait after a timeout
  }
  return "no answer";
}

int main() {
  return vigil::run([] {
    udp::socket server(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
    const auto where = server.local_endpoint();
    const auto serving = vigil::spawn([&server] {
      std::string bytes(512, '\0');
      udp::endpoint client;
      server.async_receive_from(asio::buffer(bytes), client, use_fiber);  // as if this one got lost
      const auto n = server.async_receive_from(asio::buffer(bytes), client, use_fiber);
      server.async_send_to(asio::buffer(bytes.substr(0, n) + " back"), client, use_fiber);
    });
    std::puts(ask(where, "hello").c_str());
  });
}

//! [recipe]
