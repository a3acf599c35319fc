// One end of a conversation over TLS, for the target tls_stream: a fiber that writes by a
// script, one that reads, and one that disturbs both.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/tls_trust.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream_base.hpp>

#include <openssl/bio.h>
#include <openssl/ssl.h>

namespace fuzz::tls {

using namespace std::chrono_literals;
using boost::asio::ssl::stream_base;
using boost::system::error_code;

// Actions that a byte of a script stands for; the bytes from `sizes` on are sizes, but
// for the last.
enum class action : std::uint8_t {
  new_keys,  // which the other end must answer
  short_pause,
  pause,
  large_ticket,  // of several records, if the end is a server and has small ones
  late_write,    // whose deadline has passed
  empty_write,
  hasty_write,     // with a deadline that may cut it off
  large_write,     // from one buffer that is larger than a record
  other_shutdown,  // by another fiber, which writes meanwhile
  sizes,
  many_new_keys = 0xff  // more answers than a reader piles up, if they have padding
};

// Disturbances of an end, each so many milliseconds after the one before.
enum class disturbance : std::uint8_t {
  end_read,       // by its deadline
  end_write,      // by its deadline
  move_deadline,  // of writing, to a later point
  stop_waiting,   // another fiber that would write
  stop_writer,
  close,
  count
};

struct script {
  std::string_view writes;
  std::string_view disturbances;  // pairs of a time and what happens
  bool reads_slowly = false;
  bool has_small_records = false;
  bool has_padding = false;  // to 512 bytes, even of an answer to new keys
  bool is_changed = false;   // what either end sends, on its way
};

// The byte at this place of all that an end sends.
inline char sent_byte(stream_base::handshake_type side, std::size_t at) {
  return static_cast<char>(at * 31 + (at >> 8) * 7 + (side == stream_base::client ? 0 : 99));
}

struct outcome {
  error_code handshake;
  error_code write;
  error_code read;
  std::size_t sent = 0;
  std::size_t received = 0;
  bool has_parted = false;
  bool may_be_cut = false;   // writing, in the middle of a record
  bool was_stopped = false;  // the writer
  bool is_closed = false;    // before the end
};

class end {
 public:
  end(stream& s,
      stream_base::handshake_type side,
      const script& what,
      outcome& out,
      const outcome& other)
      : stream_(s), side_(side), what_(what), out_(out), other_(other) {}

  // Talks until both have said all, or cannot.
  void talk() {
    prepare();
    auto disturbing = vigil::spawn([this] { disturb(); });
    shake_hands();
    if (!out_.handshake) {
      writing_ = vigil::spawn([this] { write_all(); });
      read_all();
      try {
        writing_.join();
      } catch (const vigil::cancelled&) {
        out_.was_stopped = true;
      }
    }
    has_ended_ = true;
    stream_.close();
    check_closed();
    disturbing.request_stop();
    try {
      disturbing.join();
    } catch (const vigil::cancelled&) {
    }
  }

 private:
  // So late that only an end which waits for ever comes to it.
  static auto late() { return vigil::clock::now() + 1h; }

  // A write that is to be too late waits for its turn, and stays too late meanwhile.
  void set_late() {
    stream_.set_read_deadline(late());
    if (!is_writing_late_) stream_.set_write_deadline(late());
  }

  // After a call that was too late. Whether it has waited so long for the rest of a
  // message, which nobody sends: its length was changed, or a write was cut off.
  bool is_stuck() {
    if (vigil::clock::now() < began_ + 1h) return false;
    expect(what_.is_changed || other_.may_be_cut || out_.may_be_cut, "nothing hangs");
    out_.may_be_cut = true;
    return true;
  }

  void prepare() {
    stream_.set_deadline(late());
    if (what_.has_small_records) ::SSL_set_max_send_fragment(stream_.native_handle(), 512);
    error_code error;
    char byte = 0;
    stream_.read_some(boost::asio::buffer(&byte, 1), error);
    expect(error == boost::asio::error::not_connected, "nothing is read before a handshake");
    stream_.write_some(boost::asio::buffer(&byte, 1), error);
    expect(error == boost::asio::error::not_connected, "nor written");
    stream_.shutdown(error);
    expect(error == boost::asio::error::not_connected, "nor ended");
  }

  void shake_hands() {
    stream_.handshake(side_, out_.handshake);
    // Once for each disturbance: a handshake that was cut off fails in the same way.
    const auto too_late = boost::asio::error::timed_out;
    for (int i = 0; out_.handshake == too_late && i < 9 && !is_stuck(); ++i) {
      set_late();
      stream_.handshake(side_, out_.handshake);
    }
    const error_code first = out_.handshake;
    // A disturbance may have ended the deadline of the second.
    const auto is_late = [&](const error_code& error) {
      return error == too_late && !what_.disturbances.empty();
    };
    error_code again;
    if (!first) {
      stream_.handshake(side_, again);
      expect(!again || is_late(again) || out_.is_closed, "a second handshake does nothing");
      // Not before: if one refuses the other, and both write more than the pipes hold,
      // they wait for each other.
      if (what_.has_padding) ::SSL_set_block_padding(stream_.native_handle(), 512);
    } else if (first.category() == boost::asio::error::get_ssl_category() ||
               first.category() == vigil::io::tls_category()) {
      stream_.handshake(side_, again);
      // The alert of the first may have waited until then.
      expect(again == first || is_late(again) || out_.is_closed, "a handshake fails as before");
    }
  }

