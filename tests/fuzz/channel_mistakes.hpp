// Calls of channels, selects and contexts that need no model: those that throw, or are of
// no value at all, and waits for the ends of fibers.
#pragma once

#include "fuzz/channel_model.hpp"
#include "fuzz/context_model.hpp"
#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/cases.hpp>
#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/select.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace fuzz {

inline void call_wrongly() {
  using nil = vigil::channel<value_id>;
  const auto refused = [](auto call) { return throws<std::invalid_argument>(call); };
  expect(refused([] { static_cast<void>(vigil::with_cancel(vigil::context())); }),
         "below a nil context");
  expect(refused([] { static_cast<void>(vigil::with_value(vigil::context(), context_value, 1)); }),
         "of nil");
  expect(throws<std::logic_error>([] { nil().close(); }), "close() of a nil channel");
  const auto too_large = [](auto call) { return throws<std::length_error>(call); };
  expect(too_large([] { vigil::make_channel<value_id>(SIZE_MAX / 2); }), "bytes that overflow");
  expect(too_large([] { vigil::make_channel<value_id>(SIZE_MAX / 8 + 1); }), "too many bytes");
  expect(too_large([] { vigil::make_channel<void>(SIZE_MAX); }), "too many values");
  expect(nil().size() == 0 && nil().capacity() == 0, "a nil channel");
  expect(refused([] { vigil::select(vigil::otherwise(), vigil::otherwise()); }), "two otherwise");
  const auto empty = vigil::make_channel<void>(1);
  vigil::case_list cases;
  const auto within = [&cases] { vigil::select(cases); };
  cases.add(vigil::on_recv(empty, [&](bool) {
    expect(throws<std::logic_error>(within), "a select within its own select");
  }));
  {
    const vigil::scoped_close closes(empty);
    expect(empty.try_send() && !empty.try_send() && empty.try_recv(), "a channel of nothing");
    expect(!empty.try_recv(), "a channel of nothing is empty");
  }
  expect(vigil::select(cases) == 0, "a select from a closed channel");
}

// Gives a select a time with a context, as wait_any alone does.
inline void wait_for_ends() {
  const vigil::cancellable c = vigil::with_cancel(vigil::background());
  vigil::fiber<> ends = vigil::spawn([] {});
  expect(vigil::wait_any(c.ctx, ends) == 0, "the end of a fiber");
  vigil::fiber<> lasts = vigil::spawn([] { vigil::make_channel<void>().recv(); });
  c.cancel();
  expect(throws<vigil::cancelled>([&] { vigil::wait_any(c.ctx, lasts); }), "a wait_any ends");
}

}  // namespace fuzz
