// Writes a dump in the handler of SIGQUIT.
//
// usage: sigquit_program            a fiber waits for a lock
//        sigquit_program expected   prints what that fiber's stack holds
//        sigquit_program MODULE     the fiber waits in a call by that module (calls_back),
//                                   which is loaded before the working directory changes
#include "inspect/ten_waits.hpp"

#include <vigil/inspect.hpp>

#include <csignal>
#include <cstdio>
#include <string_view>

#include <dlfcn.h>
#include <unistd.h>

namespace {

using call = void(void (*f)(void*), void* argument);

void call_directly(void (*f)(void*), void* argument) {
  f(argument);
}

void wait(void* objects) {
  try {
    ten_waits::nested<ten_waits::locking, ten_waits::locking::depth>::call(
        *static_cast<ten_waits::objects*>(objects));
  } catch (const vigil::cancelled&) {
  }
}

void dump_while_waiting(call& by) {
  ten_waits::objects o;
  const std::lock_guard holds(o.locked);
  const auto f = vigil::spawn([&] { by(&wait, &o); });
  vigil::testing::settle();
  std::raise(SIGQUIT);
  o.context.cancel();
}

}  // namespace

int main(int argc, char** argv) {
  call* by = &call_directly;
  if (argc > 1 && std::string_view(argv[1]) == "expected") {
    for (const std::string& f : ten_waits::functions_of<ten_waits::locking>())
      std::puts(f.c_str());
    return 0;
  }
  if (argc > 1) {
    void* const module = ::dlopen(argv[1], RTLD_NOW);
    if (module == nullptr || ::chdir("/") != 0) {
      std::fprintf(stderr, "%s\n", ::dlerror());
      return 2;
    }
    by = reinterpret_cast<call*>(::dlsym(module, "call_back"));
  }
  std::signal(SIGQUIT, SIG_DFL);  // a shell ignores it for what it runs in the background
  vigil::inspect::install();
  vigil::testing::run_virtual([by] { dump_while_waiting(*by); });
}
