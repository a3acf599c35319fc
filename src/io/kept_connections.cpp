#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/dump_note.hpp"
#include "io/operation.hpp"
#include "io/outside_wait.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/io/detail/kept_connections.hpp>
#include <vigil/time.hpp>

#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

struct kept_connection::part {
  enum class owner : std::uint8_t { with_fiber, leaving, called, idle, ready };

  struct idle_time final : timeout_list::entry {
    explicit idle_time(part& c) noexcept : of(c) {}

    idle_time(const idle_time&) = delete;
    idle_time& operator=(const idle_time&) = delete;

    ~idle_time() { timeout_list::remove(*this); }

    part& of;
  };

  part(kept_connections& set, kept_connection& c) noexcept
      : all(*set.part_), self(c), time(*this) {}

  kept_connections::part& all;
  kept_connection& self;

  // Guarded by all.lock.
  list_hook<part> hook;
  owner state = owner::with_fiber;
  bool is_over_time = false;
  nanos since = 0;  // when its last rest began

  // The wait of Asio's, from begins_rest() to has_fiber(); its fiber's.
  std::optional<outside_wait> counted;

  idle_time time;  // is destroyed first
};

struct kept_connections::part final : dump_note {
  using connection = kept_connection::part;
  using owner = connection::owner;
  using idle_time = connection::idle_time;
  using list = vigil::detail::list<connection, &connection::hook>;

  part(std::chrono::nanoseconds duration, std::chrono::nanoseconds wait, const site& place)
      : sched(*fiber_that_may_wait().sched),
        backoff(wait),
        from(place),
        idle_times(
            duration,
            [this](timeout_list::entry& e) { expired(static_cast<idle_time&>(e)); },
            place) {
    sched.notes.add(*this);
  }

  ~part() { sched.notes.remove(*this); }

  void dump(dump_writer& out, nanos time) const noexcept override;

  void expired(idle_time& entry) noexcept;
  waiter* call(connection& c, bool is_over_time) noexcept VIGIL_REQUIRES(lock);
  waiter* wake_starter() noexcept VIGIL_REQUIRES(lock);
  connection* next_ready();
  connection* pop_idle() noexcept;
  connection* pop_ready() noexcept;

  void add_idle(connection& c) noexcept VIGIL_REQUIRES(lock);
  void remove_idle(connection& c) noexcept VIGIL_REQUIRES(lock);
  void note_idle() noexcept VIGIL_REQUIRES(lock);

  scheduler& sched;
  const std::chrono::nanoseconds backoff;
  const site from;

  mutable spinlock lock{lock_rank::connections};
  list idle VIGIL_GUARDED_BY(lock);
  list ready VIGIL_GUARDED_BY(lock);
  bool is_ending VIGIL_GUARDED_BY(lock) = false;
  open_wait starter VIGIL_GUARDED_BY(lock);

  // For the dump. Written under the lock.
  atomic<std::size_t> idle_count{0};
  atomic<nanos> oldest{0};  // when it began to be idle

  timeout_list idle_times;  // is destroyed first
};

void throw_has_not_read() {
  throw std::logic_error(
      "vigil::io::serve_each: the handler was called because bytes have come, and has returned "
      "`keep` without reading; read from connection::stream(), or return `close`");
}

// --- one connection

kept_connection::kept_connection(kept_connections& all)
    : part_(std::make_unique<part>(all, *this)) {}

kept_connection::~kept_connection() = default;

void kept_connection::leave() noexcept {
  timeout_list::remove(part_->time);
  part_->counted.reset();
}

void kept_connection::begins_rest(const boost::asio::any_io_executor& by) {
  part& p = *part_;
  const clock::time_point now = clock::now();
  {
    const lock_guard guard(p.all.lock);
    p.state = part::owner::leaving;
    p.is_over_time = false;
    p.since = now.time_since_epoch().count();
  }
  if (!p.time.touch(now)) p.all.idle_times.add(p.time);
  p.counted.emplace(*fiber_that_may_wait().sched, by);
}

kept_connection::rest kept_connection::rests() noexcept {
  part& p = *part_;
  const lock_guard guard(p.all.lock);
  const part::owner now = std::exchange(p.state, part::owner::with_fiber);
  if (now == part::owner::called) return rest::called;
  if (p.all.is_ending) return rest::refused;
  p.state = part::owner::idle;
  p.all.add_idle(p);
  return rest::begun;
}

bool kept_connection::has_fiber() noexcept {
  part& p = *part_;
  p.counted.reset();
  const lock_guard guard(p.all.lock);
  return std::exchange(p.is_over_time, false);
}

void kept_connection::put_back() noexcept {
  part& p = *part_;
  waiter* claimed = nullptr;
  {
    const lock_guard guard(p.all.lock);
    p.state = part::owner::ready;
    p.all.ready.push_back(p);
    claimed = p.all.wake_starter();
  }
  if (claimed != nullptr) claimed->deliver();
}

