// A program with ten kinds of wait, each at a known depth of calls: fiber "recv" waits in
// 3 nested calls and so on. The functions are templates, so their names say how deep each
// is; none is a tail call.
#pragma once

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace ten_waits {

struct objects {
  vigil::channel<int> empty = vigil::make_channel<int>();
  vigil::channel<int> full = vigil::make_channel<int>();
  vigil::channel<int> other = vigil::make_channel<int>(4);
  vigil::mutex locked;
  vigil::shared_mutex shared;
  vigil::condition_variable condition;
  vigil::semaphore permits{0};
  vigil::wait_group group;
  vigil::latch latch{1};
  vigil::cancellable context = vigil::with_cancel(vigil::background());
};

template <class Wait, int Depth>
struct nested {
  [[gnu::noinline]] static void call(objects& o) {
    if constexpr (Depth == 1) {
      Wait::wait(o);
    } else {
      nested<Wait, Depth - 1>::call(o);
    }
    asm volatile("" ::: "memory");  // no tail call
  }
};

#define TEN_WAITS_KIND(NAME, DEPTH, BODY)            \
  struct NAME {                                      \
    static constexpr const char* name = #NAME;       \
    static constexpr int depth = DEPTH;              \
    [[gnu::noinline]] static void wait(objects& o) { \
      static_cast<void>(o);                          \
      BODY;                                          \
      asm volatile("" ::: "memory");                 \
    }                                                \
  };

TEN_WAITS_KIND(sleeping, 1, vigil::sleep_for(std::chrono::hours(1), o.context.ctx))
TEN_WAITS_KIND(receiving, 2, static_cast<void>(o.empty.recv(o.context.ctx)))
TEN_WAITS_KIND(sending, 3, o.full.send(1, o.context.ctx))
TEN_WAITS_KIND(selecting,
               4,
               vigil::select(vigil::on_recv(o.empty, [](auto&&) {}),
                             vigil::on_send(o.full, 1, [] {}),
                             vigil::on_acquire(o.permits),
                             vigil::on_lock(o.locked),
                             vigil::on_done(o.context.ctx, [] {})))
TEN_WAITS_KIND(locking, 5, o.locked.lock(o.context.ctx))
TEN_WAITS_KIND(sharing, 6, o.shared.lock_shared(o.context.ctx))
TEN_WAITS_KIND(acquiring, 7, o.permits.acquire(1, o.context.ctx))
TEN_WAITS_KIND(grouped, 8, o.group.wait(o.context.ctx))
TEN_WAITS_KIND(latched, 9, o.latch.wait(o.context.ctx))

struct conditional {
  static constexpr const char* name = "conditional";
  static constexpr int depth = 10;

  [[gnu::noinline]] static void wait(objects& o) {
    vigil::mutex m;
    std::unique_lock lock(m);
    o.condition.wait(lock, o.context.ctx, [] { return false; });
    asm volatile("" ::: "memory");
  }
};

#undef TEN_WAITS_KIND

// The functions on its stack, the innermost first, as they are printed.
template <class Wait>
std::vector<std::string> functions_of() {
  std::vector<std::string> all;
  const std::string name = std::string("ten_waits::") + Wait::name;
  all.push_back(name + "::wait(ten_waits::objects&)");
  for (int i = 1; i <= Wait::depth; ++i) {
    all.push_back("ten_waits::nested<" + name + ", " + std::to_string(i) +
                  ">::call(ten_waits::objects&)");
  }
  return all;
}

// Calls f.template operator()<Wait>() for each kind.
template <class F>
void for_each_kind(F f) {
  f.template operator()<sleeping>();
  f.template operator()<receiving>();
  f.template operator()<sending>();
  f.template operator()<selecting>();
  f.template operator()<locking>();
  f.template operator()<sharing>();
  f.template operator()<acquiring>();
  f.template operator()<grouped>();
  f.template operator()<latched>();
  f.template operator()<conditional>();
}

// Has all ten wait, calls `look`, and ends them. On a fiber.
template <class Look>
void run(Look look) {
  objects o;
  const std::lock_guard holds(o.locked);
  const std::lock_guard writes(o.shared);
  o.group.add();
  std::vector<vigil::fiber<void>> all;
  for_each_kind([&]<class Wait>() {
    all.push_back(vigil::spawn(vigil::fiber_options{.name = Wait::name}, [&o] {
      try {
        nested<Wait, Wait::depth>::call(o);
      } catch (const vigil::cancelled&) {
      }
    }));
  });
  vigil::testing::settle();
  look();
  o.context.cancel();
  for (auto& f : all)
    f.join();
}

}  // namespace ten_waits
