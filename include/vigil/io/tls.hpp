// tls_stream<Stream>: TLS with the deadlines of a deadline_stream, as Go's tls.Conn.
//
//   asio::ssl::context trusted = io::tls_client_context();  // once, for all connections
//
//   io::tls_stream<tcp::socket> peer(trusted, std::move(connected_socket));
//   peer.set_host("example.org");
//   peer.set_deadline(clock::now() + 10s);
//   peer.handshake(asio::ssl::stream_base::client);
//   std::size_t n = peer.read_some(buffer);
//   peer.shutdown();
//
// Whom it trusts. As in Go, a client verifies the other's certificate and the name in
// it, whatever the verify mode of the context, unless the stream itself is told to
// skip_verification(); without set_host() the handshake does not begin. A server
// asks for no certificate unless it is told to: require_certificate(), or verify_peer as
// the mode of its context. Only tls_client_context() has the system's roots; nothing is
// added to a context that the program made, nor changed there. A verify callback of the
// context is asked, too, and may accept what OpenSSL would refuse. A session that the
// program has given (SSL_set_session) is offered only if its certificate was verified by
// OpenSSL itself, is not out of date, and has the name that is asked for now; otherwise
// the handshake is a whole one.
//
// asio::ssl::context sets it up; the stream is ours, because an asio::ssl::stream
// takes no two operations that different fibers begin. Here one reads while another
// writes, on any workers: OpenSSL is entered by one at a time and never during a
// wait. As on a deadline_stream, deadlines may be moved from anywhere, and Asio's and
// Beast's functions for synchronous streams wait as fibers do.
//
// OpenSSL's callbacks (verification, names, ALPN, key log, info) run on the fiber that
// called, inside OpenSSL: they must neither wait nor throw, and a wait ends the program
// with a message (this_fiber::no_park). What an answer needs is brought before the
// handshake; what a callback has to tell goes by try_send.
//
// Timeouts. A read that timed out, and a handshake that did while it waited for the
// other end, may be called again with a later deadline: what had come is kept. A
// write that fails when a part of its record may have been sent, at a deadline, after
// an idle time or because its fiber was stopped, ends writing for good: each later
// one fails in the same way; reads go on. One whose deadline had passed before it
// began has sent nothing and breaks nothing, and so has one that was stopped while it
// waited for its turn. What waits behind a handshake waits until that has ended.
//
// While half of a TLS message (a session ticket, new keys) has arrived, nothing can be
// sealed: a write, or shutdown(), waits under the write deadline until a reading fiber
// has the rest, or reads it itself. If that deadline comes, nothing has been sent and
// nothing is broken. A read that is called meanwhile waits for the write.
//
// An idle list is set below, before the handshake: next_layer().set_idle_list(list).
// Bytes of TLS count as progress there. Its end of a write that waits ends writing for
// good, as above; that of a read or of a handshake's does not.
//
// Endings. shutdown() says that no more will be written; the other end reads that as
// eof. A peer that closes its connection without that is reported as
// asio::ssl::error::stream_truncated: somebody may have cut off the rest. Bytes left
// unread at close() make TCP reset the connection, and so may what the peer's
// TLS sent by itself (session tickets): to part in peace, shutdown(), read to the
// eof, close().
//
// Errors of TLS itself have asio::error::get_ssl_category(); a read that fails with one
// has told the other end why (a fatal alert), as a handshake has. There is no
// renegotiation. New keys of TLS 1.3 are answered at once, also by who only reads. Such
// answers wait for no room and for no other fiber's write; but when 64 KiB of them
// have piled up, because the other end does not read, the next read sends them first,
// under the write deadline.
//
// A library of its own, vigil-tls, so that only its users need OpenSSL. A connection
// has 34 KiB of buffers beside OpenSSL's.
//
// Thread safety: as deadline_stream: all but what is said to be set before the
// handshake may be called by several fibers at a time. The asio::ssl::context must
// outlive the stream.
#pragma once

#include <vigil/fiber.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/turns.hpp>
#include <vigil/sync.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