waiter* kept_connection::arrived() noexcept {
  part& p = *part_;
  const lock_guard guard(p.all.lock);
  return p.all.call(p, false);
}

// --- all of a server

void kept_connections::part::dump(dump_writer& out, nanos time) const noexcept {
  const std::size_t n = idle_count.load();
  out.text("io::serve_each at ").text(place_in_words(from.file, from.line).text);
  out.text(": ").number(n).text(n == 1 ? " idle connection" : " idle connections");
  if (n != 0) out.text(", the oldest for ").seconds(time - oldest.load());
  out.text("\n");
}

void kept_connections::part::add_idle(connection& c) noexcept {
  idle.push_back(c);
  note_idle();
}

void kept_connections::part::remove_idle(connection& c) noexcept {
  idle.remove(c);
  note_idle();
}

void kept_connections::part::note_idle() noexcept {
  // ordering: for the dump, which may mix two moments.
  idle_count.store(idle.size(), order::relaxed);
  if (idle.empty()) return;
  // ordering: as above
  oldest.store(idle.front()->since, order::relaxed);
}

// Something has come for c. Returns the starter, if it waits.
waiter* kept_connections::part::call(connection& c, bool is_over_time) noexcept {
  const owner now = c.state;
  if (now != owner::leaving && now != owner::idle) return nullptr;
  if (now == owner::idle && is_ending) return nullptr;  // end_idle() takes it: KC1
  c.is_over_time = is_over_time;
  c.state = now == owner::idle ? owner::ready : owner::called;
  if (now == owner::leaving) return nullptr;
  remove_idle(c);
  ready.push_back(c);
  return wake_starter();
}

waiter* kept_connections::part::wake_starter() noexcept {
  if (starter.whose == nullptr || !starter.claim(outcome::value)) return nullptr;
  return std::exchange(starter, {}).whose;
}

void kept_connections::part::expired(idle_time& entry) noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(lock);
    // An expiry that began before the latest request may come late.
    const nanos rested = sched.clock.now() - entry.of.since;
    if (rested >= idle_times.duration().count()) claimed = call(entry.of, true);
  }
  if (claimed != nullptr) claimed->deliver();
}

kept_connections::part::connection* kept_connections::part::pop_idle() noexcept {
  const lock_guard guard(lock);
  connection* const c = idle.pop_front();
  if (c != nullptr) c->state = owner::with_fiber;
  note_idle();
  return c;
}

kept_connections::part::connection* kept_connections::part::pop_ready() noexcept {
  const lock_guard guard(lock);
  connection* const c = ready.pop_front();
  if (c != nullptr) c->state = owner::with_fiber;
  return c;
}

// Returns nullptr at the end.
kept_connections::part::connection* kept_connections::part::next_ready()
    VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (;;) {
    caller self;
    if (self.may_not_wait()) self.refuse("vigil::io::serve_each");
    lock.lock();
    connection* const c = ready.pop_front();
    if (c != nullptr) c->state = owner::with_fiber;
    if (c != nullptr || is_ending) {
      lock.unlock();
      return c;
    }
    self.open(starter);
    const auto opened = starter.opened;
    lock.unlock();
    const outcome result = self.wait(opened, wait_reason::connections, [this] {
      const lock_guard guard(lock);
      starter = {};
    });
    self.throw_if_ended(result);
  }
}

kept_connections::kept_connections(std::chrono::nanoseconds idle,
                                   std::chrono::nanoseconds backoff,
                                   const site& from)
    : part_(std::make_unique<part>(idle, backoff, from)) {}

kept_connections::~kept_connections() {
  end_idle();
  while (part::connection* const c = part_->pop_ready())
    delete &c->self;
}

namespace {

// Returns false if no fiber is to be had.
bool gets_fiber(kept_connection& c, group& fibers) {
  try {
    c.start(fibers);
    return true;
  } catch (const limit_reached&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error&) {  // no stack
  }
  return false;
}

void wait_for_resources(std::chrono::nanoseconds length) {
  try {
    sleep_for(length);
  } catch (const std::bad_alloc&) {  // no memory for a timer either
    this_fiber::yield();
  }
}

}  // namespace

void kept_connections::start_fibers(group& fibers) {
  current_fiber()->starts_for_events = true;
  while (part::connection* const c = part_->next_ready()) {
    if (!gets_fiber(c->self, fibers)) wait_for_resources(part_->backoff);
  }
}

void kept_connections::end_idle() noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(part_->lock);
    part_->is_ending = true;
    claimed = part_->wake_starter();
  }
  if (claimed != nullptr) claimed->deliver();
  while (part::connection* const c = part_->pop_idle())
    delete &c->self;
}

}  // namespace VIGIL_IO_DETAIL
