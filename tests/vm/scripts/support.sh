# For the other scripts.

# Ends the test; the host's table has the reason.
fail() {
    echo "$*" >/tmp/failure
    echo "FAILED: $*"
    for file in /tmp/server /tmp/client; do
        [ -f $file ] && sed "s#^#$file: #" $file
    done
    exit 1
}

# Waits until somebody listens on a TCP port.
listening() {
    local hexadecimal
    hexadecimal=$(printf ':%04X' "$1")
    for _ in $(seq 300); do
        grep -q "$hexadecimal 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.1
    done
    fail "nobody listens on port $1"
}

# Waits until a program has printed such a line into a file.
printed() {
    for _ in $(seq 300); do
        grep -q "$1" "$2" && return
        sleep 0.1
    done
    fail "no line of '$1' in $2"
}

# Two processes of uct_hello_world with these options; the server has to receive what the client sent.
hello() {
    local server received expected
    timeout 60 uct_hello_world "$@" >/tmp/server 2>&1 &
    server=$!
    listening 13337
    timeout 60 uct_hello_world -n 127.0.0.1 "$@" >/tmp/client 2>&1 || fail "the client with $*"
    wait $server || fail "the server with $*"
    expected=ABCDEFGHIJKLMNOP
    case "$*" in *"-s 64"*) expected=ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKL ;; esac
    received=$(sed -n 's/^\[callback\] .* sent //p' /tmp/server)
    [ "$received" = "$expected" ] || fail "with $*: the server received '$received', not '$expected'"
}

# The conformance suite with these arguments on rc_verbs and ud_verbs, two halves at a time: a case keeps about one processor busy, and
# ud_verbs takes longer. If UCT_TEST_PART names a part, that one alone.
suites() {
    local first second status=0
    halves rc_verbs ud_verbs "$@" &
    first=$!
    halves ud_verbs rc_verbs "$@" &
    second=$!
    wait $first || status=1
    wait $second || status=1
    return $status
}

# One half of the suite on the first transport, then the other half on the second; or its part on the first.
halves() {
    local status=0
    if [ -n "$UCT_TEST_PART" ]; then
        suite "$1" "${@:3}"
        return
    fi
    UCT_TEST_PART=1/2 suite "$1" "${@:3}" || status=1
    UCT_TEST_PART=2/2 suite "$2" "${@:3}" || status=1
    return $status
}

suite() {
    local transport=$1
    shift
    export UCT_TEST_TRANSPORTS=$transport UCT_TEST_REQUIRE=$transport
    /usr/lib/uct/tests/conformance "$@" 2>&1 |
        while IFS= read -r line || [ -n "$line" ]; do
            echo "$transport: $line"
        done
    return "${PIPESTATUS[0]}"
}
