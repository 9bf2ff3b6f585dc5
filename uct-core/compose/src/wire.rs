//! The frames that travel as messages of the last id: requests, responses, and the application's own messages of that id.
//!
//! Every frame begins with 16 bytes, little-endian: its kind (1 byte), zeros (7), a token (8). The token is random, names an endpoint
//! to the peer that it sends requests to, and is known to these two alone.
//!
//! | kind | behind the head |
//! |---|---|
//! | 0 | a message of the application's; the token is 0 |
//! | 1 | the sender's device and interface address, then a request (`uct_plugin::rma`) |
//! | 2 | a response |
//! | 3 | nothing: the peer was cut off |

/// The id that the frames have.
pub(crate) const CHANNEL: u8 = 31;

/// Bytes of the head of a frame.
pub(crate) const HEAD: usize = 16;

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Message = 0,
    Request = 1,
    Answer = 2,
    CutOff = 3,
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) token: u64,
}

impl Head {
    pub(crate) fn write(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = self.kind as u8;
        head[8..].copy_from_slice(&self.token.to_le_bytes());
        head
    }

    /// Reads untrusted bytes; returns the rest of the frame as well. `None` if they are no frame.
    pub(crate) fn read(frame: &[u8]) -> Option<(Head, &[u8])> {
        let (head, body) = frame.split_first_chunk::<HEAD>()?;
        let (first, token) = head.split_first_chunk::<8>()?;
        let kind = match u64::from_le_bytes(*first) {
            0 => Kind::Message,
            1 => Kind::Request,
            2 => Kind::Answer,
            3 => Kind::CutOff,
            _ => return None,
        };
        Some((Head { kind, token: u64::from_le_bytes(token.try_into().ok()?) }, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_others_are_none() {
        for kind in [Kind::Message, Kind::Request, Kind::Answer, Kind::CutOff] {
            let head = Head { kind, token: 0x0123_4567_89ab_cdef };
            let frame = [&head.write()[..], b"rest"].concat();
            assert_eq!(Head::read(&frame), Some((head, &b"rest"[..])));
            assert_eq!(Head::read(&frame[..HEAD - 1]), None);
            for at in 1..8 {
                let mut odd = frame.clone();
                odd[at] = 1;
                assert_eq!(Head::read(&odd), None);
            }
        }
        assert_eq!(Head::read(&[4; HEAD]), None);
    }
}
