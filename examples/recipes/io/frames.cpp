// Sends messages that begin with their length, and refuses those that are too long.
//! [recipe]
#include <vigil/io.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace asio = boost::asio;
namespace io = vigil::io;

template <class Stream>
void send(Stream& to, const std::string& text) {
  const auto n = std::uint32_t(text.size());
  const std::array<unsigned char, 4> head = {
      std::uint8_t(n >> 24), std::uint8_t(n >> 16), std::uint8_t(n >> 8), std::uint8_t(n)};
  asio::write(to, std::array{asio::buffer(head), asio::buffer(text)});  // in one call
}

template <class Stream>
std::string receive(Stream& from, std::size_t most) {
  std::array<unsigned char, 4> head;
  asio::read(from, asio::buffer(head));
  std::uint32_t n = 0;
  for (const unsigned char byte : head)
    n = n << 8 | byte;
  if (n > most) throw std::length_error("a message of " + std::to_string(n) + " bytes");
  std::string text(n, '\0');  // not before that: the other side chooses n
  asio::read(from, asio::buffer(text));
  return text;
}

int main() {
  return vigil::testing::run_virtual([] {
    auto [near, far] = io::memory_pipe();
    io::deadline_stream<io::memory_stream> client(std::move(near));
    io::deadline_stream<io::memory_stream> server(std::move(far));
    for (const std::string text : {"hello", "", "a longer message"})
      send(client, text);
    try {
      for (;;)
        std::printf("'%s'\n", receive(server, 10).c_str());
    } catch (const std::length_error& e) {
      std::puts(e.what());
    }
  });
}

//! [recipe]
