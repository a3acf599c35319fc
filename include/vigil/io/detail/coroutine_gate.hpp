// coroutine_gate: lets a fiber cancel a coroutine of Asio's that it waits for.
//
// The danger. A cancellation writes what the coroutine's next step reads. The function
// that co_spawn installs dispatches a bare pointer to a signal, which may be gone when
// that runs (asio#1332). A coroutine that is cancelled before it has begun throws out of
// one of Asio's handlers, which ends the program.
//
// The rule.
//
// CG1  What runs on the coroutine's executor counts in the gate, and the cancellation is
//      emitted while the count is zero: the coroutine is suspended then. A handler that
//      comes during the emission waits for its end, which is soon. It may not wait
//      for the other handlers: one of these may wait for it, as fibers may.
// CG2  During the emission a dispatch to that executor runs at once, so the bare pointer
//      is used while its signal is there. The gate lives as long as the executor.
// CG3  A cancellation is kept until the coroutine has begun, and until the last handler
//      has left the gate. Once the coroutine has ended there is no cancellation.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/config.hpp>

#include <coroutine>
#include <memory>
#include <type_traits>
#include <utility>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution/relationship.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/require.hpp>

namespace boost::asio::detail {

// The class whose objects co_spawn hands to a completion token. coroutine_gate.cpp does
// not compile with a Boost that has renamed it.
template <class Executor>
class initiate_co_spawn;

}  // namespace boost::asio::detail

namespace VIGIL_IO_DETAIL {

class coroutine_gate;  // src/io/coroutine_gate.cpp
using gate_ref = std::shared_ptr<coroutine_gate>;

// `on` is the executor that the caller of co_spawn has named. Throws std::bad_alloc.
VIGIL_API gate_ref make_gate(const boost::asio::any_io_executor& on);

// Whether the caller is inside, or emits.
VIGIL_API bool is_inside(const coroutine_gate& g) noexcept;
VIGIL_API void enter(coroutine_gate& g) noexcept;
VIGIL_API void leave(coroutine_gate& g) noexcept;

// Says so for the calling fiber, or for the thread if there is none.
class VIGIL_API inside_gate {
 public:
  // Throws std::bad_alloc.
  explicit inside_gate(const coroutine_gate& g);
  ~inside_gate();
  inside_gate(const inside_gate&) = delete;
  inside_gate& operator=(const inside_gate&) = delete;

 private:
  friend bool is_inside(const coroutine_gate& g) noexcept;

  const coroutine_gate& gate_;
  const inside_gate* const before_;
};

// Asks the coroutine to end. Any thread.
VIGIL_API void cancel(coroutine_gate& g, boost::asio::cancellation_type_t type) noexcept;
VIGIL_API boost::asio::cancellation_slot slot_of(coroutine_gate& g) noexcept;
// The coroutine's first step, inside; its end.
VIGIL_API void has_begun(coroutine_gate& g) noexcept;
VIGIL_API void has_ended(coroutine_gate& g) noexcept;

// The coroutine's executor: the one that the caller has named, with the gate around each
// handler.
class gated_executor {
  using any_io_executor = boost::asio::any_io_executor;
  using blocking_t = boost::asio::execution::blocking_t;
  using outstanding_work_t = boost::asio::execution::outstanding_work_t;
  using relationship_t = boost::asio::execution::relationship_t;

 public:
  gated_executor(any_io_executor on, gate_ref gate) noexcept
      : on_(std::move(on)), gate_(std::move(gate)) {}

  template <class F>
  void execute(F&& f) const {
    if (!posts_ && is_inside(*gate_)) {
      std::decay_t<F> own(std::forward<F>(f));
      own();
      return;
    }
    on_.execute(gated<std::decay_t<F>>{gate_, std::forward<F>(f)});
  }

  gated_executor require(blocking_t::never_t p) const {
    return {boost::asio::require(on_, p), gate_, true};
  }

  gated_executor require(blocking_t::possibly_t p) const {
    return {boost::asio::prefer(on_, p), gate_, false};
  }

  gated_executor require(outstanding_work_t::tracked_t p) const { return preferring(p); }

  gated_executor require(outstanding_work_t::untracked_t p) const { return preferring(p); }

  gated_executor require(relationship_t::fork_t p) const { return preferring(p); }

  gated_executor require(relationship_t::continuation_t p) const { return preferring(p); }

  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept {
    return on_.context();
  }

  friend bool operator==(const gated_executor& a, const gated_executor& b) noexcept {
    return a.gate_ == b.gate_ && a.posts_ == b.posts_ && a.on_ == b.on_;
  }

  friend bool operator!=(const gated_executor& a, const gated_executor& b) noexcept {
    return !(a == b);
  }

 private:
  template <class F>
  struct gated {
    void operator()() {
      struct visit {
        explicit visit(coroutine_gate& g) : of(g), inside(g) { enter(of); }

        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;

        ~visit() { leave(of); }

        coroutine_gate& of;
        inside_gate inside;
      };

      const visit here(*gate);
      F own(std::move(f));
      own();
    }

