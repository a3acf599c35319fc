#include "inspect/frame_step.hpp"

#include "core/base/thread_annotations.hpp"

#include <ucontext.h>

namespace VIGIL_DETAIL {

// Byte by byte: the bytes may be a living stack's, which sanitizers would object to.
VIGIL_NO_SANITIZE bool stack_copy::read(std::uintptr_t from, std::uintptr_t& word) const noexcept {
  if (from < begin || from > end || end - from < sizeof word) return false;
  const volatile std::byte* const at = bytes + (from - begin);
  word = 0;
  for (std::size_t i = sizeof word; i-- > 0;)
    word = word << 8 | static_cast<std::uintptr_t>(at[i]);
  return true;
}

#if defined(__x86_64__)
frame interrupted_frame(const void* machine_state) noexcept {
  // By DWARF's numbers.
  constexpr int registers[frame_register_count] = {REG_RAX,
                                                   REG_RDX,
                                                   REG_RCX,
                                                   REG_RBX,
                                                   REG_RSI,
                                                   REG_RDI,
                                                   REG_RBP,
                                                   REG_RSP,
                                                   REG_R8,
                                                   REG_R9,
                                                   REG_R10,
                                                   REG_R11,
                                                   REG_R12,
                                                   REG_R13,
                                                   REG_R14,
                                                   REG_R15,
                                                   REG_RIP};
  const auto& from = static_cast<const ucontext_t*>(machine_state)->uc_mcontext.gregs;
  frame f;
  for (unsigned n = 0; n < frame_register_count; ++n)
    f.registers.set(n, static_cast<std::uintptr_t>(from[registers[n]]));
  f.place = f.registers[return_address_register];
  f.is_call = false;
  return f;
}
#elif defined(__aarch64__)
frame interrupted_frame(const void* machine_state) noexcept {
  const mcontext_t& from = static_cast<const ucontext_t*>(machine_state)->uc_mcontext;
  frame f;
  for (unsigned n = 0; n < 31; ++n)
    f.registers.set(n, from.regs[n]);
  f.registers.set(stack_pointer_register, from.sp);
  f.place = from.pc;
  f.is_call = false;
  return f;
}
#endif

namespace {

// The operations, DW_OP_*. There are 32 like lit0, and 32 like breg0.
enum : std::uint8_t {
  op_deref = 0x06,
  op_const1u = 0x08,
  op_const1s = 0x09,
  op_const2u = 0x0a,
  op_const2s = 0x0b,
  op_constu = 0x10,
  op_consts = 0x11,
  op_dup = 0x12,
  op_and = 0x1a,
  op_minus = 0x1c,
  op_or = 0x21,
  op_plus = 0x22,
  op_plus_uconst = 0x23,
  op_shl = 0x24,
  op_shr = 0x25,
  op_ge = 0x2a,
  op_lit0 = 0x30,
  op_breg0 = 0x70,
};

// Evaluates an expression: those that occur in the linker's tables of calls and
// in the frames of signals.
class expression {
 public:
  expression(const frame_registers& registers, const stack_copy& stack) noexcept
      : registers_(registers), stack_(stack) {}

  void push(std::uintptr_t value) noexcept {
    if (count_ == depth) {
      bad_ = true;
    } else {
      values_[count_++] = value;
    }
  }

  bool evaluate(dwarf_reader in, std::uintptr_t& out) noexcept {
    while (!in.at_end() && !bad_)
      step(in);
    if (bad_ || in.failed() || count_ == 0) return false;
    out = values_[count_ - 1];
    return true;
  }

 private:
  static constexpr unsigned depth = 16;

  std::uintptr_t pop() noexcept {
    if (count_ != 0) return values_[--count_];
    bad_ = true;
    return 0;
  }

  void push_register(std::uint64_t n, std::int64_t offset) noexcept {
    if (!registers_.knows(n)) {
      bad_ = true;
    } else {
      push(registers_[n] + static_cast<std::uintptr_t>(offset));
    }
  }

  void step(dwarf_reader& in) noexcept;

