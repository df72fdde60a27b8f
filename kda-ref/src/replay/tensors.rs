//! Decoded tensors of a case, and typed access to them.

use std::collections::BTreeMap;
use std::fmt;

/// How a tensor is stored in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredType {
    /// bf16.
    Bf16,
    /// fp32.
    F32,
    /// float64.
    F64,
    /// 32-bit integers.
    I32,
}

/// Decoded elements; floats are widened exactly.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// bf16, fp32 or float64 elements.
    Float(Vec<f64>),
    /// 32-bit integers.
    Int(Vec<i32>),
}

/// One tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// How it is stored.
    pub stored: StoredType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub values: Values,
}

/// One golden case: its fields and its tensors by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name.
    pub name: String,
    /// Field `H`, query/key heads.
    pub heads: usize,
    /// Field `HV`, value heads.
    pub value_heads: usize,
    /// Field `lower_bound`; `None` (null) is the softplus gate.
    pub lower_bound: Option<f64>,
    /// Tensors by their full names, `in.q` or `out.o`.
    pub tensors: BTreeMap<String, Tensor>,
}

/// Why a case cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A tensor is missing.
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape, or holds another number of elements, than the case needs.
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        given: Vec<usize>,
        /// What is needed.
        needed: Vec<usize>,
    },
    /// A tensor holds integers where floats are needed, or the other way round.
    Kind {
        /// Its name.
        name: String,
        /// What is needed.
        needed: &'static str,
    },
    /// Boundaries, head counts or other fields do not fit each other.
    Inconsistent {
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Missing { name } => write!(f, "the case has no tensor {name}, which is needed"),
            ReplayError::Shape { name, given, needed } => {
                write!(f, "tensor {name} has the shape {given:?}, needed is {needed:?}")
            }
            ReplayError::Kind { name, needed } => write!(f, "tensor {name} needs to hold {needed}"),
            ReplayError::Inconsistent { what } => write!(f, "the case does not fit together: {what}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl Case {
    fn tensor(&self, name: &str) -> Result<&Tensor, ReplayError> {
        self.tensors.get(name).ok_or_else(|| ReplayError::Missing { name: name.into() })
    }

    /// Shape of a tensor.
    pub(super) fn shape(&self, name: &str) -> Result<&[usize], ReplayError> {
        Ok(&self.tensor(name)?.shape)
    }

    /// Stored type and elements of a float tensor, whatever its shape.
    pub(super) fn floats_stored(&self, name: &str) -> Result<(StoredType, &[f64]), ReplayError> {
        let tensor = self.tensor(name)?;
        match &tensor.values {
            Values::Float(values) => Ok((tensor.stored, values)),
            Values::Int(_) => Err(ReplayError::Kind { name: name.into(), needed: "floats" }),
        }
    }

    /// Elements of a float tensor of exactly this shape.
    pub(super) fn floats(&self, name: &str, shape: &[usize]) -> Result<&[f64], ReplayError> {
        let (_, values) = self.floats_stored(name)?;
        let given = self.shape(name)?;
        if given != shape || values.len() != shape.iter().product::<usize>() {
            return Err(ReplayError::Shape { name: name.into(), given: given.to_vec(), needed: shape.to_vec() });
        }
        Ok(values)
    }

    /// As [`Case::floats`]; `None` when the tensor is absent.
    pub(super) fn optional_floats(&self, name: &str, shape: &[usize]) -> Result<Option<&[f64]>, ReplayError> {
        if self.tensors.contains_key(name) { self.floats(name, shape).map(Some) } else { Ok(None) }
    }

    /// Elements of an integer tensor.
    pub(super) fn ints(&self, name: &str) -> Result<&[i32], ReplayError> {
        match &self.tensor(name)?.values {
            Values::Int(values) => Ok(values),
            Values::Float(_) => Err(ReplayError::Kind { name: name.into(), needed: "32-bit integers" }),
        }
    }

    /// Packed boundaries: non-decreasing from 0 to `tokens`.
    pub(super) fn boundaries(&self, tokens: usize) -> Result<Vec<usize>, ReplayError> {
        let given = self.ints("in.cu_seqlens")?;
        let converted: Vec<usize> = given.iter().filter_map(|&b| usize::try_from(b).ok()).collect();
        let fits = converted.len() == given.len()
            && converted.first() == Some(&0)
            && converted.last() == Some(&tokens)
            && converted.is_sorted();
        if fits {
            Ok(converted)
        } else {
            Err(ReplayError::Inconsistent { what: format!("boundaries {given:?} over {tokens} tokens") })
        }
    }
}
