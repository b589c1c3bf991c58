#include "espalier/data/sources/cifar/pickle_machine.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/data/sources/cifar/pickle.h"

namespace espalier::data {

namespace {

constexpr std::array<std::string_view, 5> kGlobals = {"numpy.core.multiarray _reconstruct",
                                                      "numpy._core.multiarray _reconstruct", "numpy ndarray",
                                                      "numpy dtype", "_codecs encode"};

// Names for the message about an instruction that is refused.
constexpr std::array<std::pair<uint8_t, std::string_view>, 29> kRefused = {{
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'G', "BINFLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'d', "DICT"},
    {'g', "GET"},
    {'i', "INST"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x8b, "LONG4"},
    {0x8d, "BINUNICODE8"},
    {0x8f, "EMPTY_SET"},
    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
}};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Pickle run() {
    if (!is_pickle(bytes_)) refuse("does not begin as a pickle of protocol 2 to 5");
    for (int64_t count = 0; count < kMaxPickleOpcodes; ++count) {
      opcode_at_ = at_;
      const auto opcode = static_cast<uint8_t>(number(1));
      if (opcode == '.') {
        pickle_.root = pop();
        if (!stack_.empty() || !marks_.empty()) refuse("ends with more than one value");
        if (at_ != bytes_.size()) refuse("goes on after its end");
        return std::move(pickle_);
      }
      step(opcode);
    }
    refuse(fmt::format("has more than {} instructions", kMaxPickleOpcodes));
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: the pickle {} (byte {} of {}), unlike CIFAR's own files; download the archive again", file_,
         what, opcode_at_, bytes_.size());
  }

  std::span<const std::byte> take(uint64_t size) {
    if (size > bytes_.size() - at_) refuse("ends inside an instruction");
    const auto part = bytes_.subspan(at_, static_cast<size_t>(size));
    at_ += part.size();
    return part;
  }

