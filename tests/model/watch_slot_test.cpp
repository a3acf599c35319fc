// The place of a runtime's watch: of two calls that change it one wins, and the other
// finds the new watch there.
#include "core/sched/idle/watch_slot.hpp"

#include "prove.hpp"

#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::futex_watch;
using vigil::detail::watch;
using vigil::detail::watch_slot;

TEST_CASE("watch slot: the call that comes too late finds the watch of the first one") {
  prove("watch slot: two that change it", [] {
    watch_slot slot(nullptr);
    const watch* const first = &slot.present();
    const auto change = [&] {
      auto given = std::make_unique<futex_watch>();
      const watch* const own = given.get();
      const bool is_ours = slot.change(std::move(given));
      model::require(&slot.present() != first, "there is a new watch");
      model::require((&slot.present() == own) == is_ours, "and it is the winner's");
      return is_ours;
    };
    bool other_won = false;
    std::thread other([&] { other_won = change(); });
    const bool won = change();
    other.join();
    model::require(won != other_won, "one of the two has changed it");
  });
}
