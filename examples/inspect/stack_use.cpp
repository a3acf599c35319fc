// How much of their stacks two kinds of fibers use. On virtual time, so that the same
// fibers are measured each time.
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <bit>
#include <cstdio>
#include <cstring>

using namespace std::chrono_literals;

// Stand for calls that need so much stack.
template <std::size_t bytes>
[[gnu::noinline]] void use_stack() {
  [[maybe_unused]] volatile char buffer[bytes];
  for (std::size_t at = 0; at < bytes; at += 512)
    buffer[at] = 1;
}

void serve_session() {
  use_stack<10'000>();
  vigil::sleep_for(1s);
}

void make_thumbnail() {
  use_stack<40'000>();
}

const char* without_folders(const std::string& place) {
  const char* const slash = std::strrchr(place.c_str(), '/');
  return slash != nullptr ? slash + 1 : place.c_str();
}

int main() {
  vigil::inspect::install();
  vigil::testing::run_virtual([] {
    for (int i = 0; i < 1'000; ++i) {
      vigil::go(serve_session);
      vigil::spawn(vigil::fiber_options{.stack_size = 64 * 1024}, make_thumbnail).join();
    }
    vigil::sleep_for(2s);
  });
  //! [by_place]
  for (const vigil::inspect::stack_use& use : vigil::inspect::stack_use_by_place()) {
    std::printf("%s: %llu measured, stacks of %zu KiB, advised %zu KiB\n",
                without_folders(use.place),
                static_cast<unsigned long long>(use.total()),
                use.least_stack / 1024,
                std::bit_ceil(2 * use.most_bytes) / 1024);
  }
  //! [by_place]
}
