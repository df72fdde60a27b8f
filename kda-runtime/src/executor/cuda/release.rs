//! CUDA releases: which one first knew a PTX ISA version, and how the driver writes its own.

use kda_core::IsaVersion;

/// CUDA release whose driver first accepts text of this `.version`, from the release notes of the PTX ISA manual;
/// `None` for versions that the manual did not list when this table was written.
pub fn cuda_release_of(isa: IsaVersion) -> Option<&'static str> {
    Some(match (isa.major, isa.minor) {
        (7, 0) => "11.0",
        (7, 1) => "11.1",
        (7, 2) => "11.2",
        (7, 3) => "11.3",
        (7, 4) => "11.4",
        (7, 5) => "11.5",
        (7, 6) => "11.6",
        (7, 7) => "11.7",
        (7, 8) => "11.8",
        (8, 0) => "12.0",
        (8, 1) => "12.1",
        (8, 2) => "12.2",
        (8, 3) => "12.3",
        (8, 4) => "12.4",
        (8, 5) => "12.5",
        (8, 6) => "12.7",
        (8, 7) => "12.8",
        (8, 8) => "12.9",
        (9, 0) => "13.0",
        (9, 1) => "13.1",
        _ => return None,
    })
}

/// The release as people write it, `12.8`, of the number that `cuDriverGetVersion` gives, 12080.
pub fn release_name(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_grow_with_the_isa() {
        let number = |text: &str| -> (u32, u32) {
            let (major, minor) = text.split_once('.').unwrap();
            (major.parse().unwrap(), minor.parse().unwrap())
        };
        let known: Vec<_> = (7..=9)
            .flat_map(|major| (0..=9).map(move |minor| IsaVersion::new(major, minor)))
            .filter_map(cuda_release_of)
            .map(number)
            .collect();
        assert!(known.len() >= 20 && known.is_sorted_by(|a, b| a < b), "{known:?}");
        assert_eq!(cuda_release_of(IsaVersion::new(8, 0)), Some("12.0"));
        assert_eq!(cuda_release_of(IsaVersion::new(8, 8)), Some("12.9"));
        assert_eq!(cuda_release_of(IsaVersion::new(9, 0)), Some("13.0"));
        assert_eq!(cuda_release_of(IsaVersion::new(10, 0)), None);
    }

    #[test]
    fn driver_numbers_read_as_releases() {
        assert_eq!([12080, 13000, 11080].map(release_name), ["12.8", "13.0", "11.8"]);
    }
}
