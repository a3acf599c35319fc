// The cases of on_read() and on_write(): what they have of their streams, and the untyped
// part of their steps.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/fiber.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/deadline_stream.hpp>
#include <vigil/io/detail/readiness.hpp>
#include <vigil/io/detail/shown_object.hpp>
#include <vigil/io/memory_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO_DETAIL {

VIGIL_API extern const vigil::detail::case_table stream_case_table;

// select_case::object points to it.
struct shown_stream {
  const void* object;  // for dumps (shown_object.hpp); the first member
  readiness* ready;    // from the case's begin() on
};

// The steps of a select are in src/io/stream_case.cpp.
class stream_case : public vigil::detail::select_case {
 public:
  // How far the select has come with the stream.
  enum class stage : std::uint8_t {
    fresh,     // not looked at
    empty,     // nothing could be transferred
    awaited,   // Asio's wait is outstanding, or has come
    inviting,  // a transfer may succeed
    over,      // done, or failed: `error` and `transferred` say how
  };

  // --- What the stream can do; called by the fiber that selects, which holds the side.
  virtual stream_side& side() const noexcept = 0;
  virtual boost::asio::any_io_executor executor() const = 0;
  virtual void set_up() = 0;
  // Whether a transfer would not block.
  virtual bool is_ready() = 0;
  virtual std::size_t transfer(boost::system::error_code& e) = 0;
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
  virtual void idle_begins() noexcept = 0;
  virtual bool has_idle_list() const noexcept = 0;
  virtual void idle_ends() noexcept = 0;

  shown_stream shown{nullptr, nullptr};
  stage at = stage::fresh;
  bool has_waited = false;  // for Asio, in this select
  bool yields = false;      // before its function is called
  std::optional<call_queue::try_hold> hold;
  boost::system::error_code error;
  std::size_t transferred = 0;

 protected:
  stream_case() noexcept : select_case(stream_case_table, this) {}

  // A case moves between selects only.
  stream_case(stream_case&& other) noexcept : select_case(other) {}

  ~stream_case() = default;

  void prepare_for(const void* of) noexcept {
    if (object == nullptr) return;  // switched off
    object = &shown;
    shown.object = of;
    at = stage::fresh;
    yields = false;
    error.clear();
    transferred = 0;
  }
};

// The streams over which a select can read and write.
template <class Stream>
inline constexpr bool can_be_selected = false;

template <class Stream>
inline constexpr bool can_be_selected<deadline_stream<Stream>> =
    waitable<Stream> || std::is_same_v<Stream, memory_stream>;

// For the library only.
struct stream_access {
  template <class Stream>
  using wait_type = std::decay_t<decltype(Stream::wait_read)>;

  template <class Stream>
  static stream_side& side(const deadline_stream<Stream>& s, bool reads) noexcept {
    return reads ? s.sides_->read : s.sides_->write;
  }

  template <class Stream>
  static void set_up(deadline_stream<Stream>& s) {
    if constexpr (waitable<Stream>) s.set_up();
  }

  template <bool Reads, class Stream>
  static bool is_ready(deadline_stream<Stream>& s) {
    if constexpr (std::is_same_v<Stream, memory_stream>) {
      return Reads ? s.stream_.is_readable() : s.stream_.is_writable();
    } else {
      const int descriptor = s.stream_.native_handle();
      return Reads ? detail::is_readable(descriptor) : detail::is_writable(descriptor);
    }
  }

  template <bool Reads, class Stream, class Buffers>
  static std::size_t transfer(deadline_stream<Stream>& s,
                              const Buffers& buffers,
                              boost::system::error_code& e) {
    if constexpr (std::is_same_v<Stream, memory_stream>) {
      auto& half = Reads ? s.stream_.in_ : s.stream_.out_;
      return half->template transfer<Reads>(buffers, e);
    } else {
      return uninterrupted(e, [&] {
        if constexpr (Reads) {
          return try_read(s.stream_, buffers, s.sides_->read.is_empty, e);
        } else {
          return try_write(s.stream_, buffers, e);
        }
      });
    }
  }

  template <bool Reads, class Stream>
  static void begin_wait(deadline_stream<Stream>& s) {
    s.begin_wait(s.stream_,
                 Reads ? Stream::wait_read : Stream::wait_write,
                 Reads ? s.sides_->read.ready : s.sides_->write.ready);
  }

  template <bool Reads, class Stream>
  static void end_wait(deadline_stream<Stream>& s) {
    readiness& ready = *side(s, Reads).ready.get();
    if constexpr (std::is_same_v<Stream, memory_stream>) {
      boost::system::error_code ignored;
      if (!is_outstanding(ready)) return;
      s.stream_.cancel(Reads ? Stream::wait_read : Stream::wait_write, ignored);
    } else {
      s.end_wait(s.stream_, ready);
    }
  }

  template <class Stream>
  static void idle_begins(deadline_stream<Stream>& s) noexcept {
    s.wait_begins();
  }

  template <class Stream>
  static bool has_idle_list(const deadline_stream<Stream>& s) noexcept {
    return s.sides_->joined != nullptr;
  }

  template <class Stream>
  static void idle_ends(deadline_stream<Stream>& s) noexcept {
    s.transferred(1);
  }
};

template <bool Reads, class Stream, class Buffers, class F>
class typed_stream_case final : public stream_case {
  static constexpr bool takes_error =
      vigil::detail::takes<F, boost::system::error_code, std::size_t>;
  static constexpr bool takes_size = vigil::detail::takes<F, std::size_t>;
  static_assert(takes_error || takes_size || vigil::detail::takes<F>,
                "on_read(stream, buffers, f), on_write(stream, buffers, f): f takes the number of "
                "bytes, or an error_code and that number, or nothing");

 public:
  typed_stream_case(deadline_stream<Stream>& s, const Buffers& buffers, F f)
      : stream_(&s), buffers_(buffers), f_(std::move(f)) {}

  typed_stream_case(typed_stream_case&&) noexcept = default;
  ~typed_stream_case() = default;

  void prepare() noexcept { prepare_for(shown_object(stream_->next_layer())); }

  void taken() {
    if (yields) {
      const this_fiber::shield keeps_the_bytes;
      this_fiber::yield();
    }
    if constexpr (takes_error) {
      static_cast<void>(f_(error, transferred));
    } else {
      if (error) throw boost::system::system_error(error, Reads ? "on_read" : "on_write");
      if constexpr (takes_size) {
        static_cast<void>(f_(transferred));
      } else {
        static_cast<void>(f_());
      }
    }
  }

  stream_side& side() const noexcept override { return stream_access::side(*stream_, Reads); }

  boost::asio::any_io_executor executor() const override { return stream_->get_executor(); }

  void set_up() override { stream_access::set_up(*stream_); }

  bool is_ready() override {
    return boost::asio::buffer_size(buffers_) == 0 || stream_access::is_ready<Reads>(*stream_);
  }

  std::size_t transfer(boost::system::error_code& e) override {
    return stream_access::transfer<Reads>(*stream_, buffers_, e);
  }

  void begin_wait() override { stream_access::begin_wait<Reads>(*stream_); }

  void end_wait() override { stream_access::end_wait<Reads>(*stream_); }

  void idle_begins() noexcept override { stream_access::idle_begins(*stream_); }

  bool has_idle_list() const noexcept override { return stream_access::has_idle_list(*stream_); }

  void idle_ends() noexcept override { stream_access::idle_ends(*stream_); }

 private:
  deadline_stream<Stream>* stream_;
  Buffers buffers_;
  [[no_unique_address]] F f_;
};

}  // namespace VIGIL_IO_DETAIL
