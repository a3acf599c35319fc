// A user's shared object, a plugin for example, that uses vigil inside.
#include <vigil/io.hpp>

#include <boost/asio/steady_timer.hpp>

extern "C" [[gnu::visibility("default")]] int answer() {
  return vigil::run([] {
    boost::asio::steady_timer soon(vigil::io::io_context(), std::chrono::milliseconds(1));
    soon.async_wait(vigil::io::use_fiber);
    return vigil::spawn([](int n) { return n; }, 42).join();
  });
}
