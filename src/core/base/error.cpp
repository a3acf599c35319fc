#include <vigil/detail/duration.hpp>
#include <vigil/error.hpp>

#include <utility>

namespace VIGIL_PUBLIC {

cancelled::cancelled(const char* message)
    : std::system_error(std::make_error_code(std::errc::operation_canceled), message) {}

cancelled::cancelled(std::error_code code,
                     const char* message,
                     std::exception_ptr cause,
                     bool by_shutdown)
    : std::system_error(code, message), cause_(std::move(cause)), by_shutdown_(by_shutdown) {}

cancelled::~cancelled() = default;

deadlock::deadlock(const char* message) : std::logic_error(message) {}

deadlock::~deadlock() = default;

channel_closed::channel_closed(const char* message) : std::logic_error(message) {}

channel_closed::~channel_closed() = default;

runtime_gone::runtime_gone(const char* message) : std::logic_error(message) {}

runtime_gone::~runtime_gone() = default;

wrong_place::wrong_place(const char* message) : std::logic_error(message) {}

wrong_place::~wrong_place() = default;

limit_reached::limit_reached(const char* message) : std::runtime_error(message) {}

limit_reached::~limit_reached() = default;

namespace detail {

void throw_not_a_duration() {
  throw std::invalid_argument("vigil: the duration is not a number (NaN)");
}

}  // namespace detail
}  // namespace VIGIL_PUBLIC
