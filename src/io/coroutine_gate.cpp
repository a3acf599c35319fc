#include "core/base/assert.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/fiber.hpp>
#include <vigil/io/detail/coroutine_gate.hpp>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include <boost/asio/append.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

using boost::asio::any_io_executor;
using boost::asio::cancellation_type_t;

static_assert(sizeof(boost::asio::detail::initiate_co_spawn<any_io_executor>) != 0,
              "Asio's class behind co_spawn has another name in this Boost: coroutine_gate.hpp");

using appending = boost::asio::async_result<boost::asio::append_t<boost::asio::detached_t, int>,
                                            void(std::exception_ptr)>;
using wrapped = appending::init_wrapper<boost::asio::detail::initiate_co_spawn<any_io_executor>>;
static_assert(!std::is_null_pointer_v<decltype(co_spawn_in(std::declval<wrapped&>()))>,
              "Asio's append keeps co_spawn's object elsewhere in this Boost: coroutine_gate.hpp");

// A handler that enters during the emission waits for `lock`, as a thread does: the
// emission calls the functions that operations have installed, which do not wait.
class coroutine_gate : public std::enable_shared_from_this<coroutine_gate> {
 public:
  explicit coroutine_gate(any_io_executor named) : on(std::move(named)) {}

  // Caller: holds `lock`.
  void emit_if_may() noexcept;

  // Whether the slot may be cleared, now and by the caller. Caller: holds `lock`.
  bool may_clear() noexcept { return ended && inside == 0 && !std::exchange(is_cleared, true); }

  const any_io_executor on;

  std::recursive_mutex lock;
  // Guarded by lock.
  int inside = 0;
  bool emits = false;
  bool begun = false;
  bool ended = false;
  bool is_cleared = false;
  cancellation_type_t asked = cancellation_type_t::none;  // and not emitted yet
  // Emitted under the lock; the coroutine fills its slot inside the gate.
  boost::asio::cancellation_signal signal;
};

namespace {

// The innermost gate of a fiber, and of a thread outside fibers: a handler that waits
// takes the one along.
fiber_local<const inside_gate*> innermost_of_fiber;
thread_local const inside_gate* innermost_of_thread = nullptr;

// Not inlined: a fiber may be on another thread when it comes back.
[[gnu::noinline]] const inside_gate* exchange_innermost(const inside_gate* with) {
  if (current_fiber() != nullptr) return std::exchange(*innermost_of_fiber, with);
  return std::exchange(innermost_of_thread, with);
}

[[gnu::noinline]] const inside_gate* innermost() {
  return current_fiber() != nullptr ? *innermost_of_fiber : innermost_of_thread;
}

}  // namespace

inside_gate::inside_gate(const coroutine_gate& g) : gate_(g), before_(exchange_innermost(this)) {}

inside_gate::~inside_gate() {
  exchange_innermost(before_);
}

bool is_inside(const coroutine_gate& g) noexcept {
  try {
    const inside_gate* one = innermost();
    while (one != nullptr && &one->gate_ != &g)
      one = one->before_;
    return one != nullptr;
  } catch (const std::bad_alloc&) {  // the fiber has never been in one
    return false;
  }
}

gate_ref make_gate(const any_io_executor& on) {
  return std::make_shared<coroutine_gate>(on);
}

void coroutine_gate::emit_if_may() noexcept {
  if (!begun || ended || emits || inside != 0 || asked == cancellation_type_t::none) return;
  emits = true;
  fiber* const self = current_fiber();
  if (self != nullptr) ++self->guards.no_parks;
  const cancellation_type_t type = std::exchange(asked, cancellation_type_t::none);
  try {
    const inside_gate here(*this);
    signal.emit(type);
  } catch (const std::bad_alloc&) {
    // The coroutine may not have heard of it: it is asked again after its next step.
    asked = type;
  } catch (...) {
    fatal("an exception has left a cancellation handler of an operation of Asio's");
  }
  if (self != nullptr) --self->guards.no_parks;
  emits = false;
}

void enter(coroutine_gate& g) noexcept {
  const std::lock_guard guard(g.lock);
  ++g.inside;
}

void leave(coroutine_gate& g) noexcept {
  bool clears = false;
  {
    const std::lock_guard guard(g.lock);
    --g.inside;
    g.emit_if_may();
    clears = g.may_clear();
  }
  if (clears) g.signal.slot().clear();
}

// Emits on the executor, in a handler of its own: the caller may be in the operation's
// section, and an operation that ends at once may resume the coroutine there.
void cancel(coroutine_gate& g, cancellation_type_t type) noexcept {
  {
    const std::lock_guard guard(g.lock);
    if (g.ended) return;
    g.asked |= type;
    if (g.inside != 0 || !g.begun) return;  // leave() will do it
  }
  const auto emits = [of = g.shared_from_this()] {
    const std::lock_guard guard(of->lock);
    of->emit_if_may();
  };
  try {
    boost::asio::require(g.on, boost::asio::execution::blocking.never).execute(emits);
  } catch (...) {  // no memory: here, which is the best that can be done
    emits();
  }
}

boost::asio::cancellation_slot slot_of(coroutine_gate& g) noexcept {
  return g.signal.slot();
}

void has_begun(coroutine_gate& g) noexcept {
  const std::lock_guard guard(g.lock);
  g.begun = true;
}

void has_ended(coroutine_gate& g) noexcept {
  bool clears = false;
  {
    const std::lock_guard guard(g.lock);
    g.ended = true;
    clears = g.may_clear();
  }
  if (clears) g.signal.slot().clear();
}

}  // namespace VIGIL_IO_DETAIL
