// A fiber waits below a lambda and two static functions, in two calls that are inlined
// into the inner one. Built with debug information, whatever the build has otherwise.
//
// usage: names_program expected             prints these functions with their lines
//        names_program text|json|signal     writes a dump; `signal`: in SIGQUIT's handler
//        names_program text MODULE          the fiber waits in a call by that module
//                                           (calls_back), which is deleted once loaded
//        names_program text MODULE OTHER    OTHER takes the place of the module's file
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>
#include <string_view>

#include <dlfcn.h>
#include <unistd.h>

namespace names {

constexpr int innermost_line = __LINE__ + 3;

[[gnu::always_inline]] inline void innermost(vigil::latch& l) {
  l.wait();
  asm volatile("" ::: "memory");  // no tail call
}

constexpr int middle_line = __LINE__ + 3;

[[gnu::always_inline]] inline void middle(vigil::latch& l) {
  innermost(l);
  asm volatile("" ::: "memory");
}

constexpr int around_line = __LINE__ + 3;

[[gnu::noinline]] static void around(void* latch) {
  middle(*static_cast<vigil::latch*>(latch));
  asm volatile("" ::: "memory");
}

constexpr int outermost_line = __LINE__ + 3;

[[gnu::noinline]] static void outermost(void* latch) {
  around(latch);
  asm volatile("" ::: "memory");
}

}  // namespace names

namespace {

using call = void(void (*f)(void*), void* argument);

constexpr int lambda_line = __LINE__ + 4;

call* in_lambda() {
  return [](void (*f)(void*), void* argument) {
    f(argument);
    asm volatile("" ::: "memory");
  };
}

void dump_while_waiting(call& by, std::string_view how) {
  vigil::latch l(1);
  auto f = vigil::spawn([&] { by(&names::outermost, &l); });
  vigil::testing::settle();
  if (how == "text") vigil::inspect::dump(stdout);
  if (how == "json") vigil::inspect::dump_json(stdout);
  if (how == "signal") std::raise(SIGQUIT);
  l.count_down();
  f.join();
}

// The file that was at this path is gone when it returns.
call* load_and_remove(const char* path, const char* other) {
  void* const module = ::dlopen(path, RTLD_NOW);
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return nullptr;
  }
  if ((other != nullptr ? std::rename(other, path) : ::unlink(path)) != 0) {
    std::perror(path);
    return nullptr;
  }
  return reinterpret_cast<call*>(::dlsym(module, "call_back"));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how == "expected") {
    std::printf("names::innermost(vigil::latch&) %d\n", names::innermost_line);
    std::printf("names::middle(vigil::latch&) %d\n", names::middle_line);
    std::printf("names::around(void*) %d\n", names::around_line);
    std::printf("names::outermost(void*) %d\n", names::outermost_line);
    std::printf("lambda %d\n", lambda_line);
    return 0;
  }
  call* by = in_lambda();
  if (argc > 2) by = load_and_remove(argv[2], argc > 3 ? argv[3] : nullptr);
  if (by == nullptr) return 2;
  std::signal(SIGQUIT, SIG_DFL);  // a shell ignores it for what it runs in the background
  vigil::inspect::install();
  vigil::testing::run_virtual([&] { dump_while_waiting(*by, how); });
}
