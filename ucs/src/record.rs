//! Records that one process writes and another one reads: what they begin with, their fields, and the words that refuse them.
//!
//! For: addresses of transports. A record of a kind has one length and begins with a magic number and a version, which every reader looks
//! at in the same order. The rest is fields, little-endian, one behind the other. Everything read is untrusted.

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// What it is, in refusals: `interface address of tcp`.
    pub name: &'static str,
    /// Its first bytes, if they tell what it is.
    pub magic: &'static [u8],
    /// The byte behind, if it has a version by itself.
    pub version: Option<u8>,
    /// Bytes in all.
    pub length: usize,
}

/// The fields of a record that is written.
#[derive(Debug)]
pub struct Writer<'a>(&'a mut [u8]);

/// The fields of a record that is read.
#[derive(Debug)]
pub struct Reader<'a> {
    name: &'static str,
    fields: &'a [u8],
}

impl Format {
    /// Begins to write a record.
    ///
    /// # Panics
    /// If `record` has another length.
    pub fn write<'a>(&self, record: &'a mut [u8]) -> Writer<'a> {
        assert_eq!(record.len(), self.length, "bytes of the {}", self.name);
        let mut writer = Writer(record);
        writer.bytes(self.magic).bytes(self.version.as_slice());
        writer
    }

    /// Begins to read what may be a record.
    ///
    /// # Errors
    /// It has another length, is of another kind, or of another version. Human-readable.
    pub fn read<'a>(&self, record: &'a [u8]) -> Result<Reader<'a>, String> {
        let Format { name, magic, version, length } = *self;
        if record.len() != length {
            return Err(format!("no {name}: {} bytes, expected {length}", record.len()));
        }
        let Some(fields) = record.strip_prefix(magic) else {
            return Err(format!("no {name}: it begins with other bytes"));
        };
        let mut reader = Reader { name, fields };
        let Some(version) = version else { return Ok(reader) };
        match reader.u8() {
            found if found == version => Ok(reader),
            found => Err(format!(
                "the peer's {name} is of version {found}, this side knows version {version}: use the same release on \
                 both sides"
            )),
        }
    }
}

impl Writer<'_> {
    /// Writes bytes.
    ///
    /// # Panics
    /// If there is no room; as the other fields.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let (field, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        field.copy_from_slice(bytes);
        self.0 = rest;
        self
    }

    /// Writes a number.
    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Writes a number.
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Writes a number.
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }
}

impl<'a> Reader<'a> {
    /// The next bytes.
    ///
    /// # Panics
    /// If there are fewer, as the length of a kind shows; as the other fields.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (field, rest) = self.fields.split_at(count);
        self.fields = rest;
        field
    }

    /// As many bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N));
        array
    }

    /// A number.
    pub fn u8(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    /// A number.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// A number.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Refuses the record for the value of a field, unless the condition holds.
    ///
    /// # Errors
    /// It does not hold. Human-readable.
    pub fn check(&self, holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
        if holds { Ok(()) } else { Err(self.damaged(&otherwise())) }
    }

    /// The refusal of a record for the value of one of its fields.
    pub fn damaged(&self, what: &str) -> String {
        format!("a damaged {}: {what}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { name: "address of a test", magic: b"at", version: Some(3), length: 20 };

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut record = [0xff; 20];
        FORMAT.write(&mut record).bytes(&[7]).u16(0x1234).u32(0x89ab_cdef).u64(1 << 63).bytes(b"xy");
        assert_eq!(&record, b"at\x03\x07\x34\x12\xef\xcd\xab\x89\0\0\0\0\0\0\0\x80xy");
        let mut reader = FORMAT.read(&record).unwrap();
        assert_eq!(
            (reader.u8(), reader.u16(), reader.u32(), reader.u64()),
            (7, 0x1234, 0x89ab_cdef, 1 << 63)
        );
        assert_eq!(reader.check(true, || unreachable!()), Ok(()));
        assert_eq!(reader.check(false, || "xy".into()), Err("a damaged address of a test: xy".to_owned()));
        assert_eq!(reader.array(), *b"xy");
    }

    #[test]
    fn a_record_that_is_none_is_refused_in_the_same_words_everywhere() {
        let mut record = [0; 20];
        FORMAT.write(&mut record);
        let refused = |record: &[u8]| FORMAT.read(record).unwrap_err();
        assert_eq!(refused(&record[1..]), "no address of a test: 19 bytes, expected 20");
        record[2] = 4;
        let version = "the peer's address of a test is of version 4, this side knows version 3: ";
        assert!(refused(&record).starts_with(version));
        record[0] = b'A';
        assert_eq!(refused(&record), "no address of a test: it begins with other bytes");
    }
}