  void check_closed() {
    error_code error;
    char byte = 0;
    stream_.read_some(boost::asio::buffer(&byte, 1), error);
    expect(error == boost::asio::error::bad_descriptor, "a closed end is not read");
    stream_.write_some(boost::asio::buffer(&byte, 1), error);
    expect(error == boost::asio::error::bad_descriptor, "nor written");
    stream_.handshake(side_, error);
    expect(error == boost::asio::error::bad_descriptor, "and shakes no hands");
  }

  // --- writing

  void write_all() {
    for (const char c : what_.writes) {
      const auto byte = static_cast<std::uint8_t>(c);
      const bool is_size = byte >= static_cast<std::uint8_t>(action::sizes) &&
                           byte < static_cast<std::uint8_t>(action::many_new_keys);
      const bool goes_on = is_size ? write(byte < 128 ? byte : byte * std::size_t{100}, 3)
                                   : act(static_cast<action>(byte));
      if (!goes_on) return;
    }
    if (!part()) return;
    stream_.shutdown(out_.write);
    expect(!out_.write || out_.is_closed, "a second shutdown does nothing");
    error_code error;
    stream_.write_some(boost::asio::buffer("x", 1), error);
    expect(error == boost::asio::error::shut_down || out_.is_closed, "nothing follows it");
  }

  // Returns false if there is no more to write.
  bool act(action a) {
    switch (a) {
      case action::new_keys:
        ask_for_keys();
        return true;
      case action::short_pause:
        vigil::sleep_for(1ms);
        return true;
      case action::pause:
        vigil::sleep_for(20ms);
        return true;
      case action::large_ticket:
        ask_for_ticket();
        return true;
      case action::late_write:
        write_late();
        return true;
      case action::empty_write:
        return write_nothing();
      case action::hasty_write:
        out_.may_be_cut = true;
        stream_.set_write_deadline(vigil::clock::now() + 2ms);
        if (!write(300, 1)) return false;
        stream_.set_write_deadline(late());
        return true;
      case action::large_write:
        return write(20'000, 1);
      case action::other_shutdown: {
        auto other = vigil::spawn([this] { return part(); });
        const bool goes_on = write(2000, 2);
        other.join();
        return goes_on;
      }
      case action::many_new_keys:
        return ask_often();
      case action::sizes:
        break;
    }
    return false;
  }

  // Before TLS 1.3 there are no new keys. The request is sent with the next write.
  void ask_for_keys() {
    static_cast<void>(::SSL_key_update(stream_.native_handle(), SSL_KEY_UPDATE_REQUESTED));
  }

  // Once in a conversation, as it takes a while.
  bool ask_often() {
    if (std::exchange(has_asked_often_, true)) return true;
    // A reader stops at 64 KiB of answers: 123 of them with padding, 2428 without.
    for (int i = 0; i < 140; ++i) {
      ask_for_keys();
      if (!write(1, 1)) return false;
    }
    return true;
  }

  void ask_for_ticket() {
    SSL* const s = stream_.native_handle();
    SSL_SESSION* const own_session = ::SSL_get0_session(s);
    if (side_ != stream_base::server || own_session == nullptr) return;
    const std::string large(1500, 'x');
    ::SSL_SESSION_set1_ticket_appdata(own_session, large.data(), large.size());
    // There are none before TLS 1.3. It is sent with the next write.
    static_cast<void>(::SSL_new_session_ticket(s));
  }

  void write_late() {
    stream_.set_write_deadline(vigil::clock::now());
    error_code error;
    {
      const late_mark mark(is_writing_late_);
      stream_.write_some(boost::asio::buffer("x", 1), error);
    }
    // An error that has ended writing comes first.
    expect(error == boost::asio::error::timed_out ||
               (error && (may_have_ended() || error == boost::asio::error::broken_pipe)),
           "its deadline has passed");
    stream_.set_write_deadline(late());
  }

  bool write_nothing() {
    const std::array<boost::asio::const_buffer, 3> none = {};
    error_code error;
    expect(stream_.write_some(none, error) == 0, "nothing is written");
    expect(!error || may_fail(error), "and does not fail");
    return true;
  }

  // Sets a flag for a while, even if a stop ends that.
  class late_mark {
   public:
    explicit late_mark(bool& is_set) : is_set_(is_set) { is_set_ = true; }

    late_mark(const late_mark&) = delete;
    late_mark& operator=(const late_mark&) = delete;

    ~late_mark() { is_set_ = false; }

   private:
    bool& is_set_;
  };

  // Whether a call may fail so, beside its own reasons: writing has been cut off, or
  // ended, or the other end has gone.
  bool may_fail(const error_code& error) const {
    return may_have_ended() || error != boost::asio::error::timed_out;
  }

  // Writing.
  bool may_have_ended() const { return out_.is_closed || is_parting_ || out_.may_be_cut; }

  // Writes the next n bytes, from so many buffers. Returns false if writing has ended.
  bool write(std::size_t n, std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i)
      bytes += sent_byte(side_, out_.sent + i);
    boost::asio::const_buffer left = boost::asio::buffer(bytes);
    while (left.size() != 0) {
      const std::size_t first = left.size() / count;
      const std::array<boost::asio::const_buffer, 3> parts = {
          boost::asio::const_buffer{}, {left.data(), first}, left + first};
      const std::size_t written = write_some(parts);
      if (written == 0) return false;
      out_.sent += written;
      left += written;
    }
    return true;
  }

