// context_core: the object that a context's handles name. There are two kinds:
//
//   value_context    a value, or nothing: the background of plain threads,
//                    without_cancel; done when its parent is, or never
//   cancel_context   a node of the cancel tree, and the channel that done() hands
//                    out: closed as soon as the node is done
//
// CX1 A child keeps its parent, and so all above it. A long chain is freed one by one,
//     not by recursion.
// CX2 The handles of a cancel_context are counted with those of its channel: a
//     receiver of done() is a handle.
// CX3 The parts that may act after the last handle (its timer, a stop_token) have only a
//     weak link: they look under the link's lock whether the context is still there, and
//     take a handle unless the last one is gone.
// CX4 A timer goes with the run it was armed in. So a context made under a deadline
//     leaves it to the ancestor's timer only if that timer is pending in the run that the
//     maker is in; otherwise it arms its own. And deadlines are compared only if they are
//     instants of one clock: virtual time is each runtime's own.
#pragma once

#include "core/chan/channel_core.hpp"
#include "core/sched/wait/cancel_tree.hpp"

#include <vigil/context.hpp>
#include <vigil/stop_token.hpp>

#include <cstdint>
#include <memory>

namespace VIGIL_DETAIL {

class timer_seam;

class cancel_context;
class timer_record;

// The clock of a deadline: that of a run on virtual time or, by default, the machine's.
struct deadline_clock {
  const timer_seam* of = nullptr;
  std::uint32_t run = 0;

  // `s` is the caller's runtime, nullptr if it is in none.
  static deadline_clock read_in(scheduler* s) noexcept;
  bool operator==(const deadline_clock&) const noexcept = default;
};

class context_core {
 public:
  // Takes over a handle of the parent.
  context_core(context_core* above, cancel_node* ends_with, nanos d) noexcept
      : parent(above), node(ends_with), deadline(d) {}

  context_core(const context_core&) = delete;
  context_core& operator=(const context_core&) = delete;

  virtual void retain() noexcept = 0;
  void release() noexcept;

  context_core* parent;  // owned; nullptr: none
  cancel_node* node;     // this, or the nearest ancestor that can be done
  nanos deadline;
  deadline_clock clock;                      // of the deadline
  const cancel_context* timed_by = nullptr;  // this, or the ancestor with the deadline's timer
  const void* key = nullptr;
  void* value = nullptr;

 protected:
  ~context_core() = default;

  // Frees the rest after the last handle is gone; the caller takes care of the parent.
  virtual void destroy() noexcept = 0;

 private:
  virtual bool release_one() noexcept = 0;  // true: it was the last handle
};

[[noreturn]] void throw_nil_context(const char* call);

// The object that a handle names. Throws std::invalid_argument for a nil handle.
template <class Core>
Core& checked(Core* c, const char* call) {
  if (c == nullptr) throw_nil_context(call);
  return *c;
}

class value_context final : public context_core {
 public:
  value_context(context_core* above, cancel_node* ends_with, nanos d) noexcept
      : context_core(above, ends_with, d) {}

  void retain() noexcept override;
  void (*destroy_value)(void*) noexcept = nullptr;

 private:
  bool release_one() noexcept override;
  void destroy() noexcept override;

  atomic<std::size_t> handles_{1};
};

// The weak link of CX3.
struct weak_context {
  spinlock lock{lock_rank::cancel_tree};
  cancel_context* target VIGIL_GUARDED_BY(lock) = nullptr;

  void cancel(detail::cancel_state state, const std::exception_ptr& cause) noexcept;
};

struct cancel_from_token {
  std::shared_ptr<weak_context> link;
  void operator()() const noexcept;
};

class cancel_context final : public context_core,
                             public cancel_node,
                             public channel_core,
                             private timed_source {
 public:
  cancel_context(context_core* above, const site& from);

  // --- making it
  void arm(nanos at, std::exception_ptr cause);
  void listen(std::stop_token token);

  // --- CX4, for a context with a timer; `here`: the caller's runtime, nullptr if in none
  // Whether its timer will fire in that run.
  bool is_pending_in(const scheduler* here) const noexcept;
  // Whether its deadline has passed, as far as the reader of another clock can tell.
  bool has_passed_elsewhere() const noexcept;

  const std::exception_ptr& cause_of_deadline() const noexcept { return late_; }

  channel_core* done_channel() noexcept;
  std::stop_token token();

  void retain() noexcept override { detail::retain(static_cast<channel_core*>(this)); }

  void release() noexcept override;

  bool try_retain() noexcept override;

 private:
  friend struct debug_layout;
  friend struct object_view;

  ~cancel_context() override = default;

  bool release_one() noexcept override;
  void destroy() noexcept override;
  void end() noexcept override;  // the last handle was a receiver
  void on_done() noexcept override;
  const std::shared_ptr<weak_context>& weak();

  // Nothing ever comes except the end.
  bool take(void*) noexcept override { return false; }

  bool has_ended() const noexcept override { return is_done(); }

  void somebody_waits() override { channel_is_waited_in(true); }

  void nobody_waits() noexcept override { channel_is_waited_in(false); }

  bool is_far() const noexcept override { return !is_done(); }

  std::shared_ptr<weak_context> link_;  // written by its maker only
  timer_record* timer_ = nullptr;       // written by its maker only
  std::exception_ptr late_;             // the cause of its deadline; written by its maker only
  std::unique_ptr<std::stop_callback<cancel_from_token>> heard_;
  atomic<std::stop_source*> token_{nullptr};
};

}  // namespace VIGIL_DETAIL
