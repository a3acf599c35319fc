// The price of a wait: sleeps of its worker, and memory that Asio allocates.
#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>

#include <cstdint>
#include <memory>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

using namespace vigil::io_testing;

TEST_SUITE("wait_cost") {
  TEST_CASE("each wait of a socket that async_connect has connected is one sleep") {
    in_runtime({.workers = {1}}, [] {
      using asio::ip::tcp;
      using stream = vigil::io::deadline_stream<tcp::socket>;
      asio::io_context& context = vigil::io::io_context();
      tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
      tcp::socket near(context);
      auto connecting =
          vigil::spawn([&] { near.async_connect(acceptor.local_endpoint(), use_fiber); });
      stream far(acceptor.async_accept(use_fiber));
      connecting.join();
      stream client(std::move(near));
      constexpr std::uint64_t questions = 200;
      auto echo = vigil::spawn([&] {
        char byte = 0;
        for (std::uint64_t i = 0; i < questions; ++i) {
          far.read_some(asio::buffer(&byte, 1));
          far.write_some(asio::buffer(&byte, 1));
        }
      });
      const auto before = vigil::stats().kernel_waits;
      char byte = 0;
      for (std::uint64_t i = 0; i < questions; ++i) {
        client.write_some(asio::buffer(&byte, 1));
        client.read_some(asio::buffer(&byte, 1));
      }
      echo.join();
      CHECK(vigil::stats().kernel_waits - before < questions * 5 / 2);
    });
  }

  TEST_CASE("a handler that readies a fiber on several workers is seen at once") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      const auto announced = rt.make_work_guard();
      asio::io_context& context = vigil::io::io_context();
      auto come = vigil::make_channel<int>(1);
      for (int i = 0; i < 100; ++i) {
        std::thread other(
            [&] { asio::post(context, [&, i] { static_cast<void>(come.try_send(i)); }); });
        CHECK(come.recv() == i);
        other.join();
      }
    });
  }

  // Asio asks malloc for the memory of a handler in the slot.
  TEST_CASE("an operation gets the slot of the one before, and what was in it is gone") {
    in_runtime({.workers = {1}}, [] {
      asio::io_context& context = vigil::io::io_context();
      const auto left = std::make_shared<int>(0);
      std::vector<asio::cancellation_slot> slots;
      const auto begin = [&](auto handler) {
        auto slot = asio::get_associated_cancellation_slot(handler);
        slots.push_back(slot);
        slot.assign([left](asio::cancellation_type_t) {});
        asio::post(context, std::move(handler));
      };
      for (int i = 0; i < 3; ++i) {
        asio::async_initiate<const vigil::io::use_fiber_t&, void()>(begin, use_fiber);
        CHECK(left.use_count() == 1);
      }
      CHECK(slots[1] == slots[0]);
      CHECK(slots[2] == slots[0]);
    });
  }
}
