// The error codes of waits that ended early.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>

#include <cstdint>
#include <exception>
#include <type_traits>

#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO_DETAIL {

// Whether an error says that an operation was cancelled: operation_aborted, an Asio
// channel's channel_cancelled, any code equal to errc::operation_canceled; or an
// exception with such a code.
VIGIL_API bool means_cancelled(const boost::system::error_code& code) noexcept;
VIGIL_API bool means_cancelled(const std::exception_ptr& error) noexcept;

// The time that is over. Each has a code that equals boost::asio::error::timed_out, with
// a message that says which time it is. (The system's message is "Connection timed out".)
enum class time_of : std::uint8_t { within, until, read, write, idle };

VIGIL_API boost::system::error_code timed_out_by(time_of limit) noexcept;

// Makes the throwing form of a call.
template <class F>
auto or_throw(const char* call, F f) {
  boost::system::error_code error;
  if constexpr (std::is_void_v<decltype(f(error))>) {
    f(error);
    if (error) throw boost::system::system_error(error, call);
  } else {
    const auto result = f(error);
    if (error) throw boost::system::system_error(error, call);
    return result;
  }
}

}  // namespace VIGIL_IO_DETAIL
