// A channel that watches signals. Its watcher stands in the scheduler's list; the last
// handle takes it out, or the end of the run does. The first of the two sets `fate_`, and
// the other waits for it, so neither touches what the other has freed.
#include "core/chan/channel_core.hpp"
#include "core/sched/process/process_signals.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/error.hpp>
#include <vigil/signals.hpp>

#include <stdexcept>
#include <thread>

namespace VIGIL_DETAIL {
namespace {

class signal_channel final : public channel_core {
 public:
  signal_channel(scheduler& s, std::uint64_t signals, std::size_t capacity)
      : channel_core(ops_of<int>, capacity, site{"vigil::notify_signals", 0}), sched_(s) {
    watcher_.signals = signals;
    watcher_.argument = this;
    watcher_.receive = &signal_channel::receive;
    watcher_.dismiss = &signal_channel::dismiss;
  }

  void watch() noexcept {
    fate_.store(fate::watching);
    process_watch_signals(sched_, watcher_);
  }

 private:
  enum class fate : std::uint8_t { out, watching, leaving, dismissed };

  ~signal_channel() override {
    auto before = fate::watching;
    if (fate_.compare_exchange_strong(before, fate::leaving)) {
      sched_.signals.remove(watcher_);
      return;
    }
    while (before == fate::dismissed) {  // its last touch is the store of `out`
      std::this_thread::yield();
      before = fate_.load();
    }
  }

  static void receive(int signal, void* self) noexcept {
    // The signal is dropped if the buffer is full.
    detail::try_send(static_cast<signal_channel*>(self), &signal);
  }

  static bool dismiss(void* self) noexcept {
    auto& c = *static_cast<signal_channel*>(self);
    auto before = fate::watching;
    if (!c.fate_.compare_exchange_strong(before, fate::dismissed)) return false;
    c.close();
    c.fate_.store(fate::out);
    return true;
  }

  scheduler& sched_;
  signal_watcher watcher_;
  atomic<fate> fate_{fate::out};
};

}  // namespace
}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC {

receiver<int> notify_signals(std::initializer_list<int> signals, std::size_t capacity) {
  const detail::fiber& self = detail::require_fiber("notify_signals");
  std::uint64_t bits = 0;
  for (const int signal : signals)
    bits |= detail::checked_signal("vigil::notify_signals", signal);
  if (bits == 0) throw std::invalid_argument("vigil::notify_signals: no signal is named");
  if (capacity == 0 || capacity > std::size_t{1} << 30) {
    throw std::invalid_argument(
        "vigil::notify_signals: the capacity must be at least 1 and at most 2^30, since a signal "
        "does not wait for a receiver");
  }
  auto* const c = new detail::signal_channel(*self.sched, bits, capacity);
  receiver<int> made{detail::channel_handle(c)};
  c->watch();
  return made;
}

}  // namespace VIGIL_PUBLIC
