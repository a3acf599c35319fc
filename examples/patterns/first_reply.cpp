// first_reply: asks three servers at once and takes the first answer.
//
// Run it:     build/release/examples/patterns/first_reply
// It prints:  the answer and when it came; by then the slower two are stopped and gone.
//             It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct server {
  std::string name;
  std::chrono::milliseconds latency;
};

std::string ask(const server& s) {
  vigil::sleep_for(s.latency);
  return s.name + " answered";
}

//! [first]
std::optional<std::string> first_of(const std::vector<server>& servers,
                                    std::chrono::milliseconds timeout) {
  auto replies = vigil::make_channel<std::string>();
  std::vector<vigil::fiber<>> asking;
  for (const server& s : servers)
    asking.push_back(vigil::spawn([replies, &s] { replies.send(ask(s)); }));
  auto first = replies.recv_for(timeout);
  if (!first) return std::nullopt;
  return *std::move(first);
}  // the handles stop the fibers that still ask, and wait for them: &s may go

//! [first]

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    const std::vector<server> servers = {{"Oslo", 80ms}, {"Rome", 30ms}, {"Lima", 200ms}};
    const auto start = vigil::clock::now();
    for (const auto timeout : {100ms, 10ms}) {
      const auto reply = first_of(servers, timeout);
      std::printf("%s, %d ms, %d fiber left\n",
                  reply ? reply->c_str() : "no answer",
                  int((vigil::clock::now() - start) / 1ms),
                  int(vigil::stats().fibers_alive));
    }
  });
}
