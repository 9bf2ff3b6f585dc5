//! Checks a file before the system's loader reads it, which dies of a signal on a library that was cut off.
//!
//! Used by [`open`](super::open). No dependencies. It detects accidents (a text file, another machine's library,
//! half a download) apart; a file made to harm is code like any plugin, and trusted as one.

use super::failure::LoadFailureKind;

/// Bytes of a file's head that [`headers`] needs.
pub(super) const HEAD: usize = 64;

const MAGIC: [u8; 4] = *b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const BIG_ENDIAN: u8 = 2;
const TYPE_SHARED: u16 = 3;
const PROGRAM_HEADER: usize = 56;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;

/// Where the program headers are in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramHeaders {
    /// From the beginning of the file, in bytes.
    pub offset: u64,
    /// All of them together, in bytes.
    pub length: usize,
}

/// Checks the first [`HEAD`] bytes (fewer where the file is shorter) of a file of `length` bytes.
pub(super) fn headers(head: &[u8], length: u64) -> Result<ProgramHeaders, LoadFailureKind> {
    if !head.starts_with(&MAGIC) {
        return Err(LoadFailureKind::NotElf);
    }
    if head.len() < HEAD {
        return Err(LoadFailureKind::Truncated { length, expected: HEAD as u64 });
    }
    let order = if cfg!(target_endian = "little") { LITTLE_ENDIAN } else { BIG_ENDIAN };
    if head[4] != CLASS_64 || head[5] != order {
        return Err(wrong(format!(
            "expected a 64-bit library in the byte order of {}",
            std::env::consts::ARCH
        )));
    }
    let machine = half(head, 18);
    if machine_of(std::env::consts::ARCH).is_some_and(|host| host != machine) {
        return Err(wrong(format!(
            "expected machine {}, found the ELF machine number {machine}",
            std::env::consts::ARCH
        )));
    }
    if half(head, 16) != TYPE_SHARED {
        return Err(wrong("expected a shared library, found another kind of ELF file".to_owned()));
    }
    let (size, count) = (usize::from(half(head, 54)), usize::from(half(head, 56)));
    if size != PROGRAM_HEADER || count == 0 {
        return Err(wrong(format!(
            "expected program headers of {PROGRAM_HEADER} bytes, found {count} of {size}"
        )));
    }
    let headers = ProgramHeaders { offset: long(head, 32), length: size * count };
    within(length, headers.offset, headers.length as u64)?;
    Ok(headers)
}

/// Checks the program headers of a file of `length` bytes: everything that will be mapped has to be in the file.
pub(super) fn segments(program_headers: &[u8], length: u64) -> Result<(), LoadFailureKind> {
    let (mut load, mut dynamic) = (false, false);
    for header in program_headers.chunks_exact(PROGRAM_HEADER) {
        let kind = word(header, 0);
        if kind == SEGMENT_LOAD || kind == SEGMENT_DYNAMIC {
            within(length, long(header, 8), long(header, 32))?;
        }
        load |= kind == SEGMENT_LOAD;
        dynamic |= kind == SEGMENT_DYNAMIC;
    }
    if load && dynamic { Ok(()) } else { Err(wrong("it has no dynamic section".to_owned())) }
}

fn within(length: u64, offset: u64, bytes: u64) -> Result<(), LoadFailureKind> {
    let expected = offset.saturating_add(bytes);
    if expected <= length { Ok(()) } else { Err(LoadFailureKind::Truncated { length, expected }) }
}

fn wrong(problem: String) -> LoadFailureKind {
    LoadFailureKind::WrongElf { problem }
}

/// ELF's number for a processor, where it is known here.
fn machine_of(processor: &str) -> Option<u16> {
    match processor {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        "riscv64" => Some(243),
        "powerpc64" => Some(21),
        "s390x" => Some(22),
        "loongarch64" => Some(258),
        _ => None,
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array(bytes, at))
}