  // A write that is too late before anything was sent has broken nothing.
  template <class Buffers>
  std::size_t write_some(const Buffers& from) {
    const std::size_t n = stream_.write_some(from, out_.write);
    if (!out_.write) return n;
    expect(n == 0, "a write that fails has written nothing");
    if (out_.write != boost::asio::error::timed_out || is_stuck()) return 0;
    expect(out_.may_be_cut, "a write is in time");
    set_late();
    return stream_.write_some(from, out_.write);
  }

  // Returns whether it was done, and nobody else does it.
  bool part() {
    is_parting_ = true;
    error_code error;
    stream_.shutdown(error);
    if (error == boost::asio::error::timed_out && !is_stuck()) {
      set_late();
      stream_.shutdown(error);
    }
    if (!out_.write) out_.write = error;
    out_.has_parted = !error;
    return out_.has_parted;
  }

  // --- reading

  void read_all() {
    const auto other = side_ == stream_base::client ? stream_base::server : stream_base::client;
    char room[700];
    while (!out_.read) {
      if (what_.reads_slowly) vigil::sleep_for(1ms);
      const std::array<boost::asio::mutable_buffer, 2> parts = {boost::asio::mutable_buffer{},
                                                                boost::asio::buffer(room)};
      const std::size_t n = stream_.read_some(parts, out_.read);
      const std::size_t unsent = BIO_ctrl_pending(::SSL_get_wbio(stream_.native_handle()));
      expect(unsent < std::size_t{128} << 10, "no more than 64 KiB of answers pile up");
      for (std::size_t i = 0; i < n; ++i)
        expect(room[i] == sent_byte(other, out_.received + i), "what is read was sent");
      out_.received += n;
      // Behind a goodbye there need be no answers.
      expect(n == 0 || is_parting_ ||
                 ::SSL_get_key_update_type(stream_.native_handle()) != SSL_KEY_UPDATE_NOT_REQUESTED,
             "new keys are answered at once");
      if (out_.read == boost::asio::error::timed_out && !is_stuck()) retry_read();
    }
  }

  void retry_read() {
    out_.read.clear();
    // Meanwhile a write that needs the rest of a message reads by itself.
    if (what_.reads_slowly) vigil::sleep_for(50ms);
    set_late();
    const std::array<boost::asio::mutable_buffer, 2> none = {};
    error_code error;
    expect(stream_.read_some(none, error) == 0, "nothing is asked for");
    expect(!error || out_.is_closed, "and nothing fails");
  }

  // --- disturbing

  void disturb() {
    for (std::string_view left = what_.disturbances; left.size() > 1; left.remove_prefix(2)) {
      vigil::sleep_for(static_cast<std::uint8_t>(left[0]) * 1ms);
      if (has_ended_) return;
      constexpr auto kinds = static_cast<unsigned>(disturbance::count);
      disturb(static_cast<disturbance>(static_cast<std::uint8_t>(left[1]) % kinds));
    }
  }

  void disturb(disturbance d) {
    switch (d) {
      case disturbance::end_read:
        stream_.set_read_deadline(vigil::clock::now());
        expect(stream_.read_error() == boost::asio::error::timed_out || out_.is_closed,
               "a read would be too late");
        return;
      case disturbance::end_write:
        out_.may_be_cut = true;
        return stream_.set_write_deadline(vigil::clock::now() + 1ms);
      case disturbance::move_deadline:
        return stream_.set_write_deadline(late());
      case disturbance::stop_waiting: {
        auto waiting = vigil::spawn([this] { write_nothing(); });
        vigil::this_fiber::yield();
        waiting.request_stop();
        try {
          waiting.join();
        } catch (const vigil::cancelled&) {
        }
        return;
      }
      case disturbance::stop_writer:
        out_.may_be_cut = true;
        return writing_.request_stop();
      case disturbance::close:
        out_.is_closed = true;
        return stream_.close();
      case disturbance::count:
        break;
    }
  }

  stream& stream_;
  const stream_base::handshake_type side_;
  const script what_;
  outcome& out_;
  const outcome& other_;
  const vigil::clock::time_point began_ = vigil::clock::now();
  vigil::fiber<void> writing_;
  bool has_asked_often_ = false;
  bool is_parting_ = false;
  bool is_writing_late_ = false;
  bool has_ended_ = false;
};

}  // namespace fuzz::tls