    gate_ref gate;
    F f;
  };

  gated_executor(any_io_executor on, gate_ref gate, bool posts) noexcept
      : on_(std::move(on)), gate_(std::move(gate)), posts_(posts) {}

  template <class Property>
  gated_executor preferring(const Property& p) const {
    return {boost::asio::prefer(on_, p), gate_, posts_};
  }

  any_io_executor on_;
  gate_ref gate_;
  bool posts_ = false;
};

// The handler that waits for the coroutine's end.
template <class Handler>
class gated_handler {
 public:
  using executor_type = boost::asio::associated_executor_t<Handler>;
  using allocator_type = boost::asio::associated_allocator_t<Handler>;
  using cancellation_slot_type = boost::asio::cancellation_slot;

  gated_handler(Handler handler, gate_ref gate)
      : handler_(std::move(handler)), gate_(std::move(gate)) {}

  gated_handler(gated_handler&&) noexcept = default;
  gated_handler& operator=(gated_handler&&) = delete;

  ~gated_handler() {
    if (gate_ != nullptr) has_ended(*gate_);
  }

  template <class... Args>
  void operator()(Args&&... args) {
    has_ended(*std::exchange(gate_, nullptr));
    handler_(std::forward<Args>(args)...);
  }

  executor_type get_executor() const noexcept {
    return boost::asio::get_associated_executor(handler_);
  }

  allocator_type get_allocator() const noexcept {
    return boost::asio::get_associated_allocator(handler_);
  }

  cancellation_slot_type get_cancellation_slot() const noexcept { return slot_of(*gate_); }

 private:
  Handler handler_;
  gate_ref gate_;
};

template <class Awaitable, class F>
Awaitable gated_coroutine(gate_ref gate, F f) {
  has_begun(*gate);
  gate.reset();
  co_return co_await f();
}

template <class F>
struct gated_function {
  auto operator()() {
    return gated_coroutine<std::invoke_result_t<F&>>(std::move(gate), std::move(f));
  }

  gate_ref gate;
  F f;
};

// Installed in the slot of the operation.
struct cancel_coroutine {
  void operator()(boost::asio::cancellation_type_t type) { cancel(*of, type); }

  gate_ref of;
};

template <class Initiation>
inline constexpr bool is_co_spawn = false;

template <class Executor>
inline constexpr bool is_co_spawn<boost::asio::detail::initiate_co_spawn<Executor>> = true;

// co_spawn's object in an initiating function, which append, prepend, consign and the
// like have wrapped, once or more; nullptr if there is none. coroutine_gate.cpp does not
// compile with a Boost whose wrappers keep it under another name.
template <class Initiation>
auto co_spawn_in(Initiation& begin) noexcept {
  if constexpr (is_co_spawn<Initiation>) {
    return &begin;
  } else if constexpr (requires { begin.initiation_; }) {
    return co_spawn_in(begin.initiation_);
  } else {
    return nullptr;
  }
}

// One argument of co_spawn's object: the coroutine's function, or a wrapper's tuple.
template <class Arg>
auto gated_argument(const gate_ref& gate, Arg&& arg) {
  using own = std::decay_t<Arg>;
  if constexpr (std::is_invocable_v<own&>) {
    return gated_function<own>{gate, std::forward<Arg>(arg)};
  } else {
    return own(std::forward<Arg>(arg));
  }
}

// Calls the initiating function of an operation with its handler, and co_spawn's so that
// the coroutine can be cancelled.
template <class Initiation, class Handler, class... Args>
void initiate_operation(Initiation&& begin, Handler&& handler, Args&&... args) {
  using initiation = std::decay_t<Initiation>;
  using found = decltype(co_spawn_in(std::declval<initiation&>()));
  if constexpr (!std::is_null_pointer_v<found>) {
    using co_spawn = std::remove_pointer_t<found>;
    using executor = typename co_spawn::executor_type;
    static_assert(
        std::is_same_v<executor, boost::asio::any_io_executor>,
        "vigil::io: use_fiber, pending and co::spawned wait for a coroutine whose type is "
        "asio::awaitable<T>, without an executor of its own: a stop can end no other; "
        "write asio::awaitable<T>, or co_await the coroutine in one of that type");
    if constexpr (std::is_same_v<executor, boost::asio::any_io_executor>) {
      using own_handler = std::decay_t<Handler>;
      initiation gated(std::forward<Initiation>(begin));
      co_spawn& inner = *co_spawn_in(gated);
      const gate_ref gate = make_gate(inner.get_executor());
      auto slot = boost::asio::get_associated_cancellation_slot(handler);
      if (slot.is_connected()) slot.assign(cancel_coroutine{gate});
      inner = co_spawn(executor(gated_executor(inner.get_executor(), gate)));
      gated(gated_handler<own_handler>(std::forward<Handler>(handler), gate),
            gated_argument(gate, std::forward<Args>(args))...);
    }
  } else {
    std::forward<Initiation>(begin)(std::forward<Handler>(handler), std::forward<Args>(args)...);
  }
}

}  // namespace VIGIL_IO_DETAIL
