// Guards where madvise() says yes to MADV_GUARD_INSTALL and does nothing, as emulators
// do.
#include "core/machine/stack.hpp"
#include "core/machine/stack_helpers.hpp"
#include "support/child.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace vigil::detail;
using vigil::testing_support::has_sanitizer;
using vigil::testing_support::page;
using vigil::testing_support::run_child;
using vigil::testing_support::take_all;

namespace {

constexpr int guard_install = 102;  // MADV_GUARD_INSTALL

// Undoes VIGIL_STACK_GUARD=mprotect in the environment of the tests.
const std::vector<std::pair<const char*, const char*>> by_default = {{"VIGIL_STACK_GUARD", ""}};

enum class advice { refused, followed, ignored };

// Whether the kernel can read there. A guard refuses reads as it does writes.
bool is_readable(const std::byte* at) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const bool written = ::write(ends[1], at, 1) == 1;
  CHECK((written || errno == EFAULT));
  ::close(ends[0]);
  ::close(ends[1]);
  return written;
}

// Tries on a page of the test's own how this system takes the advice.
advice tried_advice() {
  void* const at =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  const bool said_yes = ::madvise(at, page, guard_install) == 0;
  const bool readable = is_readable(static_cast<const std::byte*>(at));
  ::munmap(at, page);
  if (!said_yes) return advice::refused;
  return readable ? advice::ignored : advice::followed;
}

// Whether getrandom() can be asked, by which the library finds out what the advice did.
bool can_ask_getrandom() {
  std::byte plain{};
  return ::syscall(SYS_getrandom, &plain, 1, GRND_INSECURE) == 1;
}

// Makes madvise() answer 0 to MADV_GUARD_INSTALL and do nothing; the call for several
// ranges is unknown from then on. Has no effect where filters cannot be had.
void ignore_advice() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_madvise, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, guard_install, 2, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
  };
  const sock_fprog all{std::size(rules), rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
}

// Looks at each page of each guard.
bool all_are_guarded(const std::vector<stack>& stacks) {
  return std::all_of(stacks.begin(), stacks.end(), [](const stack& s) {
    for (std::size_t below = page; below <= stack_guard_size; below += page) {
      if (is_readable(s.bottom - below)) return false;
    }
    return is_readable(s.bottom);
  });
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

std::vector<stack> take(std::size_t count) {
  std::string error;
  std::vector<stack> taken = take_all(default_stack_size, count, error);
  REQUIRE(taken.size() == count);
  return taken;
}

}  // namespace

TEST_SUITE("guard trial") {
  TEST_CASE("child: stacks where advice is ignored" * doctest::skip()) {
    if (tried_advice() != advice::ignored) ignore_advice();
    if (tried_advice() != advice::ignored) {
      std::puts("skipped: no call can be answered by seccomp here");
      return;
    }
    std::vector<stack> stacks = {allocate_stack(min_stack_size)};
    const std::vector<stack> more = take(40);
    stacks.insert(stacks.end(), more.begin(), more.end());
    CHECK(all_are_guarded(stacks));
    for (const stack& s : stacks)
      release_stack(s);
    std::puts("looked at the guards");
  }

  TEST_CASE("stacks have guards where the system ignores the advice and says yes") {
    const auto child = run_child("child: stacks where advice is ignored", by_default);
    CAPTURE(child.output);
    CHECK(child.succeeded());
    if (const std::string why = child.skipped(); !why.empty()) {
      MESSAGE(why);
    } else {
      CHECK(child.says("looked at the guards"));
    }
  }

  TEST_CASE("child: mappings of guarded stacks" * doctest::skip()) {
    if (!can_ask_getrandom()) {
      std::puts("skipped: getrandom is refused here");
      return;
    }
    constexpr std::size_t count = 640;
    const std::vector<stack> stacks = take(1);
    const std::size_t before = mappings();
    const std::vector<stack> more = take(count);
    const std::size_t split = mappings() - before;
    CHECK(all_are_guarded(more));
    CHECK((split < 2 * count / 16) == (tried_advice() == advice::followed));
    for (const std::vector<stack>& some : {stacks, more}) {
      for (const stack& s : some)
        release_stack(s);
    }
  }

  TEST_CASE("guards split mappings only where the system does not follow the advice") {
    if (has_sanitizer) return;
    const auto child = run_child("child: mappings of guarded stacks", by_default);
    CAPTURE(child.output);
    CHECK(child.succeeded());
    if (const std::string why = child.skipped(); !why.empty()) MESSAGE(why);
  }
}
