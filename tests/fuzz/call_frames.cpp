// Covers: src/inspect/dwarf_reader.hpp src/inspect/frame_rules.cpp
// Covers: src/inspect/frame_step.cpp src/inspect/frame_pointer.cpp
//
// Call frame information (.eh_frame) that is broken, and a stack that is none. The reader
// is handed a section that lies right before a page that cannot be read, with code before
// it; so is the stack. It must end, and a walk must not have more frames than fit.
//
// One half of the inputs are a section as it is. The other half are the parts of a CIE
// and an FDE, which the target puts together; libdw reads these as well. The result of a
// step and the caller's registers must be those that the target computes by libdw's
// operations.
//
// A frame pointer that is found must lie above a return address, behind a call, and lead
// to the bottom of the stack.
//
// glibc is asked for the file of a place by _dl_find_object(), which this program has in
// front of glibc's.
#include "fuzz/input.hpp"
#include "fuzz/libdw_frames.hpp"
#include "inspect/frame_list.hpp"
#include "inspect/frame_pointer.hpp"
#include "inspect/frame_step.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <dwarf.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

using namespace fuzz;
using namespace vigil::detail;

// Memory whose last byte lies before a page that cannot be read.
class guarded {
 public:
  explicit guarded(std::size_t pages) : size_(pages * page) {
    void* const at =
        ::mmap(nullptr, size_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(at != MAP_FAILED && ::mprotect(static_cast<char*>(at) + size_, page, PROT_NONE) == 0,
           "there is memory");
    begin_ = static_cast<std::byte*>(at);
  }

  std::byte* begin() const { return begin_; }

  // Puts the bytes at the end, and zeros before them.
  std::byte* put(std::string_view bytes) {
    expect(bytes.size() <= size_, "there is room");
    std::memset(begin_, 0, size_);
    std::byte* const at = begin_ + size_ - bytes.size();
    std::memcpy(at, bytes.data(), bytes.size());
    return at;
  }

 private:
  static constexpr std::size_t page = 4096;

  const std::size_t size_;
  std::byte* begin_ = nullptr;
};

std::uintptr_t address(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at);
}

constexpr std::size_t code_size = 256;

// The file that the reader is told of: code, and after it, as in a linker's table, the
// address of each byte of the code.
struct loaded_file {
  guarded memory{16};
  std::byte* const code = memory.begin();
  std::byte* table = nullptr;  // .eh_frame_hdr, then .eh_frame
  bool is_loaded = false;

  // After memory.put(), which clears all.
  void put_code(std::string_view bytes) {
    std::memcpy(code, bytes.data(), bytes.size());
    std::array<std::uintptr_t, code_size> addresses;
    std::iota(addresses.begin(), addresses.end(), address(code));
    std::memcpy(code + code_size, addresses.data(), sizeof addresses);
  }
};

loaded_file& file() {
  static loaded_file one;
  return one;
}

known_rules known;  // zero; what it has kept is forgotten after each run

}  // namespace

extern "C" int _dl_find_object(void* place, dl_find_object* out) noexcept {
  using function = int (*)(void*, dl_find_object*);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "_dl_find_object"));
  const loaded_file& f = file();
  if (!f.is_loaded || reinterpret_cast<std::uintptr_t>(place) - address(f.code) >= code_size) {
    return real(place, out);
  }
  *out = {};
  out->dlfo_map_start = f.code;
  out->dlfo_map_end = f.code + code_size;
  out->dlfo_eh_frame = f.table;
  return 0;
}

