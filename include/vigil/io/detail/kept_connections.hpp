// kept_connections: the connections of io::serve_each, which have a fiber only while
// their handler runs.
//
//   its fiber         begins_rest() ─ Asio's wait begins ─ rests(): it ends
//   Asio's handler    arrived() ─┐
//   the idle list     expired() ─┴─ the connection is ready; wakes the starter
//   the starter       start_fibers(): starts a fiber for each that is ready
//   serve_each        end_idle()
//
// The danger. Bytes, the idle time and the end of the server may come at the same moment,
// while the fiber is just about to leave. The rule: each connection has one owner, by its
// state, and every change of owner is one step under the lock of the set.
//
// KC1  with_fiber, leaving, called: the fiber. idle: the set, from which exactly one of
//      arrived(), expired() and end_idle() takes it. ready: the starter, or the
//      destructor of the set.
// KC2  What comes while the fiber is leaving is noted (`called`); rests() then gives the
//      connection back to it. So nothing is lost between the beginning of
//      Asio's wait and the moment in which the fiber leaves.
// KC3  arrived() runs under the lock of the connection's readiness (RD1), so a connection
//      that has called ends_arrival() can be destroyed. expired() runs in on_expire, for
//      which the destructor of the entry waits.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/group.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/readiness.hpp>
#include <vigil/timeout_list.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace VIGIL_IO_DETAIL {

class kept_connections;

[[noreturn]] VIGIL_API void throw_has_not_read();

class VIGIL_API kept_connection : public arrival {
 public:
  kept_connection(const kept_connection&) = delete;
  kept_connection& operator=(const kept_connection&) = delete;
  virtual ~kept_connection();

  // Starts a fiber for it, or gives it back by put_back() and throws what prevented that.
  virtual void start(group& fibers) = 0;

  vigil::detail::waiter* arrived() noexcept final;

 protected:
  explicit kept_connection(kept_connections& all);

  // --- Called by its fiber, or by serve_each before it has one.
  // Bytes, and the idle time, may come for it from now on, with Asio's wait by this
  // executor. Throws std::bad_alloc and runtime_gone.
  void begins_rest(const boost::asio::any_io_executor& by);
  enum class rest : std::uint8_t {
    begun,    // it is no longer the caller's, and may be gone
    called,   // something has come for it, and it is still the caller's
    refused,  // the same, and the server ends
  };
  rest rests() noexcept;
  // It has a fiber now. Returns whether that is for its idle time.
  bool has_fiber() noexcept;
  // Destructors of derived classes call this first.
  void leave() noexcept;

  // The caller has it, and it is to get a fiber.
  void put_back() noexcept;

 private:
  friend class kept_connections;

  struct part;

  const std::unique_ptr<part> part_;
};

class VIGIL_API kept_connections {
 public:
  // Throws std::invalid_argument for an idle time of zero or less, and std::bad_alloc.
  kept_connections(std::chrono::nanoseconds idle,
                   std::chrono::nanoseconds backoff,
                   const site& from);
  // Destroys those that are idle or ready. Caller: no fiber has one.
  ~kept_connections();
  kept_connections(const kept_connections&) = delete;
  kept_connections& operator=(const kept_connections&) = delete;

  // Starts fibers until end_idle() was called and nothing is ready. If one cannot be had,
  // the connection waits for it.
  // Waits on a fiber: throws stopped.
  void start_fibers(group& fibers);

  // Destroys those that are idle, and lets no more rest.
  void end_idle() noexcept;

 private:
  friend class kept_connection;

  struct part;

  const std::unique_ptr<part> part_;
};

}  // namespace VIGIL_IO_DETAIL
