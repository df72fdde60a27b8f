//! Reads golden cases: `cases.json` and the safetensors files that it names.

use kda::reference::replay::{Case, StoredType, Tensor, Values};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

/// Name of the description of the cases.
pub const MANIFEST: &str = "cases.json";
/// Most heads of either kind that a case may have.
const MOST_HEADS: usize = 1 << 16;

/// What `cases.json` says.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    /// One entry a case.
    pub cases: Vec<Entry>,
}

/// One case, as `cases.json` describes it. Fields that the replay does not need are left out.
#[derive(Debug, Deserialize)]
pub struct Entry {
    /// Name of the case.
    #[serde(rename = "case")]
    pub name: String,
    /// File beside `cases.json`.
    file: String,
    /// Size of the file.
    bytes: Option<u64>,
    /// Query/key heads; 1 where a case does not say.
    #[serde(rename = "H")]
    heads: Option<usize>,
    /// Value heads; 1 where a case does not say.
    #[serde(rename = "HV")]
    value_heads: Option<usize>,
    /// Lower bound of the gate; null is the softplus gate.
    lower_bound: Option<f64>,
    /// dtype and shape by tensor.
    #[serde(default)]
    tensors: BTreeMap<String, (String, Vec<usize>)>,
}

/// Why a file cannot be used: its path, what is wrong and what is needed, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(String);

/// Reads `cases.json` of a folder.
pub fn manifest(folder: &Path) -> Result<Manifest, ReadError> {
    let fail = |what: String| Err(ReadError(what));
    if !folder.is_dir() {
        return fail(format!("{} is not a folder; a folder with {MANIFEST} is needed", folder.display()));
    }
    let path = folder.join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) => return fail(format!("{} cannot be read: {cause}", path.display())),
    };
    let manifest: Manifest = match serde_json::from_str(&text) {
        Ok(manifest) => manifest,
        Err(cause) => return fail(format!("{} does not describe cases: {cause}", path.display())),
    };
    let mut names: Vec<&str> = manifest.cases.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => fail(format!("{} has two cases named `{}`", path.display(), pair[0])),
        None => Ok(manifest),
    }
}

/// Reads one case of a folder.
pub fn case(folder: &Path, entry: &Entry) -> Result<Case, ReadError> {
    let mut parts = Path::new(&entry.file).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(ReadError(format!("`{}` is not the name of a file beside {MANIFEST}", entry.file)));
    }
    let heads = |field: &str, given: Option<usize>| match given.unwrap_or(1) {
        count @ 1..=MOST_HEADS => Ok(count),
        count => Err(ReadError(format!("{field} = {count} heads; 1 to {MOST_HEADS} are possible"))),
    };
    let path = folder.join(&entry.file);
    let fail = |what: String| ReadError(format!("{}: {what}", path.display()));
    let bytes = fs::read(&path).map_err(|cause| fail(format!("cannot be read: {cause}")))?;
    if let Some(needed) = entry.bytes.filter(|&needed| needed != bytes.len() as u64) {
        return Err(fail(format!("has {} bytes; {MANIFEST} says {needed}", bytes.len())));
    }
    let parsed =
        SafeTensors::deserialize(&bytes).map_err(|cause| fail(format!("not a whole safetensors file: {cause}")))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in parsed.tensors() {
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        let Some((stored, values)) = decode(dtype, view.data()) else {
            return Err(fail(format!("tensor {name} holds {dtype}; BF16, F32, F64 or I32 is needed")));
        };
        tensors.insert(name, Tensor { stored, shape, values });
    }
    for (name, (dtype, shape)) in &entry.tensors {
        let Some(tensor) = tensors.get(name) else {
            return Err(fail(format!("has no tensor {name}, which {MANIFEST} names")));
        };
        let given = dtype_name(tensor.stored);
        if given != dtype || tensor.shape != *shape {
            let found = &tensor.shape;
            return Err(fail(format!("tensor {name} is {given} {found:?}; {MANIFEST} says {dtype} {shape:?}")));
        }
    }
    Ok(Case {
        name: entry.name.clone(),
        heads: heads("H", entry.heads)?,
        value_heads: heads("HV", entry.value_heads)?,
        lower_bound: entry.lower_bound,
        tensors,
    })
}

/// Name of a stored type in `cases.json`.
fn dtype_name(stored: StoredType) -> &'static str {
    match stored {
        StoredType::Bf16 => "bfloat16",
        StoredType::F32 => "float32",
        StoredType::F64 => "float64",
        StoredType::I32 => "int32",
    }
}

/// Little-endian elements; `None` for a type that no case uses.
fn decode(dtype: Dtype, data: &[u8]) -> Option<(StoredType, Values)> {
    fn each<const N: usize, T>(data: &[u8], get: impl Fn([u8; N]) -> T) -> Vec<T> {
        data.as_chunks::<N>().0.iter().map(|bytes| get(*bytes)).collect()
    }
    Some(match dtype {
        Dtype::BF16 => {
            let widen = |bytes| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16));
            (StoredType::Bf16, Values::Float(each(data, widen)))
        }
        Dtype::F32 => (StoredType::F32, Values::Float(each(data, |bytes| f32::from_le_bytes(bytes).into()))),
        Dtype::F64 => (StoredType::F64, Values::Float(each(data, f64::from_le_bytes))),
        Dtype::I32 => (StoredType::I32, Values::Int(each(data, i32::from_le_bytes))),
        _ => return None,
    })
}