namespace {

// --- a section that is put together

void close_entry(std::string& entry) {
  while (entry.size() % 4 != 0)
    entry += '\0';
  const auto length = static_cast<std::uint32_t>(entry.size() - 4);
  std::memcpy(entry.data(), &length, sizeof length);
}

// Returns whether libdw reads it as the library does. It does not read an operation of
// another machine so, nor numbers of more than 64 bits; it takes memory for registers
// with large numbers, and takes an expression that ends in DW_OP_stack_value for a value.
bool is_read_alike(std::string_view program) {
  constexpr char aarch64_sign = 0x2d;
  constexpr auto stack_value = static_cast<char>(DW_OP_stack_value);
  std::size_t run = 0;
  for (const char c : program) {
    run = (c & 0x80) != 0 ? run + 1 : 0;
    if (c == aarch64_sign || c == stack_value || run == 2) return false;
  }
  return true;
}

// The room that the library has for the programs of a function.
struct limits {
  std::size_t states = 8;
  std::size_t expression_bytes = 190;
};

// Returns whether an expression with this last byte may lack a number, or half of one.
bool may_lack_number(std::uint8_t last) {
  return (last >= DW_OP_const1u && last <= DW_OP_consts) || last == DW_OP_plus_uconst ||
         last >= DW_OP_breg0;
}

// Returns whether the library runs the program as far as libdw does: it knows each
// instruction that libdw knows, and has the room. False as well if an expression may end
// before or in a number, which libdw takes, or begins as libdw's own for a CFA.
bool is_supported(std::string_view program, limits& left) {
  // Those of each instruction from 0 on: u is a number, b a block, a digit so many bytes.
  constexpr std::string_view operands[] = {"",   "-",  "1",  "2", "4",  "uu", "u", "u",
                                           "u",  "uu", "",   "",  "uu", "u",  "u", "b",
                                           "ub", "uu", "uu", "u", "uu", "uu", "ub"};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(program.data());
  dwarf_reader in(bytes, bytes + program.size());
  while (!in.at_end()) {
    const auto instruction = in.fixed<std::uint8_t>();
    const unsigned high = instruction & 0xc0U;
    if (high != 0) {
      if (high == DW_CFA_offset) in.uleb();
      continue;
    }
    if (instruction == DW_CFA_set_loc || instruction == DW_CFA_MIPS_advance_loc8 ||
        instruction == DW_CFA_GNU_negative_offset_extended) {
      return false;
    }
    if (instruction == DW_CFA_remember_state && left.states-- == 0) return false;
    std::string_view those = "u";
    if (instruction != DW_CFA_GNU_args_size) {
      if (instruction >= std::size(operands)) return true;  // libdw does not go on either
      those = operands[instruction];
    }
    for (const char c : those) {
      if (c == 'u') {
        in.uleb();
      } else if (c != 'b') {
        in.block(static_cast<std::uint64_t>(c - '0'));
      } else {
        const dwarf_reader block = in.block(in.uleb());
        const std::size_t size = block.left();
        if (size == 0 || size > left.expression_bytes || may_lack_number(block.at()[size - 1]) ||
            block.at()[0] == DW_OP_bregx || block.at()[0] == DW_OP_regx) {
          return false;
        }
        left.expression_bytes -= size;
      }
    }
  }
  return !in.failed();
}

// A function of the code [begin, begin + size) of the file.
struct built_section {
  std::string bytes;             // with the table
  std::size_t frames = 0;        // where .eh_frame begins in it
  unsigned return_register = 0;  // the number of the register
  bool is_read_alike = true;     // by libdw
};

constexpr std::size_t table_size = 12 + 8;

// `at`: where the first byte of the section will lie.
built_section build(fuzz::input& in, std::uintptr_t at, std::uintptr_t begin, std::uint32_t size) {
  const auto augmentation = in.one_of<std::string_view>({"zR", "zRS", "zPLR", "zRB", ""});
  std::uint8_t encoding = in.one_of<std::uint8_t>({0x1b, 0x1c, 0x10, 0x00, 0x1a, 0x1d});
  if (augmentation.empty()) encoding = 0;
  const bool is_old = in.flag();
  std::string common(4, '\0');
  append(common, std::uint32_t{0});
  common += is_old ? '\1' : '\3';
  common += augmentation;
  common += '\0';
  common += static_cast<char>(in.byte() & 0x7f);  // code_unit
  common += static_cast<char>(in.byte() & 0x7f);  // data_unit
  const auto return_register = static_cast<unsigned>(in.below(20));
  common += static_cast<char>(return_register);
  if (!augmentation.empty()) {
    std::string data;
    for (const char c : augmentation.substr(1)) {
      if (c == 'R') data += static_cast<char>(encoding);
      if (c == 'L') data += '\x1b';
      if (c == 'P') data.append("\x1b\0\0\0\0", 5);
    }
    common += static_cast<char>(data.size());
    common += data;
  }
  const std::string_view common_program = in.text(in.byte() % 64);
  common += common_program;
  close_entry(common);

  std::string own(4, '\0');
  append(own, static_cast<std::uint32_t>(common.size() + 4));
  const std::uintptr_t base =
      (encoding & 0x10) != 0 ? at + table_size + common.size() + own.size() : 0;
  const std::uintptr_t from = begin - base;
  switch (dwarf_reader::size_of(encoding)) {
    case 2:
      append(own, static_cast<std::uint16_t>(from));
      append(own, static_cast<std::uint16_t>(size));
      break;
    case 4:
      append(own, static_cast<std::uint32_t>(from));
      append(own, size);
      break;
    default:
      append(own, std::uint64_t{from});
      append(own, std::uint64_t{size});
      break;
  }
  if (!augmentation.empty()) {
    const bool has_lsda = augmentation.find('L') != augmentation.npos;
    own += has_lsda ? '\4' : '\0';
    if (has_lsda) own.append(4, '\0');
  }
  const std::string_view program = in.text(in.byte());
  own += program;
  close_entry(own);

  built_section s;
  append(s.bytes, std::array<std::uint8_t, 4>{1, 0x1b, 0x03, 0x3b});
  append(s.bytes, std::int32_t{16});
  append(s.bytes, std::uint32_t{1});
  append(s.bytes, static_cast<std::int32_t>(begin - at));
  append(s.bytes, static_cast<std::int32_t>(table_size + common.size()));
  s.frames = s.bytes.size();
  s.bytes += common + own;
  append(s.bytes, std::uint32_t{0});  // the end
  s.return_register = return_register;
  limits left;
  s.is_read_alike = is_read_alike(common_program) && is_read_alike(program) &&
                    is_supported(common_program, left) && is_supported(program, left);
  return s;
}

// --- what must hold

// A register of the caller, if libdw's rules say what it is.
struct caller_value {
  bool is_sure = false;
  bool is_undefined = false;
  std::optional<std::uintptr_t> value;  // none if a step cannot know it
};

caller_value value_of(const their_rule& rule, unsigned n, const machine& m) {
  // A register without a rule is undefined to libdw, and the same to the library. libdw
  // itself has a rule for each of these.
  constexpr unsigned kept = 1U << 6 | 0x1fU << 12;
  switch (rule.how) {
    case their_rule::kind::not_read:
      return {};
    case their_rule::kind::undefined:
      return {(kept >> n & 1) != 0, true, std::nullopt};
    case their_rule::kind::same:
      if (!m.registers.knows(n)) return {true, false, std::nullopt};
      return {true, false, m.registers[n]};
    case their_rule::kind::computed:
      return {true, false, evaluate(rule, m, false)};
  }
  return {};
}

// Compares a step with libdw's rules.
void compare(const their_rules& theirs,
             unsigned return_register,
             const frame& callee,
             step_result result,
             const frame& caller,
             const stack_copy& stack) {
  machine m{callee.registers, stack};
  const auto cfa = evaluate(theirs.cfa, m, true);
  const bool has_next = result == step_result::caller || result == step_result::bottom;
  if (return_register >= frame_register_count || !cfa) {
    expect(!has_next || theirs.cfa.operations.empty(), "without a CFA there is no caller");
    return;
  }
  m.cfa = *cfa;
  const caller_value place = value_of(theirs.registers[return_register], return_register, m);
  if (place.is_sure && (place.is_undefined || place.value == std::uintptr_t{0})) {
    expect(result == step_result::bottom, "the outermost frame has no caller");
  } else if (place.is_sure && !place.value) {
    expect(!has_next, "the way to a caller is not known");
  } else if (place.is_sure) {
    const std::uintptr_t sp = callee.registers[stack_pointer_register];
    const bool is_above = *cfa > sp || (*cfa == sp && *place.value != callee.place);
    const bool is_sound = is_above || theirs.is_signal_frame;
    expect(result == (is_sound ? step_result::caller : step_result::not_supported),
           "a caller is found above its callee");
  }
  if (result != step_result::caller) return;
  expect(caller.is_call == !theirs.is_signal_frame, "whether a signal has come in between");
  for (unsigned n = 0; n < frame_register_count; ++n) {
    const caller_value v = value_of(theirs.registers[n], n, m);
    if (!v.is_sure) continue;
    expect(caller.registers.knows(n) == v.value.has_value() &&
               (!v.value || caller.registers[n] == *v.value),
           "a register of the caller is as libdw has it");
  }
}

// Returns whether the place may follow a call of the function: a call of it, of a jump to
// it, or by way of a register or memory. True for a place outside of the file.
bool is_behind_call(std::uintptr_t place, std::uintptr_t function) {
  constexpr std::size_t longest = 7;
  const std::size_t at = place - address(file().code);
  if (at < longest || at > code_size) return true;
  const auto is = [](std::size_t i, std::uint8_t what) {
    return file().code[i] == std::byte{what};
  };
  for (std::size_t n = 2; n <= longest; ++n)
    if (is(at - n, 0xff)) return true;
  if (!is(at - 5, 0xe8)) return false;
  std::int32_t distance = 0;
  std::memcpy(&distance, file().code + at - sizeof distance, sizeof distance);
  const std::uintptr_t target = place + static_cast<std::uintptr_t>(std::intptr_t{distance});
  const std::size_t to = target - address(file().code);
  if (target == function || to >= code_size) return true;
  constexpr std::size_t jump_begins_before = 6;
  for (std::size_t n = 0; n < jump_begins_before; ++n)
    if (is(to + n, 0xff)) return true;
  return false;
}

// Walks as read_frames() does, up to the first frame pointer that is to be found.
void check_frame_pointers(frame f, const stack_copy& stack) {
  const auto go_on = [&stack](frame& g) {
    auto r = step_result::caller;
    for (unsigned n = 0; n < frame_list::most && r == step_result::caller; ++n)
      r = step(g, stack, known);
    return r;
  };
  if (go_on(f) != step_result::lost) return;
  const std::uintptr_t sp = f.registers[stack_pointer_register];
  if (!find_frame_pointer(f, stack, known)) return;
  const frame_rules* rules = nullptr;
  known.find(f.is_call ? f.place - 1 : f.place, rules);
  const std::uintptr_t function = rules->function;
  constexpr unsigned frame_pointer = 6;
  const std::uintptr_t at = f.registers[frame_pointer];
  std::uintptr_t place = 0;
  expect(at % 16 == 0 && at >= sp && stack.read(at + sizeof place, place),
         "a frame lies on the stack");
  expect(is_behind_call(place, function), "its function has been called");
  expect(go_on(f) == step_result::bottom, "it leads to the bottom of the stack");
}

// --- a stack

constexpr std::uintptr_t stack_begin = 0x7fff'0000'0000;

guarded& stack_memory() {
  static guarded one(1);
  return one;
}

std::uintptr_t word_of(fuzz::input& in) {
  switch (in.below(4)) {
    case 1:
      return address(file().code) + in.byte();
    case 2:
      return stack_begin + in.byte() * std::uintptr_t{8};
    case 3:
      return in.number<std::uint64_t>();
    default:
      return in.byte();
  }
}

stack_copy stack_of(fuzz::input& in) {
  std::string words;
  for (std::size_t n = in.below(65); n > 0; --n)
    append(words, word_of(in));
  return {stack_begin, stack_begin + words.size(), stack_memory().put(words)};
}

// Returns a frame that a signal has interrupted: all its registers are known.
frame interrupted_frame_of(fuzz::input& in) {
  ucontext_t state{};
  auto& registers = state.uc_mcontext.gregs;
  for (greg_t& r : registers)
    r = static_cast<greg_t>(word_of(in));
  registers[REG_RIP] = static_cast<greg_t>(address(file().code) + in.byte());
  const frame f = interrupted_frame(&state);
  const auto is = [&](unsigned n, int kernels_number) {
    return f.registers.knows(n) &&
           f.registers[n] == static_cast<std::uintptr_t>(registers[kernels_number]);
  };
  expect(!f.is_call && f.place == f.registers[return_address_register], "it is no call");
  expect(is(stack_pointer_register, REG_RSP) && is(return_address_register, REG_RIP) &&
             is(3, REG_RBX) && is(6, REG_RBP) && is(12, REG_R12) && is(13, REG_R13) &&
             is(14, REG_R14) && is(15, REG_R15),
         "the registers of a signal");
  return f;
}

frame frame_of(fuzz::input& in) {
  frame f;
  f.place = address(file().code) + in.byte();
  const std::uint8_t kind = in.byte();
  f.is_call = kind % 2 != 0;
  // Two values that no earlier input has.
  if (kind == 0xfd) return interrupted_frame_of(in);
  if (kind == 0xfe) f.place = 0;  // a call of no function
  f.registers.set(stack_pointer_register, stack_begin + in.byte());
  for (std::size_t n = in.below(8); n > 0; --n) {
    const std::size_t which = in.below(frame_register_count);
    f.registers.set(static_cast<unsigned>(which), word_of(in));
  }
  return f;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  loaded_file& f = file();
  const bool is_built = in.flag();
  const frame innermost = frame_of(in);
  const stack_copy stack = stack_of(in);
  built_section s;
  if (is_built) {
    // The size is known only afterwards, and changes no other byte.
    constexpr std::size_t room = 1024;
    std::byte* const at = f.memory.put(std::string(room, '\0'));
    const std::uintptr_t begin = address(f.code) + in.byte() % 64;
    const std::uint32_t code_bytes = in.byte() + std::uint32_t{1};
    s = build(in, address(at), begin, code_bytes);
    expect(s.bytes.size() <= room, "a section fits");
    std::memcpy(at, s.bytes.data(), s.bytes.size());
    f.table = at;
    f.put_code(in.text(code_size));
  } else {
    const std::string_view code = in.text(in.byte());
    const std::string_view table = in.rest().substr(0, std::size_t{32} << 10);
    std::byte* const at = f.memory.put(table);
    f.table = table.empty() ? nullptr : at;  // such a file has none
    f.put_code(code);
  }
  f.is_loaded = true;

  if (is_built && s.is_read_alike && innermost.place != 0) {
    const std::uintptr_t place = innermost.is_call ? innermost.place - 1 : innermost.place;
    const std::string_view frames = std::string_view(s.bytes).substr(s.frames);
    if (const auto theirs = read_by_libdw(frames, address(f.table) + s.frames, place)) {
      const frame_rules* ours = nullptr;
      expect(known.find(place, ours) == rules_result::found, "what libdw reads is read");
      frame caller = innermost;
      const step_result result = step(caller, stack, known);
      compare(*theirs, s.return_register, innermost, result, caller, stack);
    }
  }
  check_frame_pointers(innermost, stack);
  frame_list list;
  read_frames(innermost, stack, known, list);
  expect(list.count >= 1 && list.count <= frame_list::most, "a walk ends");
  expect(innermost.place != 0 || (list.count == 1 && list.result == frames_result::whole),
         "no function has no caller");
  frame_list again;
  read_frames(innermost, stack, known, again);
  expect(again == list, "what is known of a place does not change with the places between");

  f.is_loaded = false;
  known.forget();
  return 0;
}
