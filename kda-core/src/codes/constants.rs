//! KDA02xx: constants, variants and the conditions of a launch.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        201,
        "not a constant",
        "The name stands for no value that is known while compiling.",
        "Use `const` items, const generics, element types or variables of unrolled loops.",
    ),
    entry(
        202,
        "constant overflow",
        "Integer constants never wrap: a result that its written type cannot hold is an error, and so is a bit that a \
         shift loses.",
        "Use a wider type, or reorder the expression.",
    ),
    entry(203, "division by zero", "The divisor is zero in this variant.", "Guard it with `if`, or skip the variant."),
    entry(
        204,
        "negative value of an unsigned type",
        "A difference of unsigned constants is negative.",
        "Compare before subtracting, or use a signed type.",
    ),
    entry(
        205,
        "types that do not fit",
        "Operators join values of one type; conversions are written.",
        "Convert one side with `as`; write `bf16::rn(x)` for the rounding conversions.",
    ),
    entry(
        206,
        "not a constant expression",
        "Constants are made of literals, names, operators, `if`, blocks of one expression, arrays, tuples, casts and the \
         const functions.",
        "Compute the value with these, or at run time.",
    ),
    entry(
        207,
        "unknown const function, or wrong number of arguments",
        "Constants know `min`, `max`, `log2`, `size_of::<T>()`, `bf16::rn` and `f16::rn`.",
        "Use one of them.",
    ),
    entry(
        208,
        "log2 of a number that is no power of two",
        "`log2` is exact; rounding it silently would hide a wrong size.",
        "Give it a power of two.",
    ),
    entry(
        209,
        "constant index or length out of range",
        "The array or tuple has no such element.",
        "Use an index below the length.",
    ),
    entry(
        210,
        "constant of the wrong kind",
        "The place needs a boolean or an integer.",
        "Compare for a boolean; use an integer for sizes and counts.",
    ),
    entry(
        211,
        "constants that need each other",
        "The value of a constant depends on itself.",
        "Break the circle that the message shows.",
    ),
    entry(
        212,
        "constant of another type than declared",
        "The value of a constant or of a generic is not of the type that its declaration names.",
        "Change the type or the value; convert with `as`.",
    ),
    entry(
        213,
        "axis that sets no generic",
        "Every name of an axis is a generic of the kernel.",
        "Correct the name, or add the generic to the kernel.",
    ),
    entry(
        214,
        "generic that no axis sets",
        "A variant gives every generic of its kernel a value.",
        "Add the generic to an axis of `#[variants]`.",
    ),
    entry(
        215,
        "the same variant twice",
        "Two rows give all generics the same values, so two entries would have one name.",
        "Remove one of the rows.",
    ),
    entry(
        216,
        "no variants",
        "An axis without values, or a `skip_if` that is always true, leaves no variant to compile.",
        "Give the axis a value; correct the condition.",
    ),
    entry(
        217,
        "row with too few or too many values",
        "A row of an axis gives one value to each of its names.",
        "Complete the row.",
    ),
    entry(
        218,
        "generic set twice",
        "Two axes set the same generic.",
        "Join the axes: `(BM, BN) in [(64, 8), (128, 16)]`.",
    ),
    entry(
        219,
        "too many variants",
        "A kernel has at most 1,000 variants: each is a PTX text in the program.",
        "Leave combinations out with `skip_if`, or turn an axis into a launch parameter.",
    ),
    entry(
        220,
        "name that no launch parameter has",
        "`grid`, `#[requires]` and `#[dims]` are evaluated by the launcher, which knows scalars, axes named in `#[dims]`, \
         strides by name, and the constants of the variant.",
        "Use one of these names, or add the parameter.",
    ),
    entry(
        221,
        "expression that a launcher cannot evaluate",
        "The launcher knows integer arithmetic, comparisons, logic, `min`, `max`, and `if` on constants.",
        "Write the expression with these. Values are exact integers, so casts are not needed.",
    ),
    entry(
        222,
        "number where a condition is needed, or the reverse",
        "Integers and booleans are different things in the expressions of a launch.",
        "Compare for a condition: `n != 0`.",
    ),
    entry(
        223,
        "a condition that a variant can never meet",
        "With the constants of this variant a condition of `#[requires]` is false whatever is launched.",
        "Leave the variant out: the same condition, negated, as `skip_if`.",
    ),
    entry(
        224,
        "stride that is neither constant nor a new name",
        "A written stride is a constant, or a name that nothing else has, which then is a launch parameter taken from the \
         tensor.",
        "Write a constant or a new name; remove a scalar parameter that repeats the stride.",
    ),
    entry(
        225,
        "axis name that no tensor and no scalar gives",
        "The launcher takes the value of a name from a tensor that has it as a whole axis, or from a scalar. In a larger \
         expression it is only used.",
        "Name the axis alone on one tensor, or add a scalar parameter of this name.",
    ),
    entry(
        226,
        "stride name used twice",
        "A named stride belongs to one axis of one tensor.",
        "Give each stride a name of its own and demand what they share in `#[requires]`.",
    ),
    entry(
        227,
        "constant out of the range of its place",
        "A size, a stride or a count is outside what the hardware or the launcher can take.",
        "Use a value in the range that the message names.",
    ),
];
