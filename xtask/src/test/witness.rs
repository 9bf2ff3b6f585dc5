//! The step that compares the verbs structures of `transports/ib/abi` with rdma-sys, which has bindgen make them of the system's C
//! headers. It alone needs those headers and libclang: where they cannot be had it is skipped.
//! Built on cargo; used by `test`.

use crate::apt::{self, Package};
use crate::failure::Outcome;
use crate::process::{cargo, run};
use crate::steps::Verdict;
use crate::workspace::{BUILD_LIMIT, Workspace};

const PACKAGES: &[Package] = &[
    Package { name: "pkg-config", brings: "/usr/bin/pkg-config" },
    Package { name: "libibverbs-dev", brings: "/usr/include/infiniband/verbs.h" },
    Package { name: "librdmacm-dev", brings: "/usr/include/rdma/rdma_cma.h" },
    Package { name: "libclang1-14", brings: "/usr/lib/llvm-14/lib/libclang-14.so.1" },
    Package { name: "libclang-common-14-dev", brings: "/usr/lib/clang/14" },
];

/// Runs the comparison. With the whole workspace's features and that of one package, so that only this package is built again.
pub fn run_or_skip(workspace: &Workspace) -> Outcome<Verdict> {
    if let Err(failure) = apt::require(PACKAGES) {
        return Ok(Verdict::Impossible(failure.to_string()));
    }
    let mut test = cargo();
    test.args(["test", "--workspace", "--features", "uct-ib-abi/rdma-sys"]);
    test.args(["--test", "witness", "--test", "functions"]).current_dir(workspace.root());
    // rdma-sys builds with libclang 14 alone, and others may be installed.
    test.env("LIBCLANG_PATH", "/usr/lib/llvm-14/lib").env("UCT_TEST_REQUIRE", "verbs-header");
    run(&mut test, BUILD_LIMIT).map(|()| Verdict::Passed)
}
