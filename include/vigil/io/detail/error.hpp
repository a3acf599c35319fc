// The error codes of waits that were cut short.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/config.hpp>

#include <cstdint>
#include <exception>

#include <boost/system/error_code.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

// Whether an operation that was asked to end says so: operation_aborted, an Asio
// channel's channel_cancelled, whatever equals errc::operation_canceled; an exception
// whose code is one of these.
VIGIL_API bool means_cancelled(const boost::system::error_code& code) noexcept;
VIGIL_API bool means_cancelled(const std::exception_ptr& error) noexcept;

// Whose time is over. The code of each equals boost::asio::error::timed_out; its message
// says which one it is, where that of the system is "Connection timed out".
enum class time_of : std::uint8_t { within, until, read, write, idle };

VIGIL_API boost::system::error_code timed_out_by(time_of limit) noexcept;

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
