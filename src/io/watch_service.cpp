#include "io/watch_service.hpp"

#include "io/io_watch.hpp"

namespace vigil::internal {

boost::asio::execution_context::id watch_service::id;

watch_service& watch_service::of(boost::asio::io_context& context) {
  return boost::asio::use_service<watch_service>(context);
}

watch_service::watch_service(boost::asio::execution_context& context)
    : service(context), context_(static_cast<boost::asio::io_context&>(context)) {}

void watch_service::add(io_watch& w) {
  const std::lock_guard guard(lock_);
  watches_.push_back(&w);
}

void watch_service::remove(io_watch& w) noexcept {
  const std::lock_guard guard(lock_);
  std::erase(watches_, &w);
}

void watch_service::restart() {
  const std::lock_guard guard(lock_);
  asked_for_ = true;
  context_.restart();
  for (io_watch* const w : watches_)
    w->context_restarted();
}

bool watch_service::restart_for_a_moment() {
  const std::lock_guard guard(lock_);
  if (!context_.stopped()) return false;
  asked_for_ = false;
  context_.restart();
  return true;
}

void watch_service::moment_is_over() {
  const std::lock_guard guard(lock_);
  if (!asked_for_) context_.stop();
}

void watch_service::shutdown() {
  const std::lock_guard guard(lock_);
  for (io_watch* const w : watches_)
    w->context_gone();
  watches_.clear();
}

}  // namespace vigil::internal
