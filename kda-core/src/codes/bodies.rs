//! KDA015x and KDA016x: the bodies of kernels and device functions.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        150,
        "conversion that is not written",
        "Numbers of two types meet. Nothing is converted silently, because a conversion costs an instruction or a rounding.",
        "Write `x as u32`, or `bf16::rn(x)` where the value is rounded.",
    ),
    entry(
        151,
        "form that kernels do not have",
        "The expression, statement or macro is Rust, but has no meaning in the kernel language, or none at this place.",
        "Use `let`, assignments, `if`, `for`, `while`, calls and blocks; declare shared buffers in the kernel itself, \
         outside runtime branches.",
    ),
    entry(
        152,
        "unknown name",
        "Nothing of this name is in scope: no variable, parameter, constant, role or built-in value.",
        "Correct the name. Names of a device library are written `math::NAME`.",
    ),
    entry(
        153,
        "runtime index into registers",
        "An array in registers has no addresses: its index must be known while compiling. Local memory, the usual way out, \
         is slow and is never used silently.",
        "Unroll the loop with `#[unroll]`, choose with `select`, or keep the array in shared memory.",
    ),
    entry(
        154,
        "index or length out of range",
        "A constant index lies past the end of its array, tuple or axis, or a length is impossible.",
        "Use an index below the length; lengths are 0 to 4,096.",
    ),
    entry(
        155,
        "value that must be known while compiling",
        "The place needs a constant: a size, a generic argument, a count.",
        "Use constants, const generics or variables of unrolled loops.",
    ),
    entry(
        156,
        "operation that this type does not have",
        "The operator or function does not take values of this type.",
        "Convert first; the message says what is possible.",
    ),
    entry(
        157,
        "wrong arguments",
        "A function, a method or a generic list has too few, too many or other arguments than it takes.",
        "Write the form that the message shows.",
    ),
    entry(
        158,
        "unknown method or field",
        "The value has no method or field of this name.",
        "Correct the name; views have `at`, `load`, `store` and their variants, arrays have `map`.",
    ),
    entry(
        159,
        "assignment to a constant variable",
        "The variable was declared without `mut`.",
        "Declare it `let mut x`.",
    ),
    entry(
        160,
        "pattern or type that does not fit",
        "The value has another shape than its pattern, its declared type or the variable it is assigned to.",
        "Give both the same number of elements and the same types.",
    ),
    entry(
        161,
        "loop that cannot be unrolled, or must be",
        "`#[unroll]` needs a trip count known while compiling and of bearable size; a loop over an array is always unrolled. \
         A loop over tickets runs once in each role, and is not unrolled.",
        "Make the range constant, give `#[unroll(n)]` a number, or leave the attribute out. Declare tickets ahead of the roles.",
    ),
    entry(
        162,
        "value that cannot change in a runtime loop",
        "From trip to trip only registers can change: numbers, and arrays and tuples of them.",
        "Keep the value outside the loop, or unroll it.",
    ),
    entry(
        163,
        "branches that give different things",
        "After a runtime branch or loop the value must be one thing: the same type, and of numbers.",
        "Convert in the branch; use `if const { … }` where the choice is known while compiling.",
    ),
    entry(
        164,
        "constant that does not fit",
        "The constant is out of the range of the type that it becomes.",
        "Use a wider type or another value.",
    ),
    entry(
        165,
        "recursion",
        "A function calls itself, or a constant refers to itself. Functions are always inlined, so there is no recursion.",
        "Write a loop.",
    ),
    entry(
        166,
        "`return` at this place",
        "A kernel may return early where all threads of a CTA do so or none does; device functions give the value of their \
         last expression.",
        "Put the rest into the other branch.",
    ),
    entry(
        167,
        "unknown function",
        "No device function and no built-in function has this name.",
        "Correct the name, mark the function `#[device]`, or name its library in `uses`.",
    ),
    entry(
        168,
        "closure at this place",
        "Closures exist as arguments of `from_fn` and `map`, with one parameter.",
        "Write `from_fn::<N>(|i| …)` or `x.map(|e| …)`.",
    ),
];
