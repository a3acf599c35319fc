// operation_slot: the cancellation slot of an operation's handler. Asio puts into it how
// one step is cancelled: on a socket, the descriptor for which its reactor waits. So
// dumps learn of it, which Asio's objects do not tell.
#pragma once

#include <vigil/io/detail/config.hpp>
#include <vigil/io/detail/operation.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/cancellation_signal.hpp>

namespace VIGIL_IO_DETAIL {

template <class... Args>
inline constexpr bool tells_descriptor = false;

template <class Reactor, class Data, class Kind>
inline constexpr bool tells_descriptor<Reactor*, Data*, int, Kind> = requires {
  Reactor::read_op;
  requires std::is_same_v<Data, typename Reactor::per_descriptor_data>;
};

class operation_slot {
 public:
  operation_slot() noexcept = default;

  explicit operation_slot(operation& o) noexcept : operation_(&o), slot_(slot_of(o)) {}

  template <class Handler, class... Args>
  Handler& emplace(Args&&... args) {
    if constexpr (tells_descriptor<std::decay_t<Args>...>) {
      note_descriptor(*operation_, std::get<2>(std::tie(args...)));
    } else {
      forget_descriptor();
    }
    return slot_.template emplace<Handler>(std::forward<Args>(args)...);
  }

  template <class Handler>
  std::decay_t<Handler>& assign(Handler&& h) {
    return emplace<std::decay_t<Handler>>(std::forward<Handler>(h));
  }

  // For code that knows no other slots.
  operator boost::asio::cancellation_slot() const noexcept {
    forget_descriptor();
    return slot_;
  }

  void clear() {
    forget_descriptor();
    slot_.clear();
  }

  bool is_connected() const noexcept { return slot_.is_connected(); }

  bool has_handler() const noexcept { return slot_.has_handler(); }

  friend bool operator==(const operation_slot&, const operation_slot&) noexcept = default;

 private:
  // Another step begins, or none.
  void forget_descriptor() const noexcept {
    if (operation_ != nullptr) note_descriptor(*operation_, -1);
  }

  operation* operation_ = nullptr;
  boost::asio::cancellation_slot slot_;
};

}  // namespace VIGIL_IO_DETAIL
