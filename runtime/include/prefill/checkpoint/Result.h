// A value or an error in one line. The API of the checkpoint and runtime
// libraries throws nothing, because the compiler, which reads checkpoints too,
// is built without exceptions.
#ifndef PREFILL_CHECKPOINT_RESULT_H
#define PREFILL_CHECKPOINT_RESULT_H

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace prefill::rt {

/// The same numbers as prefill_status in prefill/runtime.h.
enum class ErrorCode {
  invalidArgument = 1,
  invalidModule = 2,
  invalidWeights = 3,
  outOfMemory = 4,
  unsupported = 5,
  io = 6,
};

/// `message` is one line that names the thing, its value and what was expected.
struct Error {
  ErrorCode code;
  std::string message;
};

/// Either a T or an Error. `if (!result) return result.takeError();`
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : storage(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : storage(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return storage.index() == 0; }
  T &operator*() {
    assert(*this && "no value: an error was not looked at");
    return *std::get_if<0>(&storage);
  }
  const T &operator*() const {
    assert(*this && "no value: an error was not looked at");
    return *std::get_if<0>(&storage);
  }
  T *operator->() { return &**this; }
  const T *operator->() const { return &**this; }

  const Error &error() const {
    assert(!*this && "no error");
    return *std::get_if<1>(&storage);
  }
  Error takeError() { return std::move(*std::get_if<1>(&storage)); }

private:
  std::variant<T, Error> storage;
};

/// Success without a value, or an Error.
template <> class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : failed(true), storage(std::move(error)) {}
  explicit operator bool() const { return !failed; }
  const Error &error() const {
    assert(failed && "no error");
    return storage;
  }
  Error takeError() { return std::move(storage); }

private:
  bool failed = false;
  Error storage{};
};

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_RESULT_H
