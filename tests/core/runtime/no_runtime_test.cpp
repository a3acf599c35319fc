// A process that never has a runtime: a child, since the other tests make some.
#include "support/child.hpp"

#include <vigil/channel.hpp>

#include <cstdio>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <unistd.h>

using namespace vigil::testing_support;

TEST_SUITE("a process without a runtime") {
  TEST_CASE("child: sends on a plain thread" * doctest::skip()) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const int real = ::dup(2);
    ::dup2(ends[1], 2);
    ::close(ends[1]);
    auto values = vigil::make_channel<int>();
    int received = 0;
    std::thread reader([&] {
      std::string said;
      for (char c = 0; c != '\n' && ::read(ends[0], &c, 1) == 1;)
        said += c;
      static_cast<void>(!::write(real, said.data(), said.size()));
      received = values.recv().value_or(0);
    });
    values.send(7);
    reader.join();
    std::printf("received %d\n", received);
  }

  TEST_CASE("warns when a send has waited for some seconds, and the send waits on") {
    const child_result r = run_child("child: sends on a plain thread");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("a process that has never had a runtime"), r.output);
    CHECK_MESSAGE(r.says("vigil::run"), r.output);
    CHECK_MESSAGE(r.says("received 7"), r.output);
  }
}
