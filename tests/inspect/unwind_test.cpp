// The reader of call frame information, beside libgcc's, and on what is no stack.
#include "core/base/random.hpp"
#include "inspect/frame_list.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <ucontext.h>
#include <unwind.h>

using namespace vigil::detail;

namespace {

_Unwind_Reason_Code add(_Unwind_Context* at, void* to) {
  int is_before = 0;
  const std::uintptr_t place = ::_Unwind_GetIPInfo(at, &is_before);
  if (place == 0) return _URC_END_OF_STACK;
  static_cast<std::vector<std::uintptr_t>*>(to)->push_back(is_before != 0 ? place : place - 1);
  return _URC_NO_REASON;
}

struct both {
  std::vector<std::uintptr_t> theirs;
  std::vector<std::uintptr_t> ours;
  std::vector<std::byte> copy;
  frame innermost;
  std::uintptr_t sp = 0;
};

both result;
known_rules known;

[[gnu::noinline]] void unwind_both() {
  ucontext_t here;
  ::getcontext(&here);
  const frame f = interrupted_frame(&here);
  result.innermost = f;
  result.sp = f.registers[stack_pointer_register];
  frame_list list;
  const std::size_t size = 64 << 10;
  read_frames(
      f, {result.sp, result.sp + size, reinterpret_cast<const std::byte*>(result.sp)}, known, list);
  result.ours.assign(list.places, list.places + list.count);
  result.copy.resize(4096);
  copy_racing(reinterpret_cast<const std::byte*>(result.sp), result.copy.data(), 4096);
  result.theirs.clear();
  ::_Unwind_Backtrace(&add, &result.theirs);
  asm volatile("" ::: "memory");
}

int compare_and_unwind(const void* a, const void* b) {
  unwind_both();
  return std::memcmp(a, b, sizeof(int));
}

// Libc's, which has no frame pointers.
[[gnu::noinline]] void through_qsort() {
  int numbers[] = {2, 1};
  std::qsort(numbers, 2, sizeof(int), &compare_and_unwind);
  asm volatile("" ::: "memory");
}

template <int N>
[[gnu::noinline]] int with_locals(int depth) {
  volatile char room[N * 16 + 1] = {};
  room[0] = static_cast<char>(depth);
  if (depth == 0) {
    through_qsort();
  } else {
    with_locals<(N * 7 + 3) % 23>(depth - 1);
  }
  asm volatile("" ::: "memory");
  return room[0];
}

}  // namespace

TEST_SUITE("unwind") {
  TEST_CASE("through the library's and libc's frames it finds what libgcc finds") {
    for (int depth = 0; depth < 20; ++depth) {
      with_locals<1>(depth);
      NOTE("depth: ", depth);
      // The innermost differs: the place in the function itself.
      REQUIRE(result.ours.size() > static_cast<std::size_t>(depth) + 4);
      REQUIRE(result.ours.size() <= result.theirs.size());
      CHECK(std::equal(result.ours.begin() + 1, result.ours.end(), result.theirs.begin() + 1));
      CHECK((result.ours.size() == result.theirs.size() || result.ours.size() == frame_list::most));
    }
  }

  TEST_CASE("a copy that ends early ends the walk there") {
    with_locals<1>(6);
    for (std::size_t size = 0; size <= 4096; size += 8) {
      frame_list list;
      read_frames(result.innermost, {result.sp, result.sp + size, result.copy.data()}, known, list);
      REQUIRE(list.count >= 1);
      REQUIRE(list.count <= result.ours.size());
      CHECK(std::equal(list.places, list.places + list.count, result.ours.begin()));
    }
  }

  TEST_CASE("bytes that are no stack end the walk, whatever they are") {
    vigil::detail::random dice(1);
    with_locals<1>(6);
    for (int i = 0; i < vigil::testing_support::rounds(20'000); ++i) {
      std::vector<std::byte> bytes = result.copy;
      const unsigned changes = 1 + dice.below(30);
      for (unsigned n = 0; n < changes; ++n) {
        const std::size_t at = dice.below(512) * 8;
        std::uintptr_t word = dice.next();
        switch (dice.below(4)) {
          case 0:
            word = result.sp + dice.below(4096);
            break;
          case 1:
            word = result.ours[dice.below(static_cast<unsigned>(result.ours.size()))];
            break;
          case 2:
            word = dice.below(100);
            break;
          default:
            break;
        }
        std::memcpy(bytes.data() + at, &word, sizeof word);
      }
      frame_list list;
      read_frames(result.innermost, {result.sp, result.sp + 4096, bytes.data()}, known, list);
      CHECK(list.count >= 1);
    }
  }
}
