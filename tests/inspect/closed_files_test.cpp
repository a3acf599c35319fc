// Dumps of fibers whose code is in a file that is closed meanwhile.
#include "core/machine/sanitizer.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/co.hpp>
#include <vigil/leaks.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <dlfcn.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

using namespace vigil::testing_support;

namespace {

using call = void(void (*f)(void*), void* argument);

void* open_module() {
  void* const module = ::dlopen(VIGIL_CALLS_BACK, RTLD_NOW);
  if (module == nullptr) std::puts(::dlerror());
  REQUIRE(module != nullptr);
  return module;
}

bool is_loaded() {
  return ::dlopen(VIGIL_CALLS_BACK, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

void write_dump(std::string_view way) {
  if (way == "text") vigil::inspect::dump(stdout);
  if (way == "JSON") vigil::inspect::dump_json(stdout);
  if (way == "SIGQUIT") std::raise(SIGQUIT);
}

// Lets nothing else be mapped there.
void keep_free(const void* at) {
  constexpr std::uintptr_t page = 4096;
  void* const begin = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
  ::mmap(begin, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

vigil::task<> takes_one(vigil::channel<int> from) {
  co_await vigil::co::recv(from);
}

// From now on the system refuses to copy memory. False if it cannot be had so.
bool forbid_copies() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the call
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog all{std::size(rules), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// Closes a file as soon as the loader has found it for the dump.
struct closing {
  std::atomic<void*> module{nullptr};
  std::atomic<int> look{0};  // the one that closes it
  std::atomic<int> looks{0};
};

closing closes;

#endif

}  // namespace

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

using find_object = decltype(&_dl_find_object);

static find_object glibcs_find_object() {
  static auto* const found = reinterpret_cast<find_object>(::dlsym(RTLD_NEXT, "_dl_find_object"));
  return found;
}

// A handler may not look for it.
[[gnu::constructor]] static void know_glibcs_find_object() {
  glibcs_find_object();
}

// In front of glibc's.
extern "C" [[gnu::visibility("default")]] int _dl_find_object(  // NOLINT
    void* place,
    dl_find_object* out) {
  const int result = glibcs_find_object()(place, out);
  void* const module = closes.module.load();
  if (module != nullptr && result == 0 && out->dlfo_link_map == module &&
      closes.looks.fetch_add(1) + 1 == closes.look.load()) {
    ::dlclose(module);
  }
  return result;
}

TEST_SUITE("closed files") {
  TEST_CASE("child: a file is closed beside a dump" * doctest::skip()) {
    vigil::inspect::install();
    vigil::testing::run_virtual([] {
      void* const module = open_module();
      auto* const call_back = reinterpret_cast<call*>(::dlsym(module, "call_back"));
      vigil::go([call_back] {
        down(3, [call_back] {
          call_back([](void*) { vigil::sleep_for(std::chrono::hours(1)); }, nullptr);
        });
      });
      vigil::testing::settle();
      closes.look.store(std::atoi(std::getenv("VIGIL_CLOSING_LOOK")));
      closes.module.store(module);
      write_dump(std::getenv("VIGIL_DUMP"));
      std::puts(is_loaded() ? "still loaded" : "closed");
      std::fflush(stdout);
      std::_Exit(0);  // the fiber cannot return
    });
  }

  TEST_CASE("a file may be closed at any moment of a dump") {
    for (const std::string way : {"text", "JSON", "SIGQUIT"}) {
      if (VIGIL_TSAN && way == "SIGQUIT") continue;  // the test itself closes it in a handler
      NOTE("way: ", way);
      for (int look = 1;; ++look) {
        NOTE("look: ", look);
        const child_result r = run_child(
            "child: a file is closed beside a dump",
            {{"VIGIL_DUMP", way.c_str()}, {"VIGIL_CLOSING_LOOK", std::to_string(look).c_str()}});
        NOTE(r.output);
        REQUIRE(r.succeeded());
        // First for the rules of its code, then for its name.
        if (look == 1) CHECK(r.says("behind code without call frame information"));
        if (look == 2) CHECK((r.says(" (0x") || r.says("\"module\":\"\"")));
        if (r.says("still loaded")) {
          CHECK(look > 2);
          break;
        }
      }
    }
  }
}

#endif

TEST_SUITE("closed files") {
  TEST_CASE("child: dumps where memory cannot be copied" * doctest::skip()) {
    if (!forbid_copies()) {
      std::puts("skipped: no call can be forbidden by seccomp here");
      return;
    }
    vigil::inspect::install();
    vigil::testing::run_virtual([] {
      const auto f = vigil::spawn([] { down(3, [] { vigil::sleep_for(std::chrono::hours(1)); }); });
      vigil::testing::settle();
      for (const char* const way : {"text", "JSON", "SIGQUIT"})
        write_dump(way);
    });
  }

  TEST_CASE("where a sandbox forbids process_vm_readv the frames are read as they are") {
    const child_result r = run_child("child: dumps where memory cannot be copied");
    NOTE(r.output);
    REQUIRE(r.succeeded());
    if (const std::string why = r.skipped(); !why.empty()) {
      MESSAGE(why);
      return;
    }
    CHECK(has(r.output, "stack_begins"));
    CHECK(has(r.output, "\"result\":\"whole\""));
    CHECK(has(r.output, "    at ? (/"));  // by SIGQUIT
    CHECK_FALSE(has(r.output, "without call frame information"));
  }

  TEST_CASE("child: fibers that a closed file has started" * doctest::skip()) {
    vigil::inspect::install();
    vigil::testing::run_virtual([] {
      void* const module = open_module();
      const auto file_of_module =
          reinterpret_cast<const char* (*)()>(::dlsym(module, "file_of_module"));
      const vigil::site from{file_of_module(), 12};
      auto open = vigil::make_channel<int>();
      const auto wait = [open]() mutable { static_cast<void>(open.recv()); };
      vigil::go(wait, from);
      vigil::go(takes_one(open), from);
      vigil::testing::settle();
      ::dlclose(module);
      keep_free(from.file);
      if (!is_loaded()) std::puts("closed");
      for (const char* const way : {"text", "JSON", "SIGQUIT"})
        write_dump(way);
      vigil::debug::dump(stdout);
      vigil::inspect::dump_stuck_fibers(stdout);
      std::printf("%zu places\n", vigil::inspect::stack_use_by_place().size());
      open.close();
    });
  }

  TEST_CASE("the place where a fiber was started may be in a file that has been closed") {
    const child_result r = run_child("child: fibers that a closed file has started");
    NOTE(r.output);
    CHECK(r.says("closed\n"));
    // By each of the reports in text.
    CHECK(count_of(r.output, "started at ?:12 by fiber") == 4);
    CHECK(has(r.output, R"("started_at":{"file":"?","line":12})"));
    CHECK(r.says(" places\n"));  // nothing after it crashes
    REQUIRE(r.succeeded());
  }
}