/// The callers have checked the length.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The head of a right library of this machine with one program header behind it.
    fn head() -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = CLASS_64;
        head[5] = if cfg!(target_endian = "little") { LITTLE_ENDIAN } else { BIG_ENDIAN };
        head[16..18].copy_from_slice(&TYPE_SHARED.to_ne_bytes());
        head[18..20].copy_from_slice(&machine_of(std::env::consts::ARCH).unwrap_or(0).to_ne_bytes());
        head[32..40].copy_from_slice(&(HEAD as u64).to_ne_bytes());
        head[54..56].copy_from_slice(&(PROGRAM_HEADER as u16).to_ne_bytes());
        head[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        head
    }

    #[test]
    fn a_right_head_names_its_program_headers() {
        let expected = ProgramHeaders { offset: HEAD as u64, length: PROGRAM_HEADER };
        assert_eq!(headers(&head(), 120).ok(), Some(expected));
        let cut = headers(&head(), 119);
        assert!(matches!(cut, Err(LoadFailureKind::Truncated { length: 119, expected: 120 })), "{cut:?}");
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn no_head_is_too_strange(
            changes in proptest::collection::vec((4..HEAD, any::<u8>()), 0..4),
            length in any::<u64>(),
            cut in 0..=HEAD,
        ) {
            let mut head = head();
            for (at, value) in changes {
                head[at] = value;
            }
            if let Ok(headers) = headers(&head[..cut], length) {
                prop_assert!(headers.offset + headers.length as u64 <= length);
            }
        }

        #[test]
        fn no_program_header_is_too_strange(
            headers in proptest::collection::vec((0..5_u32, any_or_small(), any_or_small()), 0..5),
            cut in 0..PROGRAM_HEADER,
            length in 0..2000_u64,
        ) {
            let bytes: Vec<u8> = headers.iter().flat_map(|&(kind, offset, size)| header(kind, offset, size)).collect();
            let whole = &headers[..headers.len().saturating_sub(usize::from(cut > 0))];
            let has = |wanted| whole.iter().any(|(kind, ..)| *kind == wanted);
            let fits = whole.iter().all(|(kind, offset, size)| {
                !matches!(*kind, SEGMENT_LOAD | SEGMENT_DYNAMIC)
                    || offset.checked_add(*size).is_some_and(|end| end <= length)
            });
            let answer = segments(&bytes[..bytes.len() - if bytes.is_empty() { 0 } else { cut }], length);
            prop_assert_eq!(answer.is_ok(), has(SEGMENT_LOAD) && has(SEGMENT_DYNAMIC) && fits, "{:?}", answer);
        }
    }

    /// Numbers as they are in a file, and as they may be in a broken one.
    fn any_or_small() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..1200_u64, 1 => any::<u64>()]
    }

    /// A program header.
    fn header(kind: u32, offset: u64, size: u64) -> [u8; PROGRAM_HEADER] {
        let mut header = [0; PROGRAM_HEADER];
        header[..4].copy_from_slice(&kind.to_ne_bytes());
        header[8..16].copy_from_slice(&offset.to_ne_bytes());
        header[32..40].copy_from_slice(&size.to_ne_bytes());
        header
    }

    #[test]
    fn a_segment_that_ends_one_byte_behind_the_file_is_cut_off() {
        const NOTE: u32 = 4;
        let segments = |load: u64, dynamic: u64, note: u64| {
            let headers = [
                header(SEGMENT_LOAD, 64, load),
                header(SEGMENT_DYNAMIC, 64, dynamic),
                header(NOTE, 64, note),
            ];
            super::segments(&headers.concat(), 164)
        };
        assert!(segments(100, 100, 100).is_ok());
        for cut in [segments(101, 100, 100), segments(100, 101, 100)] {
            assert!(matches!(cut, Err(LoadFailureKind::Truncated { length: 164, expected: 165 })), "{cut:?}");
        }
        assert!(segments(100, 100, 101).is_ok(), "what is not mapped may be cut off");
    }

    #[test]
    fn a_head_with_one_wrong_field_is_refused_for_it() {
        let swapped = if cfg!(target_endian = "little") { BIG_ENDIAN } else { LITTLE_ENDIAN };
        let size = PROGRAM_HEADER as u16;
        for (at, field, words) in [
            (4, vec![1], "64-bit library in the byte order"),
            (5, vec![swapped], "64-bit library in the byte order"),
            (16, 2_u16.to_ne_bytes().to_vec(), "another kind of ELF file"),
            (54, (size - 1).to_ne_bytes().to_vec(), "found 1 of 55"),
            (54, (size + 1).to_ne_bytes().to_vec(), "found 1 of 57"),
            (56, 0_u16.to_ne_bytes().to_vec(), "found 0 of 56"),
        ] {
            let mut head = head();
            head[at..at + field.len()].copy_from_slice(&field);
            match headers(&head, 1000) {
                Err(LoadFailureKind::WrongElf { problem }) => assert!(problem.contains(words), "{problem}"),
                other => panic!("{words}: {other:?}"),
            }
        }
    }

    #[test]
    fn processors_have_the_numbers_of_the_elf_standard() {
        for (processor, number) in [
            ("x86_64", Some(62)),
            ("aarch64", Some(183)),
            ("riscv64", Some(243)),
            ("powerpc64", Some(21)),
            ("s390x", Some(22)),
            ("loongarch64", Some(258)),
            ("pdp11", None),
        ] {
            assert_eq!(machine_of(processor), number, "{processor}");
        }
    }
}
