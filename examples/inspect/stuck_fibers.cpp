// A leak and its report: the search takes the first answer, and the other servers wait
// for ever for somebody to take theirs. On virtual time, so that it happens each time.
#include <vigil/leaks.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

//! [search]
int search() {
  const auto answers = vigil::make_channel<int>();  // a capacity of 3 would do
  for (int server = 1; server <= 3; ++server) {
    vigil::go([answers, server] {
      vigil::sleep_for(server * 10ms);
      answers.send(server);
    });
  }
  return *answers.recv();
}

//! [search]

//! [test]
void test_search() {
  vigil::testing::run_virtual([] {
    if (search() != 1) std::puts("not the fastest");
    vigil::sleep_for(1s);
    vigil::testing::check_no_leaks({.possible = true});
  });
}

//! [test]

int main() {
  try {
    test_search();
  } catch (const vigil::testing::leak& e) {
    std::fputs(e.what(), stderr);
    std::puts("a leak, as it had to come");
  }
}
