//! Integers and bits that need more than one host operation.

/// `prmt.b32` in its default mode: four bytes of `b:a` picked by nibbles, bit 3 of a nibble replicating the sign.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for i in 0..4 {
        let nibble = selector >> (4 * i);
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        out |= u32::from(byte) << (8 * i);
    }
    out
}

/// `lop3.b32`: bit `4a + 2b + c` of the table, bit by bit.
#[inline(always)]
pub fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut out = 0;
    for i in 0..8 {
        let on = 0u32.wrapping_sub(table >> i & 1);
        let x = if i & 4 != 0 { a } else { !a };
        let y = if i & 2 != 0 { b } else { !b };
        let z = if i & 1 != 0 { c } else { !c };
        out |= on & x & y & z;
    }
    out
}

/// `bfe` of `width` bits: the field from `start`, of `length`, extended by its sign where signed.
#[inline(always)]
pub fn bfe(a: u64, start: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    let top = width - 1;
    let sign = if !signed || length == 0 { 0 } else { a >> (start + length - 1).min(top) & 1 };
    let mut out = 0u64;
    for i in 0..width {
        let bit = if i < length && start + i <= top { a >> (start + i) & 1 } else { sign };
        out |= bit << i;
    }
    out
}

/// `bfi` of `width` bits: the low `length` bits of `a` at `start` of `b`.
#[inline(always)]
pub fn bfi(a: u64, b: u64, start: u32, length: u32, width: u32) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    if start >= width {
        return b;
    }
    let length = length.min(width - start);
    let field = if length == 0 { 0 } else { (u64::MAX >> (64 - length)) << start };
    (b & !field) | ((a << start) & field)
}

/// `shf.l` and `shf.r`: a word of `b:a` shifted by `c`, clamped to 32 or wrapped.
#[inline(always)]
pub fn funnel(a: u32, b: u32, c: u32, left: bool, wrap: bool) -> u32 {
    let n = if wrap { c & 31 } else { c.min(32) };
    let wide = u64::from(b) << 32 | u64::from(a);
    if left { (wide << n >> 32) as u32 } else { (wide >> n) as u32 }
}

/// `shl` of `width` bits; amounts past the width give 0.
#[inline(always)]
pub fn shl(a: u64, n: u32, width: u32) -> u64 {
    let out = if n >= width { 0 } else { a << n };
    if width == 64 { out } else { out & ((1 << width) - 1) }
}

/// Integer quotient; a division by zero gives all ones, as the hardware does.
#[inline(always)]
pub fn div_signed(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}

/// Integer quotient; a division by zero gives all ones.
#[inline(always)]
pub fn div_unsigned(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}

/// Integer remainder; by zero the dividend.
#[inline(always)]
pub fn rem_signed(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

/// Integer remainder; by zero the dividend.
#[inline(always)]
pub fn rem_unsigned(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}
