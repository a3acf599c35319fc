// The name of a signal for messages: "SIGTERM", or "signal 34".
#pragma once

#include <vigil/detail/config.hpp>

#include <csignal>
#include <cstdio>

namespace VIGIL_DETAIL {

struct signal_name {
  explicit signal_name(int signal) noexcept {
    struct known {
      int number;
      const char* name;
    };

    constexpr known all[] = {{SIGINT, "SIGINT"},
                             {SIGTERM, "SIGTERM"},
                             {SIGHUP, "SIGHUP"},
                             {SIGQUIT, "SIGQUIT"},
                             {SIGUSR1, "SIGUSR1"},
                             {SIGUSR2, "SIGUSR2"}};
    for (const known& one : all) {
      if (one.number == signal) std::snprintf(text, sizeof text, "%s", one.name);
    }
    if (text[0] == '\0') std::snprintf(text, sizeof text, "signal %d", signal);
  }

  char text[24] = "";
};

}  // namespace VIGIL_DETAIL
