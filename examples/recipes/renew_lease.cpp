// Renews a lease while work goes on, and ends the work when the lease cannot be kept.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>

using namespace std::chrono_literals;

template <class Renew, class Work>
void with_lease(vigil::clock::duration length, Renew renew, Work work) {
  const auto [ctx, lose] = vigil::with_cancel(vigil::background());
  const auto renewing = [&, lose = lose] {
    try {
      const auto [limit, done] = vigil::with_timeout(vigil::background(), length / 3);
      if (!renew(limit)) lose(std::runtime_error("the lease is lost"));
    } catch (...) {
      lose(std::current_exception());
    }
  };
  // Begun after a third of the lease, a renewal has failed when two are over.
  const vigil::scoped_timer beat = vigil::every(length / 3, renewing);
  work(ctx);
}

int main() {
  return vigil::testing::run_virtual([] {
    int renewed = 0;
    try {
      with_lease(
          30s,
          [&renewed](const vigil::context& limit) {
            vigil::sleep_for(1s, limit);  // asks the owner of what is leased
            return ++renewed < 4;
          },
          [](const vigil::context& ctx) {
            for (int part = 1;; ++part) {
              vigil::sleep_for(15s, ctx);
              std::printf("part %d\n", part);
            }
          });
    } catch (const vigil::cancelled&) {
      std::printf("stopped when renewal %d failed\n", renewed);
    }
  });
}

//! [recipe]
