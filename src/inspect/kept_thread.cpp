#include "inspect/kept_thread.hpp"

#include "core/base/clock_source.hpp"
#include "core/base/futex.hpp"
#include "inspect/own_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include <pthread.h>

namespace VIGIL_DETAIL {

// The thread that makes the text owns it, until its asker has left as well.
struct asked_text {
  text_of_thread::call* how;
  alignas(std::max_align_t) std::byte f[text_of_thread::room];
  std::string text;
  std::exception_ptr error;
  futex_word done{0};  // follows the two above
  futex_word left{0};  // by the asker
};

namespace {

enum mail_state : std::uint32_t { no_mail, mail_asked, mail_answered, mail_given_up };

// The place where an asker hands its work to the kept thread. Plain members belong to the
// asker that has the turn, and from mail_asked on to the kept thread.
struct mailbox {
  futex_word turn{0};
  futex_word state{no_mail};
  bool has_thread = false;
  bool knows_forks = false;
  text_of_thread::call* how = nullptr;
  alignas(std::max_align_t) std::byte f[text_of_thread::room] = {};
  asked_text* answer = nullptr;
  int error = 0;
};

constinit mailbox box{};

bool take_turn(nanos until) noexcept {
  while (box.turn.exchange(1) != 0) {
    if (monotonic_now() >= until) return false;
    futex_wait(box.turn, 1, until);
  }
  return true;
}

void leave_turn() noexcept {
  box.turn.store(0);
  futex_wake_one(box.turn);
}

void leave_text(asked_text& t) noexcept {
  t.left.store(1);
  futex_wake_one(t.left);
}

[[gnu::noinline]] void make_text(asked_text& t) noexcept {
  try {
    t.text = t.how(t.f);
  } catch (...) {
    t.error = std::current_exception();
  }
}

void do_asked(asked_text* text) noexcept {
  const std::unique_ptr<asked_text> own(text);
  make_text(*own);
  clear_stack();
  own->done.store(1);
  futex_wake_one(own->done);
  while (own->left.load() == 0)
    futex_wait(own->left, 0, never);
}

// Caller: is the kept thread, and asked.
void begin_asked() noexcept {
  box.answer = nullptr;
  try {
    auto own = std::make_unique<asked_text>();
    own->how = box.how;
    std::memcpy(own->f, box.f, sizeof box.f);
    start_own_thread([text = own.get()] { do_asked(text); });
    box.answer = own.release();
  } catch (const std::system_error& e) {
    box.error = e.code().value();
  } catch (...) {
    box.error = ENOMEM;
  }
}

void answer_for_ever() noexcept {
  for (;;) {
    for (std::uint32_t now; (now = box.state.load()) != mail_asked;) {
      // The asker gave up before this thread saw its work; the next one may ask.
      if (now == mail_given_up) {
        box.state.store(no_mail);
      } else {
        futex_wait(box.state, now, never);
      }
    }
    begin_asked();
    std::uint32_t expected = mail_asked;
    if (box.state.compare_exchange_strong(expected, mail_answered)) {
      futex_wake_one(box.state);
    } else {
      asked_text* const unwanted = box.answer;
      box.state.store(no_mail);
      if (unwanted != nullptr) leave_text(*unwanted);
    }
  }
}

void forget_in_child() noexcept {
  box.turn.store(0);
  box.state.store(no_mail);
  box.has_thread = false;
}

// Caller: has the turn.
void start_unless_there() {
  if (box.has_thread) return;
  if (!box.knows_forks) ::pthread_atfork(nullptr, nullptr, &forget_in_child);
  box.knows_forks = true;
  start_own_thread(&answer_for_ever);
  box.has_thread = true;
}

// The answer of the kept thread.
struct answered_mail {
  asked_text* text = nullptr;
  int error = 0;
  bool is_late = false;
};

// Caller: has the turn.
answered_mail ask_in_turn(const void* f,
                          std::size_t bytes,
                          text_of_thread::call* how,
                          nanos until) noexcept {
  // A thread that has not answered an earlier asker answers nobody.
  if (box.state.load() == mail_given_up) return {.is_late = true};
  try {
    start_unless_there();
  } catch (const std::system_error& e) {
    return {.error = e.code().value()};
  } catch (...) {
    return {.error = ENOMEM};
  }
  box.how = how;
  std::memcpy(box.f, f, bytes);
  box.error = 0;
  box.state.store(mail_asked);
  futex_wake_one(box.state);
  while (box.state.load() == mail_asked) {
    std::uint32_t expected = mail_asked;
    if (monotonic_now() < until) {
      futex_wait(box.state, mail_asked, until);
    } else if (box.state.compare_exchange_strong(expected, mail_given_up)) {
      return {.is_late = true};
    }
  }
  box.state.store(no_mail);
  return {.text = box.answer, .error = box.error};
}

}  // namespace

void keep_thread() {
  take_turn(never);
  try {
    start_unless_there();
  } catch (...) {
    leave_turn();
    throw;
  }
  leave_turn();
}

void text_of_thread::ask(nanos patience, const void* f, std::size_t bytes, call* how) noexcept {
  const nanos now = monotonic_now();
  const nanos until = saturating_add(now, patience);
  const nanos begun_until = saturating_add(now, std::min(patience, names_patience));
  answered_mail mail{.is_late = true};
  if (take_turn(begun_until)) {
    mail = ask_in_turn(f, bytes, how, begun_until);
    leave_turn();
  }
  is_malloc_stuck_ = mail.is_late;
  error_ = mail.error;
  text_ = mail.text;
  if (text_ == nullptr) return;
  while (text_->done.load() == 0 && monotonic_now() < until)
    futex_wait(text_->done, 0, until);
  is_done_ = text_->done.load() != 0;
}

text_of_thread::~text_of_thread() {
  if (text_ != nullptr) leave_text(*text_);
}

const std::string* text_of_thread::get() const noexcept {
  return is_done_ && text_->error == nullptr ? &text_->text : nullptr;
}

void text_of_thread::throw_error() const {
  if (error_ != 0)
    throw std::system_error(error_, std::generic_category(), "vigil: no thread can be had");
  if (is_done_ && text_->error != nullptr) std::rethrow_exception(text_->error);
}

}  // namespace VIGIL_DETAIL
