// graceful_stop: a server that is asked to stop takes no more requests, lets those that
// it has begun end, and cuts short those that have not ended by a deadline.
//
// Run it:     build/release/examples/patterns/graceful_stop
// It prints:  which of the requests got their answer. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

struct request {
  int number;
  std::chrono::milliseconds work;
};

void handle(request r, const vigil::context& ctx) {
  try {
    vigil::sleep_for(r.work, ctx);
    std::printf("request %d: answered\n", r.number);
  } catch (const vigil::cancelled&) {
    std::printf("request %d: told to come again\n", r.number);
  }
}

// Serves until `stop` is done, then waits at most `patience` for the requests under way.
void serve(const vigil::receiver<request>& requests,
           const vigil::context& stop,
           std::chrono::milliseconds patience) {
  vigil::group handlers(vigil::without_cancel(stop));  // it outlives the loop
  try {
    while (auto r = requests.recv(stop))
      handlers.go([r = *r](const vigil::context& ctx) { handle(r, ctx); });
  } catch (const vigil::cancelled&) {
    std::puts("no more requests");
  }
  if (!handlers.wait_for(patience)) std::puts("time is up");
}  // the group's end cancels the handlers that are left, and waits for them

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    const auto requests = vigil::make_channel<request>(8);
    const auto stop = vigil::with_cancel(vigil::background());
    auto server = vigil::spawn([&] { serve(requests, stop.ctx, 500ms); });
    requests.send({1, 100ms});
    requests.send({2, 1300ms});
    requests.send({3, 24h});
    vigil::sleep_for(1s);
    stop.cancel();
    server.join();
  });
}
