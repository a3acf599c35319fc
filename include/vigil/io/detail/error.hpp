// The error codes of waits that were cut short.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>

#include <cstdint>
#include <exception>
#include <type_traits>

#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io::inline VIGIL_ABI::detail {

// Whether an operation that was asked to end says so: operation_aborted, an Asio
// channel's channel_cancelled, whatever equals errc::operation_canceled; an exception
// whose code is one of these.
VIGIL_API bool means_cancelled(const boost::system::error_code& code) noexcept;
VIGIL_API bool means_cancelled(const std::exception_ptr& error) noexcept;

// Whose time is over. The code of each equals boost::asio::error::timed_out; its message
// says which one it is, where that of the system is "Connection timed out".
enum class time_of : std::uint8_t { within, until, read, write, idle };

VIGIL_API boost::system::error_code timed_out_by(time_of limit) noexcept;

// The form of a call that throws.
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

}  // namespace vigil::io::inline VIGIL_ABI::detail
