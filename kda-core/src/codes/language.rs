//! KDA01xx: the language.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        101,
        "not Rust syntax",
        "A kernel module is Rust syntax: the compiler's parser reads it before the kernel language gives it meaning.",
        "Correct the syntax at the place shown.",
    ),
    entry(
        102,
        "unknown attribute",
        "An attribute that the kernel language does not know would be silently ignored. Documentation and lint attributes \
         are accepted everywhere.",
        "Use the attributes named in the message. Instead of `#[cfg]` inside a module, configure the whole module or add \
         an axis to `#[variants]`.",
    ),
    entry(
        103,
        "malformed attribute",
        "The arguments of the attribute cannot be read.",
        "Write the form that the message shows.",
    ),
    entry(
        104,
        "unknown argument of an attribute",
        "The attribute has no argument of this name.",
        "Use one of the names in the message.",
    ),
    entry(
        105,
        "given twice",
        "An attribute or an argument that can stand once stands twice.",
        "Remove one of the two.",
    ),
    entry(
        106,
        "missing argument",
        "The attribute lacks an argument that has no default: `arch` of a kernel module, `block` and `grid` of a kernel.",
        "Add the argument, in the form that the message shows.",
    ),
    entry(
        107,
        "neither kernel nor device function",
        "In a kernel module every function says what it is: `#[kernel(…)]` is an entry that the host launches, `#[device]` \
         is a function that is inlined into kernels. In a device library all functions are device functions.",
        "Mark the function with one of the two; move kernels out of device libraries.",
    ),
    entry(
        108,
        "a part of a signature that has no meaning in a kernel",
        "Kernels and device functions are plain functions: not `const`, `async`, `unsafe`, `extern`, variadic or `pub`, \
         without `where` clauses; a kernel returns nothing.",
        "Remove the part. A kernel writes its results through `GlobalMut` parameters.",
    ),
    entry(
        109,
        "unknown kind of generic",
        "Generics are integers, booleans and element types, so that every variant is a finite list of constants.",
        "Write `const N: u32` (or another integer type), `const FLAG: bool` or `OUT: Elem`.",
    ),
    entry(
        110,
        "unknown form of parameter",
        "A kernel's parameter is a name or a tuple of names; a device function's is a name, `mut name`, or a name of type \
         `&mut T`.",
        "Use one of these forms and take values apart with `let`.",
    ),
    entry(
        111,
        "unknown type of a kernel parameter",
        "A kernel takes device tensors and scalars.",
        "Write `Global<T>`, `GlobalMut<T>`, `Option<…>` of one of them, or a scalar type.",
    ),
    entry(
        112,
        "tensor without `#[dims]`, or `#[dims]` without tensor",
        "The launcher checks shapes, strides and sizes before a kernel runs, so each tensor says what they are; scalars \
         have none.",
        "Write the axes before the tensor, outermost first: `#[dims(n, tokens, d)] x: Global<bf16>`.",
    ),
    entry(
        113,
        "name defined twice",
        "Constants, generics, parameters and roles share one space of names, so that a name in an expression means one \
         thing.",
        "Rename one of the two.",
    ),
    entry(
        114,
        "the attribute needs a module with a body",
        "The macro reads the source of the module; it cannot see into another file.",
        "Write `#[kernels(…)] pub mod name { … }` with the kernels between the braces.",
    ),
    entry(
        115,
        "item that cannot stand in a kernel module",
        "A kernel module holds constants, device functions and kernels; a device library holds constants and functions.",
        "Move other items outside. Device libraries are named in `uses = […]`, not imported.",
    ),
    entry(
        116,
        "unknown or repeated architecture",
        "`arch` names PTX targets, each once.",
        "Write for instance `arch = sm_90` or `arch = [sm_90, sm_100f]`, with the least target that has the instructions.",
    ),
    entry(
        117,
        "not a path to a device library",
        "`uses` lists the modules of device libraries.",
        "Write the path that the module has in Rust: `uses = [crate::device::math]`.",
    ),
    entry(
        118,
        "module without kernels",
        "A kernel module without a kernel compiles to nothing.",
        "Mark a function with `#[kernel(…)]`, or make the module a `#[device_lib]`.",
    ),
    entry(
        119,
        "name that PTX cannot have",
        "Names of kernels and parameters become names in PTX. `__` separates a kernel's name from its variant's.",
        "Choose another name.",
    ),
    entry(
        120,
        "wrong number of grid axes",
        "A grid has an x, a y and a z axis.",
        "Write one expression or a list of two or three; x runs fastest.",
    ),
];
