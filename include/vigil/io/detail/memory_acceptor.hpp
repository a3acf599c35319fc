// The connections that wait for a memory_acceptor, and its accept operation.
#pragma once

#include <vigil/detail/site.hpp>
#include <vigil/io/memory_stream.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>

namespace VIGIL_IO_DETAIL {

class memory_backlog {
 public:
  // An accept. finish() is called once: by the caller that began it, or by the one that
  // takes it out under the lock.
  struct waiting {
    explicit waiting(std::uint64_t n) : number(n) {}

    virtual void finish(const boost::system::error_code& error, memory_stream s) = 0;

    const std::uint64_t number;

   protected:
    ~waiting() = default;
  };

  explicit memory_backlog(const site& from) noexcept : made_at(from) {}

  const vigil::detail::birth made_at;  // of the acceptor

  static memory_stream no_stream() { return memory_stream(nullptr, nullptr); }

  void wait(waiting& w) {
    boost::system::error_code error;
    std::optional<memory_stream> first;
    {
      const std::lock_guard guard(lock_);
      if (closed_) {
        error = boost::asio::error::bad_descriptor;
      } else if (waiting_ != nullptr) {
        error = boost::asio::error::already_started;
      } else if (queue_.empty()) {
        waiting_ = &w;
        return;
      } else {
        first.emplace(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    w.finish(error, first ? std::move(*first) : no_stream());
  }

  // Returns false if the acceptor is closed.
  bool add(memory_stream s) {
    waiting* w = nullptr;
    {
      const std::lock_guard guard(lock_);
      if (closed_) return false;
      w = std::exchange(waiting_, nullptr);
      if (w == nullptr) queue_.push_back(std::move(s));
    }
    if (w != nullptr) w->finish({}, std::move(s));
    return true;
  }

  // The number of an accept, which is never reused, as its address may be.
  std::uint64_t next_number() {
    const std::lock_guard guard(lock_);
    return ++last_number_;
  }

  void cancel(std::uint64_t number) {
    waiting* w = nullptr;
    {
      const std::lock_guard guard(lock_);
      if (waiting_ == nullptr || waiting_->number != number) return;
      w = std::exchange(waiting_, nullptr);
    }
    w->finish(boost::asio::error::operation_aborted, no_stream());
  }

  void close() {
    waiting* w = nullptr;
    std::deque<memory_stream> refused;  // is destroyed without the lock
    {
      const std::lock_guard guard(lock_);
      closed_ = true;
      w = std::exchange(waiting_, nullptr);
      refused.swap(queue_);
    }
    if (w != nullptr) w->finish(boost::asio::error::operation_aborted, no_stream());
  }

  bool is_open() const {
    const std::lock_guard guard(lock_);
    return !closed_;
  }

 private:
  mutable std::mutex lock_;
  std::deque<memory_stream> queue_;
  waiting* waiting_ = nullptr;
  std::uint64_t last_number_ = 0;
  bool closed_ = false;
};

template <class Handler>
class memory_accept final : public memory_backlog::waiting {
 public:
  memory_accept(std::shared_ptr<memory_backlog> backlog, Handler&& handler)
      : waiting(backlog->next_number()),
        backlog_(std::move(backlog)),
        handler_(std::move(handler)) {}

  // May throw std::bad_alloc; the caller then still owns it. begin() follows.
  void prepare() { cancel_by_slot(handler_, backlog_, number); }

  void begin() {
    // Kept, because once the accept waits, another thread may end it.
    const std::shared_ptr<memory_backlog> kept = backlog_;
    kept->wait(*this);
  }

  void finish(const boost::system::error_code& error, memory_stream s) override {
    Handler handler = std::move(handler_);
    delete this;
    call_in_program(std::move(handler), error, std::move(s));
  }

 private:
  std::shared_ptr<memory_backlog> backlog_;
  Handler handler_;
};

struct initiate_memory_accept {
  using inside_program = void;

  const vigil::detail::birth* made_at() const noexcept { return &backlog->made_at; }

  template <class Handler>
  void operator()(Handler&& handler) const {
    using made = memory_accept<std::decay_t<Handler>>;
    auto accept = std::make_unique<made>(backlog, std::forward<Handler>(handler));
    accept->prepare();
    accept.release()->begin();
  }

  std::shared_ptr<memory_backlog> backlog;
};

}  // namespace VIGIL_IO_DETAIL
