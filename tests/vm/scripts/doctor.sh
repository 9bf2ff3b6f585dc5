#!/bin/bash
# doctor.sh: what `uct_info --doctor` finds is gone after its own remedy.
. "${0%/*}/support.sh"

echo 'nobody:x:65534:65534:nobody:/tmp:/bin/bash' >>/etc/passwd
chmod 1777 /tmp
user=

# doctor: the report for root, or for nobody.
doctor() {
    case $user in
    nobody) su -s /bin/bash nobody -c "${limits:-:}; UCT_MODULE_DIR=$UCT_MODULE_DIR PATH=$PATH exec uct_info --doctor" ;;
    *) uct_info --doctor ;;
    esac >/tmp/client 2>&1
}

# The modules of the guest have numbers for names, and no list: as the real one, for one module.
modprobe() { insmod /modules/*-"$1".ko; }

# found WORDS COMMAND: there is a finding with these words, whose remedy has this command.
found() {
    doctor
    grep -E -A1 "^(OBSTACLE|LIMIT|ABSENT) .*($1)" /tmp/client >/tmp/found || fail "no finding '$1'"
    grep -qF -- "$2" /tmp/found || fail "the remedy of '$1' has no '$2'"
    echo "found: $(cat /tmp/found)"
}

# gone WORDS: nothing with these words is found any more, for some seconds at most, as links take a while.
gone() {
    for _ in $(seq 50); do
        doctor
        grep -qE "^(OBSTACLE|LIMIT|ABSENT) .*($1)" /tmp/client || return 0
        sleep 0.2
    done
    fail "'$1' is still found"
}

# remedy WORDS COMMAND: the command of the remedy removes the finding.
remedy() {
    found "$1" "$2"
    eval "$2" || fail "the remedy '$2' failed"
    gone "$1"
}

doctor || fail "a machine where all is well"
gone 'verbs|rdmacm|cma'

uverbs=/dev/infiniband/uverbs0
cm=/dev/infiniband/rdma_cm
rmmod rdma_ucm
remedy "$cm cannot be opened" 'modprobe rdma_ucm'
rm $cm $uverbs
remedy "$cm cannot be opened" "mknod -m 666 $cm c $(tr : ' ' </sys/class/misc/rdma_cm/dev)"
remedy "$uverbs cannot be opened" "mknod -m 666 $uverbs c $(tr : ' ' </sys/class/infiniband_verbs/uverbs0/dev)"
gone 'shows none of'

ip link set eth0 down
remedy 'is not active' 'ip link set eth0 up'
gone 'no link'
ip link set eth0 mtu 1500
remedy 'bytes of payload' 'ip link set eth0 mtu 4200'
ip link set eth0 mtu 4500

# The package is taken away, not the device: that there is none would be wrong.
mkdir /tmp/providers
mv /usr/lib/x86_64-linux-gnu/libibverbs/* /tmp/providers
found 'shows none of the kernel.s RDMA devices: mlx5_0' 'install the package ibverbs-providers'
mv /tmp/providers/* /usr/lib/x86_64-linux-gnu/libibverbs
gone 'shows none of'

echo never >/sys/kernel/mm/transparent_hugepage/enabled
remedy 'no huge pages' 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled'
echo never >/sys/kernel/mm/transparent_hugepage/enabled
remedy 'no huge pages' 'sysctl vm.nr_hugepages=512'
sysctl vm.nr_hugepages=0
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled

user=nobody
chmod 600 $uverbs $cm
remedy "$uverbs cannot be opened" "chmod 666 $uverbs"
remedy "$cm cannot be opened" "chmod 666 $cm"
limits='ulimit -l 0'
found 'bytes of memory may be locked' 'memlock unlimited'
limits='ulimit -l unlimited'
gone 'may be locked|RLIMIT_MEMLOCK'
limits=
echo 1 >/proc/sys/kernel/yama/ptrace_scope
found 'ptrace_scope is 1' 'UCT_CMA_PTRACER=y'
limits='export UCT_CMA_PTRACER=y'
gone 'ptrace_scope'
limits=
remedy 'ptrace_scope is 1' 'sysctl kernel.yama.ptrace_scope=0'
echo 2 >/proc/sys/kernel/yama/ptrace_scope
remedy 'ptrace_scope permits no process' 'sysctl kernel.yama.ptrace_scope=0'

user=
rdma link del mlx5_0
found 'the kernel has no RDMA device' 'rdma link add rxe0 type rxe netdev NETDEV'
rdma link add rxe0 type rxe netdev eth0 || fail 'the remedy for a machine without a device'
gone 'no RDMA device|not active'
