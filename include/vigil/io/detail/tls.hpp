// The untyped part of tls_stream: OpenSSL between two buffers, and the fibers that take
// turns with it.
#pragma once

#include <vigil/fiber.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/sync.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/write.hpp>

namespace VIGIL_IO_DETAIL {

// One connection of OpenSSL between two buffers in memory. No call waits; the error
// `would_block` asks for input. One call at a time.
class VIGIL_API tls_engine {
 public:
  explicit tls_engine(SSL_CTX* context);
  ~tls_engine();
  tls_engine(const tls_engine&) = delete;
  tls_engine& operator=(const tls_engine&) = delete;

  void set_host(const std::string& name);

  void skip_verification() noexcept { verifies_ = false; }

  void require_certificate();
  void handshake(bool as_server, boost::system::error_code& error) noexcept;
  std::size_t read(boost::asio::mutable_buffer to, boost::system::error_code& error) noexcept;
  // Writes one record at most. After the handshake this and send_close_notify() ask for
  // input only if half of a TLS message (new keys, a session ticket) has arrived.
  std::size_t write(boost::asio::const_buffer from, boost::system::error_code& error) noexcept;
  // Nothing that is sealed after this goodbye is output.
  void send_close_notify(boost::system::error_code& error) noexcept;

  // Adds bytes from the other end. Throws std::bad_alloc.
  void put_input(boost::asio::const_buffer from);
  // Takes bytes for the other end; returns 0 if there are none.
  std::size_t take_output(boost::asio::mutable_buffer to) noexcept;
  // The same, but leaves them there until drop_output().
  std::size_t see_output(boost::asio::mutable_buffer to) const noexcept;
  // Caller: there are at least `n` bytes.
  void drop_output(std::size_t n) noexcept;
  std::size_t output_size() const noexcept;
  bool has_input() const noexcept;

  SSL* native_handle() noexcept { return ssl_; }

 private:
  boost::system::error_code error_of(int result) const noexcept;
  boost::system::error_code before_client() noexcept;
  bool has_verified() const noexcept;
  void answer_keys() noexcept;

  SSL* const ssl_;
  BIO* in_ = nullptr;
  BIO* out_ = nullptr;
  bool has_host_ = false;
  bool verifies_ = true;  // as a client
  // The error of reads and writes before a handshake has succeeded; none afterwards.
  boost::system::error_code untrusted_ = boost::asio::error::not_connected;
};

// The calls of a tls_stream. Each holds its side, and waits as described there.
template <class Stream>
class tls_core {
 public:
  template <class... Args>
  explicit tls_core(SSL_CTX* context, Args&&... args)
      : below_(std::forward<Args>(args)...), state_(std::make_unique<state>(context)) {}

  deadline_stream<Stream>& below() noexcept { return below_; }

  const deadline_stream<Stream>& below() const noexcept { return below_; }

  tls_engine& engine() noexcept { return state_->engine; }

  // Whether bytes have come from below that no read has used.
  bool has_input() {
    return with_engine([](const auto& engine) { return engine.has_input(); });
  }

  // Counts of reads and handshakes. Caller: none is in progress.
  call_counts reads() const noexcept { return state_->reads; }

  void handshake(bool as_server, boost::system::error_code& error) {
    const reading_hold reading(*this);
    const writing_hold writing_too(*this);
    ++state_->reads.begun;
    if (error = below_.read_error(); error) return;
    if (error = ready_to_write(); error) return;
    do {
      with_engine([&](auto& engine) { engine.handshake(as_server, error); });
      // Sent even after a failure, so that the other end learns of it.
      boost::system::error_code unsent;
      flush(unsent);
      if (error && error != wants_input) return;
      const bool goes_on = error == wants_input;
      error = unsent;
      if (!goes_on) {
        if (!error) ++state_->reads.successful;
        return;
      }
    } while (!error && take_input(error));
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    const reading_hold mine(*this);
    ++state_->reads.begun;
    if (error = below_.read_error(); error) return 0;
    const auto to = first_of<boost::asio::mutable_buffer>(buffers);
    if (to.size() == 0) return 0;
    for (;;) {
      bool is_full = false;
      bool has_answered = false;
      const std::size_t n = with_engine([&](auto& engine) {
        is_full = engine.output_size() > most_answers;
        const std::size_t got = is_full ? 0 : engine.read(to, error);
        has_answered = engine.output_size() != 0;
        return got;
      });
      tell_stalled();
      if (is_full) {
        send_answers(error);
        if (error) return 0;
        continue;
      }
      if (has_answered) {
        state_->owed.store(true);
        send_owed();
      }
      if (error != wants_input) {
        if (n != 0) ++state_->reads.successful;
        return n;
      }
      if (!take_input(error)) return 0;
    }
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    std::size_t n = 0;
    writing(error, [&] {
      if (error = ready_to_write(); error) return;
      const auto from = gathered(buffers);
      if (from.size() == 0) return;
      n = with_engine([&](auto& engine) { return engine.write(from, error); });
      if (!error) {
        flush(error);
      } else if (error != wants_input) {
        state_->owed.store(true);  // the alert with the reason
      }
    });
    return error ? 0 : n;
  }

