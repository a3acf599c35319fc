// A small server's worth of fibers behind a live page, whose address it prints. As many
// wait for jobs as its argument says. It ends when its input does.
#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

void wait_for_job(const vigil::receiver<int>& jobs) {
  static_cast<void>(jobs.recv());
}

void compute() {
  volatile double sum = 0;
  for (;;) {
    for (int i = 0; i < 100'000; ++i)
      sum = sum + 1.0 / (1 + i);
    vigil::sleep_for(2ms);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int waiting = argc > 1 ? std::atoi(argv[1]) : 40;
  vigil::inspect::install();
  vigil::run({.workers = 4, .recorder_events = 1'024}, [waiting] {
    tcp::acceptor acceptor(vigil::io::io_context(), {boost::asio::ip::address_v4::loopback(), 0});
    const auto page = vigil::inspect::serve(std::move(acceptor), {.announce = false});
    std::printf("%s\n", std::string(page.address()).c_str());
    std::fflush(stdout);

    auto jobs = vigil::make_channel<int>(0, vigil::named("jobs"));
    vigil::mutex books;
    std::optional<std::lock_guard<vigil::mutex>> held(std::in_place, books);
    std::vector<vigil::fiber<void>> all;
    for (int i = 0; i < waiting; ++i)
      all.push_back(vigil::spawn({.name = "worker " + std::to_string(i)}, &wait_for_job, jobs));
    for (int i = 0; i < (waiting < 40 ? 2 : 7); ++i)
      all.push_back(vigil::spawn([&] { const std::lock_guard guard(books); }));
    for (int i = 0; i < (waiting < 40 ? 1 : 3); ++i)
      all.push_back(vigil::spawn({.name = "report"}, &compute));
    all.push_back(vigil::spawn({.name = "night's rest"}, [] { vigil::sleep_for(8h); }));
    // As a client might call itself.
    all.push_back(
        vigil::spawn({.name = "<img src=x onerror=alert(1)>"}, [] { vigil::sleep_for(90min); }));
    const vigil::timer cleaning = vigil::after_func(10min, [] {});
    vigil::blocking([] {
      while (std::getchar() != EOF) {
      }
    });
    jobs.close();
    held.reset();
  });
}
