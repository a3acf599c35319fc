// main() of every test executable: doctest, and a clock that ends a hang.
//
// doctest judges a time-out only after the case has ended, so a hang would stay a hang.
// Here SIGALRM names the running case, raises SIGQUIT (a running runtime answers with its
// dump of all fibers), then aborts. It is an alarm and not a thread because some tests
// count the threads of the process. The limit applies to each case and is far above what
// the slowest takes on a busy machine: it ends hangs and measures nothing.
//
// The same text is written when a case crashes. The previous handler (a sanitizer's, or
// the default) then gets the signal as well.
//
// VIGIL_TEST_TIMEOUT   seconds for each case, 900 unless given; 0 means no
//                      limit, for work in a debugger and for long forms
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include "support/note.hpp"
#include "support/running_seed.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <unistd.h>

namespace vigil::testing_support {
std::atomic<std::uint64_t> running_seed{0};

namespace {

std::mutex notes_mutex;
std::vector<const check_note*> notes;

}  // namespace

void check_note::add() {
  const std::lock_guard guard(notes_mutex);
  notes.push_back(this);
}

check_note::~check_note() {
  const std::lock_guard guard(notes_mutex);
  std::erase(notes, this);
}

void check_note::show_all() {
  const std::lock_guard guard(notes_mutex);
  for (const check_note* n : notes)
    std::printf("  note: %s\n", n->text_.c_str());
  std::fflush(stdout);
}

}  // namespace vigil::testing_support

// Read by ThreadSanitizer, which sees neither fences nor what libstdc++ does: the last
// release of the reference count in Asio's any_io_executor is a fence, and libstdc++
// counts the owners of an exception.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:boost::asio::execution::detail::shared_target_executor\n"
         "race:std::__exception_ptr::exception_ptr::_M_release\n";
}

namespace {

// Written on the main thread between cases, read by signal handlers.
char running_case[256] = "";

unsigned seconds_for_each_case() noexcept {
  const char* const seconds = std::getenv("VIGIL_TEST_TIMEOUT");
  return seconds != nullptr ? static_cast<unsigned>(std::strtoul(seconds, nullptr, 10)) : 900;
}

struct case_recorder : doctest::IReporter {
  explicit case_recorder(const doctest::ContextOptions&) {}

  void report_query(const doctest::QueryData&) override {}

  void test_run_start() override {}

  void test_run_end(const doctest::TestRunStats&) override {}

  void test_case_start(const doctest::TestCaseData& data) override {
    std::snprintf(running_case, sizeof running_case, "%s: %s", data.m_test_suite, data.m_name);
    ::alarm(seconds_for_each_case());
  }

  void test_case_reenter(const doctest::TestCaseData&) override {}

  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    ::alarm(0);
    running_case[0] = '\0';
  }

  void test_case_exception(const doctest::TestCaseException&) override {}

  void subcase_start(const doctest::SubcaseSignature&) override {}

  void subcase_end() override {}

  void log_assert(const doctest::AssertData& data) override {
    if (data.m_failed) vigil::testing_support::check_note::show_all();
  }

  void log_message(const doctest::MessageData&) override {}

  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("running case", 1, case_recorder);

void write_text(const char* text) noexcept {
  if (::write(2, text, std::strlen(text)) < 0) return;
}

void write_seed(std::uint64_t seed) noexcept {
  if (seed == 0) return;
  char digits[24];
  char* first = digits + sizeof digits;
  *--first = '\0';
  for (; seed != 0; seed /= 10)
    *--first = static_cast<char>('0' + seed % 10);
  write_text("\n  VIGIL_SEED=");
  write_text(first);
}

void write_running_case(const char* message) noexcept {
  if (running_case[0] == '\0') return;
  write_text("\ntest: ");
  write_text(message);
  write_text(" while running\n  ");
  write_text(running_case);
  write_seed(vigil::testing_support::running_seed.load());
  write_text("\n");
}

void on_alarm(int) {
  write_running_case("out of time (VIGIL_TEST_TIMEOUT)");
  std::raise(SIGQUIT);
  std::abort();
}

constexpr int crash_signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct sigaction earlier[NSIG];

void on_crash(int signal) {
  const int saved = errno;
  write_running_case(signal == SIGABRT ? "aborted" : "crashed");
  // Nothing more to say: the faulting instruction runs again, or abort() continues, and
  // meets the earlier handler.
  ::sigaction(signal, &earlier[signal], nullptr);
  errno = saved;
}

void install_handlers() {
  struct sigaction action {};

  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = on_crash;
  for (const int signal : crash_signals)
    ::sigaction(signal, &action, &earlier[signal]);

  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  install_handlers();
  doctest::Context context;
  context.applyCommandLine(argc, argv);
  return context.run();
}
