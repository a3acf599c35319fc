// idle_list: ends the reads and writes of connections on which nothing happens.
//
//   io::idle_list idle(2min);                        // one for all connections
//   io::deadline_stream<tcp::socket> peer(std::move(socket));
//   peer.set_idle_list(idle);
//   peer.read_some(buffer, error);                   // timed_out after two minutes
//
// A byte in either direction restarts the time, so a read may wait for long while the
// peer takes what is written to it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/error.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/timeout_list.hpp>

#include <cstddef>

namespace VIGIL_IO {

class idle_list;

namespace detail {

// The entry of a stream.
class idle_entry : public timeout_list::entry {
 public:
  idle_entry(movable_deadline& read, movable_deadline& write) noexcept
      : read_(&read), write_(&write) {}

  // Leaves the list while the members that on_expire uses still exist.
  ~idle_entry() { timeout_list::remove(*this); }

  void end_waits() noexcept { movable_deadline::end_both(*read_, *write_, *this); }

 private:
  movable_deadline* read_;
  movable_deadline* write_;
};

}  // namespace detail

// idle_list: the connections that share an idle time. Throws std::invalid_argument,
// wrong_place and std::bad_alloc from the constructor alone. Thread safety: streams may
// join and leave from any fiber or thread, each as its own rules allow. Lifetime: it must
// outlive the calls of its streams. Shutdown: the end of a run removes all streams; they
// join again as they wait in another one. Cost: one timer for all; a read or write costs
// one look at the clock and the change of one word. Behaviour: Node's socket.setTimeout.
class idle_list {
 public:
  // Throws std::invalid_argument for a duration of zero or less, wrong_place on a thread
  // without a runtime, and std::bad_alloc.
  template <vigil::detail::duration_argument D>
  explicit idle_list(const D& idle, const site& from = site::current())
      : list_(
            idle,
            [this](timeout_list::entry& e) {
              auto& stream = static_cast<detail::idle_entry&>(e);
              stream.end_waits();
              add(stream);  // so that the next wait is limited, too
            },
            from) {}

  idle_list(const idle_list&) = delete;
  idle_list& operator=(const idle_list&) = delete;

  // The number of streams in it.
  std::size_t size() const noexcept { return list_.size(); }

  clock::duration duration() const noexcept { return list_.duration(); }

  // --- For streams.
  // Records that something has been read or written.
  void progress(detail::idle_entry& e) noexcept {
    if (!e.touch()) add(e);
  }

  // A read or write is about to wait, perhaps in another run than the one in which the
  // stream joined; the end of a run removes all streams. While on_expire runs for the
  // stream, it puts the stream back itself; adding it here would save the very waits that
  // are to end.
  void begin_wait(detail::idle_entry& e) noexcept {
    if (vigil::detail::timeout_access::is_away(e)) add(e);
  }

 private:
  // Works even without memory, because a stream that is in no list would never be cut
  // off.
  void add(detail::idle_entry& e) noexcept {
    if (e.is_linked()) return;
    try {
      vigil::detail::timeout_access::add_surely(list_, e);
    } catch (const runtime_gone&) {  // nothing waits there any more
    }
  }

  timeout_list list_;
};

}  // namespace VIGIL_IO
