//! Which device programs see, and by what.

use super::support::{Libraries, by_hand, is_installed};

#[test]
fn programs_see_the_device_and_without_the_variables_they_do_not() {
    if !is_installed("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    let by_program = libraries.run(&["--name", "mlx5_0"], &["ibv_devinfo", "-v"]);
    let seen = super::support::process::run(&mut { by_program }).success();
    for word in ["hca_id:\tmlx5_0", "PORT_ACTIVE", "Ethernet", "::ffff:127.", "RoCE v2"] {
        assert!(seen.contains(word), "{word}: {seen}");
    }
    let by_path = by_hand(&["ibv_devinfo"], &[("LD_LIBRARY_PATH", libraries.path())]).success();
    assert!(by_path.contains("soft0"), "{by_path}");
    let library = libraries.path().join("libibverbs.so.1");
    let by_preload = by_hand(&["ibv_devinfo"], &[("LD_PRELOAD", &library)]).success();
    assert!(by_preload.contains("soft0"), "{by_preload}");
    let without = by_hand(&["ibv_devinfo"], &[]);
    assert!(!format!("{without:?}").contains("soft0"), "{without:?}");
}

#[test]
fn what_is_no_value_of_a_variable_is_told() {
    if !is_installed("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    let mut program = libraries.run(&["--faults", "lost=1%"], &["ibv_devinfo"]);
    let ended = super::support::process::run(&mut program);
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("there is no fault `lost`"), "{ended:?}");
}
