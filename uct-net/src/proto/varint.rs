//! Numbers in as few bytes as they need: seven bits a byte, the lowest first; the highest bit of a byte says that another follows.

/// Most bytes of a number.
const MOST: usize = 10;

/// Appends a number.
pub(crate) fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number off the front; `None` if there is none, or it does not fit.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..MOST {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * place);
        if shifted >> (7 * place) != bits {
            return None;
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends the way from one number to another, modulo 2^64: short both ways.
pub(crate) fn write_difference(bytes: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    write(bytes, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

/// Takes the way from a number off the front, and returns where it leads.
pub(crate) fn read_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let folded = read(bytes)?;
    Some(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ways_between_them_are_written_and_read() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 63, u64::MAX - 1, u64::MAX];
        for from in numbers {
            for to in numbers {
                let mut bytes = Vec::new();
                write(&mut bytes, to);
                write_difference(&mut bytes, from, to);
                let mut rest = &bytes[..];
                assert_eq!(read(&mut rest), Some(to));
                assert_eq!(read_difference(&mut rest, from), Some(to), "{from} {to}");
                assert!(rest.is_empty());
            }
        }
        let mut bytes = Vec::new();
        write_difference(&mut bytes, 1000, 999);
        assert_eq!(bytes.len(), 1, "a step back is as short as one ahead");
    }

    #[test]
    fn a_number_that_ends_early_or_does_not_fit_is_none() {
        assert_eq!(read(&mut &[][..]), None);
        assert_eq!(read(&mut &[0x80, 0x80][..]), None);
        assert_eq!(read(&mut &[0xff; 11][..]), None);
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(read(&mut &most[..]), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(read(&mut &most[..]), None);
    }
}