  void shutdown(boost::system::error_code& error) {
    writing(error, [&] {
      auto& s = *state_;
      error = s.sent_close_notify ? s.parting : ready_to_write();
      if (error || s.sent_close_notify) return;
      with_engine([&](auto& engine) { engine.send_close_notify(error); });
      if (error) return;
      s.sent_close_notify = true;
      s.parting = boost::asio::error::operation_aborted;  // if the next line throws `stopped`
      flush(error);
      s.parting = error;
    });
  }

  void close() {
    below_.close();
    tell_stalled();
    const std::scoped_lock all(state_->reading.between_calls(), state_->writing.between_calls());
  }

  // Wakes a write that waits, either for the rest of a message that another fiber reads,
  // or until the deadline that has just been moved.
  void tell_stalled() noexcept {
    if (state_->stalled.load() == 0) return;
    {
      const std::lock_guard guard(state_->news_lock);
      ++state_->news;
    }
    state_->on_news.notify_all();
  }

 private:
  static constexpr std::size_t record = 16 * 1024;  // the most plain text in a record
  static constexpr std::size_t most_answers = 64 * 1024;

  struct state {
    explicit state(SSL_CTX* context) : engine(context) {}

    // Held by the reader and by the writer, even while it waits; a handshake takes both,
    // in this order. `alone` is held inside OpenSSL.
    call_queue reading;
    call_queue writing;
    mutex alone;
    tls_engine engine;                    // guarded by alone
    call_counts reads;                    // guarded by reading
    std::array<char, record + 1024> in;   // guarded by reading
    std::array<char, record + 1024> out;  // guarded by writing
    boost::system::error_code broken;     // guarded by writing: a record was cut off
    bool sent_close_notify = false;       // guarded by writing; whether in whole, `parting` says
    boost::system::error_code parting;    // guarded by writing

    // Set when OpenSSL has answered by itself while another fiber wrote. Set before the
    // side to write is tried for, and read after it was let go, both seq_cst: so
    // either the reader gets that side, or the writer that had it sends the answer.
    std::atomic<bool> owed{false};

    // The number of writes that wait for the rest of a message that another fiber reads.
    // A write is counted before it looks at what it waits for, and the count is read
    // after that has changed, both seq_cst: so either the write sees the change, or it is
    // told.
    std::atomic<unsigned> stalled{0};
    std::mutex news_lock;    // never held across a wait
    std::uint64_t news = 0;  // guarded by news_lock
    condition_variable on_news;
  };

  // A reader holds its side. When that ends, a write that waits may read for itself.
  class reading_hold {
   public:
    explicit reading_hold(tls_core& s) : last_{s}, hold_(s.state_->reading) {}

   private:
    struct telling {
      ~telling() { of.tell_stalled(); }

      tls_core& of;
    };

    const telling last_;  // is destroyed after the hold
    const call_queue::hold hold_;
  };

  class stalled_write {
   public:
    explicit stalled_write(state& s) noexcept : of_(s) { of_.stalled.fetch_add(1); }

    stalled_write(const stalled_write&) = delete;
    stalled_write& operator=(const stalled_write&) = delete;

    ~stalled_write() { of_.stalled.fetch_sub(1); }

   private:
    state& of_;
  };

  // A writer holds its side, and afterwards sends what is owed.
  class writing_hold {
   public:
    explicit writing_hold(tls_core& s) : after_{s}, hold_(s.state_->writing) {
      after_.sends = true;
    }

    writing_hold(const writing_hold&) = delete;
    writing_hold& operator=(const writing_hold&) = delete;

   private:
    struct sender {
      ~sender() {
        if (sends) of.send_owed();
      }

      tls_core& of;
      bool sends = false;  // not if the side was not held
    };

    sender after_;  // is destroyed after the hold
    call_queue::hold hold_;
  };

  static constexpr auto wants_input = boost::asio::error::would_block;

  template <class F>
  auto with_engine(F f) {
    const std::lock_guard guard(state_->alone);
    return f(state_->engine);
  }

  boost::system::error_code ready_to_write() const {
    const boost::system::error_code now = below_.write_error();
    if (now == boost::asio::error::bad_descriptor) return now;
    if (state_->broken) return state_->broken;
    if (state_->sent_close_notify) return boost::asio::error::shut_down;
    return now;
  }

