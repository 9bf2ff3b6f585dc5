//! What a shell offers behind an option: it loads the script that the program wrote, and the program knows the rest.

use std::path::Path;

use crate::support::process::{command, run};
use crate::support::{self, ended, manager_names, resources};

/// Loads the script and asks as bash does, for the last of the words.
const ASK: &str = r#"
source "$1/uct_perftest.bash"; shift
function=$(complete -p uct_perftest | sed 's/.*-F \([^ ]*\).*/\1/')
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
$function uct_perftest "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// What bash offers for the last word, and what was written to standard error.
fn offered(scripts: &Path, words: &[&str], variables: &[(&str, &str)]) -> (Vec<String>, String) {
    let scripts = scripts.display().to_string();
    let arguments = ["-c", ASK, "bash", &scripts, "uct_perftest"];
    let mut bash = command("bash", &[&arguments[..], words].concat());
    let folder = Path::new(support::PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    bash.current_dir("/").env("PATH", path).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    let ended = run(bash.envs(variables.iter().copied()));
    // Where nothing is offered an empty line is printed.
    let offered = ended.stdout.lines().filter(|line| !line.is_empty());
    (offered.map(str::to_owned).collect(), ended.stderr)
}

#[test]
fn a_shell_completes_transports_devices_keys_and_options() {
    let directory = tempfile::tempdir().unwrap();
    ended(&format!("--generate-completions {}", directory.path().display())).success();
    let offered = |words: &[&str]| {
        let (offered, errors) = offered(directory.path(), words, &[]);
        assert_eq!(errors, "", "{words:?}");
        offered
    };
    let (transports, devices) = (offered(&["-x", ""]), offered(&["-d", ""]));
    for resource in resources() {
        assert!(transports.contains(&resource.transport), "{resource}: {transports:?}");
        assert!(devices.contains(&resource.device), "{resource}: {devices:?}");
    }
    let mut managers = manager_names();
    managers.retain(|name| name != "tcp");
    assert_eq!(offered(&["--by", ""]), managers);
    assert_eq!(offered(&["-x", "sel"]), ["self"]);
    assert_eq!(offered(&["-t", "am_l"]), ["am_lat"]);
    assert_eq!(offered(&["--set", "tcp.tx_seg"]), ["tcp.tx_seg_size="]);
    let options = offered(&["-"]);
    assert!(options.iter().any(|option| option == "--plot"), "{options:?}");
    assert!(!options.iter().any(|option| option.contains("generate")), "{options:?}");
}

#[test]
fn a_wrong_configuration_offers_nothing_and_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    ended(&format!("--generate-completions {}", directory.path().display())).success();
    let wrong = [("UCT_FALLBACK", "maybe")];
    let (names, errors) = offered(directory.path(), &["-x", "sel"], &wrong);
    assert!(!names.iter().any(|name| name == "self") && errors.is_empty(), "{names:?} {errors}");
    // A warning is not for a shell, either.
    let (names, errors) = offered(directory.path(), &["-x", "sel"], &[("UCT_TLS", "tpc")]);
    assert_eq!((names, errors.as_str()), (vec!["self".to_owned()], ""));
}
