//! Message sizes as the command line has them: `8`, `8,64,4k`, `8:64:4k`, `8..1m`.

use uct_core::units::MemSize;

/// Most sizes of one run.
const MOST: usize = 256;
/// The largest message, in bytes.
pub(crate) const LARGEST: usize = 1 << 30;

/// The sizes in the order in which they are measured. A range doubles from its first to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub Vec<usize>);

impl std::str::FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let mut sizes = Vec::new();
        for part in text.split([',', ':']) {
            match part.split_once("..") {
                None => sizes.push(size(part)?),
                Some((first, last)) => {
                    let (first, last) = (size(first)?, size(last)?);
                    if first > last {
                        return Err(format!("the range {part} ends below its start; expected SMALL..LARGE"));
                    }
                    let doubling = std::iter::successors(Some(first), |&size| Some((size * 2).max(1)));
                    sizes.extend(doubling.take_while(|&size| size <= last));
                    if sizes.last() != Some(&last) {
                        sizes.push(last);
                    }
                }
            }
        }
        if sizes.len() > MOST {
            return Err(format!("{} sizes, at most {MOST} are measured in one run", sizes.len()));
        }
        Ok(Sizes(sizes))
    }
}

fn size(text: &str) -> Result<usize, String> {
    let size: MemSize = text.parse().map_err(|error| format!("{error}"))?;
    match size.to_usize() {
        bytes if bytes <= LARGEST => Ok(bytes),
        _ => Err(format!("{text}: expected at most 1g; e.g. 8, 64k, 8,64,4k or 8..1m")),
    }
}

/// A size as people write it.
pub(crate) fn shown(bytes: usize) -> String {
    MemSize::new(bytes as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_taken_apart() {
        let sizes = |text: &str| text.parse::<Sizes>().unwrap().0;
        assert_eq!(sizes("8"), [8]);
        assert_eq!(sizes("0:1:4k"), [0, 1, 4096]);
        assert_eq!(sizes("8,64,4096"), [8, 64, 4096]);
        assert_eq!(sizes("8..32,1k"), [8, 16, 32, 1024]);
        assert_eq!(sizes("8..64:1k"), [8, 16, 32, 64, 1024]);
        assert_eq!(sizes("0..5"), [0, 1, 2, 4, 5]);
        assert_eq!(sizes("3..3"), [3]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in ["", "x", "8:", "8,", "64..8", "inf", "auto", "2g", "..", "-1"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }
}
