// watch_service: one for each io_context. It tells the watches in it of its end, and of a
// restart.
//
// IW6  A stopped io_context is restarted for a moment to end what is cancelled. A
//      restart by the caller meanwhile must not be undone by the stop that follows,
//      and Asio shows no difference: so the caller's goes through restart(), under the
//      lock under which a moment begins and ends.
#pragma once

#include <mutex>
#include <vector>

#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>

namespace vigil::internal {

class io_watch;

class watch_service final : public boost::asio::execution_context::service {
 public:
  using key_type = watch_service;
  static boost::asio::execution_context::id id;

  static watch_service& of(boost::asio::io_context& context);
  // For of().
  explicit watch_service(boost::asio::execution_context& context);

  void add(io_watch& w);
  void remove(io_watch& w) noexcept;

  // The caller's.
  void restart();
  // False if it is not stopped any more.
  bool restart_for_a_moment();
  void moment_is_over();

 private:
  void shutdown() override;

  boost::asio::io_context& context_;
  std::mutex lock_;
  std::vector<io_watch*> watches_;
  bool asked_for_ = false;  // by restart(), since the last moment began
};

}  // namespace vigil::internal