  // Little endian.
  uint64_t number(size_t size) {
    uint64_t value = 0;
    const auto part = take(size);
    for (size_t i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(part[i]) << (8 * i);
    return value;
  }

  std::string_view line() {
    constexpr size_t kMaxLine = 256;
    const std::string_view rest = as_string(bytes_.subspan(at_)).substr(0, kMaxLine);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) refuse("has a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  void push(PickleValue value) {
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));  // below kMaxPickleOpcodes
    pickle_.values.push_back(std::move(value));
  }
  void push_int(int64_t value) {
    push({.kind = PickleKind::kInt, .integer = value, .text = {}, .items = {}});
  }
  void push_text(std::span<const std::byte> text) {
    push({.kind = PickleKind::kText, .integer = 0, .text = text, .items = {}});
  }
  void push_kind(PickleKind kind, int64_t integer = 0) {
    push({.kind = kind, .integer = integer, .text = {}, .items = {}});
  }

  uint32_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("takes a value that is not there");
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }

  std::vector<uint32_t> pop_some(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) refuse("closes a group that was not opened");
    std::vector<uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_tuple(std::vector<uint32_t> items) {
    push({.kind = PickleKind::kTuple, .integer = 0, .text = {}, .items = std::move(items)});
  }

  // The value on top of the stack, which stays there.
  uint32_t top() {
    const uint32_t index = pop();
    stack_.push_back(index);
    return index;
  }

  void add_items(PickleKind kind, std::span<const uint32_t> items) {
    PickleValue& to = pickle_.values[top()];
    if (to.kind != kind) refuse(kind == PickleKind::kList ? "appends to no list" : "sets an item of no dict");
    if (kind == PickleKind::kDict && items.size() % 2 != 0) refuse("has a key without a value");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    const std::string full = fmt::format("{} {}", module.substr(0, 256), name.substr(0, 256));
    const auto known = std::find(kGlobals.begin(), kGlobals.end(), full);
    if (known == kGlobals.end()) {
      refuse(fmt::format("names {}, which is neither a numpy array of bytes nor a part of one",
                         printable(full)));
    }
    push({.kind = PickleKind::kGlobal, .integer = 0, .text = std::as_bytes(std::span(*known)), .items = {}});
  }

  static std::string printable(std::string text) {
    std::replace_if(text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return "'" + text + "'";
  }

  void put(uint64_t index) { memo_[index] = top(); }

  void get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("asks for a value that it did not store");
    stack_.push_back(found->second);
  }

  const PickleValue& item(const PickleValue& of, size_t i) const { return pickle_.values[of.items[i]]; }

  // What calling a name with arguments would give, for the three calls that stand in an array's pickle.
  void reduce() {
    const PickleValue& arguments = pickle_.values[pop()];
    const PickleValue& callable = pickle_.values[pop()];
    if (callable.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple)
      refuse("calls no known name");
    const size_t count = arguments.items.size();
    const auto is_flag = [&](size_t i, int64_t expected) {
      const PickleValue& flag = item(arguments, i);  // a bool; Python 2 wrote 0 and 1
      return (flag.kind == PickleKind::kBool || flag.kind == PickleKind::kInt) && flag.integer == expected;
    };
    if (as_string(callable.text).ends_with("_reconstruct") && count == 3) {
      const PickleValue& type = item(arguments, 0);
      if (type.kind != PickleKind::kGlobal || as_string(type.text) != "numpy ndarray")
        refuse("makes no plain array");
      push_kind(PickleKind::kArray);
    } else if (as_string(callable.text) == "numpy dtype" && count == 3) {
      if (!item(arguments, 0).is_text("u1") || !is_flag(1, 0) || !is_flag(2, 1)) {
        refuse("holds an array of another type than uint8");
      }
      push_kind(PickleKind::kDtype);
    } else if (as_string(callable.text) == "_codecs encode" && count == 2) {
      if (item(arguments, 0).kind != PickleKind::kText || !item(arguments, 1).is_text("latin1")) {
        refuse("encodes something other than latin1 text");
      }
      push_text(encode_latin1(item(arguments, 0).text));
    } else {
      refuse("calls a name that cannot be called so");
    }
  }

  // UTF-8 to one byte a character: how protocol 2 holds bytes under Python 3.
  std::span<const std::byte> encode_latin1(std::span<const std::byte> text) {
    // A text may be fetched and encoded again and again: together never more than the file itself.
    num_decoded_bytes_ += text.size();
    if (num_decoded_bytes_ > bytes_.size()) refuse("encodes the same text repeatedly");
    std::vector<std::byte> out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      const auto lead = std::to_integer<unsigned>(text[i]);
      if (lead < 0x80) {
        out.push_back(text[i]);
        continue;
      }
      const unsigned next = i + 1 < text.size() ? std::to_integer<unsigned>(text[i + 1]) : 0;
      if ((lead != 0xc2 && lead != 0xc3) || (next & 0xc0) != 0x80) refuse("encodes text that is not latin1");
      out.push_back(static_cast<std::byte>((lead & 3) << 6 | (next & 0x3f)));
      ++i;
    }
    return pickle_.decoded.emplace_back(std::move(out));
  }

  // Gives a dtype or an array its state.
  void build() {
    const PickleValue& state = pickle_.values[pop()];
    PickleValue& object = pickle_.values[top()];
    if (state.kind != PickleKind::kTuple) refuse("builds from something other than a tuple");
    if (object.kind == PickleKind::kDtype) {
      if (state.items.size() < 2 || !item(state, 1).is_text("|"))
        refuse("gives a dtype an unknown byte order");
      return;
    }
    if (object.kind != PickleKind::kArray || !object.items.empty())
      refuse("builds something other than an array");
    const bool fits = state.items.size() == 5 && item(state, 1).kind == PickleKind::kTuple &&
                      item(state, 2).kind == PickleKind::kDtype && item(state, 4).kind == PickleKind::kText &&
                      (item(state, 3).kind == PickleKind::kBool || item(state, 3).kind == PickleKind::kInt);
    if (!fits) refuse("gives an array an unknown state");
    object.integer = item(state, 3).integer != 0 ? 1 : 0;
    object.items = {state.items[1], state.items[4]};
  }

  void step(uint8_t opcode);
  void step_text(uint8_t opcode);

  std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  size_t num_decoded_bytes_ = 0;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // stack heights
  std::unordered_map<uint64_t, uint32_t> memo_;
};

