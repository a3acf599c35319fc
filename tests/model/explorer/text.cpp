// Text for people to read and give back: schedules and traces.
#include "explorer/engine.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace model {
namespace {

// "idle.cpp:42" for each address: the innermost place that is not in a header of the
// compiler's.
std::map<const void*, std::string> source_lines(const std::set<const void*>& codes) {
  std::map<const void*, std::string> lines;
  const int file = ::memfd_create("addresses", MFD_CLOEXEC);
  if (file < 0) return lines;
  std::vector<const void*> asked;
  for (const void* const code : codes) {
    lines[code] = "?";
    Dl_info info{};
    if (::dladdr(code, &info) == 0) continue;
    asked.push_back(code);
    ::dprintf(file,
              "%#lx\n",
              static_cast<unsigned long>(static_cast<const char*>(code) -
                                         static_cast<const char*>(info.dli_fbase) - 1));
  }
  // The output has for each its address first, on a line of its own, then the places,
  // innermost first.
  const std::string self = "/proc/" + std::to_string(::getpid());
  const std::string command = "addr2line -a -i -e " + self + "/exe < " + self + "/fd/" +
                              std::to_string(file) + " 2>/dev/null";
  if (std::FILE* const f = ::popen(command.c_str(), "r")) {
    char text[512];
    std::size_t at = 0;
    bool named = true;
    while (std::fgets(text, sizeof text, f) != nullptr) {
      const std::string whole(text, std::strcspn(text, "\n"));
      if (whole.compare(0, 2, "0x") == 0) {
        ++at;
        named = false;
      } else if (!named && at <= asked.size() && whole.find("/include/c++/") == std::string::npos) {
        const std::string line = whole.substr(whole.find_last_of('/') + 1);
        lines[asked[at - 1]] = line.substr(0, line.find(' '));
        named = true;
      }
    }
    ::pclose(f);
  }
  ::close(file);
  return lines;
}

}  // namespace

// "w" first if the program uses windows; then "3x12" is twelve decisions in a
// row that took number 3.
std::string engine::schedule_text() const {
  std::string text = uses_windows_ ? "w" : "a";
  std::size_t i = 0;
  while (i < depth_) {
    const auto value = [this](std::size_t k) {
      const decision& d = path_[k];
      return d.what == decision::kind::thread ? std::uint16_t{d.taken} : d.chosen;
    };
    std::size_t n = 1;
    while (i + n < depth_ && value(i + n) == value(i))
      ++n;
    text += " " + std::to_string(value(i)) + (n > 1 ? "x" + std::to_string(n) : "");
    i += n;
  }
  return text;
}

void engine::parse_schedule(const std::string& text) {
  script_.clear();
  uses_windows_ = !text.empty() && text[0] == 'w';
  const char* at = text.c_str();
  if (*at != '\0') ++at;
  while (*at != '\0') {
    char* end = nullptr;
    const unsigned long value = std::strtoul(at, &end, 10);
    if (end == at) break;
    at = end;
    unsigned long n = 1;
    if (*at == 'x') {
      n = std::strtoul(at + 1, &end, 10);
      at = end;
    }
    script_.insert(script_.end(), n, static_cast<std::uint16_t>(value));
    while (*at == ' ')
      ++at;
  }
}

void engine::write_trace(const void* from, const char* format, ...) {
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  trace_.push_back({current_, from, text});
}

// Each line has the thread, the place in the source and the operation.
std::string engine::trace_text() const {
  std::string whole;
  std::set<const void*> codes;
  for (const trace_line& line : trace_)
    codes.insert(line.from);
  const auto names = source_lines(codes);
  for (const trace_line& line : trace_) {
    char text[400];
    std::snprintf(text,
                  sizeof text,
                  "%*sthread %u  %-28s %s\n",
                  static_cast<int>(line.thread * 2),
                  "",
                  line.thread,
                  names.at(line.from).c_str(),
                  line.text.c_str());
    whole += text;
  }
  return whole;
}

}  // namespace model