  // Holds the side to write for `f`, and again as long as f asks for input.
  template <class F>
  void writing(boost::system::error_code& error, F f) {
    {
      const writing_hold mine(*this);
      f();
    }
    if (error != wants_input) return;
    const stalled_write stalled(*state_);
    for (;;) {
      const std::uint64_t seen = last_news();
      {
        const writing_hold mine(*this);
        for (f(); error == wants_input; f()) {
          const call_queue::try_hold reads(state_->reading);
          if (!reads) break;
          if (!take_input(error, below_.write_side())) return;
        }
      }
      if (error != wants_input) return;
      wait_for_news(seen);
      if (below_.write_side().deadline.is_closed()) {
        error = boost::asio::error::operation_aborted;
        return;
      }
    }
  }

  std::uint64_t last_news() {
    const std::lock_guard guard(state_->news_lock);
    return state_->news;
  }

  // Waits for news, or for the write deadline.
  void wait_for_news(std::uint64_t seen) {
    std::unique_lock lock(state_->news_lock);
    while (state_->news == seen) {
      if (!state_->on_news.wait_until(lock, below_.write_deadline())) return;
    }
  }

  // Called by the reader. Returns false if there is an `error`.
  bool take_input(boost::system::error_code& error) {
    return take_input(error, below_.read_side());
  }

  // The same under the deadline of that side.
  template <class Side>
  bool take_input(boost::system::error_code& error, Side& until) {
    const std::size_t n = below_.read_under(until, boost::asio::buffer(state_->in), error);
    if (error == boost::asio::error::eof) error = boost::asio::ssl::error::stream_truncated;
    if (error) return false;
    with_engine([&](auto& engine) { engine.put_input(boost::asio::buffer(state_->in, n)); });
    return true;
  }

  // Called by the writer: sends all sealed bytes. If that fails, nothing can ever be sent
  // again.
  void flush(boost::system::error_code& error) {
    auto& out = state_->out;
    const auto take = [&](auto& engine) { return engine.take_output(boost::asio::buffer(out)); };
    while (const std::size_t n = with_engine(take)) {
      state_->broken = boost::asio::error::operation_aborted;  // if the next line throws `stopped`
      boost::asio::write(below_, boost::asio::buffer(out, n), error);
      state_->broken = error;
      if (error) return;
    }
  }

  // Sends as much as there is room for, without a wait.
  void send_owed() noexcept {
    auto& s = *state_;
    while (s.owed.load()) {
      try {
        const call_queue::try_hold mine(s.writing);
        if (!mine) return;
        s.owed.store(false);
        const this_fiber::shield until_it_is_sent;  // it must neither wait nor be stopped
        send_now();
      } catch (...) {  // no memory, or the stream below fails: the next write says so
        return;
      }
    }
  }

  // Called by the writer.
  void send_now() {
    auto& out = state_->out;
    const auto see = [&](auto& engine) { return engine.see_output(boost::asio::buffer(out)); };
    while (!state_->broken) {
      const std::size_t n = with_engine(see);
      if (n == 0) return;
      boost::system::error_code error;
      const std::size_t sent = below_.write_now(boost::asio::buffer(out, n), error);
      with_engine([&](auto& engine) { engine.drop_output(sent); });
      if (sent < n) return;
    }
  }

  // Called by the reader when too much has piled up.
  void send_answers(boost::system::error_code& error) {
    const writing_hold mine(*this);
    error = below_.write_error();
    if (state_->broken) {
      error.clear();
      with_engine([](auto& engine) { engine.drop_output(engine.output_size()); });
    } else if (!error) {
      flush(error);
    }
  }

  template <class Buffer, class Buffers>
  static Buffer first_of(const Buffers& buffers) {
    for (auto b = boost::asio::buffer_sequence_begin(buffers);
         b != boost::asio::buffer_sequence_end(buffers);
         ++b) {
      if (const Buffer found(*b); found.size() != 0) return found;
    }
    return {};
  }

  // Called by the writer: the bytes of one record. Small buffers share one.
  template <class Buffers>
  boost::asio::const_buffer gathered(const Buffers& buffers) {
    const auto first = first_of<boost::asio::const_buffer>(buffers);
    if (first.size() >= record || first.size() == boost::asio::buffer_size(buffers)) return first;
    const auto room = boost::asio::buffer(state_->out, record);
    return boost::asio::buffer(state_->out, boost::asio::buffer_copy(room, buffers));
  }

  deadline_stream<Stream> below_;
  std::unique_ptr<state> state_;
};

}  // namespace VIGIL_IO_DETAIL
