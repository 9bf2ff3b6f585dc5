//! Which device programs see, and by what.

use super::support::{Libraries, by_hand, is_installed, process};

#[test]
fn programs_see_the_device_and_without_the_variables_they_do_not() {
    if !is_installed("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    let by_program = libraries.run(&["--name", "mlx5_0"], &["ibv_devinfo", "-v"]);
    let seen = process::run(&mut { by_program }).success();
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
    let ended = process::run(&mut program);
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("there is no fault `lost`"), "{ended:?}");
}

/// perftest and UCX load drivers of adapters, each of which is of one release of the C library.
#[test]
fn drivers_of_each_release_find_what_they_import_by_its_version() {
    let libraries = Libraries::new();
    let mut list = process::command("objdump", &["-T"]);
    let listed = process::run(list.arg(libraries.path().join("libibverbs.so.1"))).success();
    // Address, flags, section, size, version and name; a version that is not the only one of its name is in parentheses.
    let find = |version: &str, name: &str| {
        let line = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        line.filter(|words| words.last() == Some(&name))
            .find(|words| words[words.len() - 2].trim_matches(['(', ')']) == version)
            .map(|words| words[0].to_owned())
    };
    let one = find("IBVERBS_PRIVATE_34", "ibv_query_gid_type");
    for release in ["34", "57", "59", "64"] {
        let version = format!("IBVERBS_PRIVATE_{release}");
        let own = format!("verbs_register_driver_{release}");
        for name in [own.as_str(), "verbs_allow_disassociate_destroy", "ibv_cmd_create_cq_ex2"] {
            assert!(find(&version, name).is_some(), "{name}@{version}: {listed}");
        }
        assert_eq!(find(&version, "ibv_query_gid_type"), one, "{version}");
    }
    assert!(one.is_some() && find("IBVERBS_PRIVATE_58", "ibv_query_gid_type").is_none());
}
