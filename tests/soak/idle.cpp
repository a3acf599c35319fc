// Idle lists: each entry that is added expires once or is removed, and never before its
// last touch plus the duration.
#include "soak/world.hpp"

#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace vigil::soak {
namespace {

struct idle_ledger : ledger {
  using ledger::ledger;
  opened added{*this, "added"};
  closed expired{*this, "expired"};
  closed removed{*this, "removed"};
  note touched{*this, "touched"};
  note refused{*this, "refused for want of memory"};
};

struct connection_of_idle {
  std::atomic<std::int64_t> least_expiry{0};
  std::atomic<int> expiries{0};
};

using idle_entry = expiring<connection_of_idle>;

void touch(idle_ledger& l, idle_entry& e, nanoseconds duration) {
  const time_point now = clock::now();
  if (!e.entry().touch(now)) return;
  e->least_expiry.store((now + duration).time_since_epoch().count());
  ++l.touched;
}

void add(world& w, idle_ledger& l, timeout_list& list, idle_entry& e, nanoseconds length) {
  const std::uint64_t edges = w.shortages();
  // Set before: the entry may expire while add() returns.
  e->least_expiry.store((clock::now() + length).time_since_epoch().count());
  ++l.added;
  try {
    list.add(e.entry());
  } catch (const std::bad_alloc&) {
    l.must(w.shortage_since(edges), "no memory for an entry, without a shortage");
    l.must(!e.entry().is_linked(), "an entry that was refused is in its list");
    ++l.refused;
    ++l.removed;
  }
}

void play_idle(world& w, idle_ledger& l, dice& d) {
  const nanoseconds length = 1us + w.draw(d) / 2;
  std::vector<std::unique_ptr<idle_entry>> all(1 + d.below(12));
  {
    timeout_list list(length, [&](timeout_list::entry& e) {
      idle_entry& own = idle_entry::of(e);
      const auto least = own->least_expiry.load();
      l.must(clock::now().time_since_epoch().count() >= least, "an entry expired early");
      ++own->expiries;
      ++l.expired;
    });
    const auto sleep = [&] { w.insist([time = w.draw(d) / 16] { sleep_for(time); }); };
    for (auto& e : all)
      e = std::make_unique<idle_entry>();
    for (auto& e : all) {
      add(w, l, list, *e, length);
      if (d.one_in(4)) sleep();
    }
    for (std::uint32_t n = d.below(30); n != 0; --n) {
      idle_entry& drawn = *all[d.below(static_cast<std::uint32_t>(all.size()))];
      switch (d.below(4)) {
        case 0:
          sleep();
          break;
        case 1:
          if (timeout_list::remove(drawn.entry())) ++l.removed;
          break;
        default:
          touch(l, drawn, length);
          break;
      }
    }
    // Half of the lists see all of their entries expire.
    if (d.one_in(2)) {
      while (list.size() != 0)
        w.insist([&] { sleep_for(length); });
    }
    for (const auto& e : all)
      if (timeout_list::remove(e->entry())) ++l.removed;
    l.must(list.size() == 0, "a list has entries that were all removed");
  }
  for (const auto& e : all)
    l.must((*e)->expiries.load() <= 1, "an entry expired twice");
}

}  // namespace

void cast_idle(world& w) {
  auto& l = *w.keep<idle_ledger>("idle lists");
  w.cast("idle lists", 2, [&](dice& d) { play_idle(w, l, d); });
}

}  // namespace vigil::soak
