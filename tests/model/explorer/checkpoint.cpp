// Checkpoints: a run begins at the latest moment that it shares with the run before, and
// not at the program's beginning.
//
// A checkpoint is taken just before a decision. It has all that the run has changed: the
// engine's state, the threads, the values and the program's whole memory, stacks
// included. The decisions before it are those of the path, and the search changes none of
// them without dropping the checkpoint. So a run that goes on there is the one that would
// have come there from the beginning.
//
// The system and the C library stay as they are: a file that is open at a checkpoint, or
// memory from malloc(), would be closed or freed by each run that begins there. The
// library opens its files and closes them without an operation in between; exceptions
// have their memory here (exceptions.cpp).
#include "explorer/engine.hpp"

#include <algorithm>
#include <memory>

#include <boost/context/detail/fcontext.hpp>

namespace model {
namespace {

// Operations between two checkpoints: their price is about that of so many.
constexpr std::uint64_t far_enough = 60;
constexpr std::size_t most_checkpoints = 40;

}  // namespace

// Caller: at a decision, before it looks at the path.
void engine::consider_checkpoint() {
  if (!bounds_.checkpoints || replaying_ || checkpoint_count_ == most_checkpoints) return;
  const std::uint64_t latest =
      checkpoint_count_ == 0 ? 0 : checkpoints_[checkpoint_count_ - 1]->run.steps_;
  if (steps_ - latest < far_enough) return;
  // Most alternatives would pass the bounds from here on.
  decision next;
  count_budget(next);
  if (bounds_.preemptions != unlimited && next.preemptions >= bounds_.preemptions &&
      next.stale >= bounds_.stale_reads && depth_ + 1 != path_.size()) {
    return;
  }
  // The thread is left like any other, so that a return enters it like any other.
  thread& self = threads_[current_];
  leave_locals(self);
  asks_checkpoint_ = true;
  const auto back = boost::context::detail::jump_fcontext(main_.context, &self);
  static_cast<thread*>(back.data)->context = back.fctx;
  enter_locals(threads_[current_]);
}

void engine::take_checkpoint() {
  if (checkpoint_count_ == checkpoints_.size())
    checkpoints_.push_back(std::make_unique<checkpoint>());
  checkpoint& c = *checkpoints_[checkpoint_count_++];
  c.run = *this;
  c.threads = threads_;
  c.history = history_.size();
  memory_.remember(c.values);
  world_remember(c.world, thread_count_);
}

// Returns false if none is left: the run begins at the beginning.
bool engine::return_to_checkpoint() {
  // The last decision of the path is another one than before.
  while (checkpoint_count_ != 0 && checkpoints_[checkpoint_count_ - 1]->run.depth_ >= path_.size())
    --checkpoint_count_;
  if (checkpoint_count_ == 0) return false;
  const checkpoint& c = *checkpoints_[checkpoint_count_ - 1];
  static_cast<run_state&>(*this) = c.run;
  threads_ = c.threads;
  history_.resize(c.history);
  memory_.return_to(c.values);
  world_return_to(c.world);
  return true;
}

}  // namespace model
