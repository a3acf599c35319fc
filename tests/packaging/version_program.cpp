// A user's program: says both versions, then takes the library into use, by the way that
// is given.
#include <vigil/guest.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string_view>

#include <boost/asio/io_context.hpp>

int main(int count, char** words) {
  std::printf(
      "headers %d, library %d, %s\n", VIGIL_VERSION, vigil::version(), vigil::version_string());
  std::fflush(stdout);
  const std::string_view way = count == 2 ? words[1] : "";
  if (way == "run") vigil::run({.workers = 1}, [] {});
  if (way == "runtime") vigil::runtime().run([] {});
  if (way == "guest") vigil::guest_runtime().start([] {});
  if (way == "virtual") vigil::testing::run_virtual([] {});
  if (way == "attach") {
    boost::asio::io_context context;
    vigil::options settings;
    vigil::io::attach(settings, context);
    vigil::run(settings, [] {});
  }
  std::puts("done");
}
