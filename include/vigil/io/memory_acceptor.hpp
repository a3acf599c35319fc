// memory_acceptor: accepts connections within the program, so that servers are
// tested at exact times, on virtual time.
//
//   io::memory_acceptor acceptor;
//   auto server = spawn([&] { io::serve(acceptor, handle); });
//   io::memory_stream client = acceptor.connect();
//
// Who connects is connected at once, and waits to be accepted; any number may.
// A wait for async_accept(use_fiber) is no outside work, as memory_stream says.
//
// Thread safety: all but move and destruction from any fiber or thread; one accept at
// a time.
#pragma once

#include <vigil/io/memory_stream.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

class memory_backlog {
 public:
  // An accept. Called once, by whoever takes it out under the lock, or is its
  // beginner.
  struct waiting {
    explicit waiting(std::uint64_t n) : number(n) {}
    virtual void finish(const boost::system::error_code& error, memory_stream s) = 0;

    const std::uint64_t number;

   protected:
    ~waiting() = default;
  };

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

  // False: it is closed.
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

  // Of an accept; never given to another, as its place in memory may be.
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
    std::deque<memory_stream> refused;  // dies without the lock
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

  // Throws std::bad_alloc; then the caller still has it. Afterwards begin().
  void prepare() {
    auto slot = boost::asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      slot.assign([backlog = backlog_, n = number](boost::asio::cancellation_type_t type) {
        if (type != boost::asio::cancellation_type::none) backlog->cancel(n);
      });
    }
  }

  void begin() {
    // Kept, for once it waits somebody else may end it.
    const std::shared_ptr<memory_backlog> kept = backlog_;
    kept->wait(*this);
  }

  void finish(const boost::system::error_code& error, memory_stream s) override {
    const auto executor = boost::asio::get_associated_executor(handler_, memory_executor());
    Handler handler = std::move(handler_);
    delete this;
    auto call = [h = std::move(handler), error, s = std::move(s)]() mutable {
      std::move(h)(error, std::move(s));
    };
    if constexpr (only_marks<Handler>) {
      boost::asio::dispatch(executor, std::move(call));
    } else {
      boost::asio::post(executor, std::move(call));
    }
  }

 private:
  std::shared_ptr<memory_backlog> backlog_;
  Handler handler_;
};

struct initiate_memory_accept {
  using inside_program = void;

  template <class Handler>
  void operator()(Handler&& handler) const {
    using made = memory_accept<std::decay_t<Handler>>;
    auto accept = std::make_unique<made>(backlog, std::forward<Handler>(handler));
    accept->prepare();
    accept.release()->begin();
  }

  std::shared_ptr<memory_backlog> backlog;
};

}  // namespace detail

class memory_acceptor {
 public:
  using executor_type = memory_executor;

  // `capacity`: of the connections, as for memory_pipe.
  explicit memory_acceptor(std::size_t capacity = 64 * 1024)
      : capacity_(capacity), backlog_(std::make_shared<detail::memory_backlog>()) {}
  memory_acceptor(const memory_acceptor&) = delete;
  memory_acceptor& operator=(const memory_acceptor&) = delete;
  ~memory_acceptor() { close(); }

  executor_type get_executor() const noexcept { return {}; }
  bool is_open() const { return backlog_->is_open(); }

  // The client's end. Throws boost::system::system_error (connection_refused) once it
  // is closed, std::bad_alloc.
  memory_stream connect() {
    auto [client, server] = memory_pipe(capacity_);
    if (!backlog_->add(std::move(server))) {
      throw boost::system::system_error(boost::asio::error::connection_refused,
                                        "vigil::io::memory_acceptor::connect");
    }
    return std::move(client);
  }

  // The server's end, as void(error_code, memory_stream).
  template <class Token>
  auto async_accept(Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, memory_stream)>(
        detail::initiate_memory_accept{backlog_}, token);
  }

  // An accept that waits ends with operation_aborted, later ones with bad_descriptor;
  // who was not accepted yet reads eof.
  void close() { backlog_->close(); }

 private:
  std::size_t capacity_;
  std::shared_ptr<detail::memory_backlog> backlog_;
};

}  // namespace VIGIL_ABI
}  // namespace vigil::io
