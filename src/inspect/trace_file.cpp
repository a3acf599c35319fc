#include "inspect/trace_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// `error`: an argument, so that nothing changes errno before it is read.
[[noreturn]] void throw_failure(int error, const std::string& name) {
  throw std::system_error(error, std::generic_category(), name + " cannot be written");
}

// The file while it is not whole. It goes at the end unless it has been renamed.
class part_file {
 public:
  explicit part_file(const std::string& whole) : name_(whole + ".part") {
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) throw_failure(errno, name_);
  }

  ~part_file() {
    if (fd_ >= 0) ::close(fd_);
    if (!is_renamed_) ::unlink(name_.c_str());
  }

  part_file(const part_file&) = delete;
  part_file& operator=(const part_file&) = delete;

  // Some file systems tell only at the end that they are full.
  void write_and_close(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd_, bytes.data() + at, bytes.size() - at);
      if (n < 0 && errno != EINTR) throw_failure(errno, name_);
      if (n > 0) at += static_cast<std::size_t>(n);
    }
    if (::close(std::exchange(fd_, -1)) != 0) throw_failure(errno, name_);
  }

  void rename_to(const std::string& whole) {
    if (std::rename(name_.c_str(), whole.c_str()) != 0) throw_failure(errno, whole);
    is_renamed_ = true;
  }

 private:
  std::string name_;
  int fd_ = -1;
  bool is_renamed_ = false;
};

}  // namespace

void write_trace_file(const std::string& name, const std::string& bytes) {
  part_file part(name);
  part.write_and_close(bytes);
  part.rename_to(name);
}

}  // namespace vigil::inline VIGIL_ABI::detail
