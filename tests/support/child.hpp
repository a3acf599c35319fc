// Runs one test case of this executable in a process of its own.
//
// The case is marked with doctest::skip(), so that only run_child() starts it; its name
// must contain neither a comma nor an asterisk.
#pragma once

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vigil::testing_support {

struct child_result {
  int status = 0;      // as waitpid() returns it
  std::string output;  // of stdout and stderr

  bool succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

  bool died_by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

  bool says(const char* text) const { return output.find(text) != std::string::npos; }

  // The line `skipped: REASON` of a child that cannot do its work on this machine, or
  // nothing. The parent repeats it by MESSAGE, for tools/count_tests.py.
  std::string skipped() const {
    const std::size_t begin = output.find("skipped: ");
    return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
  }
};

// Runs this executable again in place of the process, with these arguments: through the
// emulator if MESON_EXE_WRAPPER names one, as meson does where it needs one.
[[noreturn]] inline void exec_self(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  char self[4096] = "child";
  if (const char* const wrapper = std::getenv("MESON_EXE_WRAPPER")) {
    std::istringstream parts(wrapper);
    for (std::string word; parts >> word;)
      words.push_back(word);
    static_cast<void>(!::readlink("/proc/self/exe", self, sizeof self - 1));
  }
  const bool is_emulated = !words.empty();
  words.emplace_back(self);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> line;
  for (std::string& word : words)
    line.push_back(word.data());
  line.push_back(nullptr);
  ::execvp(is_emulated ? line.front() : "/proc/self/exe", line.data());
  ::_exit(127);
}

inline child_result run_child(
    const char* test_case,
    const std::vector<std::pair<const char*, const char*>>& environment = {}) {
  child_result result;
  int ends[2];
  if (::pipe(ends) != 0) return result;
  const std::string filter = std::string("--test-case=") + test_case;
  const pid_t child = ::fork();
  if (child == 0) {
    // A shell that runs the tests in the background has set these to ignored.
    for (const int signal : {SIGQUIT, SIGINT, SIGTERM})
      std::signal(signal, SIG_DFL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    ::close(ends[1]);
    for (const auto& [name, value] : environment)
      ::setenv(name, value, 1);
    exec_self({filter, "--no-skip"});
  }
  ::close(ends[1]);
  char text[4096];
  for (ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;) {
    result.output.append(text, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  ::waitpid(child, &result.status, 0);
  return result;
}

}  // namespace vigil::testing_support
