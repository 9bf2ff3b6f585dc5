//! Two copies of the library in one process, loaded and unloaded by a host program.

use std::fs;
use std::process::Command;

use crate::compiled::{Place, library, run};

/// Each copy opens a net; the handles of one are none of the other's; what is unloaded stays.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <uct.h>

typedef union { void *object; uct_net *(*open)(const uct_options *); int (*close)(uct_net *); const char *(*error)(uct_net *, uct_op);
                uct_op (*listen)(uct_net *, const char *, const uct_options *, uint64_t);
                int (*wait)(uct_net *, uct_op, int64_t, uct_event *); } symbol;

static symbol find(void *library, const char *name) {
    symbol found;
    found.object = dlsym(library, name);
    return found;
}

int main(int argc, char **argv) {
    void *library[2];
    uct_net *net[2];
    int i;
    if (argc != 3) return 2;
    for (i = 0; i < 2; i++) {
        library[i] = dlopen(argv[i + 1], RTLD_NOW | RTLD_LOCAL);
        if (!library[i]) return fprintf(stderr, "%s\n", dlerror()), 3;
        net[i] = find(library[i], "uct_net_open").open(NULL);
        if (!net[i]) return fprintf(stderr, "%s\n", find(library[i], "uct_error").error(NULL, 0)), 4;
    }
    if (find(library[0], "uct_net_open").object == find(library[1], "uct_net_open").object) return 5;
    for (i = 0; i < 2; i++) {
        uct_op op = find(library[i], "uct_listen").listen(net[i], "127.0.0.1:0", NULL, 0);
        if (find(library[i], "uct_wait").wait(net[i], op, -1, NULL) != UCT_OK) return 6;
        if (find(library[i], "uct_net_close").close(net[1 - i]) != UCT_ERR_INVALID_PARAM) return 7;
        printf("%s\n", find(library[i], "uct_error").error(NULL, 0));
    }
    for (i = 0; i < 2; i++) {
        symbol close = find(library[i], "uct_net_close");
        /* The library stays: its function may be called. */
        dlclose(library[i]);
        if (close.close(net[i]) != UCT_OK) return 8;
    }
    return 0;
}
"#;

#[test]
fn two_copies_in_one_process_know_nothing_of_each_other() {
    let place = Place::new();
    let Some(program) = place.compile_text("copies", PROGRAM) else { return };
    // With names and files of their own: a process loads a file, and a name, once.
    let copies = ["one.so", "two.so"].map(|name| place.path().join(name));
    for copy in &copies {
        fs::copy(library(), copy).expect("a copy");
    }
    let printed = run(Command::new(program).args(&copies));
    assert_eq!(printed.matches("no net has this handle").count(), 2, "{printed}");
}
