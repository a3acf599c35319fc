// Covers: src/inspect/debug_files.cpp src/inspect/symbols.cpp
//
// Names and lines out of a file of the program that is broken, and out of its .dwo. All
// places are asked for in one order and then in the other: the answers are the same. A
// second reader walks through all entries of the debug information: what is named, but
// for the symbol's own name, is a function with this place, and a call in it is one of
// its calls. Where the entries with the place lie in each other, and nothing overlaps,
// the answer is known: all of them, with their lines and calls.
//
// An input whose first byte is 0xf0 or more has names of functions and symbols instead,
// which are put together so that it is known whose they are.
//
// libdwfl is told of the file by dwfl_linux_proc_report(), which this program has in
// front of libdw's. The .dwo must lie at /proc/self/fd/100.
#include "inspect/debug_files.hpp"

#include "fuzz/function_names.hpp"
#include "fuzz/input.hpp"
#include "inspect/symbols.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace vigil::detail;
using fuzz::expect;

constexpr std::uintptr_t loaded = 0x4000'0000'0000;  // where nothing is

// A file in memory with this descriptor.
class memory_file {
 public:
  explicit memory_file(int descriptor)
      : path_("/proc/self/fd/" + std::to_string(descriptor)), descriptor_(descriptor) {
    const int made = ::memfd_create("fuzz", MFD_CLOEXEC);
    expect(made >= 0 && ::dup2(made, descriptor) == descriptor, "there is a file");
    ::close(made);
  }

  void put(std::string_view bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    expect(::ftruncate(descriptor_, 0) == 0 &&
               ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size,
           "it is written");
  }

  const char* path() const { return path_.c_str(); }

 private:
  const std::string path_;
  const int descriptor_;
};

const memory_file& split_file() {
  static const memory_file one(100);
  return one;
}

const memory_file& whole_file() {
  static const memory_file one(101);
  return one;
}

}  // namespace

extern "C" int dwfl_linux_proc_report(Dwfl* all, pid_t) {
  return ::dwfl_report_elf(all, "program", whole_file().path(), -1, loaded, false) ? 0 : -1;
}

namespace {

// --- the second reader

// A function, or a block in one.
struct scope {
  Dwarf_Die die;
  int tag = 0;
  int around = -1;         // the index of the scope around it
  bool is_listed = false;  // only what may hold a function is around it
  std::string name;
  code_function caller;  // without its name: the place of the call
};

// The answer that the reader must give, if that is sure.
struct known_answer {
  std::vector<scope> scopes;  // the outermost first, without blocks
  code_function line;         // without its name
};

class second_reader {
 public:
  second_reader() : all_(::dwfl_begin(&callbacks)) {
    ::dwfl_linux_proc_report(all_, 0);
    ::dwfl_report_end(all_, nullptr, nullptr);
    module_ = ::dwfl_addrmodule(all_, loaded);
    Dwarf_Die* unit = nullptr;
    while (module_ != nullptr && (unit = ::dwfl_module_nextcu(module_, unit, &bias_)) != nullptr)
      take(*unit);
  }

  ~second_reader() { ::dwfl_end(all_); }

  second_reader(const second_reader&) = delete;
  second_reader& operator=(const second_reader&) = delete;

  // Those with the place, an outer one before those in it. The table of places may know a
  // unit that the list does not.
  std::vector<int> at(std::uintptr_t place) {
    // Broken program headers may leave it outside of the file.
    if (::dwfl_addrmodule(all_, place) != module_) return {};
    if (Dwarf_Die* const unit = ::dwfl_module_addrdie(module_, place, &bias_)) take(*unit);
    std::vector<int> found;
    for (std::size_t i = 0; i < scopes_.size(); ++i)
      if (::dwarf_haspc(&scopes_[i].die, place - bias_) > 0) found.push_back(static_cast<int>(i));
    return found;
  }

  // libdw takes some units, as those of unknown type, to begin in one of two places, by
  // what it was asked for before.
  [[nodiscard]] bool has_sound_units() const { return is_sound_; }

  const scope& operator[](int i) const { return scopes_[static_cast<std::size_t>(i)]; }

  std::optional<known_answer> answer(std::uintptr_t place, const std::vector<int>& there) {
    if (there.empty() || taken_.size() != 1) return std::nullopt;
    Dwarf_Addr bias = 0;
    if (::dwfl_module_addrdie(module_, place, &bias) == nullptr) return std::nullopt;
    const scope& outermost = (*this)[there[0]];
    if (outermost.tag != DW_TAG_subprogram || !outermost.is_listed) return std::nullopt;
    known_answer known;
    for (std::size_t i = 0; i < there.size(); ++i) {
      const scope& s = (*this)[there[i]];
      if (i > 0 && (s.tag == DW_TAG_subprogram || s.around != there[i - 1])) return std::nullopt;
      if (s.tag != DW_TAG_lexical_block) known.scopes.push_back(s);
    }
    if (begins_between(outermost, place - bias_)) return std::nullopt;
    known.line = line_at(place);
    return known;
  }

