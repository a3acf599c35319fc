#include "inspect/fiber_report.hpp"

#include "inspect/running_frames.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/run/process_dump.hpp"
#include "sched/run/running_runtimes.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

std::size_t hash_of(const frame_list& f) noexcept {
  std::size_t h = static_cast<std::size_t>(f.result);
  for (unsigned i = 0; i < f.count; ++i)
    h = (h ^ f.places[i]) * 0x9e37'79b9'7f4a'7c15;
  return h;
}

class collector {
 public:
  collector(const scheduler* running_on, bool with_frames)
      : running_on_(running_on), with_frames_(with_frames) {}

  void visit(const stack& where) {
    fiber_snapshot s;
    if (!take_snapshot(where, s)) return;
    const bool runs = s.state == fiber_state::running;
    if (running_on_ != nullptr && (s.sched != running_on_ || !runs)) return;
    ++report_.fibers;
    if (report_.collected == fibers_shown_at_most) return;
    reported_fiber f;
    f.shown = s;
    read(where, f);
    name_holders(f);
    ++report_.collected;
    group_of_read().fibers.push_back(f);
  }

  fiber_report take() {
    std::stable_sort(
        report_.groups.begin(), report_.groups.end(), [](const auto& a, const auto& b) {
          return a->fibers.size() > b->fibers.size();
        });
    return std::move(report_);
  }

 private:
  // Reads the frames and the object of the wait, of the moment of the snapshot. A fiber
  // that moves on meanwhile is looked at again, a few times; then only who it is is told.
  void read(const stack& where, reported_fiber& f) {
    for (int tries = 0; tries < 3; ++tries) {
      frames_.count = 0;
      frames_.result = frames_result::not_wanted;
      called_.count = 0;
      called_.result = frames_result::not_wanted;
      f.awaited = {};
      if (with_frames_) read_frames_of(where, f.shown);
      const bool is_one_moment = f.shown.state == fiber_state::running ||
                                 (read_awaited(where, f.shown, f.awaited) && read_called(where, f));
      if (is_one_moment && frames_.result != frames_result::moved_on) return;
      fiber_snapshot again;
      if (!take_snapshot(where, again) || again.id != f.shown.id) break;
      f.shown = again;
    }
    f.awaited = {};
    f.shown.moved_on = true;
    frames_.count = 0;
    frames_.result = frames_result::moved_on;
    called_.count = 0;
    called_.result = frames_result::not_wanted;
  }

  // Reads the frames of the function on a side pool, if the fiber waits for one that
  // runs. False if it has not run all the time.
  bool read_called(const stack& where, reported_fiber& f) {
    const int thread = f.awaited.thread;
    if (!with_frames_ || thread <= 0) return true;
    read_thread_frames(thread, room_.bytes(), called_);
    return read_awaited(where, f.shown, f.awaited) && f.awaited.thread == thread;
  }

  void read_frames_of(const stack& where, const fiber_snapshot& s) {
    if (s.state == fiber_state::running) {
      const int thread = process_thread_that_runs(s.sched, *control_block(where));
      read_running_frames(where, thread, room_.bytes(), frames_);
    } else {
      read_parked_frames(where, s, room_.bytes(), frames_);
    }
  }

  // Many may wait for one holder, and finding it takes a walk over all fibers.
  void name_holders(reported_fiber& f) {
    for (std::size_t i = 0; i < f.awaited.case_count; ++i) {
      shown_object& o = f.awaited.cases[i];
      if (o.held_by != shown_object::holder::a_number) continue;
      const auto [found, is_new] = holders_.try_emplace(o.holder_noted, o);
      if (is_new) find_holder(found->second);
      o.held_by = found->second.held_by;
      o.who = found->second.who;
    }
  }

  // The group of those with the frames that have just been read.
  fiber_group& group_of_read() {
    auto& bucket = by_hash_[hash_of(frames_) * 3 + hash_of(called_)];
    for (fiber_group* const g : bucket) {
      if (g->frames == frames_ && g->called == called_) return *g;
    }
    report_.groups.push_back(std::make_unique<fiber_group>());
    fiber_group& fresh = *report_.groups.back();
    fresh.frames = frames_;
    fresh.called = called_;
    bucket.push_back(&fresh);
    return fresh;
  }

  const scheduler* const running_on_;
  const bool with_frames_;
  const own_copy_room room_;
  frame_list frames_;
  frame_list called_;
  fiber_report report_;
  std::unordered_map<std::size_t, std::vector<fiber_group*>> by_hash_;
  std::map<std::uint64_t, shown_object> holders_;  // by holder_noted
};

}  // namespace

fiber_report collect_fibers(const scheduler* running_on, bool with_frames) {
  collector all(running_on, with_frames);
  std::exception_ptr error;

  struct visiting {
    collector& all;
    std::exception_ptr& error;
  } argument{all, error};

  {
    const handler_scope inside;
    const slab_hold hold;
    for_each_stack_in_use(
        [](const stack& where, void* a) noexcept {
          auto& v = *static_cast<visiting*>(a);
          if (v.error != nullptr) return;
          try {
            v.all.visit(where);
          } catch (...) {
            v.error = std::current_exception();
          }
        },
        &argument);
  }
  if (error != nullptr) std::rethrow_exception(error);
  return all.take();
}

}  // namespace vigil::inline VIGIL_ABI::detail