  const frame_registers& registers_;
  const stack_copy& stack_;
  std::uintptr_t values_[depth] = {};
  unsigned count_ = 0;
  bool bad_ = false;
};

void expression::step(dwarf_reader& in) noexcept {
  const auto op = in.fixed<std::uint8_t>();
  if (op >= op_lit0 && op < op_lit0 + 32) return push(op - unsigned{op_lit0});
  if (op >= op_breg0 && op < op_breg0 + 32) {
    return push_register(op - unsigned{op_breg0}, in.sleb());
  }
  switch (op) {
    case op_deref: {
      std::uintptr_t word = 0;
      if (stack_.read(pop(), word)) return push(word);
      bad_ = true;
      return;
    }
    case op_const1u:
      return push(in.fixed<std::uint8_t>());
    case op_const1s:
      return push(static_cast<std::uintptr_t>(std::intptr_t{in.fixed<std::int8_t>()}));
    case op_const2u:
      return push(in.fixed<std::uint16_t>());
    case op_const2s:
      return push(static_cast<std::uintptr_t>(std::intptr_t{in.fixed<std::int16_t>()}));
    case op_constu:
      return push(in.uleb());
    case op_consts:
      return push(static_cast<std::uintptr_t>(in.sleb()));
    case op_dup: {
      const std::uintptr_t a = pop();
      push(a);
      return push(a);
    }
    case op_plus_uconst:
      return push(pop() + in.uleb());
    case op_and:
    case op_minus:
    case op_or:
    case op_plus:
    case op_shl:
    case op_shr:
    case op_ge: {
      const std::uintptr_t b = pop();
      const std::uintptr_t a = pop();
      switch (op) {
        case op_and:
          return push(a & b);
        case op_minus:
          return push(a - b);
        case op_or:
          return push(a | b);
        case op_plus:
          return push(a + b);
        case op_shl:
          return push(b < 64 ? a << b : 0);
        case op_shr:
          return push(b < 64 ? a >> b : 0);
        default:
          return push(static_cast<std::intptr_t>(a) >= static_cast<std::intptr_t>(b) ? 1 : 0);
      }
    }
    default:
      bad_ = true;
  }
}

enum class value_result : std::uint8_t { known, unknown, not_in_copy, not_supported };

class caller_of {
 public:
  caller_of(const frame& f, const frame_rules& rules, const stack_copy& stack) noexcept
      : registers_(f.registers), rules_(rules), stack_(stack) {}

  bool find_cfa() noexcept {
    if (rules_.has_cfa_expression) {
      return expression(registers_, stack_)
          .evaluate(rules_.expressions.at(rules_.cfa_expression), cfa_);
    }
    if (!registers_.knows(rules_.cfa_register)) return false;
    cfa_ = registers_[rules_.cfa_register] + static_cast<std::uintptr_t>(rules_.cfa_offset);
    return true;
  }

  std::uintptr_t cfa() const noexcept { return cfa_; }

  value_result find(std::uint64_t n, std::uintptr_t& out) const noexcept {
    using kind = register_rule::kind;
    const register_rule& r = rules_.rules[n];
    switch (r.how) {
      case kind::same:
        return from_register(n, out);
      case kind::undefined:
        return value_result::unknown;
      case kind::at_offset:
        return from_memory(cfa_ + static_cast<std::uintptr_t>(r.number), out);
      case kind::is_offset:
        out = cfa_ + static_cast<std::uintptr_t>(r.number);
        return value_result::known;
      case kind::in_register:
        return from_register(static_cast<std::uint64_t>(r.number), out);
      case kind::at_expression:
      case kind::is_expression: {
        expression e(registers_, stack_);
        e.push(cfa_);
        if (!e.evaluate(rules_.expressions.at(r.expression), out))
          return value_result::not_supported;
        return r.how == kind::at_expression ? from_memory(out, out) : value_result::known;
      }
    }
    return value_result::not_supported;
  }

 private:
  value_result from_register(std::uint64_t n, std::uintptr_t& out) const noexcept {
    if (!registers_.knows(n)) return value_result::unknown;
    out = registers_[n];
    return value_result::known;
  }

  value_result from_memory(std::uintptr_t at, std::uintptr_t& out) const noexcept {
    return stack_.read(at, out) ? value_result::known : value_result::not_in_copy;
  }

  const frame_registers& registers_;
  const frame_rules& rules_;
  const stack_copy& stack_;
  std::uintptr_t cfa_ = 0;
};

}  // namespace

step_result step(frame& f, const stack_copy& stack, known_rules& known) noexcept {
  if (f.place == 0) return step_result::bottom;
  const frame_rules* found_rules = nullptr;
  switch (known.find(f.is_call ? f.place - 1 : f.place, found_rules)) {
    case rules_result::found:
      break;
    case rules_result::none:
      return step_result::no_rules;
    case rules_result::not_supported:
      return step_result::not_supported;
  }
  const frame_rules& rules = *found_rules;
  caller_of caller(f, rules, stack);
  if (rules.return_register >= frame_register_count) return step_result::not_supported;
  if (!caller.find_cfa())
    return rules.has_cfa_expression ? step_result::not_supported : step_result::lost;
  frame next;
  for (unsigned n = 0; n < frame_register_count; ++n) {
    std::uintptr_t value = 0;
    const value_result found = caller.find(n, value);
    if (found == value_result::known) {
      next.registers.set(n, value);
    } else if (n == rules.return_register) {
      if (found == value_result::unknown) {
        const bool has_none = rules.rules[n].how == register_rule::kind::undefined;
        return has_none ? step_result::bottom : step_result::lost;
      }
      return found == value_result::not_in_copy ? step_result::not_in_copy
                                                : step_result::not_supported;
    }
  }
  next.place = next.registers[rules.return_register];
  next.is_call = !rules.is_signal_frame;
  if (next.place == 0) return step_result::bottom;
  // A caller's frame lies above, so no damaged stack goes round for ever. A signal may
  // have come on another stack.
  const bool is_above = caller.cfa() > f.registers[stack_pointer_register];
  const bool is_leaf = caller.cfa() == f.registers[stack_pointer_register] && next.place != f.place;
  if (!is_above && !is_leaf && !rules.is_signal_frame) return step_result::not_supported;
  f = next;
  return step_result::caller;
}

}  // namespace VIGIL_DETAIL
