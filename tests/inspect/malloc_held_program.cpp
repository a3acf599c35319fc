// Asks for dumps while malloc answers nobody, the asker included: as if a thread that is
// stuck held its lock. Ends with 0 if all of them come back, and say what they should.
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __GLIBC__

extern "C" {
void* __libc_malloc(std::size_t n);
void* __libc_calloc(std::size_t n, std::size_t size);
void* __libc_realloc(void* p, std::size_t n);
void* __libc_memalign(std::size_t alignment, std::size_t n);
void __libc_free(void* p);
}

namespace {

std::atomic<bool> is_held{false};

void wait_while_held() {
  while (is_held.load())
    ::usleep(1000);
}

}  // namespace

extern "C" {
void* malloc(std::size_t n) {
  wait_while_held();
  return __libc_malloc(n);
}

void* calloc(std::size_t n, std::size_t size) {
  wait_while_held();
  return __libc_calloc(n, size);
}

void* realloc(void* p, std::size_t n) {
  wait_while_held();
  return __libc_realloc(p, n);
}

void* aligned_alloc(std::size_t alignment, std::size_t n) {
  wait_while_held();
  return __libc_memalign(alignment, n);
}

void free(void* p) {
  wait_while_held();
  __libc_free(p);
}
}

namespace {

// A stream that has no buffer yet, and the text that is in its file.
class written {
 public:
  written() : file_(::fdopen(::memfd_create("dump", 0), "w")) {}

  std::FILE* file() const { return file_; }

  bool says(const char* words) {
    const ssize_t n = ::pread(::fileno(file_), text_, sizeof text_ - 1, 0);
    text_[n < 0 ? 0 : n] = '\0';
    return std::strstr(text_, words) != nullptr;
  }

  bool must_say(const char* words) {
    if (says(words)) return true;
    ::dprintf(2, "'%s' is missing in:\n%s\n", words, text_);
    return false;
  }

 private:
  std::FILE* const file_;
  static inline char text_[1 << 16];
};

constexpr const char* why = "malloc has not answered within 3 s: a thread that is stuck may hold";

bool is_listed(written& w) {
  return w.must_say(why) &&
         w.must_say("(waits) [parked: channel receive from the channel made at") &&
         w.must_say("the names of functions are left out") && w.must_say("\nruntime 1: ");
}

bool dumps_while_held() {
  written first;
  written second;
  written json;
  written after;
  is_held.store(true);
  vigil::inspect::dump(first.file());
  vigil::inspect::dump(second.file());
  vigil::inspect::dump_json(json.file());
  is_held.store(false);
  // The thread that was left behind goes on, and answers again.
  do {
    vigil::inspect::dump(after.file());
  } while (!after.says("malloc_held_program.cpp:"));
  return is_listed(first) && is_listed(second) && json.must_say("{\"error\":\"malloc has not");
}

// The child of a fork has no kept thread.
bool dumps_in_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    written w;
    vigil::inspect::dump(w.file());
    std::_Exit(w.must_say("0 fibers") && !w.says(why) ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

}  // namespace

int main() {
  ::alarm(120);
  vigil::inspect::install();
  bool is_right = dumps_in_child();
  vigil::testing::run_virtual([&] {
    const auto channel = vigil::make_channel<int>();
    const auto waits = vigil::spawn({.name = "waits"}, [&] { channel.recv(); });
    vigil::testing::settle();
    is_right = dumps_while_held() && is_right;
    channel.close();
  });
  return is_right ? 0 : 1;
}

#else

int main() {
  std::puts("no malloc can be put in front of the C library's here");
  return 77;
}

#endif