// One connection of OpenSSL between two buffers in memory. No call waits. One at a
// time; an error `would_block` asks for input.
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
  // At most one record. After the handshake this and the next ask for input only if a
  // message of TLS itself (new keys, a session ticket) has come in half.
  std::size_t write(boost::asio::const_buffer from, boost::system::error_code& error) noexcept;
  void say_goodbye(boost::system::error_code& error) noexcept;

  // What has come from the other end; throws std::bad_alloc.
  void put_input(boost::asio::const_buffer from);
  // What is to be sent there; 0: nothing.
  std::size_t take_output(boost::asio::mutable_buffer to) noexcept;
  // The same, left there until so much is dropped.
  std::size_t see_output(boost::asio::mutable_buffer to) const noexcept;
  void drop_output(std::size_t n) noexcept;
  std::size_t output_size() const noexcept;

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

}  // namespace detail

// Why a client's handshake is refused, beside what OpenSSL finds.
enum class tls_error {
  no_host_name = 1,  // neither set_host() nor skip_verification()
  no_certificate,    // the server has shown none, not even in a session that it resumed
};

VIGIL_API const boost::system::error_category& tls_category() noexcept;

inline boost::system::error_code make_error_code(tls_error e) noexcept {
  return {static_cast<int>(e), tls_category()};
}

// For clients: TLS 1.2 or later, and the system's trusted roots, from where OpenSSL
// looks for them (SSL_CERT_FILE, SSL_CERT_DIR; on Debian: package ca-certificates).
// More may be added. Reading them takes milliseconds, so make one context for all
// connections. Throws boost::system::system_error.
VIGIL_API boost::asio::ssl::context tls_client_context();

template <class Stream>
class tls_stream {
 public:
  using next_layer_type = deadline_stream<Stream>;
  using executor_type = typename next_layer_type::executor_type;
  using handshake_type = boost::asio::ssl::stream_base::handshake_type;

  // `args`: of the stream below. Throws system_error if OpenSSL has no memory.
  template <class... Args>
    requires std::is_constructible_v<next_layer_type, Args...>
  explicit tls_stream(boost::asio::ssl::context& context, Args&&... args)
      : below_(std::forward<Args>(args)...),
        state_(std::make_unique<state>(context.native_handle())) {}
  tls_stream(tls_stream&&) = default;
  tls_stream& operator=(tls_stream&&) = default;

  next_layer_type& next_layer() noexcept { return below_; }
  const next_layer_type& next_layer() const noexcept { return below_; }
  executor_type get_executor() { return below_.get_executor(); }

  // For settings before the handshake, and questions after it.
  SSL* native_handle() noexcept { return state_->engine.native_handle(); }

  // Before the handshake, by a client: the name, or the address, that it asks for and
  // that the certificate must have: in its list of names, where a star stands for one
  // whole label and the subject does not count. A dot at its end is dropped. Throws
  // boost::system::system_error if it cannot be one, as ".org".
  void set_host(const std::string& name) { state_->engine.set_host(name); }

  // Before the handshake, by a client: any certificate will do, of anybody, so that
  // who stands between can read and write everything. For tests, and for who looks
  // at the certificate after the handshake. A host name is sent if there is one.
  void skip_verification() { state_->engine.skip_verification(); }

  // Before the handshake, by a server: the client must show a certificate for which the
  // context's authorities vouch (load_verify_file, add_certificate_authority).
  void require_certificate() { state_->engine.require_certificate(); }

  template <vigil::detail::time_point_like Time>
  void set_read_deadline(const Time& t) {
    below_.set_read_deadline(t);
  }

  template <vigil::detail::time_point_like Time>
  void set_write_deadline(const Time& t) {
    below_.set_write_deadline(t);
    tell_stalled();
  }

  template <vigil::detail::time_point_like Time>
  void set_deadline(const Time& t) {
    below_.set_deadline(t);
    tell_stalled();
  }

  // The first call; under both deadlines. Again after success: nothing; after an error of
  // TLS the same one. Until it has succeeded, reads and writes fail with not_connected.
  // Additional errors: those of TLS, tls_error.
  // Waits on a fiber (both deadlines): throws stopped, wrong_place.
  void handshake(handshake_type type, boost::system::error_code& error) {
    const reading_turn reads(*this);
    const writing_turn writes(*this);
    if (error = below_.read_error(); error) return;
    if (error = ready_to_write(); error) return;
    do {
      with_engine([&](auto& engine) {
        engine.handshake(type == boost::asio::ssl::stream_base::server, error);
      });
      // Also after a failure: the other end is to hear of it.
      boost::system::error_code unsent;
      flush(unsent);
      if (error && error != wants_input) return;
      const bool goes_on = error == wants_input;
      error = unsent;
      if (!goes_on) return;
    } while (!error && take_input(error));
  }

