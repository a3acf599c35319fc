#include "inspect/trace_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// `error`: an argument, so that nothing changes errno before it is read.
[[noreturn]] void throw_failure(int error, const std::string& name) {
  throw std::system_error(error, std::generic_category(), name + " cannot be written");
}

// Even a link that leads nowhere counts.
bool is_there(const std::string& name) noexcept {
  struct stat ignored = {};
  return ::lstat(name.c_str(), &ignored) == 0;
}

// The file while it is not whole, unless its number is taken. The destructor removes it
// unless it has been renamed.
class part_file {
 public:
  explicit part_file(std::string whole) : whole_(std::move(whole)), name_(whole_ + ".part") {
    if (is_there(whole_)) return;
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) throw_failure(errno, name_);
    is_ours_ = fd_ >= 0;
  }

  ~part_file() {
    if (fd_ >= 0) ::close(fd_);
    if (is_ours_) ::unlink(name_.c_str());
  }

  part_file(const part_file&) = delete;
  part_file& operator=(const part_file&) = delete;

  // The whole file may have come between the two looks of the constructor.
  bool has_number() const noexcept { return is_ours_ && !is_there(whole_); }

  // Some file systems tell only at the end that they are full.
  void write_and_close(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd_, bytes.data() + at, bytes.size() - at);
      if (n < 0 && errno != EINTR) throw_failure(errno, name_);
      if (n > 0) at += static_cast<std::size_t>(n);
    }
    if (::close(std::exchange(fd_, -1)) != 0) throw_failure(errno, name_);
  }

  void rename() {
    if (std::rename(name_.c_str(), whole_.c_str()) != 0) throw_failure(errno, whole_);
    is_ours_ = false;
  }

 private:
  const std::string whole_;
  const std::string name_;
  int fd_ = -1;
  bool is_ours_ = false;
};

}  // namespace

numbered_file write_trace_file(const std::string& path,
                               std::size_t first,
                               const std::string& bytes) {
  for (std::size_t number = first;; ++number) {
    const std::string name = path + std::to_string(number) + ".pftrace";
    part_file part(name);
    if (!part.has_number()) continue;
    part.write_and_close(bytes);
    part.rename();
    return {name, number};
  }
}

}  // namespace VIGIL_DETAIL