  // Without its name; the file is empty if it is not known.
  code_function line_at(std::uintptr_t place) const {
    Dwfl_Line* const line = module_ != nullptr ? ::dwfl_module_getsrc(module_, place) : nullptr;
    int number = 0;
    if (line == nullptr) return {};
    const char* const file = ::dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    if (file == nullptr) return {};
    return {"", file, static_cast<unsigned>(number)};
  }

  // The name of the symbol with the place, mangled; null if there is none.
  const char* symbol_at(std::uintptr_t place) const {
    GElf_Off offset = 0;
    GElf_Sym symbol;
    if (module_ == nullptr || ::dwfl_addrmodule(all_, place) != module_) return nullptr;
    return ::dwfl_module_addrinfo(module_, place, &offset, &symbol, nullptr, nullptr, nullptr);
  }

 private:
  static inline const Dwfl_Callbacks callbacks = {.find_elf = ::dwfl_linux_proc_find_elf,
                                                  .find_debuginfo = ::dwfl_build_id_find_debuginfo,
                                                  .section_address = nullptr,
                                                  .debuginfo_path = nullptr};

  static std::string name_of(Dwarf_Die& die) {
    Dwarf_Attribute a;
    const char* name = ::dwarf_formstring(::dwarf_attr_integrate(&die, DW_AT_linkage_name, &a));
    if (name == nullptr)
      name = ::dwarf_formstring(::dwarf_attr_integrate(&die, DW_AT_MIPS_linkage_name, &a));
    if (name != nullptr) return demangled(name);
    name = ::dwarf_diename(&die);
    return name != nullptr ? name : "";
  }

  // A unit, and its .dwo; once.
  void take(Dwarf_Die& unit) {
    if (!taken_.insert(unit.addr).second) return;
    Dwarf_Die first{};
    ::dwarf_diecu(&unit, &first, nullptr, nullptr);
    is_sound_ = is_sound_ && first.addr == unit.addr;
    walk(unit);
    Dwarf_Die split{};
    if (::dwarf_cu_info(unit.cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) ==
            0 &&
        split.cu != nullptr) {
      walk(split);
    }
  }

  static code_function caller_of(Dwarf_Die& die, Dwarf_Die& unit) {
    Dwarf_Attribute a;
    Dwarf_Word line = 0;
    Dwarf_Word file = 0;
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    code_function out;
    if (::dwarf_tag(&die) != DW_TAG_inlined_subroutine) return out;
    const bool is_told = ::dwarf_formudata(::dwarf_attr(&die, DW_AT_call_line, &a), &line) == 0 &&
                         ::dwarf_formudata(::dwarf_attr(&die, DW_AT_call_file, &a), &file) == 0 &&
                         ::dwarf_getsrcfiles(&unit, &files, &count) == 0;
    const char* const name = is_told ? ::dwarf_filesrc(files, file, nullptr, nullptr) : nullptr;
    if (name != nullptr) out = {"", name, static_cast<unsigned>(line)};
    return out;
  }

  void walk(Dwarf_Die unit) {
    struct step {
      Dwarf_Die die;
      int around;
      bool is_listed;
    };

    std::vector<step> left;
    Dwarf_Die next;
    if (::dwarf_child(&unit, &next) == 0) left.push_back({next, -1, true});
    while (!left.empty()) {
      step s = left.back();
      left.pop_back();
      const int tag = ::dwarf_tag(&s.die);
      const bool is_function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
      const bool is_scope = is_function || tag == DW_TAG_lexical_block;
      const bool may_hold = tag == DW_TAG_subprogram || tag == DW_TAG_lexical_block ||
                            tag == DW_TAG_namespace || tag == DW_TAG_structure_type ||
                            tag == DW_TAG_class_type || tag == DW_TAG_union_type;
      if (is_scope) {
        scopes_.push_back({s.die,
                           tag,
                           s.around,
                           s.is_listed,
                           is_function ? name_of(s.die) : "",
                           caller_of(s.die, unit)});
      }
      if (::dwarf_siblingof(&s.die, &next) == 0) left.push_back({next, s.around, s.is_listed});
      // Any other entry between two scopes makes them unrelated.
      const int around = is_scope ? static_cast<int>(scopes_.size()) - 1 : -1;
      if (::dwarf_child(&s.die, &next) == 0)
        left.push_back({next, around, s.is_listed && may_hold});
    }
  }

