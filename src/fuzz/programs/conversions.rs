//! `cvt` between every pair of types, with the roundings and clamps that the pair takes.

use super::forms::{Forms, Kind};

const ROUNDS: [&str; 4] = [".rn", ".rz", ".rm", ".rp"];
const TO_INTEGER: [&str; 4] = [".rni", ".rzi", ".rmi", ".rpi"];

/// Integer types: name, kind, bits. Narrow ones stand in 32-bit registers.
const INTEGERS: [(&str, Kind, u32); 8] = [
    ("u8", Kind::R, 8),
    ("s8", Kind::R, 8),
    ("u16", Kind::H, 16),
    ("s16", Kind::H, 16),
    ("u32", Kind::R, 32),
    ("s32", Kind::R, 32),
    ("u64", Kind::D, 64),
    ("s64", Kind::D, 64),
];
const FLOATS: [(&str, Kind); 4] = [("f16", Kind::F16), ("bf16", Kind::Bf16), ("f32", Kind::F32), ("f64", Kind::F64)];

/// Adds every conversion.
pub(super) fn add(forms: &mut Forms) {
    let mut cvt = |what: String, to: Kind, from: Kind| forms.add(format!("cvt{what} {{d}}, {{0}};"), &[to], &[from]);
    for (to, d, to_bits) in INTEGERS {
        for (from, s, from_bits) in INTEGERS {
            cvt(format!(".{to}.{from}"), d, s);
            // A clamp is legal only where it can clamp something.
            let (signed_to, signed_from) = (to.starts_with('s'), from.starts_with('s'));
            let holds = match (signed_to, signed_from) {
                (true, false) => to_bits > from_bits,
                (false, true) => false,
                _ => to_bits >= from_bits,
            };
            if !holds {
                cvt(format!(".sat.{to}.{from}"), d, s);
            }
        }
        for (float, kind) in FLOATS {
            // Between bf16 and bytes there is no conversion.
            if float == "bf16" && to_bits == 8 {
                continue;
            }
            for round in ROUNDS {
                cvt(format!("{round}.{float}.{to}"), kind, d);
            }
            for round in TO_INTEGER {
                cvt(format!("{round}.{to}.{float}"), d, kind);
                if float == "f32" {
                    cvt(format!("{round}.ftz.{to}.{float}"), d, kind);
                }
            }
        }
    }
    for (to, from, d, s) in [
        ("f32", "f16", Kind::F32, Kind::F16),
        ("f64", "f16", Kind::F64, Kind::F16),
        ("f32", "bf16", Kind::F32, Kind::Bf16),
        ("f64", "bf16", Kind::F64, Kind::Bf16),
        ("f64", "f32", Kind::F64, Kind::F32),
    ] {
        cvt(format!(".{to}.{from}"), d, s);
    }
    for round in ROUNDS {
        cvt(format!("{round}.f16.f32"), Kind::F16, Kind::F32);
        cvt(format!("{round}.bf16.f32"), Kind::Bf16, Kind::F32);
        cvt(format!("{round}.f16.f64"), Kind::F16, Kind::F64);
        cvt(format!("{round}.bf16.f64"), Kind::Bf16, Kind::F64);
        for flags in ["", ".ftz", ".sat", ".ftz.sat"] {
            cvt(format!("{round}{flags}.f32.f64"), Kind::F32, Kind::F64);
        }
    }
    for round in TO_INTEGER {
        for (ty, kind) in FLOATS {
            cvt(format!("{round}.{ty}.{ty}"), kind, kind);
        }
        for flags in [".ftz", ".sat", ".ftz.sat"] {
            cvt(format!("{round}{flags}.f32.f32"), Kind::F32, Kind::F32);
        }
    }
    for flags in [".sat", ".ftz.sat"] {
        cvt(format!("{flags}.f32.f32"), Kind::F32, Kind::F32);
    }
    for round in [".rn", ".rz"] {
        cvt(format!("{round}.relu.f16.f32"), Kind::F16, Kind::F32);
        cvt(format!("{round}.relu.bf16.f32"), Kind::Bf16, Kind::F32);
    }
    cvt(".rna.tf32.f32".to_string(), Kind::F32, Kind::F32);
    for round in [".rn", ".rz"] {
        for relu in ["", ".relu"] {
            let pair = |to: &str| format!("cvt{round}{relu}.{to}.f32 {{d}}, {{0}}, {{1}};");
            forms.add(pair("f16x2"), &[Kind::F16x2], &[Kind::F32; 2]);
            forms.add(pair("bf16x2"), &[Kind::Bf16x2], &[Kind::F32; 2]);
        }
    }
}
