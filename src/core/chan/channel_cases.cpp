// The tables of on_recv() and on_send().
#include "core/chan/channel_core.hpp"
#include "core/sched/wait/case_table.hpp"

#include <vigil/detail/select_case.hpp>

namespace VIGIL_DETAIL {
namespace {

channel_core& channel_of(void* object) noexcept {
  return *static_cast<channel_core*>(object);
}

case_lock lock_of_channel(void* object) noexcept {
  return case_lock(channel_of(object).lock);
}

void end_of_wait(select_case& c) noexcept {
  c.status = detail::place_of<queued_case>(c).ended_with();
}

template <direction d>
struct channel_case {
  static bool look(select_case& c) noexcept {
    c.status = try_operate(&channel_of(c.object), d, c.value);
    return c.status != channel_status::not_ready;
  }

  static bool poll(select_case& c, wake_list& claimed) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    const attempt done = channel_of(c.object).try_now(d, c.value);
    c.status = done.status;
    if (done.peer != nullptr) claimed.add(*done.peer);
    return c.status != channel_status::not_ready;
  }

  static bool enqueue(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    auto& place = detail::make_place<queued_case>(c);
    place.value = c.value;
    if (channel_of(c.object).enqueue(d, place)) return true;
    c.status = channel_status::closed;
    return false;
  }

  static void retract(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    channel_of(c.object).dequeue(d, detail::place_of<queued_case>(c));
  }

  static constexpr case_table table(wait_reason reason) noexcept {
    return {reason, 0, look, lock_of_channel, poll, enqueue, retract, end_of_wait};
  }
};

}  // namespace

constexpr case_table recv_case_table = channel_case<direction::recv>::table(wait_reason::recv);
constexpr case_table send_case_table = channel_case<direction::send>::table(wait_reason::send);

}  // namespace VIGIL_DETAIL
