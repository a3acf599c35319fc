// Gives each request a number that all lines of its log carry.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

vigil::fiber_local<int> request;  // each fiber has its own, unlike a thread_local

void log(const char* text) {
  std::printf("[%d] %s\n", *request, text);
}

void query(vigil::clock::duration takes) {  // needs no parameter for the number
  log("asks the database");
  vigil::sleep_for(takes);
  log("has the rows");
}

int main() {
  return vigil::testing::run_virtual([] {
    vigil::group all;
    for (int number = 1; number <= 2; ++number) {
      all.go([number] {
        *request = number;
        query(30ms / number);
      });
      vigil::sleep_for(1ms);
    }
    all.wait();
  });
}

//! [recipe]
