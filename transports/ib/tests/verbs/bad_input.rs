//! What a user gets wrong, or is not allowed: each one clear line.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};
use uct_ib::verbs::{Access, Cq, MrBuffer, Pd, Qp, QpCaps, QpConfig, QpKind};
use uct_ib::{IbError, PortAddress, PortPreferences};

use crate::library::is_skipped_in_software;
use crate::support::{devices, open, verbs};

/// Set in a child that runs one of the cases below without root's rights.
const CHILD: &str = "UCT_IB_TEST_CHILD";

/// Runs a test of this program as nobody.
fn as_nobody(test: &str) {
    let program = std::env::current_exe().expect("a program");
    let output = Command::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .uid(65534)
        .output()
        .expect("the child runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "the child ran nothing: {text}");
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn an_unknown_device_names_those_that_exist() {
    let Some((_turn, names)) = devices() else { return };
    let verbs = verbs().expect("loaded");
    let error = uct_ib::device::open(verbs, "mlx9_9").err().expect("no such device");
    assert_eq!(error.to_string(), format!("no RDMA device `mlx9_9`: there is {}", names.join(", ")));
}

#[test]
fn ports_indices_and_sizes_out_of_range_name_the_range() {
    let Some((_turn, names)) = devices() else { return };
    let device = open(&names[0]);
    let with =
        |preferences| PortAddress::new(&device.context, 1, preferences).expect_err("refused").to_string();
    let error = PortAddress::new(&device.context, 2, PortPreferences::default()).expect_err("refused");
    assert_eq!(error.to_string(), format!("device `{}` has no port 2: its ports are 1 to 1", names[0]));
    let text = with(PortPreferences { gid_index: Some(70_000), ..PortPreferences::default() });
    assert!(text.starts_with("GID index 70000 is out of range"), "{text}");
    let text = with(PortPreferences { gid_index: Some(200), ..PortPreferences::default() });
    assert!(text.contains("::ffff:10.7.0.1") || text.contains("out of range"), "{text}");
    let text = with(PortPreferences { path_mtu: Some(8192), ..PortPreferences::default() });
    assert!(text.contains("path MTU 8192 is more than the active MTU"), "{text}");
}

#[test]
fn queues_that_are_too_long_name_the_limit() {
    let Some((_turn, names)) = devices() else { return };
    let device = open(&names[0]);
    let most = device.context.attr().max_cqe;
    let error = Cq::new(&device.context, 100_000_000, None, 0).err().expect("refused");
    assert!(error.to_string().contains(&format!("the device has at most {most}")), "{error}");

    let pd = Pd::new(&device.context).expect("a domain");
    let cq = Cq::new(&device.context, 16, None, 0).expect("a queue");
    let caps =
        QpCaps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 1 << 20 };
    let config = QpConfig { kind: QpKind::Rc, send_cq: &cq, recv_cq: &cq, srq: None, caps };
    let error = Qp::new(&pd, &config).err().expect("refused");
    assert!(error.to_string().contains("ibv_create_qp"), "{error}");
    let qp = Qp::new_with_inline_up_to(&pd, &config).expect("with less inline data");
    assert!(qp.caps().max_inline >= 64, "{:?}", qp.caps());
}

#[test]
fn a_limit_of_nothing_on_locked_memory_is_explained() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("it locks no memory") {
        return;
    }
    if !is_child() {
        return as_nobody("bad_input::a_limit_of_nothing_on_locked_memory_is_explained");
    }
    let device = open(&names[0]);
    let pd = Pd::new(&device.context).expect("a domain");
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).expect("lowered");
    let error = MrBuffer::new(&pd, 1 << 20, Access::LOCAL_WRITE).err().expect("refused");
    assert!(matches!(error, IbError::Memlock { limit: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("ulimit -l unlimited"), "{error}");
    assert_eq!(error.status(), ucs::Status::NO_MEMORY);
    let error = Pd::new(&device.context).err().expect("a domain that nothing can be registered in");
    assert!(matches!(error, IbError::Memlock { limit: 0, .. }), "{error:?}");
}

#[test]
fn a_device_file_that_may_not_be_opened_is_named() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("it has no file") {
        return;
    }
    let verbs = verbs().expect("loaded");
    if is_child() {
        let error = uct_ib::device::open(verbs, &names[0]).err().expect("refused");
        assert!(matches!(error, IbError::NoPermission { .. }), "{error:?}");
        assert!(error.to_string().starts_with("no permission to open /dev/infiniband/uverbs"), "{error}");
        return;
    }
    let devices = uct_ib::device::devices(verbs).expect("devices");
    let file = format!("/dev/infiniband/{}", devices[0].uverbs_name());
    let mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("chmod");
    mode(0o600);
    let outcome =
        std::panic::catch_unwind(|| as_nobody("bad_input::a_device_file_that_may_not_be_opened_is_named"));
    mode(0o666);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
