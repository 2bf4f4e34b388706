"""Which headers of the standard library and of other libraries a header needs, and whether it includes them.

A source that includes its own header first shows that this header includes all that it needs, but for what precompiled
headers have (runtime/pch/library.h, tools/pch/programs.h, tests/pch/tests.h). For most headers, the table below shows
the rest. Others have to be compiled alone.
"""

import re

# Where <dunlin/...> is.
_PUBLIC = "bindings/cpp/"
# Its precompiled header has a header of ours.
_NEVER = "bindings/c10d/"

_HEADERS = {
    "algorithm": "clamp copy copy_if equal fill find max min sort",
    "array": "array",
    "atomic": "atomic atomic_ref memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast endian",
    "chrono": "chrono",
    "cmath": "isnan",
    "compare": "<=>",
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
# Names of C and POSIX, and of libraries. A name without an entry in _PROVIDERS makes its header be compiled alone.
_OTHERS = (
    r"[a-z]\w*_t", r"(?:SIZE|U?INT\w*|U?LONG|CHAR|FLT|DBL)_(?:MAX|MIN|C|EPSILON|DIG)", "mem(?:cpy|set|cmp|move|chr)",
    "str(?:n?cmp|n?cpy|chr|rchr|len|str|error|tod|tof|toull?|toll?)", "errno", "E[A-Z0-9]{3,}", "NAN", "INFINITY",
    "offsetof", "NULL", "assert", "abort", "exit", "getenv", "malloc", "free", "printf", "fprintf", "snprintf", "FILE",
    "stderr", "stdout", "timespec", r"CLOCK_\w+", r"sched_\w+", r"pthread_\w+", "signal", "sigaction", "SIG[A-Z]+",
    "fmt", "nlohmann", "CLI", "testing", r"TEST\w*", r"EXPECT_\w+", r"ASSERT_\w+", r"MATCHER\w*", r"MOCK_\w+",
    r"INSTANTIATE_\w+", r"GTEST_\w+", "SCOPED_TRACE", "FAIL", "ADD_FAILURE", "SUCCEED")
_NAMES = re.compile(r"\bstd::(\w+)|(<=>)|(?<![\w.>])(?<!\w::)(" + "|".join(_OTHERS) + r")\b")


def tree_of(read, path):
    """{path: Source} of a header and all headers of the tree that it includes. read(path): None if it is not in the tree."""
    found, todo = {}, [path]
    while todo:
        header = todo.pop()
        if header not in found and (text := read(header)) is not None:
            found[header] = text
            todo += [_PUBLIC + included if included.startswith("dunlin/") else included for _, _, included in text.includes]
    return found


def has_all(read, path):
    """Whether the header includes, by itself or by others, what the table says of each name that it uses."""
    if path.startswith(_NEVER):
        return False
    included = {name for text in tree_of(read, path).values() for _, _, name in text.includes}
    names = {"".join(found) for found in _NAMES.findall("\n".join(read(path).code_lines))}
    return all(_PROVIDERS.get(name) in included for name in names)
