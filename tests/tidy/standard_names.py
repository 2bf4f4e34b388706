"""Which headers of the standard library and of fmt a header needs, and whether it includes them.

A source that includes its own header first shows that this header includes all that it needs, but for what the
precompiled header has (runtime/pch/library.h, tests/pch/tests.h). For most headers, the table below shows the rest.
Others have to be compiled by themselves.
"""

import re

# Where <dunlin/...> is.
PUBLIC = "bindings/cpp/"

_HEADERS = {
    "algorithm": "clamp copy copy_if equal fill find max min sort",
    "array": "array",
    "atomic": "atomic atomic_ref memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast endian",
    "chrono": "chrono",
    "cmath": "isnan",
    "condition_variable": "condition_variable",
    "cstddef": "byte nullptr_t ptrdiff_t size_t",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t "
               "UINT8_MAX UINT16_MAX UINT32_MAX UINT64_MAX INT32_MAX INT64_MAX SIZE_MAX",
    "cstring": "memcpy memset memcmp memmove",
    "deque": "deque",
    "fmt/format.h": "fmt",
    "functional": "function less greater",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "lock_guard mutex recursive_mutex unique_lock",
    "optional": "nullopt optional",
    "queue": "priority_queue",
    "random": "mt19937_64",
    "set": "set",
    "span": "as_bytes as_writable_bytes span",
    "string": "string to_string",
    "string_view": "string_view",
    "thread": "thread",
    "tuple": "tuple",
    "type_traits": "integral_constant is_floating_point_v is_same_v is_trivially_copyable_v",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange forward move pair swap",
    "variant": "variant",
    "vector": "vector",
}
_PROVIDERS = {name: header for header, names in _HEADERS.items() for name in names.split()}
# Names of the standard library, those that C has without a prefix, and those of GoogleTest, which is in no table.
_NAMES = re.compile(
    r"\bstd::(\w+)"
    r"|(?<![\w.:>])(u?int(?:8|16|32|64|ptr|max)_t|size_t|ptrdiff_t|SIZE_MAX|U?INT(?:8|16|32|64|PTR|MAX)_(?:MAX|MIN|C)|"
    r"mem(?:cpy|set|cmp|move|chr)|str(?:n?cmp|n?cpy|chr|rchr|len|str|error|tod|tof|toull?|toll?)|errno|E[A-Z0-9]{3,}|NAN|INFINITY|offsetof|NULL|assert|"
    r"abort|exit|getenv|printf|fprintf|snprintf|FILE|fmt|testing|TEST\w*|EXPECT_\w+|ASSERT_\w+)\b")


def standard_includes(read, path):
    """All that a header includes from outside the tree, by itself or by headers of the tree. read(path): a Source, or None."""
    found, seen, todo = set(), set(), [path]
    while todo:
        header = todo.pop()
        if header in seen or (text := read(header)) is None:
            continue
        seen.add(header)
        for _, kind, included in text.includes:
            inside = PUBLIC + included if included.startswith("dunlin/") else included
            if kind == "quote" or inside != included:
                todo.append(inside)
            else:
                found.add(included)
    return found


def has_all(read, path):
    """Whether the header includes what the table says of all names that it uses. False if a name is not in the table."""
    included = standard_includes(read, path)
    names = {first or second for first, second in _NAMES.findall("\n".join(read(path).code_lines))}
    return all(_PROVIDERS.get(name) in included for name in names)
