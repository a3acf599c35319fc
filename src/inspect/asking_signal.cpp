#include "inspect/asking_signal.hpp"

#include "core/base/words.hpp"

#include <csignal>
#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {
namespace {

bool is_handled_by(int number, void (*mine)(int)) noexcept {
  struct sigaction present = {};
  return ::sigaction(number, nullptr, &present) == 0 && present.sa_handler == mine;
}

}  // namespace

void check_asking_signal(const char* call, int number, void (*mine)(int)) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(std::string("vigil::inspect::") + call + ": " + why);
  };
  struct sigaction before = {};
  const bool is_fault = number == SIGSEGV || number == SIGBUS || number == SIGILL ||
                        number == SIGFPE || number == SIGKILL || number == SIGSTOP;
  const std::string shown = std::to_string(number);
  if (is_fault || ::sigaction(number, nullptr, &before) != 0) {
    refuse("there is no signal " + shown + " that a program may handle");
  }
  if (before.sa_handler == SIG_IGN) {
    refuse("the program ignores signal " + shown +
           ", as it does SIGHUP under nohup; give it SIG_DFL first, or name another one");
  }
  if (before.sa_handler != SIG_DFL && before.sa_handler != mine) {
    refuse("the program handles signal " + shown +
           " already, or vigil does for something else; name another one");
  }
}

void take_asking_signal(int number, int given_up, void (*mine)(int)) noexcept {
  if (given_up != 0 && given_up != number && is_handled_by(given_up, mine)) {
    std::signal(given_up, SIG_DFL);
  }
  if (number == 0) return;
  words::signals_may_come();
  struct sigaction action = {};
  action.sa_handler = mine;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(number, &action, nullptr);
}

void act_by_default(int number, void (*mine)(int)) noexcept {
  if (!is_handled_by(number, mine)) return;
  std::signal(number, SIG_DFL);
  std::raise(number);  // comes after the handler
}

}  // namespace VIGIL_DETAIL