void Machine::step(uint8_t opcode) {
  switch (opcode) {
    case 0x80:
      number(1);
      return;  // PROTO
    case 0x95:
      number(8);
      return;  // FRAME: a reading hint
    case '(':
      marks_.push_back(stack_.size());
      return;  // MARK
    case 'N':
      push_kind(PickleKind::kNone);
      return;  // NONE
    case 0x88:
      push_kind(PickleKind::kBool, 1);
      return;  // NEWTRUE
    case 0x89:
      push_kind(PickleKind::kBool, 0);
      return;  // NEWFALSE
    case 'K':
      push_int(static_cast<int64_t>(number(1)));
      return;  // BININT1
    case 'M':
      push_int(static_cast<int64_t>(number(2)));
      return;  // BININT2
    case 'J':
      push_int(static_cast<int32_t>(static_cast<uint32_t>(number(4))));
      return;     // BININT
    case 0x8a: {  // LONG1
      const auto size = static_cast<size_t>(number(1));
      if (size < 1 || size > 7) refuse("has an integer of an unexpected size");
      const uint64_t value = number(size);
      const uint64_t sign = uint64_t{1} << (8 * size - 1);
      push_int(static_cast<int64_t>(value ^ sign) - static_cast<int64_t>(sign));
      return;
    }
    case ']':
      push_kind(PickleKind::kList);
      return;  // EMPTY_LIST
    case '}':
      push_kind(PickleKind::kDict);
      return;  // EMPTY_DICT
    case ')':
      push_kind(PickleKind::kTuple);
      return;   // EMPTY_TUPLE
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      push_tuple(pop_some(opcode - 0x84u));
      return;
    case 't':
      push_tuple(pop_to_mark());
      return;  // TUPLE
    case 'a':
      add_items(PickleKind::kList, pop_some(1));
      return;  // APPEND
    case 'e':
      add_items(PickleKind::kList, pop_to_mark());
      return;  // APPENDS
    case 's':
      add_items(PickleKind::kDict, pop_some(2));
      return;  // SETITEM
    case 'u':
      add_items(PickleKind::kDict, pop_to_mark());
      return;  // SETITEMS
    case 'q':
      put(number(1));
      return;  // BINPUT
    case 'r':
      put(number(4));
      return;  // LONG_BINPUT
    case 0x94:
      put(memo_.size());
      return;  // MEMOIZE
    case 'h':
      get(number(1));
      return;  // BINGET
    case 'j':
      get(number(4));
      return;  // LONG_BINGET
    case 'R':
      reduce();
      return;  // REDUCE
    case 'b':
      build();
      return;    // BUILD
    case 'c': {  // GLOBAL
      const std::string_view module = line();
      push_global(module, line());
      return;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleValue& name = pickle_.values[pop()];
      const PickleValue& module = pickle_.values[pop()];
      if (name.kind != PickleKind::kText || module.kind != PickleKind::kText)
        refuse("names something without text");
      push_global(as_string(module.text), as_string(name.text));
      return;
    }
    default:
      step_text(opcode);
      return;
  }
}

void Machine::step_text(uint8_t opcode) {
  switch (opcode) {
    case 'U':  // SHORT_BINSTRING
    case 'C':  // SHORT_BINBYTES
    case 0x8c:
      push_text(take(number(1)));
      return;  // SHORT_BINUNICODE
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':
      push_text(take(number(4)));
      return;  // BINUNICODE
    case 0x8e:
      push_text(take(number(8)));
      return;  // BINBYTES8
    default:
      break;
  }
  std::string_view name = "unknown";
  for (const auto& [code, refused] : kRefused) {
    if (code == opcode) name = refused;
  }
  refuse(fmt::format("uses the opcode {:#04x} ({})", opcode, name));
}

}  // namespace

bool PickleValue::is_text(std::string_view expected) const {
  return kind == PickleKind::kText && as_string(text) == expected;
}

std::string_view as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& file) {
  return Machine(bytes, file).run();
}

}  // namespace espalier::data
