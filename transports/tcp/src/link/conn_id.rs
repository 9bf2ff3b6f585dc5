//! The id of a connection in its interface, which is also its number in the event set. The id of a connection that is gone finds no
//! later one.

slotmap::new_key_type! {
    /// See the module.
    pub(crate) struct ConnId;
}

/// Numbers in the event set below this are no ids of connections: the upper half of an id is never 0.
pub(crate) const FIRST_TOKEN: u64 = 1 << 32;

impl ConnId {
    /// The number in the event set.
    pub(crate) fn token(self) -> u64 {
        slotmap::Key::data(&self).as_ffi()
    }

    /// The id of a number from [`FIRST_TOKEN`] on.
    pub(crate) fn of_token(token: u64) -> ConnId {
        slotmap::KeyData::from_ffi(token).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_token_and_no_number_of_the_interface_s_own() {
        let mut map = slotmap::SlotMap::<ConnId, ()>::with_key();
        for _ in 0..3 {
            let id = map.insert(());
            assert!(id.token() >= FIRST_TOKEN);
            assert_eq!(ConnId::of_token(id.token()), id);
            map.remove(id);
            assert!(!map.contains_key(ConnId::of_token(id.token())));
        }
    }
}
