// Answers at once and does the rest afterwards, but not after the end of the program.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <stdexcept>

using namespace std::chrono_literals;

void send_mail(int order, const vigil::context& ctx) {
  vigil::sleep_for(order * 1s, ctx);
  if (order == 2) throw std::runtime_error("no such address");
  std::printf("the mail about order %d is sent\n", order);
}

int main() {
  return vigil::testing::run_virtual([] {
    vigil::group later;
    for (const int order : {1, 2, 3, 9}) {
      later.go([order](const vigil::context& ctx) {
        try {
          send_mail(order, ctx);
        } catch (const vigil::cancelled&) {
          std::printf("order %d: no time is left\n", order);
        } catch (const std::exception& e) {  // left to the group, it would end the others
          std::printf("order %d: %s\n", order, e.what());
        }
      });
      std::printf("thank you for order %d\n", order);
    }
    if (!later.wait_for(5s)) later.cancel();  // time for what has begun
  });  // the group waits for the fibers that it has cancelled
}

//! [recipe]
