// watch_service: tells the watches in one io_context of its end, and of a restart.
//
// IW6  A stopped io_context is restarted for a moment, to end cancelled operations. A
//      restart by the caller meanwhile must not be undone by the stop that follows, and
//      Asio cannot tell the two apart: so the caller's goes through restart(), under the
//      lock under which a moment begins and ends.
#pragma once

#include "io/io_watch.hpp"

#include <mutex>
#include <vector>

#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>

namespace VIGIL_DETAIL {

class watch_service final : public boost::asio::execution_context::service {
 public:
  using key_type = watch_service;
  static inline boost::asio::execution_context::id id;

  static watch_service& of(boost::asio::io_context& context) {
    return boost::asio::use_service<watch_service>(context);
  }

  // Called by of(), through use_service.
  explicit watch_service(boost::asio::execution_context& context)
      : service(context), context_(static_cast<boost::asio::io_context&>(context)) {}

  void add(io_watch& w) {
    const std::lock_guard guard(lock_);
    watches_.push_back(&w);
  }

  void remove(io_watch& w) noexcept {
    const std::lock_guard guard(lock_);
    std::erase(watches_, &w);
  }

  // Restarts the io_context for the caller.
  void restart() {
    const std::lock_guard guard(lock_);
    asked_for_ = true;
    context_.restart();
    for (io_watch* const w : watches_)
      w->context_restarted();
  }

  // Returns false if the io_context is no longer stopped.
  bool restart_for_a_moment() {
    const std::lock_guard guard(lock_);
    if (!context_.stopped()) return false;
    asked_for_ = false;
    context_.restart();
    return true;
  }

  void moment_is_over() {
    const std::lock_guard guard(lock_);
    if (!asked_for_) context_.stop();
  }

 private:
  void shutdown() override {
    const std::lock_guard guard(lock_);
    for (io_watch* const w : watches_)
      w->context_gone();
    watches_.clear();
  }

  boost::asio::io_context& context_;
  std::mutex lock_;
  std::vector<io_watch*> watches_;
  bool asked_for_ = false;  // by restart(), since the last moment began
};

}  // namespace VIGIL_DETAIL
