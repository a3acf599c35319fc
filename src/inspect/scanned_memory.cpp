#include "inspect/scanned_memory.hpp"

#include "inspect/foreign_memory.hpp"
#include "machine/sanitizer.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

constexpr std::uintptr_t page_size = 4096;
constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
constexpr std::size_t pages_at_once = 512;

// The upper bits may hold a tag.
constexpr std::uintptr_t address_bits = (std::uintptr_t{1} << 48) - 1;

#if VIGIL_ASAN
// AddressSanitizer's shadow has no pointers, and is too large to be read.
constexpr memory_range no_program_memory{0x7fff'8000, 0x1000'7fff'8000};
#else
constexpr memory_range no_program_memory{};
#endif

struct open_file {
  explicit open_file(const char* path) noexcept : fd(::open(path, O_RDONLY | O_CLOEXEC)) {}

  ~open_file() {
    if (fd >= 0) ::close(fd);
  }

  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;

  const int fd;
};

// The next field of a line of /proc/self/maps.
std::string_view take_field(std::string_view& line) noexcept {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  line.remove_prefix(begin);
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(end);
  return field;
}

bool read_range(std::string_view text, memory_range& out) noexcept {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.begin, 16);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return false;
  return std::from_chars(first.ptr + 1, end, out.end, 16).ec == std::errc();
}

}  // namespace

own_memory::own_memory(std::size_t bytes) : size_(bytes) {
  void* const at = ::mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(at);
}

own_memory::~own_memory() {
  ::munmap(begin_, size_);
}

void* own_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t at = (used_ + alignment - 1) / alignment * alignment;
  if (at > size_ || bytes > size_ - at) throw std::bad_alloc();
  used_ = at + bytes;
  return begin_ + at;
}

void target_list::sort() noexcept {
  std::sort(targets_.begin(), targets_.end(), [](const target& a, const target& b) {
    return a.range.begin < b.range.begin;
  });
  if (!targets_.empty()) all_ = {targets_.front().range.begin, targets_.back().range.end};
}

std::size_t target_list::find(std::uintptr_t address) const noexcept {
  if (!all_.has(address)) return none;
  auto after = std::upper_bound(
      targets_.begin(), targets_.end(), address, [](std::uintptr_t a, const target& t) {
        return a < t.range.begin;
      });
  if (after == targets_.begin()) return none;
  --after;
  return after->range.has(address) ? after->number : none;
}

memory_scan::memory_scan(own_memory& memory, const target_list& targets, word_visitor& visitor)
    : memory_(memory),
      targets_(targets),
      visitor_(visitor),
      left_out_(&memory),
      words_(static_cast<std::uintptr_t*>(memory.allocate(buffer_bytes, page_size))),
      page_entries_(static_cast<std::uint64_t*>(
          memory.allocate(pages_at_once * sizeof(std::uint64_t), page_size))) {}

void memory_scan::look_at(std::uintptr_t at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / sizeof(std::uintptr_t); ++i) {
    const std::uintptr_t value = words_[i] & address_bits;
    const std::size_t target = targets_.find(value);
    if (target != target_list::none)
      visitor_.visit({at + i * sizeof(std::uintptr_t), value, target});
  }
}

void memory_scan::scan(const memory_range& r) {
  constexpr std::uintptr_t align = sizeof(std::uintptr_t);
  std::uintptr_t at = (r.begin + align - 1) / align * align;
  const std::uintptr_t end = r.end / align * align;
  while (at < end) {
    std::size_t n = std::min<std::size_t>(end - at, buffer_bytes);
    if (!read_memory(reinterpret_cast<const void*>(at), words_, n)) {
      // Some page in it cannot be read.
      n = std::min<std::size_t>(n, page_size - at % page_size);
      if (!read_memory(reinterpret_cast<const void*>(at), words_, n)) {
        at += n;
        continue;
      }
    }
    look_at(at, n);
    at += n;
  }
}

bool memory_scan::read_mappings(own_vector<mapping>& out) {
  const open_file maps("/proc/self/maps");
  if (maps.fd < 0) return false;
  constexpr std::size_t most = std::size_t{4} << 20;
  char* const text = static_cast<char*>(memory_.allocate(most, 1));
  std::size_t size = 0;
  while (size < most) {
    const ssize_t n = ::read(maps.fd, text + size, most - size);
    if (n < 0) return false;
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size == most) return false;
  for (std::string_view rest(text, size); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    mapping m;
    if (!read_range(take_field(line), m.range)) return false;
    const std::string_view rights = take_field(line);
    take_field(line);  // offset
    take_field(line);  // device
    const bool has_file = take_field(line) != "0";
    const std::string_view name = take_field(line);
    const bool is_kernels =
        name == "[vvar]" || name == "[vdso]" || name == "[vsyscall]" || name == "[vvar_vclock]";
    if (rights.size() < 4 || rights[0] != 'r' || is_kernels) continue;
    if (rights[1] != 'w' && has_file) continue;
    if (no_program_memory.has(m.range.begin)) continue;
    m.is_shared = rights[3] == 's';
    out.push_back(m);
  }
  return true;
}

// Private pages that have never been touched hold nothing, and are not to be made.
void memory_scan::scan_present(const memory_range& r) {
  constexpr std::uint64_t present = std::uint64_t{1} << 63;
  constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
  constexpr std::uintptr_t step = pages_at_once * page_size;
  const std::uintptr_t first = r.begin / page_size * page_size;
  for (std::uintptr_t at = first; at < r.end; at += step) {
    const std::size_t pages =
        std::min<std::size_t>((r.end - at + page_size - 1) / page_size, pages_at_once);
    const std::size_t bytes = pages * sizeof(std::uint64_t);
    const auto offset = static_cast<off_t>(at / page_size * sizeof(std::uint64_t));
    const bool is_known =
        ::pread(page_map_, page_entries_, bytes, offset) == static_cast<ssize_t>(bytes);
    for (std::size_t i = 0; i < pages;) {
      std::size_t n = 0;
      while (i + n < pages && (!is_known || (page_entries_[i + n] & (present | swapped)) != 0))
        ++n;
      if (n != 0) {
        const std::uintptr_t begin = std::max(at + i * page_size, r.begin);
        scan({begin, std::min(at + (i + n) * page_size, r.end)});
      }
      i += n + 1;
    }
  }
}

void memory_scan::scan_mapping(const mapping& m) {
  std::uintptr_t at = m.range.begin;
  const auto piece = [&](std::uintptr_t end) {
    if (at >= end) return;
    if (m.is_shared || page_map_ < 0) {
      scan({at, end});
    } else {
      scan_present({at, end});
    }
  };
  for (const memory_range& out : left_out_) {
    if (out.end <= at) continue;
    if (out.begin >= m.range.end) break;
    piece(out.begin);
    at = std::max(at, out.end);
  }
  piece(m.range.end);
}

bool memory_scan::scan_process() {
  std::sort(left_out_.begin(), left_out_.end(), [](const memory_range& a, const memory_range& b) {
    return a.begin < b.begin;
  });
  own_vector<mapping> mappings(&memory_);
  if (!read_mappings(mappings)) return false;
  const open_file page_map("/proc/self/pagemap");
  page_map_ = page_map.fd;
  for (const mapping& m : mappings)
    scan_mapping(m);
  page_map_ = -1;
  return true;
}

}  // namespace vigil::inline VIGIL_ABI::detail