  // As of deadline_stream. Additional errors: stream_truncated, those of TLS.
  // Waits on a fiber (the read deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    const reading_turn turn(*this);
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
      if (error != wants_input) return n;
      if (!take_input(error)) return 0;
    }
  }

  // As of deadline_stream; at most 16 KiB. See above for timeouts.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
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
        state_->owed.store(true);  // the alert that says why
      }
    });
    return error ? 0 : n;
  }

  // Under the write deadline: nothing more will be written; later writes fail with
  // `shut_down`. What the other end still sends can be read. Again: nothing.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  void shutdown(boost::system::error_code& error) {
    writing(error, [&] {
      error = ready_to_write();
      if (state_->said_goodbye) error.clear();
      if (error || state_->said_goodbye) return;
      with_engine([&](auto& engine) { engine.say_goodbye(error); });
      if (error) return;
      state_->said_goodbye = true;
      flush(error);
    });
  }

  // The same; throw boost::system::system_error.
  void handshake(handshake_type type) {
    boost::system::error_code error;
    handshake(type, error);
    check(error, "handshake");
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    boost::system::error_code error;
    const std::size_t n = read_some(buffers, error);
    check(error, "read_some");
    return n;
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    boost::system::error_code error;
    const std::size_t n = write_some(buffers, error);
    check(error, "write_some");
    return n;
  }

  void shutdown() {
    boost::system::error_code error;
    shutdown(error);
    check(error, "shutdown");
  }

  // As of deadline_stream: sends nothing; see shutdown().
  void close() {
    below_.close();
    tell_stalled();
    const std::scoped_lock all(state_->reading.between_calls(), state_->writing.between_calls());
  }

 private:
  static constexpr std::size_t record = 16 * 1024;  // the plain text of one, at most
  static constexpr std::size_t most_answers = 64 * 1024;

  struct state {
    explicit state(SSL_CTX* context) : engine(context) {}

    // Of who reads, who writes, also while it waits; a handshake has both, in this
    // order. `alone`: inside OpenSSL.
    detail::turns reading;
    detail::turns writing;
    mutex alone;
    detail::tls_engine engine;            // guarded by alone
    std::array<char, record + 1024> in;   // guarded by reading
    std::array<char, record + 1024> out;  // guarded by writing
    boost::system::error_code broken;     // guarded by writing: a record was cut off
    bool said_goodbye = false;            // guarded by writing

    // OpenSSL has answered by itself while somebody wrote. Set before the turn to
    // write is tried for, and looked at after it was given back, both seq_cst: so
    // either who reads gets the turn, or who had it sends the answer.
    std::atomic<bool> owed{false};

    // How many writes wait for the rest of a message that is read by another fiber.
    // Counted before such a write looks at what it waits for, and looked at after that
    // has changed, both seq_cst: so either it sees the change, or it is told.
    std::atomic<unsigned> stalled{0};
    std::mutex news_lock;    // nobody waits in it
    std::uint64_t news = 0;  // guarded by news_lock
    condition_variable on_news;
  };

  // The turn of a reader. When it ends, a write that waits may read for itself.
  class reading_turn {
   public:
    explicit reading_turn(tls_stream& s) : last_{s}, turn_(s.state_->reading) {}

   private:
    struct telling {
      ~telling() { of.tell_stalled(); }
      tls_stream& of;
    };

    const telling last_;  // it dies after the turn
    const detail::turns::call turn_;
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

  // Of who writes; afterwards it sends what is owed.
  class writing_turn {
   public:
    explicit writing_turn(tls_stream& s) : of_(s), turn_(std::in_place, s.state_->writing) {}
    writing_turn(const writing_turn&) = delete;
    writing_turn& operator=(const writing_turn&) = delete;
    ~writing_turn() {
      turn_.reset();
      of_.send_owed();
    }

   private:
    tls_stream& of_;
    std::optional<detail::turns::call> turn_;
  };

  static constexpr auto wants_input = boost::asio::error::would_block;

  static void check(const boost::system::error_code& error, const char* what) {
    if (error) throw boost::system::system_error(error, what);
  }

  template <class F>
  auto with_engine(F f) {
    const std::lock_guard guard(state_->alone);
    return f(state_->engine);
  }

  boost::system::error_code ready_to_write() const {
    if (state_->broken) return state_->broken;
    if (state_->said_goodbye) return boost::asio::error::shut_down;
    return below_.write_error();
  }

  // A turn to write for `f`, and further ones as long as that asks for input.
  template <class F>
  void writing(boost::system::error_code& error, F f) {
    {
      const writing_turn turn(*this);
      f();
    }
    if (error != wants_input) return;
    const stalled_write told(*state_);
    for (;;) {
      const std::uint64_t seen = last_news();
      {
        const writing_turn turn(*this);
        for (f(); error == wants_input; f()) {
          const detail::turns::try_call reads(state_->reading);
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

  void tell_stalled() noexcept {
    if (state_->stalled.load() == 0) return;
    {
      const std::lock_guard guard(state_->news_lock);
      ++state_->news;
    }
    state_->on_news.notify_all();
  }

  std::uint64_t last_news() {
    const std::lock_guard guard(state_->news_lock);
    return state_->news;
  }

  // Or for the write deadline.
  void wait_for_news(std::uint64_t seen) {
    std::unique_lock lock(state_->news_lock);
    while (state_->news == seen) {
      if (!state_->on_news.wait_until(lock, below_.write_deadline())) return;
    }
  }

  // By who reads. False: `error`.
  bool take_input(boost::system::error_code& error) {
    return take_input(error, below_.read_side());
  }

  // Under the deadline of that side.
  template <class Side>
  bool take_input(boost::system::error_code& error, Side& until) {
    const std::size_t n = below_.read_under(until, boost::asio::buffer(state_->in), error);
    if (error == boost::asio::error::eof) error = boost::asio::ssl::error::stream_truncated;
    if (error) return false;
    with_engine([&](auto& engine) { engine.put_input(boost::asio::buffer(state_->in, n)); });
    return true;
  }

  // By who writes: sends what is sealed, all of it or never again anything.
  void flush(boost::system::error_code& error) {
    auto& out = state_->out;
    const auto take = [&](auto& engine) { return engine.take_output(boost::asio::buffer(out)); };
    while (const std::size_t n = with_engine(take)) {
      state_->broken = boost::asio::error::operation_aborted;  // if `stopped` leaves the next line
      boost::asio::write(below_, boost::asio::buffer(out, n), error);
      state_->broken = error;
      if (error) return;
    }
  }

  // What there is room for, without a wait.
  void send_owed() noexcept {
    auto& s = *state_;
    while (s.owed.load()) {
      try {
        const detail::turns::try_call turn(s.writing);
        if (!turn) return;
        s.owed.store(false);
        const this_fiber::shield until_it_is_sent;  // it is not to wait, nor to be stopped
        send_now();
      } catch (...) {  // no memory, or the stream below cannot: the next write says so
        return;
      }
    }
  }

  // By who writes.
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

  // By who reads, when too much has piled up.
  void send_answers(boost::system::error_code& error) {
    const writing_turn turn(*this);
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
         b != boost::asio::buffer_sequence_end(buffers); ++b) {
      if (const Buffer found(*b); found.size() != 0) return found;
    }
    return {};
  }

  // By who writes: one record's worth. Small buffers share one.
  template <class Buffers>
  boost::asio::const_buffer gathered(const Buffers& buffers) {
    const auto first = first_of<boost::asio::const_buffer>(buffers);
    if (first.size() >= record || first.size() == boost::asio::buffer_size(buffers)) return first;
    const auto room = boost::asio::buffer(state_->out, record);
    return boost::asio::buffer(state_->out, boost::asio::buffer_copy(room, buffers));
  }

  next_layer_type below_;
  std::unique_ptr<state> state_;
};

}  // namespace VIGIL_ABI
}  // namespace vigil::io

template <>
struct boost::system::is_error_code_enum<vigil::io::tls_error> : std::true_type {};
