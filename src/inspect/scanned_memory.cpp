#include "inspect/scanned_memory.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/machine/sanitizer.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr std::uintptr_t page_bytes = 4096;
constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
constexpr std::size_t pages_at_once = 512;
constexpr std::uintptr_t word_step = 4;

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
      bytes_(static_cast<std::byte*>(memory.allocate(buffer_bytes, page_bytes))),
      page_entries_(static_cast<std::uint64_t*>(
          memory.allocate(pages_at_once * sizeof(std::uint64_t), page_bytes))),
      in_core_(static_cast<unsigned char*>(memory.allocate(pages_at_once, page_bytes))),
      is_there_(static_cast<bool*>(memory.allocate(pages_at_once, page_bytes))) {}

void memory_scan::look_at(std::uintptr_t at, std::size_t bytes) {
  for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= bytes; i += word_step) {
    std::uintptr_t value = 0;
    std::memcpy(&value, bytes_ + i, sizeof value);
    value &= address_bits;
    const std::size_t target = targets_.find(value);
    if (target != target_list::none) visitor_.visit({at + i, value, target});
  }
}

void memory_scan::scan(const memory_range& r) {
  constexpr std::uintptr_t word = sizeof(std::uintptr_t);
  std::uintptr_t at = (r.begin + word_step - 1) / word_step * word_step;
  const std::uintptr_t end = r.end / word_step * word_step;
  while (at + word <= end) {
    std::size_t n = std::min<std::size_t>(end - at, buffer_bytes);
    if (!read_memory(reinterpret_cast<const void*>(at), bytes_, n)) {
      // Some page in it cannot be read. A word may lie across the end of this one.
      const std::size_t of_page = page_bytes - at % page_bytes;
      n = std::min(n, std::max<std::size_t>(of_page, word));
      if (!read_memory(reinterpret_cast<const void*>(at), bytes_, n)) {
        at += of_page;
        continue;
      }
    }
    look_at(at, n);
    if (at + n >= end) return;
    at += n - (word - word_step);  // a word may begin in this piece, and end in the next
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
    if (no_program_memory.has(m.range.begin)) continue;
    m.is_shared = rights[3] == 's';
    m.is_changed_only = rights[1] != 'w' && has_file;
    if (m.is_changed_only && m.is_shared) continue;
    out.push_back(m);
  }
  return true;
}

// Notes in is_there_ which pages have memory, and returns their number. A page of a
// shared mapping may be there without an entry of this process.
std::size_t memory_scan::pages_there(std::uintptr_t at,
                                     std::size_t pages,
                                     const mapping& m) noexcept {
  constexpr std::uint64_t present = std::uint64_t{1} << 63;
  constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
  constexpr std::uint64_t files_own = std::uint64_t{1} << 61;
  const std::size_t bytes = pages * sizeof(std::uint64_t);
  const auto offset = static_cast<off_t>(at / page_bytes * sizeof(std::uint64_t));
  const bool is_known = page_map_ >= 0 && ::pread(page_map_, page_entries_, bytes, offset) ==
                                              static_cast<ssize_t>(bytes);
  const bool has_core =
      m.is_shared && ::mincore(reinterpret_cast<void*>(at), pages * page_bytes, in_core_) == 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < pages; ++i) {
    const std::uint64_t entry = is_known ? page_entries_[i] : present;
    bool is_there = (entry & (present | swapped)) != 0;
    if (m.is_changed_only) is_there = is_there && (entry & files_own) == 0;
    if (has_core) is_there = (is_known && is_there) || (in_core_[i] & 1) != 0;
    is_there_[i] = is_there;
    count += is_there ? 1 : 0;
  }
  return count;
}

// Pages that have never been touched hold nothing, and are not to be made.
void memory_scan::scan_present(const memory_range& r, const mapping& m) {
  constexpr std::uintptr_t piece = pages_at_once * page_bytes;
  const std::uintptr_t first = r.begin / page_bytes * page_bytes;
  bool goes_on = false;  // the page before this piece is there
  for (std::uintptr_t at = first; at < r.end; at += piece) {
    const std::size_t pages =
        std::min<std::size_t>((r.end - at + page_bytes - 1) / page_bytes, pages_at_once);
    const bool went_on = std::exchange(goes_on, false);
    if (pages_there(at, pages, m) == 0) continue;
    goes_on = is_there_[pages - 1];
    for (std::size_t i = 0; i < pages;) {
      std::size_t n = 0;
      while (i + n < pages && is_there_[i + n])
        ++n;
      if (n != 0) {
        // A word may lie across the end of the piece before.
        const std::uintptr_t before = i == 0 && went_on ? word_step : 0;
        const std::uintptr_t begin = std::max(at + i * page_bytes - before, r.begin);
        scan({begin, std::min(at + (i + n) * page_bytes, r.end)});
      }
      i += n + 1;
    }
  }
}

void memory_scan::scan_mapping(const mapping& m) {
  std::uintptr_t at = m.range.begin;
  const auto piece = [&](std::uintptr_t end) {
    if (at < end) scan_present({at, end}, m);
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

}  // namespace VIGIL_DETAIL
