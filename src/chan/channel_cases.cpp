// The tables of on_recv() and on_send().
#include "chan/channel_core.hpp"
#include "sched/wait/case_table.hpp"

#include <vigil/detail/select_case.hpp>

namespace VIGIL_DETAIL {
namespace {

channel_core& channel_of(void* object) noexcept {
  return *static_cast<channel_core*>(object);
}

channel_core& channel_of(const select_case& c) noexcept {
  return channel_of(c.object);
}

case_lock lock_of_channel(void* object) noexcept {
  return case_lock(channel_of(object).lock);
}

void retain_channel(void* object) noexcept {
  detail::retain(&channel_of(object));
}

void release_channel(void* object) noexcept {
  detail::release(&channel_of(object));
}

queued_case& new_place(select_case& c) noexcept {
  auto& place = detail::make_place<queued_case>(c);
  place.value = c.value;
  return place;
}

void end_of_wait(select_case& c) noexcept {
  c.status = detail::place_of<queued_case>(c).status;
}

bool is_taken(select_case& c, const attempt& done, wake_list& told) noexcept {
  if (done.status == channel_status::not_ready) return false;
  c.status = done.status;
  if (done.peer != nullptr) told.add(*done.peer);
  return true;
}

bool look_recv(select_case& c) noexcept {
  c.status = detail::try_recv(&channel_of(c), c.value);
  return c.status != channel_status::not_ready;
}

bool poll_recv(select_case& c, wake_list& told) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return is_taken(c, channel_of(c).recv_now(c.value), told);
}

bool enqueue_recv(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c).wait_to_recv(new_place(c));
  return true;
}

void retract_recv(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c).leave_receivers(detail::place_of<queued_case>(c));
}

bool look_send(select_case& c) noexcept {
  c.status = detail::try_send(&channel_of(c), c.value);
  return c.status != channel_status::not_ready;
}

bool poll_send(select_case& c, wake_list& told) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return is_taken(c, channel_of(c).send_now(c.value), told);
}

bool enqueue_send(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c).wait_to_send(new_place(c));
  return true;
}

void retract_send(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c).leave_senders(detail::place_of<queued_case>(c));
}

}  // namespace

constexpr case_table recv_case_table = {wait_reason::recv,
                                        0,
                                        look_recv,
                                        lock_of_channel,
                                        poll_recv,
                                        enqueue_recv,
                                        retain_channel,
                                        release_channel,
                                        end_of_wait,
                                        retract_recv};
constexpr case_table send_case_table = {wait_reason::send,
                                        0,
                                        look_send,
                                        lock_of_channel,
                                        poll_send,
                                        enqueue_send,
                                        retain_channel,
                                        release_channel,
                                        end_of_wait,
                                        retract_send};

}  // namespace VIGIL_DETAIL
