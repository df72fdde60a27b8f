//! Recordings of runs: what went in and what the simulator gave, so that a GPU can be asked the same question.
//!
//! With `KDA_RECORD` naming a folder every successful launch of these tests writes one JSON file there, named by its
//! contents. `KDA_RECORDINGS=FOLDER cargo test --test truth` plays them on a device and compares the results.

use kda_codegen::compiled::Compiled;
use kda_core::desc::content_hash;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A tensor of a run.
pub struct Tensor {
    /// Byte offset of its pointer, or of its map, in the parameter block.
    pub offset: u32,
    /// Offsets of further pointers to it.
    pub also: Vec<u32>,
    /// Shape and strides, outermost first, and copied box, where it is reached through a map.
    pub map: Option<([Vec<u64>; 2], Vec<u32>)>,
    /// Contents before the launch.
    pub before: Vec<u8>,
    /// Contents behind it.
    pub after: Vec<u8>,
}

/// The folder that recordings go to.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("KDA_RECORD").map(PathBuf::from)
}

/// Writes a recording; `elems` and `swizzles` of maps are those of the compiled parameters.
pub fn write(folder: &PathBuf, compiled: &Compiled, grid: u32, params: &[u8], tensors: &[Tensor]) {
    let described = |tensor: &Tensor| -> Value {
        let param = compiled.params.iter().find(|p| p.offset == tensor.offset).expect("a parameter of that offset");
        let kda_codegen::compiled::ParamKind::Tensor { elem, map, .. } = &param.kind else {
            panic!("`{}` is no tensor", param.name);
        };
        let map = tensor.map.as_ref().zip(map.as_ref()).map(
            |(([shape, strides], tile), map)| json!({ "shape": shape, "strides": strides, "tile": tile, "swizzle": map.swizzle.span().unwrap_or(0) }),
        );
        json!({
            "name": param.name, "offset": tensor.offset, "also": tensor.also, "elem": elem.to_string(), "map": map,
            "before": hex(&tensor.before), "after": hex(&tensor.after),
        })
    };
    let parameters: Vec<Value> =
        compiled.params.iter().map(|p| json!({ "offset": p.offset, "bytes": p.bytes })).collect();
    let recording = json!({
        "entry": compiled.entry, "arch": compiled.arch.to_string(), "ptx": compiled.ptx, "block": compiled.block,
        "cluster": compiled.cluster, "grid": grid, "shared_bytes": compiled.shared_bytes, "params": hex(params),
        "parameters": parameters, "tensors": tensors.iter().map(described).collect::<Vec<_>>(),
    });
    let text = recording.to_string();
    std::fs::create_dir_all(folder).expect("a folder for recordings");
    let path = folder.join(format!("{:016x}.json", content_hash(&text)));
    std::fs::write(&path, text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
