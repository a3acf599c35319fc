// Names of functions that are put together from parts, so that it is known what they are
// to readers: whose function it is, and the name without what the compiler adds.
#pragma once

#include "fuzz/input.hpp"
#include "inspect/symbols.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

struct owned_function {
  vigil::detail::code_function function;
  vigil::detail::code_owner owner;
};

// A word with "operator" in it, or the name of an operator.
inline std::string word_of_operator(input& in) {
  std::string word(in.one_of<std::string_view>({"", "f", "F", "f0", "_"}));
  word += "operator";
  const bool is_word = word != "operator" || in.flag();
  word += is_word ? in.one_of<std::string_view>({"", "s", "S", "0", "_"})
                  : in.one_of<std::string_view>({"()", "[]", ">", "->*", "~"});
  return word;
}

// As demanglers write it: the result, unless the function is made of no template, the
// scope, the function's own name, and its parameters.
inline owned_function owned_function_of(input& in) {
  using vigil::detail::code_owner;
  enum class origin : std::uint8_t { vigil, std, call_of_std, program, file };

  struct scope {
    std::string_view text;
    origin from;
  };

  struct own_name {
    std::string_view text;
    bool is_call = false;    // if it is of std
    bool is_member = false;  // of a class, or of a namespace in std
  };

  std::string name(in.one_of<std::string_view>({"",
                                                "void ",
                                                "decltype(auto) ",
                                                "vigil::channel<int> ",
                                                "std::tuple<int, vigil::context> ",
                                                "(anonymous namespace)::f ",
                                                "main::{lambda(int, auto:1)#1} "}));
  const std::string result = in.flag() ? word_of_operator(in) : "";
  if (result.size() > sizeof "operator" - 1 && result.find_first_of("()[]>~") == result.npos)
    name += result + ' ';
  const auto around = in.one_of<scope>({{"", origin::file},
                                        {"(anonymous namespace)::", origin::file},
                                        {"{lambda(vigil::context, int)#1}::", origin::file},
                                        {"order<vigil::context>::", origin::file},
                                        {"vigil::", origin::vigil},
                                        {"vigil::detail::(anonymous namespace)::", origin::vigil},
                                        {"std::", origin::std},
                                        {"std::__1::", origin::std},
                                        {"std::function<void ()>::", origin::call_of_std},
                                        {"std::lock_guard<vigil::mutex>::", origin::program},
                                        {"my_vigil::", origin::program},
                                        {"main::{lambda(vigil::context)#1}::", origin::program}});
  auto own = in.one_of<own_name>({{"f"},
                                  {""},  // an operator, drawn below
                                  {"invoke"},
                                  {"invoke<int>", true},
                                  {"__invoke_impl<void, vigil::context>", true},
                                  {"_M_invoke", true},
                                  {"operator()", true},
                                  {"thread::_Invoker<int>::f", true, true},
                                  {"order::operator std::function<void ()>", false, true},
                                  {"order::operator vigil::channel<int>", false, true}});
  const std::string drawn = own.text.empty() ? word_of_operator(in) : "";
  if (!drawn.empty()) own = {drawn, drawn == "operator()"};
  const auto parameters =
      in.one_of<std::string_view>({"()", "(vigil::context, int) const", "(void (*)(int))", ""});
  if (drawn == "operator") own.is_call = parameters == "()";  // the same name
  name += around.text;
  name += own.text;
  name += parameters;
  const auto file = in.one_of<std::string_view>(
      {"", "/shop/order.cpp", "/opt/include/vigil/spawn.hpp", "/usr/include/c++/12/bits/invoke.h"});

  origin from = around.from;
  if (around.text.empty() && own.is_member) from = origin::program;
  if (from == origin::file && file.find("/vigil/") != file.npos) from = origin::vigil;
  const bool is_of_std = from == origin::std || (from == origin::file && around.text.empty() &&
                                                 file.find("/c++/") != file.npos);
  if (is_of_std && own.is_call) from = origin::call_of_std;
  const code_owner owner = from == origin::vigil         ? code_owner::vigil
                           : from == origin::call_of_std ? code_owner::call_of_std
                                                         : code_owner::program;
  return {{name, std::string(file), 0}, owner};
}

struct known_symbol {
  std::string symbol;
  std::string name;
};

// A mangled name in up to four scopes, one of them perhaps the library's inline
// namespace; or one of C.
inline known_symbol symbol_of(input& in) {
  if (in.flag()) {
    std::string plain(in.text(in.below(6)));
    plain.resize(plain.find('\0') < plain.size() ? plain.find('\0') : plain.size());
    if (!plain.starts_with("_Z")) return {plain, plain};
  }
  std::vector<std::string_view> parts;
  for (std::size_t n = in.below(4) + 2; n > 0; --n)
    parts.push_back(in.one_of<std::string_view>({"f", "vigil", "v0", "order"}));
  known_symbol s{"_ZN", std::string(parts.front())};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    s.symbol += std::to_string(parts[i].size());
    s.symbol += parts[i];
    const bool is_last = i + 1 == parts.size();
    if (i == 0 || (parts[i] == "v0" && !is_last)) continue;
    s.name += "::";
    s.name += parts[i];
  }
  s.symbol += "Ev";
  s.symbol += in.one_of<std::string_view>({"", ".cold", ".constprop.0"});
  s.name += "()";
  return s;
}

}  // namespace fuzz
