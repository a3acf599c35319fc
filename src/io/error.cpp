#include <vigil/io/detail/error.hpp>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include <boost/asio/experimental/channel_error.hpp>
#include <boost/system/errc.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO_DETAIL {

bool means_cancelled(const boost::system::error_code& code) noexcept {
  return code == boost::system::errc::operation_canceled ||  // matches operation_aborted
         code == boost::asio::experimental::channel_errc::channel_cancelled;
}

bool means_cancelled(const std::exception_ptr& error) noexcept {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& e) {
    return means_cancelled(e.code());
  } catch (const std::system_error& e) {
    return e.code() == std::errc::operation_canceled;
  } catch (...) {
    return false;
  }
}

namespace {

// The destructors of Boost's base classes are deliberately not virtual.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"

// time_category differs from the system's category only in the message, and is equal to
// it, since Boost.System compares categories by their id. So code that tests for
// timed_out, or for errc::timed_out, need not know of it.
class time_category final : public boost::system::detail::system_error_category {
 public:
  explicit constexpr time_category(const char* message) noexcept : message_(message) {}

  std::string message(int code) const override {
    return code == ETIMEDOUT ? message_ : system_error_category::message(code);
  }

  const char* message(int code, char* buffer, std::size_t size) const noexcept override {
    if (code != ETIMEDOUT) return system_error_category::message(code, buffer, size);
    std::snprintf(buffer, size, "%s", message_);
    return buffer;
  }

 private:
  const char* message_;
};

#pragma GCC diagnostic pop

// Their destruction has no effect: they own nothing.
constinit const time_category categories[] = {
    time_category("vigil: the time given to use_fiber.within is over"),
    time_category("vigil: the deadline given to use_fiber.until has passed"),
    time_category("vigil: the read deadline of the deadline_stream has passed"),
    time_category("vigil: the write deadline of the deadline_stream has passed"),
    time_category("vigil: nothing was read or written for as long as the idle_list allows"),
};

}  // namespace

boost::system::error_code timed_out_by(time_of limit) noexcept {
  return {ETIMEDOUT, categories[static_cast<std::size_t>(limit)]};
}

}  // namespace VIGIL_IO_DETAIL
