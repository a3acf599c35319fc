// Includes the headers that most programs use. To stay light it leaves out
// single_flight.hpp, stop_token.hpp (which needs <stop_token>), testing.hpp (virtual
// time) and io/, which is a separate library.
#pragma once

#include <vigil/blocking.hpp>
#include <vigil/cases.hpp>
#include <vigil/channel.hpp>
#include <vigil/clock.hpp>
#include <vigil/clocks.hpp>
#include <vigil/context.hpp>
#include <vigil/debug.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/fwd.hpp>
#include <vigil/group.hpp>
#include <vigil/post.hpp>
#include <vigil/rate_limiter.hpp>
#include <vigil/runtime.hpp>
#include <vigil/select.hpp>
#include <vigil/signals.hpp>
#include <vigil/stats.hpp>
#include <vigil/sync.hpp>
#include <vigil/ticker.hpp>
#include <vigil/time.hpp>
#include <vigil/timeout_list.hpp>
#include <vigil/timer.hpp>
#include <vigil/version.hpp>
