//! Batches of packed sequences: T rows in N sequences, of these lengths.

/// A batch that has a name.
pub struct Named {
    /// Its name on a command line: `NAME:H`.
    pub name: &'static str,
    /// Rows of each sequence.
    pub lengths: &'static [u64],
}

/// All of them. No two have the same numbers of rows and sequences, so that these say which it is.
pub static NAMED: [Named; 2] = [
    Named { name: "fixed8192", lengths: &[8192] },
    Named { name: "mixed6", lengths: &[1300, 547, 2048, 963, 271, 3063] },
];

impl Named {
    /// Rows of all sequences, and sequences.
    pub fn sizes(&self) -> (u64, u64) {
        (self.lengths.iter().sum(), self.lengths.len() as u64)
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Named> {
        NAMED.iter().find(|named| named.name == name)
    }
}

/// Rows of each sequence of a batch: those of the name that it has, else as equal as may be, longer ones first.
pub fn of(rows: u64, sequences: u64) -> Vec<u64> {
    match NAMED.iter().find(|named| named.sizes() == (rows, sequences)) {
        Some(named) => named.lengths.to_vec(),
        None => (0..sequences).map(|i| rows / sequences + u64::from(i < rows % sequences)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_say_which_batch_it_is() {
        for named in &NAMED {
            let (rows, sequences) = named.sizes();
            assert_eq!(of(rows, sequences), named.lengths);
            assert!(std::ptr::eq(Named::find(named.name).unwrap(), named));
        }
        assert_eq!(NAMED[1].sizes(), (8192, 6));
        assert_eq!(of(14, 4), [4, 4, 3, 3]);
        assert_eq!(of(2, 3), [1, 1, 0]);
        assert!(Named::find("mixed").is_none());
    }
}
