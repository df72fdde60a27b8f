//! The sizes that an operator is timed at.

use super::lengths::{self, Named};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Tokens a request, heads and requests; as many value heads as query/key heads. For operators over packed sequences: rows
/// in all, heads and sequences, whose lengths are those of [`lengths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Shape {
    /// Tokens a request; rows of all packed sequences.
    pub t: u64,
    /// Heads.
    pub h: u64,
    /// Requests or sequences.
    pub n: u64,
}

impl Shape {
    /// Number of (request, value head) pairs.
    pub fn pairs(self) -> u64 {
        self.n * self.h
    }

    /// Packed sequences that have a name.
    pub fn packed(named: &Named, h: u64) -> Shape {
        let (t, n) = named.sizes();
        Shape { t, h, n }
    }

    /// Rows of each of the packed sequences.
    pub fn lengths(self) -> Vec<u64> {
        lengths::of(self.t, self.n)
    }

    /// So many pairs: up to 64 heads, the rest in requests. `pairs` above 64 is rounded down to whole requests.
    pub fn of_pairs(t: u64, pairs: u64) -> Shape {
        match pairs {
            0..=64 => Shape { t, h: pairs.max(1), n: 1 },
            _ => {
                let h = [64, 48, 32].into_iter().find(|h| pairs.is_multiple_of(*h)).unwrap_or(64);
                Shape { t, h, n: pairs / h }
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.t, self.h, self.n)
    }
}

/// The lists of shapes that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Every shape that peers publish figures for.
    All,
    /// Where latency counts: up to 64 pairs.
    Small,
    /// One row for each number of pairs.
    Table,
    /// The grid of the preference table.
    Tune,
}

/// What `--shapes` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// A list.
    Named(List),
    /// These.
    Given(Vec<Shape>),
}

/// Most of each size: the largest call stays within the memory of a device.
const MOST: u64 = 65_536;

impl FromStr for Shapes {
    type Err = String;

    fn from_str(text: &str) -> Result<Shapes, String> {
        match text {
            "all" => Ok(Shapes::Named(List::All)),
            "small" => Ok(Shapes::Named(List::Small)),
            "table" => Ok(Shapes::Named(List::Table)),
            list => list.split(',').map(shape).collect::<Result<_, _>>().map(Shapes::Given),
        }
    }
}

fn shape(text: &str) -> Result<Shape, String> {
    let needed =
        "all, small, table or a list of T:H:N (tokens, heads, requests) or NAME:H (packed sequences) is needed";
    if let Some((named, heads)) = text.split_once(':').and_then(|(name, heads)| Some((Named::find(name)?, heads))) {
        let heads = heads.parse().ok().filter(|size| (1..=MOST).contains(size));
        return heads.map(|h| Shape::packed(named, h)).ok_or_else(|| format!("`{text}` is no shape; {needed}"));
    }
    let sizes: Vec<u64> = text
        .split(':')
        .map(|size| size.parse().ok().filter(|size| (1..=MOST).contains(size)))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("`{text}` is no shape; {needed}, each size 1 to {MOST}"))?;
    match sizes[..] {
        [t, h, n] => Ok(Shape { t, h, n }),
        _ => Err(format!("`{text}` has {} sizes; {needed}", sizes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_names_and_shapes_have_three_sizes() {
        assert_eq!("all".parse(), Ok(Shapes::Named(List::All)));
        let given = vec![Shape { t: 4, h: 8, n: 1 }, Shape { t: 6, h: 64, n: 128 }];
        assert_eq!("4:8:1,6:64:128".parse(), Ok(Shapes::Given(given)));
        let packed = vec![Shape { t: 8192, h: 8, n: 1 }, Shape { t: 8192, h: 64, n: 6 }];
        assert_eq!("fixed8192:8,mixed6:64".parse(), Ok(Shapes::Given(packed)));
        for wrong in [
            "mixed6",
            "mixed6:0",
            "mixed6:8:1",
            "mixed7:8",
            "",
            "4:8",
            "4:8:1:2",
            "4:8:x",
            "0:8:1",
            "4:8:1,",
            "4:8:99999999",
            "tables",
        ] {
            assert!(wrong.parse::<Shapes>().unwrap_err().contains("T:H:N"), "{wrong}");
        }
    }

    #[test]
    fn pairs_are_split_into_heads_and_requests() {
        for pairs in [1, 2, 8, 24, 48, 64, 96, 128, 192, 512, 8192] {
            assert_eq!(Shape::of_pairs(4, pairs).pairs(), pairs);
        }
        assert_eq!(Shape::of_pairs(4, 8192), Shape { t: 4, h: 64, n: 128 });
    }
}
