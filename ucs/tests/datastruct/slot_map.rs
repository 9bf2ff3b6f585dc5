//! Ids: unique, checked, late to come back.

use std::collections::HashMap;

use proptest::prelude::*;
use ucs::datastruct::slot_map::{RESERVE, SlotId, SlotMap};

#[test]
fn an_id_finds_its_object_until_it_is_removed() {
    let mut map = SlotMap::new();
    let first = map.insert("first").unwrap();
    let second = map.insert("second").unwrap();
    assert_ne!(first, second);
    assert_eq!((map.get(first), map.get(second)), (Some(&"first"), Some(&"second")));
    *map.get_mut(second).unwrap() = "changed";
    assert_eq!(map.remove(second), Some("changed"));
    assert_eq!((map.remove(second), map.get_mut(second)), (None, None));
    assert_eq!(map.get(second), None);
    assert_eq!(map.len(), 1);
}

#[test]
fn an_object_may_know_its_id() {
    let mut map = SlotMap::new();
    let id = map.insert_with(|id| id).unwrap();
    assert_eq!(map.get(id), Some(&id));
}

#[test]
fn ids_go_over_a_wire_and_foreign_numbers_find_nothing() {
    let mut map = SlotMap::new();
    let id = map.insert(1).unwrap();
    assert_eq!(SlotId::new(id.get()), Some(id));
    for number in [0, 1, (1 << 20) - 1] {
        assert_eq!(SlotId::new(number), None);
    }
    for number in [1 << 21, (1 << 20) + 1, u32::MAX] {
        assert_eq!(SlotId::new(number).and_then(|id| map.get(id)), None);
    }
}

#[test]
fn an_old_id_finds_nothing_however_often_its_place_is_used() {
    let mut map = SlotMap::new();
    let old = map.insert(0).unwrap();
    map.remove(old);
    let mut reused = 0;
    for number in 1..20 * RESERVE {
        let id = map.insert(number).unwrap();
        reused += usize::from(id.get() & 0xf_ffff == old.get() & 0xf_ffff);
        assert_eq!(map.get(old), None);
        assert_eq!(map.remove(id), Some(number));
    }
    assert!(reused > 10);
}

#[test]
fn an_id_does_not_come_back_before_a_million_removals() {
    let mut map = SlotMap::new();
    let old = map.insert(()).unwrap();
    map.remove(old);
    let limit = if cfg!(miri) { 1000 } else { 4095 * RESERVE };
    // Beyond the limit the generations begin anew; two ids of one place in a row differ all the same.
    let mut last_of_place = vec![None; RESERVE + 1];
    for count in 1..limit + 3 * RESERVE {
        let id = map.insert(()).unwrap();
        assert!(id != old || count >= limit, "after {count} removals");
        assert_ne!(last_of_place[(id.get() & 0xf_ffff) as usize].replace(id), Some(id));
        map.remove(id);
    }
    assert!(map.is_empty());
}

#[test]
#[cfg(not(miri))]
fn a_full_map_gives_the_object_back() {
    use ucs::datastruct::slot_map::MAX_OBJECTS;
    let mut map = SlotMap::new();
    let ids: Vec<_> = (0..MAX_OBJECTS).map(|number| map.insert(number).unwrap()).collect();
    assert_eq!(map.insert(7), Err(7));
    assert_eq!(map.insert_with(|_| panic!("nothing is made for a full map")), None);
    assert_eq!(map.remove(ids[5]), Some(5));
    let id = map.insert(8).unwrap();
    assert_eq!((map.get(ids[5]), map.get(id)), (None, Some(&8)));
    assert_eq!(map.drain().count(), MAX_OBJECTS);
    assert!(map.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, ..crate::property::config() })]

    #[test]
    fn it_does_what_a_map_that_never_reuses_does(steps in proptest::collection::vec((any::<bool>(), 0..1000usize), 1..1000)) {
        let mut map = SlotMap::new();
        let mut model = HashMap::new();
        let mut ids = Vec::new();
        for (number, (inserts, which)) in steps.into_iter().enumerate() {
            if inserts || ids.is_empty() {
                let id = map.insert(number).unwrap();
                prop_assert!(model.insert(id, number).is_none());
                ids.push(id);
            } else {
                let id = ids[which % ids.len()];
                prop_assert_eq!(map.remove(id), model.remove(&id));
            }
            prop_assert_eq!(map.len(), model.len());
        }
        for id in &ids {
            prop_assert_eq!(map.get(*id), model.get(id));
        }
        prop_assert_eq!(map.iter().map(|(id, number)| (id, *number)).collect::<HashMap<_, _>>(), model);
    }
}
