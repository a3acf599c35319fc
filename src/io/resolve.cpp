// Looks up names, each on a thread of the process, not of a runtime: getaddrinfo may take
// longer than the caller can wait, even longer than the caller's runtime lives.
//
// LK1  The waiting caller is taken out of a lookup under its lock, once: by the thread
//      that has the result or by the one that abandons the lookup, which then calls it.
// LK2  A thread touches only the lookup, which it keeps alive, and lookup_threads, which
//      is never destroyed: it may return while the program ends.
// LK3  Nothing here uses `addresses`, nor Asio's resolver, which makes them: they hold a
//      std::vector, and the program's debug mode may give that another layout.
// LK4  A thread that has nothing more to look up is counted out before it hands over its
//      last result, since that result may end a run, and the program may fork then. Nor
//      does the thread keep a deadlock from being certain: its caller may be stuck at
//      once.
#include "core/machine/detached_thread.hpp"
#include "core/sched/process/process_fork.hpp"

#include <vigil/io/resolve.hpp>

#include <list>
#include <mutex>
#include <new>
#include <system_error>

#include <boost/asio/detail/socket_ops.hpp>
#include <boost/asio/error.hpp>

#include <netdb.h>
#include <sys/socket.h>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;

class lookup_threads {
 public:
  static lookup_threads& all() {
    static lookup_threads& one = *new lookup_threads;
    return one;
  }

  void add(std::shared_ptr<lookup> l) {
    {
      const std::lock_guard guard(lock_);
      queue_.push_back(std::move(l));
      if (threads_ == most) return;
      ++threads_;
    }
    process_count_own_threads(1);
    try {
      start_detached([this] { body(); });
    } catch (const std::system_error& e) {
      start_failed(e.code());
    } catch (const std::bad_alloc&) {
      start_failed(std::make_error_code(std::errc::not_enough_memory));
    }
  }

  // Returns false if a thread has taken it, or if it was never queued.
  bool withdraw(const lookup& l) noexcept {
    std::list<std::shared_ptr<lookup>> found;  // destroyed after the lock
    const std::lock_guard guard(lock_);
    for (auto i = queue_.begin(); i != queue_.end(); ++i) {
      if (i->get() != &l) continue;
      found.splice(found.begin(), queue_, i);
      return true;
    }
    return false;
  }

 private:
  static constexpr int most = 32;

  // If there is no other thread, nothing would ever take what is queued.
  void start_failed(const std::error_code& cause) noexcept {
    std::list<std::shared_ptr<lookup>> refused;
    {
      const std::lock_guard guard(lock_);
      if (--threads_ == 0) refused.swap(queue_);
    }
    process_count_own_threads(-1);
    const boost::system::error_code error(cause.value(), boost::system::system_category());
    for (const auto& l : refused)
      l->finish(error, nullptr);
  }

  void body() noexcept {
    std::shared_ptr<lookup> l = next();
    if (l == nullptr) {
      const process_last_step nothing;  // it was withdrawn
    }
    while (l != nullptr)
      l = look_up(*l);
  }

  // Returns the next lookup. LK4
  std::shared_ptr<lookup> look_up(lookup& l) noexcept {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_protocol = IPPROTO_TCP;
    addrinfo* found = nullptr;
    boost::system::error_code error;
    // Asio's function, which gives the same error codes as its resolver.
    boost::asio::detail::socket_ops::getaddrinfo(
        l.host_.c_str(), l.service_.c_str(), wanted, &found, error);
    std::shared_ptr<lookup> after = next();
    if (after == nullptr) {
      const process_last_step step;
      l.finish(error, found);
    } else {
      l.finish(error, found);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    return after;
  }

  std::shared_ptr<lookup> next() noexcept {
    const std::lock_guard guard(lock_);
    if (queue_.empty()) {
      --threads_;
      return nullptr;
    }
    std::shared_ptr<lookup> first = std::move(queue_.front());
    queue_.pop_front();
    return first;
  }

  std::mutex lock_;
  std::list<std::shared_ptr<lookup>> queue_;
  int threads_ = 0;
};

void lookup::begin() noexcept {
  try {
    lookup_threads::all().add(shared_from_this());
  } catch (const std::bad_alloc&) {
    finish(boost::asio::error::no_memory, nullptr);
  }
}

void lookup::finish(const boost::system::error_code& error, addrinfo* found) noexcept {
  std::unique_ptr<waiting> w;
  {
    const std::lock_guard guard(lock_);
    w = std::move(waiting_);  // LK1
  }
  if (w != nullptr) w->finish(error, {found, host_, service_});
}

void lookup::abandon() noexcept {
  lookup_threads::all().withdraw(*this);
  finish(boost::asio::error::operation_aborted, nullptr);
}

}  // namespace VIGIL_IO_DETAIL