  // Whether the range of another function begins after that of `f` with the place.
  bool begins_between(const scope& f, Dwarf_Addr place) {
    std::vector<std::pair<Dwarf_Addr, const void*>> begins;
    for (scope& s : scopes_) {
      if (s.tag != DW_TAG_subprogram) continue;
      Dwarf_Addr base = 0;
      Dwarf_Addr begin = 0;
      Dwarf_Addr end = 0;
      for (std::ptrdiff_t at = 0; (at = ::dwarf_ranges(&s.die, at, &base, &begin, &end)) > 0;)
        if (begin <= place) begins.emplace_back(begin, s.die.addr);
    }
    const auto last = std::max_element(begins.begin(), begins.end());
    const auto is_at_last = [&](const auto& b) { return b.first == last->first; };
    return last == begins.end() || last->second != f.die.addr ||
           std::count_if(begins.begin(), begins.end(), is_at_last) != 1;
  }

  Dwfl* const all_;
  Dwfl_Module* module_ = nullptr;
  Dwarf_Addr bias_ = 0;
  bool is_sound_ = true;
  std::set<void*> taken_;
  std::vector<scope> scopes_;
};

// --- what must hold

bool is_same(const code_function& a, const code_function& b) {
  return a.name == b.name && a.file == b.file && a.line == b.line;
}

void check_names(fuzz::input& in) {
  code_place all;
  bool has_program = false;
  while (!in.ended()) {
    const fuzz::owned_function f = fuzz::owned_function_of(in);
    expect(owner_of(f.function) == f.owner, "whose function it is");
    all.functions.push_back(f.function);
    has_program = has_program || f.owner == code_owner::program;
    const fuzz::known_symbol s = fuzz::symbol_of(in);
    expect(demangled(s.symbol.c_str()) == s.name, "a symbol's name");
  }
  expect(is_library(all) != has_program, "a place without the program is of a library");
}

void check(second_reader& second, std::uintptr_t place, const code_place& found) {
  const std::vector<code_function>& named = found.functions;
  expect(!named.empty(), "a place has a function, if only one without a name");
  const bool has_program = std::any_of(named.begin(), named.end(), [](const code_function& f) {
    return owner_of(f) == code_owner::program;
  });
  expect(is_library(found) != has_program, "a place is of the program or of a library");
  const std::vector<int> there = second.at(place);
  if (!second.has_sound_units()) return;
  const auto is_there = [&](auto f) {
    return std::any_of(there.begin(), there.end(), [&](int i) { return f(second[i]); });
  };
  for (std::size_t i = 0; i + 1 < named.size(); ++i) {
    const std::string& name = named[i].name;
    const code_function& caller = named[i + 1];
    expect(is_there([&](const scope& f) { return f.name == name; }),
           "a function that is named has the place");
    expect(caller.file.empty() || is_there([&](const scope& f) {
             return f.name == name && f.caller.line == caller.line && f.caller.file == caller.file;
           }),
           "the line of a caller is that of the call");
  }
  const char* const symbol = second.symbol_at(place);
  expect(symbol == nullptr || named.back().name == demangled(symbol),
         "the outermost function has the name of its symbol");
  const std::optional<known_answer> known = second.answer(place, there);
  if (!known) return;
  const std::vector<scope>& scopes = known->scopes;
  expect(named.size() == scopes.size(), "all functions with the place are named");
  for (std::size_t i = 0; i < named.size(); ++i) {
    const scope& s = scopes[scopes.size() - 1 - i];
    const bool is_last = i + 1 == named.size();
    expect((is_last && symbol != nullptr) || named[i].name == s.name, "by their names");
    if (is_last) break;
    expect(named[i + 1].file == s.caller.file && named[i + 1].line == s.caller.line,
           "with the place of each call");
  }
  const code_function& line = known->line;
  expect(line.file.empty() || (named[0].file == line.file && named[0].line == line.line),
         "the line is libdwfl's");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  std::vector<std::uintptr_t> places;
  const std::uint8_t first = in.byte();
  if (first >= 0xf0) {
    check_names(in);
    return 0;
  }
  for (std::size_t n = first % 16 + std::size_t{1}; n > 0; --n)
    places.push_back(loaded + in.number<std::uint16_t>());
  const std::size_t whole_size = in.number<std::uint16_t>();
  whole_file().put(in.text(whole_size));
  split_file().put(in.rest());

  second_reader second;
  symbol_reader one;
  symbol_reader other;
  for (const std::uintptr_t place : places)
    check(second, place, one.at(place));
  if (!second.has_sound_units()) return 0;
  std::reverse(places.begin(), places.end());
  for (const std::uintptr_t place : places) {
    const auto& a = one.at(place).functions;
    const auto& b = other.at(place).functions;
    expect(std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same),
           "the order of the questions changes no name");
  }
  return 0;
}
