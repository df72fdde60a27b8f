//! Changes to a text, character by character and line by line.

use kda_ref::rng::Rng;

/// Characters that PTX is made of.
const LIKELY: [char; 24] = [
    '.', ',', '{', '}', '[', ']', '(', ')', '<', '>', '%', '@', '!', '_', '-', '+', '0', '9', 'x', '"', ';', ':', '\n',
    ' ',
];
/// What stands in place of a number.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "7",
    "31",
    "32",
    "33",
    "255",
    "256",
    "65536",
    "1048576",
    "4294967295",
    "9223372036854775807",
    "0xffffffffffffffff",
];

/// One change to a PTX text.
pub fn change(text: &mut String, donor: &str, rng: &mut Rng) {
    match rng.below(10) {
        0..3 => characters(text, rng),
        3..6 => number(text, rng),
        6..8 => word(text, donor, rng),
        _ => lines(text, donor, rng),
    }
}

/// A place between two characters.
fn place(text: &str, rng: &mut Rng) -> usize {
    let mut at = rng.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn characters(text: &mut String, rng: &mut Rng) {
    let at = place(text, rng);
    match rng.below(4) {
        0 if at < text.len() => {
            text.remove(at);
        }
        1 => text.insert(at, char::from_u32(rng.next_u64() as u32 % 0x3000).unwrap_or('?')),
        2 => {
            // A piece of the text once more.
            let from = place(text, rng);
            let piece: String = text[from..].chars().take(1 + rng.below(20)).collect();
            text.insert_str(at, &piece);
        }
        _ => text.insert(at, rng.choose(&LIKELY)),
    }
}

/// The piece of `text` that begins at or behind `from` and holds only characters that fit.
fn piece(text: &str, from: usize, fits: impl Fn(char) -> bool) -> Option<std::ops::Range<usize>> {
    let start = from + text[from..].find(&fits)?;
    let length = text[start..].find(|c| !fits(c)).unwrap_or(text.len() - start);
    Some(start..start + length)
}

/// Another number in place of one.
pub fn number(text: &mut String, rng: &mut Rng) {
    let at = place(text, rng);
    if let Some(range) = piece(text, at, |c| c.is_ascii_digit()) {
        let other = match rng.below(3) {
            0 => rng.choose(&NUMBERS).to_string(),
            1 => rng.below(40).to_string(),
            _ => text[range.clone()].parse::<u64>().map_or(1, |n| n.wrapping_add(1)).to_string(),
        };
        text.replace_range(range, &other);
    }
}

/// Puts a word of the donor in place of a word.
fn word(text: &mut String, donor: &str, rng: &mut Rng) {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_%".contains(c);
    let (at, from) = (place(text, rng), place(donor, rng));
    if let (Some(range), Some(other)) = (piece(text, at, fits), piece(donor, from, fits)) {
        text.replace_range(range, &donor[other]);
    }
}

/// A line less, one twice, two in each other's place, or one of the donor.
pub fn lines(text: &mut String, donor: &str, rng: &mut Rng) {
    let mut all: Vec<&str> = text.lines().collect();
    if all.is_empty() {
        return;
    }
    let (at, other) = (rng.below(all.len()), rng.below(all.len()));
    match rng.below(4) {
        0 => {
            all.remove(at);
        }
        1 => all.insert(at, all[other]),
        2 => all.swap(at, other),
        _ => {
            let donors: Vec<&str> = donor.lines().collect();
            if !donors.is_empty() {
                all.insert(at, donors[rng.below(donors.len())]);
            }
        }
    }
    *text = all.join("\n");
}
